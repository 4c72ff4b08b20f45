"""``tacit demo``: a model of the bundled census table, end to end."""

from __future__ import annotations

from pathlib import Path

from tacit.cli.console import Json
from tacit.cli.fit import report
from tacit.cli.options import Delta, Epsilon, Force, Out, Quiet, Seed
from tacit.cli.settings import Settings

OUT = Path("tacit-demo")


def demo(
    *,
    out: Out = OUT,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    seed: Seed = None,
    quiet: Quiet = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a model to the bundled census table, end to end.

    Who earns more than 50,000 dollars a year? 32,561 rows to learn from, 16,281 to test on.

    \b
    Example:
      tacit demo --epsilon 0.5
    """
    from tacit.datasets import load_adult

    train, test, facts = load_adult()
    files = {"schema": facts, "test": test, "out": out, "force": force or out == OUT}
    # The rows are public: they may be compared with.
    report(seed, quiet, as_json, train, Settings(epsilon, delta), baseline=True, **files)
