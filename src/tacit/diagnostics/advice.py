"""Which recipe suits the rows: bounds on excess risk, put side by side.

Every option is priced by a theorem, per unit of N, the norm of the best weights (all of them grow
with N alike), for slope G = 1 of the loss: `tacit.research.advice` has them. A bound is not an
accuracy. It tells what limits a recipe: dimension, norm of rows, or what is projected away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.registry import Registry

TRAIN_EPSILON, TRAIN_DELTA = 1.0, 1e-6  # what training may cost, unless it is said


@dataclass(frozen=True, eq=False)
class RowFacts:
    """What advice rests on: of the private rows themselves, or released with noise.

    Attributes
    ----------
    n, d : int
        Rows and columns.
    rank : int
        Of the rows, at most.
    tails : ndarray of shape (d + 1,)
        Sum of the eigenvalues of XᵀX/n behind the first k, at most.
    eigenvalues : ndarray of shape (d,)
        λ₁ ≥ λ₂ ≥ …, at most.
    lost : ndarray of shape (d + 1,)
        Root mean square of the score that weights of norm one lose outside the first k
        eigenvectors, at most: √λ_{k+1}, or less for weights that are known.
    gaps : ndarray of shape (d,)
        λ_k − λ_{k+1}, at least.
    longest : float
        Norm of a row, at most.
    typical : float
        Root mean square distance of rows to the mean.
    copies : float
        Part of the rows that are copies of others; not a number if nobody looked.
    decay : float
        Power by which restricted Lipschitz coefficients fall; likewise.
    coefficients : ndarray of shape (d + 1,), optional
        G₀ … G_d themselves, if somebody looked.
    margin, xi : float, ndarray of shape (d + 1,)
        γ and ξ_k of Pinto et al. 2024, Definition 3, if somebody looked.
    """

    n: int
    d: int
    rank: int
    tails: np.ndarray
    eigenvalues: np.ndarray
    lost: np.ndarray
    gaps: np.ndarray
    longest: float
    typical: float
    copies: float = math.nan
    decay: float = math.nan
    coefficients: np.ndarray | None = None
    margin: float = math.nan
    xi: np.ndarray | None = None


class Bound(Protocol):
    """What a theorem promises, in words and numbers."""

    @property
    def value(self) -> float: ...

    @property
    def unit(self) -> str: ...

    @property
    def source(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Option:
    """A recipe with its settings, and what a theorem promises for it.

    Attributes
    ----------
    recipe : str
    settings : dict
        Options of the recipe.
    risk : Bound
        Excess empirical risk at most, per unit of the norm of the best weights.
    why : str
    needs : str
        What else it takes; empty if nothing.
    """

    recipe: str
    settings: dict[str, Any]
    risk: Bound
    why: str
    needs: str = ""

    @property
    def flags(self) -> str:
        """As ``tacit fit`` takes them."""
        names = {"n_components": "components"}
        more = "".join(f" --{names.get(k, k)} {v:.3g}" for k, v in self.settings.items())
        public = " --public TABLE" if self.recipe == "pillar" else ""
        return f"--recipe {self.recipe}{more}{public}"

    def to_dict(self) -> dict[str, Any]:
        """The recipe and its bound as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        given = {"recipe": self.recipe, "settings": dict(self.settings), "why": self.why}
        return {**given, "needs": self.needs, "flags": self.flags, "bound": self.risk.to_dict()}


@dataclass(frozen=True)
class Advice:
    """Options, the best bound first, and remarks.

    Attributes
    ----------
    epsilon, delta : float
        The budget that training is meant to have.
    options : tuple of Option
    remarks : tuple of str
    """

    epsilon: float
    delta: float
    options: tuple[Option, ...]
    remarks: tuple[str, ...]

    @property
    def best(self) -> Option:
        """The first option that needs nothing else."""
        return next(option for option in self.options if not option.needs)

    def to_dict(self) -> dict[str, Any]:
        """Advice as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "best": self.best.recipe,
            "options": [option.to_dict() for option in self.options],
            "remarks": list(self.remarks),
        }


#: Options and remarks for facts, a budget (ε, δ) and a relation.
Adviser = Callable[[RowFacts, float, float, str], tuple[list[Option], list[str]]]
ADVISERS: Registry[Adviser] = Registry("adviser", "advice")


def advise(
    facts: RowFacts,
    *,
    epsilon: float = TRAIN_EPSILON,
    delta: float = TRAIN_DELTA,
    neighbors: Neighbors = "replace_special",
) -> Advice:
    """Weigh recipes for rows of which these facts are known.

    Parameters
    ----------
    facts : RowFacts
        Of the private rows themselves, or released with noise.
    epsilon, delta : float
        Budget of the training to come.
    neighbors : str
        Relation, for recipes that leave a choice.

    Returns
    -------
    Advice
        Recipes, the best first.

    Examples
    --------
    >>> tails = np.append(0.5 ** np.arange(20), 0.0)
    >>> values = -np.diff(tails)
    >>> lost = np.sqrt(np.append(values, 0.0))
    >>> facts = RowFacts(5000, 20, 20, tails, values, lost, values / 2, 1.0, 0.3)
    >>> advise(facts).best.recipe
    'dpsgd-f'
    """
    Budget(epsilon, delta)
    sensitivity(neighbors)
    if (
        facts.n < 1
        or facts.rank < 0
        or not (
            len(facts.tails) == len(facts.lost) == facts.d + 1
            and len(facts.gaps) == len(facts.eigenvalues) == facts.d
        )
    ):
        raise InputError("facts must be those of one row or more, with d eigenvalues")
    options, remarks = list[Option](), list[str]()
    for weigh in ADVISERS.values():
        weighed, more = weigh(facts, epsilon, delta, neighbors)
        options += weighed
        remarks += more
    options.sort(key=lambda option: option.risk.value)
    return Advice(epsilon, delta, tuple(options), tuple(remarks))
