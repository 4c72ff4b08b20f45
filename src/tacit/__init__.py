"""Differentially private linear learning in which the whole pipeline is counted.

>>> from tacit import DPLinearClassifier
>>> DPLinearClassifier(epsilon=1.0, delta=1e-5)
DPLinearClassifier()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.estimators import DPLinearClassifier, DPLinearRegressor
    from tacit.ledger import Ledger
    from tacit.median import DPGeometricMedian
    from tacit.models import load, save
    from tacit.pipelines import privatize
    from tacit.privacy import Budget, Certificate
    from tacit.recipes import recipe
    from tacit.tuning import DPSearchCV

__version__ = "0.2.0"

# Loaded when first used: `import tacit` stays as light as a script that only reads a certificate.
_HOMES = {
    "Budget": "tacit.privacy",
    "Certificate": "tacit.privacy",
    "DPGeometricMedian": "tacit.median",
    "DPLinearClassifier": "tacit.estimators",
    "DPLinearRegressor": "tacit.estimators",
    "DPSearchCV": "tacit.tuning",
    "Ledger": "tacit.ledger",
    "load": "tacit.models",
    "privatize": "tacit.pipelines",
    "recipe": "tacit.recipes",
    "save": "tacit.models",
}

__all__ = [
    "Budget",
    "Certificate",
    "DPGeometricMedian",
    "DPLinearClassifier",
    "DPLinearRegressor",
    "DPSearchCV",
    "Ledger",
    "load",
    "privatize",
    "recipe",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in (
        "stages",
        "trainers",
        "losses",
        "theory",
        "instances",
        "privacy",
        "mechanisms",
        "ledger",
        "data",
        "features",
        "pipelines",
        "report",
    ):
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
