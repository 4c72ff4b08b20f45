"""What is found out about targets, through noise: which labels occur, how far numbers reach.

A plan may begin with one of these. It is an event like that of a private stage, counted with all
others; what it finds is public from then on. Steps and noise of training were fixed before, so
nothing that is counted depends on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.cells import as_float, plain
from tacit.exceptions import InputError, of_rows
from tacit.losses import Loss
from tacit.mechanisms.bounds import bounds_draws, bounds_rows, bounds_spare, noisy_bounds
from tacit.mechanisms.histogram import MOST_KEYS, key_failure, key_rows, noisy_keys
from tacit.mechanisms.release import Token
from tacit.privacy.events import Event, Failure, Gaussian

LEAST_SHARE, LARGEST_SHARE = 0.05, 0.3  # of μ
FEW = 0.005  # of the rows, that may be of a label that is not seen, or beyond a bound
BLOCK = 1 << 18
NUMBER, WORD = "#'"  # marks of labels whose type says nothing
LARGEST = 1e100  # of a target: coefficients are multiplied by it


@dataclass(frozen=True)
class TargetFacts:
    """What was released of the targets.

    Attributes
    ----------
    classes : ndarray or None
        Labels, sorted.
    bounds : (float, float) or None
        Limits of numbers, which are mapped to [-1, 1].
    """

    classes: np.ndarray | None = None
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class FoundTarget:
    """What was found, and the targets as the loss takes them.

    Attributes
    ----------
    targets : ndarray of shape (n,) or (n, K)
        For training. Private.
    gone : ndarray of bool, of shape (n,), or None
        Rows whose label was not found, which count nothing. Private.
    outputs : int
        Scores per row, K.
    classes : ndarray or None
        Labels, sorted.
    bounds : (float, float) or None
        Limits of numbers, which are mapped to [-1, 1].
    """

    targets: np.ndarray
    outputs: int
    gone: np.ndarray | None = None
    classes: np.ndarray | None = None
    bounds: tuple[float, float] | None = None

    @property
    def facts(self) -> TargetFacts:
        """What of it may be kept: what was released."""
        return TargetFacts(self.classes, self.bounds)

    def describe(self) -> dict[str, Any]:
        """What a certificate says of it: what was released."""
        if self.classes is not None:
            return {"classes": [str(label) for label in self.classes.tolist()]}
        return {"target_bounds": list(self.bounds or ())}


@dataclass(frozen=True)
class TargetFinder(ABC):
    """A first step of a plan, which looks at the targets through noise.

    Parameters
    ----------
    share : float or "auto"
        Part of the plan's μ that is spent here; by the number of rows.
    """

    share: float | str = "auto"
    fails: ClassVar[bool] = False
    task: ClassVar[str]

    def __post_init__(self) -> None:
        given = self.share
        if given != "auto" and (isinstance(given, bool | str) or not 0 < given < 1):
            raise InputError(f"{self.name}: share must lie between 0 and 1, not {given!r}")

    @property
    def name(self) -> str:
        """Name of its class."""
        return type(self).__name__

    def resolve(self, size: int, mu: float) -> Self:
        """The same with a share, by the number of rows and μ per unit of sensitivity."""
        if self.share != "auto":
            return self
        needed = self.unseen(1 / mu, size) / (FEW * size)
        return replace(self, share=min(max(needed, LEAST_SHARE), LARGEST_SHARE))

    def noise(self, mu: float) -> float:
        """Noise multiplier, for μ per unit of sensitivity."""
        return 1 / (float(self.share) * mu)

    def event(self, noise_multiplier: float) -> Event:
        """What it costs."""
        return Gaussian(noise_multiplier)

    def failure(self, probability: float, noise_multiplier: float) -> Failure:
        """What may fail, if it does."""
        return key_failure(noise_multiplier, 1, probability)

    @abstractmethod
    def unseen(self, noise_multiplier: float, size: int) -> float:
        """About how many rows noise hides."""

    @abstractmethod
    def draws(self) -> int:
        """Noise values that it draws at most."""

    @abstractmethod
    def outputs(self, loss: Loss) -> int:
        """Most scores per row."""

    @abstractmethod
    def require_rows(self, size: int, noise_multiplier: float, failure: float) -> None:
        """Refuse, before anything is spent, rows that are too few."""

    @abstractmethod
    def find(
        self,
        targets: Any,
        loss: Loss,
        token: Token,
        *,
        size: int,
        counted: bool,
        voting: Any = slice(None),
    ) -> FoundTarget:
        """Look, through noise; ``voting`` are those that count, one of every person."""

    @abstractmethod
    def assumption(self) -> str:
        """What the certificate says of it."""


@dataclass(frozen=True)
class PrivateClasses(TargetFinder):
    """Labels that enough rows have, by a noisy histogram behind a threshold.

    Rows of other labels count nothing in training, and are never predicted.

    Parameters
    ----------
    share : float or "auto"
        Part of the plan's μ.
    most : int
        Labels that are kept, those of the largest noisy counts.
    expected : int
        Labels that are expected, for choosing settings.

    Examples
    --------
    >>> PrivateClasses().resolve(size=10_000, mu=0.3).share
    0.3
    """

    most: int = 64
    expected: int = 2
    fails: ClassVar[bool] = True
    task: ClassVar[str] = "classification"

    def unseen(self, noise_multiplier: float, size: int) -> float:
        return key_rows(noise_multiplier, 1, 1e-7, size)

    def draws(self) -> int:
        return MOST_KEYS

    def outputs(self, loss: Loss) -> int:
        return loss.outputs(self.most)

    def require_rows(self, size: int, noise_multiplier: float, failure: float) -> None:
        needed = math.ceil(4 * key_rows(noise_multiplier, 1, failure, size))
        if size < needed:
            raise InputError(
                f"{size:,} rows are too few to find the labels through this noise, which takes "
                f"about {needed:,}: list them as classes=[...], or raise epsilon. Nothing was "
                "spent"
            )

    def find(
        self,
        targets: Any,
        loss: Loss,
        token: Token,
        *,
        size: int,
        counted: bool,
        voting: Any = slice(None),
    ) -> FoundTarget:
        labels = np.asarray(targets)
        values, codes = np.unique(_texts(labels), return_inverse=True)
        words = [str(word) for word in values.tolist()]
        counts = np.bincount(codes.reshape(-1)[voting], minlength=len(words))
        here = {word: int(n) for word, n in zip(words, counts, strict=True) if word and n}
        (found,) = noisy_keys(
            [here],
            lambda chunk: [chunk],
            1,
            token,
            size=size,
            probability=token.failure,
            most=self.most,
        )
        classes, order = np.unique(_typed(found, labels.dtype), return_inverse=True)
        if len(classes) < 2:
            raise of_rows(
                InputError(
                    f"{len(classes)} labels were found through noise, and two are needed: list "
                    "them as classes=[...], or raise epsilon. The budget of finding them is spent"
                )
            )
        place = dict(zip(found, order.tolist(), strict=True))
        index = np.array([place.get(word, -1) for word in words])[codes.reshape(-1)]
        outputs = loss.outputs(len(classes))
        encoded = loss.targets(np.maximum(index, 0), outputs)
        return FoundTarget(encoded, outputs, gone=index < 0, classes=classes)

    def assumption(self) -> str:
        return (
            "the set of labels was found through noise; one that a single row has is seen with the "
            "probability that is counted"
        )


@dataclass(frozen=True)
class PrivateTargetBounds(TargetFinder):
    """Limits of a target that is a number, by private quantiles near its ends.

    Parameters
    ----------
    share : float or "auto"
        Part of the plan's μ.

    Examples
    --------
    >>> PrivateTargetBounds().resolve(size=1_000_000, mu=0.3).share
    0.05
    """

    task: ClassVar[str] = "regression"

    def unseen(self, noise_multiplier: float, size: int) -> float:
        return bounds_spare(1, noise_multiplier, gaps=True)

    def draws(self) -> int:
        return bounds_draws(1, gaps=True)

    def outputs(self, loss: Loss) -> int:
        return 1

    def require_rows(self, size: int, noise_multiplier: float, failure: float) -> None:
        needed = bounds_rows(1, noise_multiplier, gaps=True)
        if size < needed:
            raise InputError(
                f"{size:,} rows are too few to find the limits of the target through this noise, "
                f"which takes about {needed:,}: pass target_bounds=(low, high), or raise epsilon. "
                "Nothing was spent"
            )

    def find(
        self,
        targets: Any,
        loss: Loss,
        token: Token,
        *,
        size: int,
        counted: bool,
        voting: Any = slice(None),
    ) -> FoundTarget:
        values = np.asarray(targets, dtype=np.float64).reshape(-1, 1)
        voted = values[voting]
        chunks = [voted[i : i + BLOCK] for i in range(0, max(len(voted), 1), BLOCK)]
        how: dict[str, Any] = {"size": size, "counted": counted, "gaps": True}
        found = noisy_bounds(chunks, 1, token, **how)
        low, high = (min(max(float(end[0]), -LARGEST), LARGEST) for end in found)
        middle, half = low / 2 + high / 2, max(high / 2 - low / 2, 1 / LARGEST)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.clip((np.clip(values[:, 0], low, high) - middle) / half, -1.0, 1.0)
        scaled = np.nan_to_num(scaled)  # a target that is missing is in the middle
        return FoundTarget(loss.targets(scaled, 1), 1, bounds=(middle - half, middle + half))

    def assumption(self) -> str:
        return "the limits of the target were found through noise"


def _texts(labels: np.ndarray) -> np.ndarray:
    """Labels as text, each by itself; empty where one is missing."""
    if labels.dtype.kind in "biu":
        return labels.astype(str)
    if labels.dtype.kind == "f":
        return np.array(["" if math.isnan(x) else repr(x) for x in labels.tolist()], dtype=str)
    return np.array([_text(label) for label in labels.tolist()], dtype=str)


def _text(label: Any) -> str:
    """A label of any kind, with a mark in front that says whether it is a number."""
    number = isinstance(label, Real | np.bool_)
    with suppress(Exception):  # whatever an object does when it is looked at
        text = str(plain(as_float(label))) if number else str(label)
        if label is not None and text not in ("", "nan", "NaT", "<NA>"):
            return f"{NUMBER if number else WORD}{text}"
    return ""


def _typed(found: Sequence[str], dtype: np.dtype[Any]) -> np.ndarray:
    """Labels of the type that they had; where that says nothing, of one that fits all found."""
    if dtype.kind == "b":
        return np.array(found, dtype=str) == "True"
    if dtype.kind in "iuf":
        return np.array(found, dtype=str).astype(dtype)
    texts = [text[1:] for text in found]
    if not all(text.startswith(NUMBER) for text in found):
        return np.array(texts, dtype=str)
    return np.array([plain(float(text)) for text in texts])
