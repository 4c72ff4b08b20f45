"""A certificate and its results, for a person to read: one HTML page, or text."""

from tacit.report.html import render_html
from tacit.report.text import plain_text, render_text

__all__ = ["plain_text", "render_html", "render_text"]
