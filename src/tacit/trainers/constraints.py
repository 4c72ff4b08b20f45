"""Convex sets that weights are held in: every step ends in a projection onto one.

Song et al. 2021, Algorithm 1, line 4: θ ← Π_C(θ − η·g). The projection is a function of weights
that are released anyway, and of a public set, so it costs nothing (post-processing: Dwork & Roth
2014, Proposition 2.1). Sets are of all weights of a model together, the intercept's included, as
descent moves them: those of the rows as the stages leave them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tacit.exceptions import InputError


@runtime_checkable
class ConvexSet(Protocol):
    """A closed convex set of weights; any class that has these two methods is one.

    Fields of a data class are what certificates and models record of it.

    Examples
    --------
    >>> isinstance(Box(-1.0, 1.0), ConvexSet)
    True
    """

    def project(self, weights: np.ndarray) -> np.ndarray:
        """The nearest weights of the set.

        Parameters
        ----------
        weights : ndarray of shape (d, K)
            Columns, the intercept's last, by outputs.

        Returns
        -------
        ndarray of shape (d, K)
            In the set; those that are in it stay as they are.
        """

    def reach(self, count: int) -> float:
        """Largest norm of weights in the set.

        Parameters
        ----------
        count : int
            Number of weights, d·K.

        Returns
        -------
        float
            Infinite if the set is not bounded.
        """


@dataclass(frozen=True)
class Ball:
    """Weights of norm at most ``radius``: what ``radius=`` of a trainer stands for.

    Parameters
    ----------
    radius : float
        Largest Euclidean norm.

    Examples
    --------
    >>> Ball(5.0).project(np.array([[6.0], [8.0]])).ravel()
    array([3., 4.])
    """

    radius: float

    def __post_init__(self) -> None:
        _positive(self, "radius")

    def project(self, weights: np.ndarray) -> np.ndarray:
        """The same direction, shortened to the radius.

        Parameters
        ----------
        weights : ndarray of shape (d, K)
            Weights.

        Returns
        -------
        ndarray of shape (d, K)
            In the ball.
        """
        return weights * min(1.0, self.radius / max(float(np.linalg.norm(weights)), 1e-300))

    def reach(self, count: int) -> float:
        """The radius.

        Parameters
        ----------
        count : int
            Number of weights.

        Returns
        -------
        float
            The radius.
        """
        return self.radius


@dataclass(frozen=True)
class Box:
    """Weights from ``low`` to ``high``, one by one.

    Parameters
    ----------
    low, high : float
        Ends; ``Box(0.0, math.inf)`` holds all weights that are not negative.

    Examples
    --------
    >>> Box(0.0, 1.0).project(np.array([[-2.0], [0.5], [3.0]])).ravel()
    array([0. , 0.5, 1. ])
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"Box(low={self.low!r}, high={self.high!r}): low must be below high")

    def project(self, weights: np.ndarray) -> np.ndarray:
        """Every weight cut to its ends.

        Parameters
        ----------
        weights : ndarray of shape (d, K)
            Weights.

        Returns
        -------
        ndarray of shape (d, K)
            In the box.
        """
        return np.clip(weights, self.low, self.high)

    def reach(self, count: int) -> float:
        """√count times the farther end.

        Parameters
        ----------
        count : int
            Number of weights.

        Returns
        -------
        float
            Norm of the farthest corner.
        """
        return math.sqrt(count) * max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class Simplex:
    """Weights that are not negative and sum to ``total``.

    Descent begins at their mean, total/(d·K) each: zero is not in the set.

    Parameters
    ----------
    total : float
        Their sum.

    Examples
    --------
    >>> Simplex(1.0).project(np.array([[0.9], [0.5], [-1.0]])).ravel().round(6)
    array([0.7, 0.3, 0. ])
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "total")

    def project(self, weights: np.ndarray) -> np.ndarray:
        """All weights less one number, and none below zero (Held, Wolfe & Crowder 1974).

        Parameters
        ----------
        weights : ndarray of shape (d, K)
            Weights.

        Returns
        -------
        ndarray of shape (d, K)
            In the simplex, up to rounding.
        """
        return np.maximum(weights - _threshold(weights, self.total), 0.0)

    def reach(self, count: int) -> float:
        """The total: a corner has all of it.

        Parameters
        ----------
        count : int
            Number of weights.

        Returns
        -------
        float
            The total.
        """
        return self.total


@dataclass(frozen=True)
class L1Ball:
    """Weights whose sizes sum to at most ``radius``: few of them differ from zero.

    Parameters
    ----------
    radius : float
        Largest sum of sizes.

    Examples
    --------
    >>> L1Ball(1.0).project(np.array([[3.0], [-2.5]])).ravel()
    array([ 0.75, -0.25])
    """

    radius: float

    def __post_init__(self) -> None:
        _positive(self, "radius")

    def project(self, weights: np.ndarray) -> np.ndarray:
        """Sizes onto the simplex, with their signs (Duchi et al. 2008).

        Parameters
        ----------
        weights : ndarray of shape (d, K)
            Weights.

        Returns
        -------
        ndarray of shape (d, K)
            In the ball, up to rounding.
        """
        sizes = np.abs(weights)
        if sizes.sum() <= self.radius:
            return weights
        return np.copysign(np.maximum(sizes - _threshold(sizes, self.radius), 0.0), weights)

    def reach(self, count: int) -> float:
        """The radius: a corner has it.

        Parameters
        ----------
        count : int
            Number of weights.

        Returns
        -------
        float
            The radius.
        """
        return self.radius


SETS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Ball, Box, Simplex, L1Ball)}


def as_set(given: Any) -> ConvexSet | None:
    """A set, or one as a record has it: {"set": "Box", "low": 0.0, "high": 1.0}."""
    if not isinstance(given, Mapping):
        return given
    facts = dict(given)
    name = facts.pop("set", None)
    if name not in SETS:
        raise InputError(f"no convex set is called {name!r}; there are {', '.join(SETS)}")
    made: ConvexSet = SETS[name](**facts)
    return made


def describe(given: ConvexSet) -> dict[str, Any]:
    """A set as a record has it; of a class without fields, what it calls itself."""
    if isinstance(given, Mapping):
        return dict(given)
    if not is_dataclass(given) or isinstance(given, type):
        return {"set": type(given).__name__, "given": repr(given)}
    plain = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in asdict(given).items()}
    return {"set": type(given).__name__, **plain}


def _threshold(values: np.ndarray, total: float) -> float:
    """What to subtract from numbers so that those above zero sum to the total."""
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    return float(excess[np.flatnonzero(falling > excess)[-1]])


def _positive(given: Any, name: str) -> None:
    value = getattr(given, name)
    if not 0 < value < math.inf:
        raise InputError(f"{type(given).__name__}({name}={value!r}) must be positive and finite")
