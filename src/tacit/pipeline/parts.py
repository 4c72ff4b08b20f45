"""What a step may become, in the words that all modules of this package share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.pipeline.frames import Frame
from tacit.plan.defaults import resolve_loss
from tacit.preprocessing import ClipNorm, Stage

#: Of mu, for one private stage. The least takes half a per cent from training, so less would
#: save nothing and leave more noise in the scales than there need be.
LEAST_SHARE, MOST_SHARE = 0.1, 0.7


@dataclass(frozen=True)
class Choice:
    """What became of one step.

    Attributes
    ----------
    step : str
        Name and class of the step.
    chosen : str
        The stages that stand for it, or what is done instead.
    why : str
        In words.
    alternatives : tuple of (str, str)
        Its rivals, and what they would have cost or why they are out of the question.
    """

    step: str
    chosen: str
    why: str
    alternatives: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Given:
    """What the user declared, and the steps in front."""

    bounds: Stage | None  # none yet where it is a ColumnTransformer that comes first
    public: Any = None
    target_bounds: Any = None
    rows_with_gaps: int | None = None
    median_change: float | None = None
    gap: float | None = None
    before: tuple[str, ...] = ()
    declared: Any = None  # bounds as they were given
    categories: Mapping[str, Any] | None = None
    row_wise: Mapping[Any, Any] | None = None
    frame: Frame | None = None  # names and types of columns, once rows are there
    size: int = 0  # the same: their number, and the Gaussian budget
    mu: float = 0.0

    def lacks(self, *names: str) -> str:
        """Those of the named declarations that were not made."""
        return " and ".join(f"{name}=" for name in names if getattr(self, name) is None)


@dataclass(frozen=True)
class Place:
    """Public facts of the place where a stage will stand."""

    n: int
    d: int
    bound: float
    typical: float
    moved: float  # how far noiseless stages in front move the other rows, in all
    unit: float
    mu: float

    @property
    def stir(self) -> float:
        """How many times as much noise rows that drifted bring, at most."""
        return 1 + self.moved / self.typical

    def share(self, what: str, noise: float) -> float:
        """The part of mu that keeps a stage's noise multiplier within ``noise``."""
        share = max(LEAST_SHARE, self.unit * self.stir / (self.mu * noise))
        if share > MOST_SHARE:
            raise InputError(
                f"{what} of {self.d} columns cannot be known well enough from {self.n} rows: that "
                f"would take {share:.2g} of the budget, and {MOST_SHARE:g} is the most. More rows, "
                "a larger epsilon, fewer columns or public= would help"
            )
        return share

    def tight(self) -> list[Stage]:
        """What brings rows back to their usual scale, if their proven bound is far off."""
        loose = self.bound > self.typical * (1 + 1e-6)
        return [ClipNorm(self.typical)] if loose else []


@dataclass(frozen=True)
class Option:
    """One counterpart of a step; ``needs`` names declarations without which it cannot be had."""

    name: str
    build: Callable[[Place], list[Stage]]
    note: str
    noiseless: bool = False
    needs: str = ""


@dataclass(frozen=True)
class Part:
    """A step with its counterparts, the preferred first, and those that cannot be had."""

    step: str
    options: tuple[Option, ...]
    missing: tuple[tuple[str, str], ...] = ()
    note: str = ""

    @classmethod
    def of(cls, step: str, *options: Option, note: str = "") -> Self:
        able = tuple(option for option in options if not option.needs)
        missing = [(option.name, f"it needs {option.needs}") for option in options if option.needs]
        return cls(step, able, tuple(missing), note)

    @classmethod
    def nothing(cls, step: str, note: str) -> Self:
        return cls.of(step, Option("nothing", lambda place: [], note))


@dataclass(frozen=True)
class Last:
    """The counterpart of the last step."""

    step: str
    task: str
    loss: str | Loss
    smooth: str | Loss  # the loss behind noiseless stages
    alpha: Callable[[int], float]
    fit_intercept: bool
    note: str

    def loss_for(self, classes: int, *, noiseless: bool) -> Loss:
        return resolve_loss(self.smooth if noiseless else self.loss, classes)


def refusal(step: str, what: str, advice: str) -> InputError:
    """A step without a counterpart, because of ``what`` unless that is empty."""
    which = f"{step} with {what}" if what else step
    return InputError(f"{which} has no private counterpart: {advice}")
