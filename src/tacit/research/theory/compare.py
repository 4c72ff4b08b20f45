"""All bounds that apply to a setting, and which of them may be set against each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.research.theory import (
    centring,
    decay,
    descent,
    flatness,
    halfspaces,
    lower,
    projection,
    separability,
)
from tacit.research.theory.risk import Risk

MOST_DIMENSIONS = 10**8  # of a decay that is added up term by term


@dataclass(frozen=True)
class Setting:
    """Public facts about a learning problem; those not known are left out.

    Attributes
    ----------
    n, d : int
        Rows and columns.
    epsilon, delta : float
        Budget.
    rank : int, optional
        Of the rows; all of min(n, d) if not given.
    norm : float
        At least the norm of the best weights.
    lipschitz : float
        Largest slope of the loss in the score; 1 for logistic and hinge.
    bound : float
        Largest norm of a row.
    neighbors : str
        The relation of neighbouring data sets.
    clip : float, optional
        Norm that gradients are clipped to; `norm` then is that of the clipped optimum.
    smoothness : float, optional
        Of the loss in the score, for losses that are not convex; 1/4 for logistic.
    diameter : float, optional
        Largest distance of two rows.
    margin : float, optional
        Of unit rows and unit weights that separate them.
    components : int, optional
        Components that rows are projected on.
    xi : float
        Part of the separator that the components lose.
    gap : float, optional
        Eigengap of the rows behind the components.
    shift : float
        Total variation between public and private rows; needs the gap.
    public : int, optional
        Public rows that the components are estimated from; needs the gap.
    decay : float, optional
        c, where restricted Lipschitz coefficients fall as k⁻ᶜ.
    tail : float, optional
        Sum of the rows' eigenvalues behind the components.
    inflation : float
        Times the noise that projecting the private rows costs.
    """

    n: int
    d: int
    epsilon: float
    delta: float
    rank: int | None = None
    norm: float = 1.0
    lipschitz: float = 1.0
    bound: float = 1.0
    neighbors: Neighbors = "replace_special"
    clip: float | None = None
    smoothness: float | None = None
    diameter: float | None = None
    margin: float | None = None
    components: int | None = None
    xi: float = 0.0
    gap: float | None = None
    shift: float = 0.0
    public: int | None = None
    decay: float | None = None
    tail: float | None = None
    inflation: float = 1.0

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        sensitivity(self.neighbors)
        require_positive(
            n=self.n, d=self.d, rank=self.rank, components=self.components, norm=self.norm
        )
        require_positive(lipschitz=self.lipschitz, bound=self.bound, clip=self.clip)
        require_positive(smoothness=self.smoothness, diameter=self.diameter, margin=self.margin)
        require_positive(decay=self.decay, inflation=self.inflation)
        require_positive(gap=self.gap, public=self.public)
        require_positive(zero=True, xi=self.xi, tail=self.tail, shift=self.shift)
        most = min(self.n, self.d)
        for name in ("rank", "components"):
            value = getattr(self, name)
            if value is not None and value > (most if name == "rank" else self.d):
                raise InputError(f"{name}={value} is more than these rows can have")
        if self.rank is None:
            object.__setattr__(self, "rank", most)


class _Entry(NamedTuple):
    """A theorem: its function is given what it has parameters for."""

    bound: Callable[..., Risk]
    needs: tuple[str, ...] = ()
    changes: Callable[[Any], dict[str, Any]] = lambda s: {}  # what is not as the setting names it

    def of(self, setting: Setting) -> Risk:
        given = {**vars(setting), **self.changes(setting)}
        takes = signature(self.bound).parameters
        return self.bound(**{name: given[name] for name in takes if name in given})


def _steep(s: Setting) -> dict[str, Any]:
    return {"lipschitz": s.lipschitz * s.bound}


def _smooth(s: Any) -> dict[str, Any]:
    return {**_steep(s), "smoothness": s.smoothness * s.bound**2}


def _with_intercept(s: Any) -> dict[str, Any]:
    return {"rank": min(s.rank + 1, s.n)}


def _components(s: Setting) -> dict[str, Any]:
    return {"k": s.components, "neighbors": "replace_one"}


def _power_law(s: Setting) -> dict[str, Any]:
    return {"distance": s.norm, "first": s.lipschitz * s.bound}


def _coefficients(s: Any) -> dict[str, Any]:
    if s.d > MOST_DIMENSIONS:
        raise InputError(f"more than {MOST_DIMENSIONS:,} columns: only the last bound is computed")
    values = decay.power_law(s.d, s.decay, s.lipschitz * s.bound)
    return {"coefficients": values, "distance": s.norm}


def _table(name: str) -> Callable[..., Risk]:
    def found(n: int, epsilon: float, margin: float, d: int, components: int | None) -> Risk:
        rates = halfspaces.error_rates(n, epsilon=epsilon, margin=margin, d=d, k=components or d)
        return rates[name]

    return found


BOUNDS: dict[str, _Entry] = {
    "descent": _Entry(descent.risk, changes=_steep),
    "descent, fresh rows": _Entry(descent.population_risk, changes=_steep),
    "clipped descent": _Entry(descent.clipped_risk, ("clip",)),
    "descent, not convex": _Entry(flatness.risk, ("smoothness",), _smooth),
    "rows as they come, with intercept": _Entry(centring.uncentred_risk, changes=_with_intercept),
    "private mean first": _Entry(centring.centred_risk, ("diameter",), _with_intercept),
    "decaying gradients": _Entry(decay.risk, ("decay",), _coefficients),
    "decaying gradients, fresh rows": _Entry(
        partial(decay.risk, population=True), ("decay",), _coefficients
    ),
    "decaying gradients, any d": _Entry(decay.power_law_risk, ("decay",), _power_law),
    "decaying gradients, any d, fresh rows": _Entry(
        partial(decay.power_law_risk, population=True), ("decay",), _power_law
    ),
    "halfspace, all columns": _Entry(_table("noisy descent"), ("margin",)),
    "halfspace, random projection": _Entry(_table("random projection"), ("margin",)),
    "halfspace, random projection of gradients": _Entry(
        _table("random projection of gradients"), ("margin",)
    ),
    "halfspace, no privacy": _Entry(separability.nonprivate_risk, ("margin",)),
    "halfspace, public components": _Entry(halfspaces.risk, ("margin", "components"), _components),
    "projected rows": _Entry(projection.risk, ("components", "tail"), _components),
    "nobody below": _Entry(lower.risk, changes=_steep),
    "nobody below, fresh rows": _Entry(lower.population_risk, changes=_steep),
    "nobody below, margin losses": _Entry(centring.lower_bound, ("diameter",)),
}


@dataclass(frozen=True)
class Comparison:
    """What theorems say about a setting.

    Attributes
    ----------
    setting : Setting
    bounds : dict of str to Risk
        Those that apply: first the exact ones, then by kind, unit and value.
    left_out : dict of str to str
        The others, and why.
    """

    setting: Setting
    bounds: dict[str, Risk]
    left_out: dict[str, str]

    def groups(self) -> list[list[str]]:
        """Names of bounds that may be set against each other: same kind and unit, exact.

        Returns
        -------
        list of list of str
            Each of two names or more.
        """
        groups: list[list[str]] = []
        for name, risk in self.bounds.items():
            for group in groups:
                if risk.comparable(self.bounds[group[0]]):
                    group.append(name)
                    break
            else:
                groups.append([name])
        return [group for group in groups if len(group) > 1]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {
            "setting": asdict(self.setting),
            "bounds": [{"name": name, **risk.to_dict()} for name, risk in self.bounds.items()],
            "comparable": self.groups(),
            "left_out": [{"name": name, "why": why} for name, why in self.left_out.items()],
        }


def compare(setting: Setting) -> Comparison:
    """Every bound of the five papers that applies to a setting.

    Parameters
    ----------
    setting : Setting
        Public facts.

    Returns
    -------
    Comparison
        Bounds by name, and those left out.

    Examples
    --------
    >>> found = compare(Setting(n=10_000, d=300, rank=50, epsilon=1.0, delta=1e-6))
    >>> [(name, round(risk.value, 4)) for name, risk in found.bounds.items()][0]
    ('descent', 0.003)
    >>> found.left_out["private mean first"]
    'needs diameter'
    """
    bounds, left_out = {}, {}
    for name, entry in BOUNDS.items():
        missing = [need for need in entry.needs if getattr(setting, need) is None]
        if missing:
            left_out[name] = f"needs {' and '.join(missing)}"
            continue
        try:
            risk = entry.of(setting)
        except InputError as error:
            left_out[name] = str(error)
            continue
        if math.isfinite(risk.value):
            bounds[name] = risk
        else:
            left_out[name] = f"says nothing here: {risk.correction}"
    return Comparison(setting, dict(sorted(bounds.items(), key=_place)), left_out)


def _place(item: tuple[str, Risk]) -> tuple[Any, ...]:
    _, risk = item
    units = ("loss", "clipped loss", "gradient norm", "error rate")
    inexact = risk.constant != "exact"
    return inexact, risk.kind, units.index(risk.unit), risk.side == "lower", risk.value
