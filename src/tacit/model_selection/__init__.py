"""Settings chosen by private trials."""

from tacit.model_selection.dp_search import DPSearch

__all__ = ["DPSearch"]
