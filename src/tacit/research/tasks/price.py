"""What a stage without noise costs, and a picture of it."""

from __future__ import annotations

from typing import Any

from tacit.cli.tasks.outputs import PathLike
from tacit.research.price import Price
from tacit.research.price import price as price_of
from tacit.research.price.show import plot_price


def price(
    stage: str,
    *,
    base_epsilon: float | None = None,
    epsilon: float | None = None,
    plot: PathLike | None = None,
    **given: Any,
) -> Price:
    """What a stage without noise costs; ``plot`` draws it for budgets around the one asked."""
    found = price_of(stage, base_epsilon=base_epsilon, epsilon=epsilon, **given)
    if plot is not None:
        start = found.base_epsilon or base_epsilon or 1.0
        around = [start * 10 ** (k / 8) for k in range(-8, 9)]
        plot_price([price_of(stage, base_epsilon=base, **given) for base in around], plot)
    return found
