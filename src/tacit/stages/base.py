"""What every stage has in common.

A stage looks at the data in one of four ways, its *kind*: ``free`` (never),
``public`` (at other, public rows), ``private`` (through noise, as an event),
``plain`` (exactly, which makes everything after it more sensitive). Fitted, it
is a row-wise map; an affine one folds into the model's coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Chunk, Rows, as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.noise import Key
from tacit.privacy.events import Event

__all__ = [
    "Context",
    "Kind",
    "PrivateStage",
    "Stage",
    "densify",
    "require_count",
    "require_positive",
]

Kind = Literal["free", "public", "private", "plain"]


@dataclass(frozen=True)
class Context:
    """What a stage is told when it is fitted inside a plan.

    Attributes
    ----------
    size : int
        The public normaliser: the number of rows, or a stand-in for it.
    key : Key
        Where randomness comes from.
    noise_multiplier : float or None
        For private stages, as calibrated.
    before : tuple of Stage
        The fitted stages in front, which public rows must pass as well.
    position : int
        Place in the plan; it keeps the randomness of two stages apart.
    """

    size: int
    key: Key = field(default_factory=Key.fresh)
    noise_multiplier: float | None = None
    before: tuple[Stage, ...] = ()
    position: int = 0


@dataclass
class Stage:
    """A step before training. Subclasses say how they pay, and map rows.

    `fit` sets attributes that end in an underscore and returns the stage; a
    plan fits copies, so the stages passed to an estimator stay as they were.
    """

    kind: ClassVar[Kind]
    #: Whether the map is affine, so that `fold` can carry coefficients back through it.
    affine: ClassVar[bool] = False
    #: Parameters that are data rather than settings: never written to a file.
    unsaved: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    def width(self, d: int) -> int:
        """Columns out, for d columns in. Public: never depends on private rows."""
        return d

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        """Norm bound of the rows out, for rows of norm at most ``radius`` in."""
        raise TypeError(f"{self.name} does not say how it bounds rows")

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        """Scale of the rows out, for choosing settings: the bound, unless that is far off."""
        return self.bound(radius, d)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        """Learn what the map needs; nothing, unless overridden."""
        as_rows(rows)
        return self

    def apply(self, chunk: Chunk) -> Chunk:
        """Map one chunk, each row by itself."""
        raise TypeError(f"{self.name} does not map rows")

    def through(self, rows: Rows) -> Rows:
        """``rows`` seen through this stage, with their new width and bound."""
        return rows.through(self, d=self.width(rows.d), bound=self.bound(rows.bound, rows.d))

    def transform(self, rows: Any) -> Any:
        """Map rows of any kind; what is given as `Rows` stays lazy."""
        seen = self.through(as_rows(rows))
        return seen if isinstance(rows, Rows) else seen.collect()

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) on rows out, rewritten for rows in."""
        raise TypeError(f"{self.name} is not affine")

    def note(self) -> str:
        """One sentence for the certificate: how this stage pays."""
        return ""

    def parameters(self) -> dict[str, Any]:
        """Settings as plain JSON values."""
        names = [item.name for item in fields(self) if item.name not in self.unsaved]
        return {name: _plain(getattr(self, name)) for name in names}

    def arrays(self) -> dict[str, np.ndarray]:
        """What was fitted, for a model file."""
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_")}
        return {k: np.asarray(v) for k, v in fitted.items() if v is not None}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """A fitted stage from `parameters` and `arrays`."""
        stage = cls(**parameters)
        for name, value in arrays.items():
            setattr(stage, name, value if value.ndim else value.item())
        return stage

    def _require(self, attribute: str) -> Any:
        if not hasattr(self, attribute):
            raise InputError(f"{self.name} is not fitted yet; call fit first")
        return getattr(self, attribute)


@dataclass
class PrivateStage(Stage):
    """A stage that looks at the private rows through Gaussian noise.

    Parameters
    ----------
    share : float
        Part of the plan's μ, its Gaussian budget, spent here: 0.1 takes one per
        cent of μ² from the training.
    noise_multiplier : float, optional
        Noise in contributions of one row, instead of a share.
    """

    share: float = 0.1
    noise_multiplier: float | None = None
    kind: ClassVar[Kind] = "private"

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not 0 < self.share < 1:
            raise InputError(f"{self.name}: share must lie between 0 and 1, not {self.share!r}")
        if self.noise_multiplier is not None:
            require_positive(self, "noise_multiplier")

    def event(self, noise_multiplier: float) -> Event:
        """What fitting costs, given its noise. There is no private stage without one."""
        raise TypeError(f"{self.name} does not say what it costs")

    def draws(self, d: int) -> int:
        """How many noise values it draws, for d columns in."""
        raise TypeError(f"{self.name} does not say how much noise it draws")


def require_positive(stage: Stage, name: str) -> None:
    value = getattr(stage, name)
    if isinstance(value, bool) or not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise InputError(f"{stage.name}({name}={value!r}): {name} must be a positive number")


def require_count(stage: Stage, name: str) -> int:
    value = getattr(stage, name)
    if isinstance(value, bool) or not (isinstance(value, Integral) and int(value) >= 1):
        raise InputError(
            f"{stage.name}({name}={value!r}): {name} must be at least 1, a whole number"
        )
    return int(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value


def densify(chunk: Chunk) -> np.ndarray:
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)
