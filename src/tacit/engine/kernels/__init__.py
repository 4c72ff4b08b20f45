"""Compiled loops that the engine multiplies with, where they are at hand."""
