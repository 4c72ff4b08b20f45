"""Differentially private linear learning in which the whole pipeline is counted.

>>> from tacit import DPLinearClassifier
>>> DPLinearClassifier(epsilon=1.0, delta=1e-5)
DPLinearClassifier(epsilon=1.0, delta=1e-05)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.ledger import Ledger
    from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
    from tacit.model_selection.dp_search import DPSearch
    from tacit.persistence import load, save
    from tacit.pipeline import privatize
    from tacit.plan.recipes import recipe
    from tacit.privacy import Budget, Certificate

__version__ = "0.2.0"

# Loaded when first used: `import tacit` stays as light as a script that only reads a certificate.
_HOMES = {
    "Budget": "tacit.privacy",
    "Certificate": "tacit.privacy",
    "DPLinearClassifier": "tacit.linear_model",
    "DPLinearRegressor": "tacit.linear_model",
    "DPSearch": "tacit.model_selection.dp_search",
    "Ledger": "tacit.ledger",
    "load": "tacit.persistence",
    "privatize": "tacit.pipeline",
    "recipe": "tacit.plan.recipes",
    "save": "tacit.persistence",
}

_SUBMODULES = (
    "audit",
    "data",
    "datasets",
    "diagnostics",
    "engine",
    "exceptions",
    "features",
    "ledger",
    "linear_model",
    "losses",
    "mechanisms",
    "metrics",
    "model_selection",
    "networks",
    "persistence",
    "pipeline",
    "plan",
    "preprocessing",
    "privacy",
    "report",
    "research",
    "trainers",
)

__all__ = [
    "Budget",
    "Certificate",
    "DPLinearClassifier",
    "DPLinearRegressor",
    "DPSearch",
    "Ledger",
    "load",
    "privatize",
    "recipe",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _SUBMODULES:
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_HOMES, *_SUBMODULES, *(name for name in globals() if name.startswith("__"))})
