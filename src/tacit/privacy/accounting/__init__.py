"""What events cost together."""
