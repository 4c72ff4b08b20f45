"""The same, computed again by another route."""
