"""The command line."""

from tacit.cli.main import app, main

__all__ = ["app", "main"]
