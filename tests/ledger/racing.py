"""Sampled plans reserved by several processes at once: run by test_composed.py."""

from __future__ import annotations

import random
from typing import Any

from tacit.exceptions import BudgetError
from tacit.ledger import Ledger
from tacit.privacy import PoissonGaussian


def race(url: str, seed: int, results: Any) -> None:
    """Reserve four plans of different kinds, and tell what came of each."""
    chance, ledger = random.Random(seed), Ledger(url, "a", timeout=60)
    for _ in range(4):
        event = PoissonGaussian(chance.uniform(8.0, 30.0), 20, 0.1)
        try:
            held = ledger.reserve([("x", event)], neighbors="replace_special")
            results.put(("held", held.id))
        except BudgetError:
            results.put(("refused", ""))
