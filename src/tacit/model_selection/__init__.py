"""Settings chosen by private trials."""

from tacit.model_selection.dp_search import DPSearchCV

__all__ = ["DPSearchCV"]
