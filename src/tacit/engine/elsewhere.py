"""What engines have in common whose rows are elsewhere: on a device, on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from tacit.engine.engine import Engine, LatticeSum, loss_counts


class EngineElsewhere:
    """An engine beside one without rows, which knows all public facts: shapes, lattices, refusals.

    Parameters
    ----------
    hollow : Engine
        Of the same loss and settings, and no rows.
    n : int
        Rows that are elsewhere.
    arithmetic : str
        In which they are summed.
    """

    #: As those of `Engine`; an engine says how it takes them.
    gradient_sums: ClassVar[Callable[..., list[LatticeSum]]]
    row_sum: ClassVar[Callable[..., np.ndarray]]

    def __init__(self, hollow: Engine, n: int, arithmetic: str) -> None:
        self._hollow, self.n, self.arithmetic = hollow, n, arithmetic
        self.d, self.loss = hollow.d, hollow.loss
        self.split, self.parts, self.unit = hollow.split, hollow.parts, hollow.unit

    @property
    def outputs(self) -> int | None:
        """Columns of the targets; None for classes."""
        return self._hollow.outputs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def gradient_sum(self, weights: np.ndarray, clip: float | np.ndarray, **how: Any) -> LatticeSum:
        """As `Engine.gradient_sum`."""
        (total,) = self.gradient_sums(weights, [clip], **how)
        return total

    def loss_sum(self, weights: np.ndarray, ceiling: float) -> np.ndarray:
        """As `Engine.loss_sum`."""
        return self.row_sum(weights, loss_counts(self.loss, ceiling))
