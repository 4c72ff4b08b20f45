"""All bounds that apply to a setting, and which of them may be set against each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.research.theory import (
    centring,
    decay,
    descent,
    flatness,
    halfspaces,
    lower,
    projection,
)
from tacit.research.theory.risk import Risk

__all__ = ["Comparison", "Setting", "compare"]

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
    neighbors: str = "replace_special"
    clip: float | None = None
    smoothness: float | None = None
    diameter: float | None = None
    margin: float | None = None
    components: int | None = None
    xi: float = 0.0
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
        require_positive(zero=True, xi=self.xi, tail=self.tail)
        most = min(self.n, self.d)
        for name in ("rank", "components"):
            value = getattr(self, name)
            if value is not None and value > (most if name == "rank" else self.d):
                raise InputError(f"{name}={value} is more than these rows can have")
        if self.rank is None:
            object.__setattr__(self, "rank", most)


class _Entry(NamedTuple):
    needs: tuple[str, ...]
    bound: Callable[[Any], Risk]  # of a Setting, in which what it needs is given


def _shared(s: Setting) -> dict[str, Any]:
    return {"epsilon": s.epsilon, "delta": s.delta}


def _descent(s: Setting) -> dict[str, Any]:
    steep = {"norm": s.norm, "lipschitz": s.lipschitz * s.bound}
    return {**_shared(s), **steep, "neighbors": s.neighbors}


def _coefficients(s: Any) -> Any:
    if s.d > MOST_DIMENSIONS:
        raise InputError(f"more than {MOST_DIMENSIONS:,} columns: only the last bound is computed")
    return decay.power_law(s.d, s.decay, s.lipschitz * s.bound)


def _decaying(s: Setting) -> dict[str, Any]:
    return {**_shared(s), "distance": s.norm}


def _power_law(s: Setting) -> dict[str, Any]:
    return {**_decaying(s), "first": s.lipschitz * s.bound}


def _table(name: str) -> Callable[[Any], Risk]:
    def found(s: Any) -> Risk:
        given = {"epsilon": s.epsilon, "margin": s.margin, "d": s.d, "k": s.components or s.d}
        return halfspaces.error_rates(s.n, **given)[name]

    return found


BOUNDS: dict[str, _Entry] = {
    "descent": _Entry((), lambda s: descent.risk(s.n, s.rank, **_descent(s))),
    "descent, fresh rows": _Entry(
        (), lambda s: descent.population_risk(s.n, s.rank, **_descent(s))
    ),
    "clipped descent": _Entry(
        ("clip",),
        lambda s: descent.clipped_risk(
            s.n, s.rank, **_shared(s), clip=s.clip, norm=s.norm, neighbors=s.neighbors
        ),
    ),
    "descent, not convex": _Entry(
        ("smoothness",),
        lambda s: flatness.risk(
            s.n,
            s.rank,
            **_shared(s),
            smoothness=s.smoothness * s.bound**2,
            lipschitz=s.lipschitz * s.bound,
            neighbors=s.neighbors,
        ),
    ),
    "rows as they come, with intercept": _Entry(
        (),
        lambda s: centring.uncentred_risk(
            s.n,
            min(s.rank + 1, s.n),
            **_shared(s),
            norm=s.norm,
            lipschitz=s.lipschitz,
            bound=s.bound,
            neighbors=s.neighbors,
        ),
    ),
    "private mean first": _Entry(
        ("diameter",),
        lambda s: centring.centred_risk(
            s.n,
            min(s.rank + 1, s.n),
            **_shared(s),
            diameter=s.diameter,
            norm=s.norm,
            lipschitz=s.lipschitz,
            bound=s.bound,
        ),
    ),
    "decaying gradients": _Entry(
        ("decay",), lambda s: decay.risk(_coefficients(s), s.n, **_decaying(s))
    ),
    "decaying gradients, fresh rows": _Entry(
        ("decay",), lambda s: decay.population_risk(_coefficients(s), s.n, **_decaying(s))
    ),
    "decaying gradients, any d": _Entry(
        ("decay",), lambda s: decay.power_law_risk(s.n, s.decay, **_power_law(s))
    ),
    "decaying gradients, any d, fresh rows": _Entry(
        ("decay",), lambda s: decay.power_law_population_risk(s.n, s.decay, **_power_law(s))
    ),
    "halfspace, all columns": _Entry(("margin",), _table("noisy descent")),
    "halfspace, random projection": _Entry(("margin",), _table("random projection")),
    "halfspace, public components": _Entry(
        ("margin", "components"),
        lambda s: halfspaces.risk(s.n, s.components, **_shared(s), margin=s.margin, xi=s.xi),
    ),
    "projected rows": _Entry(
        ("components", "tail"),
        lambda s: projection.risk(
            s.n,
            s.components,
            **_shared(s),
            tail=s.tail,
            norm=s.norm,
            lipschitz=s.lipschitz,
            bound=s.bound,
            inflation=s.inflation,
        ),
    ),
    "nobody below": _Entry(
        (),
        lambda s: lower.risk(s.n, s.rank, **_descent(s)),
    ),
    "nobody below, fresh rows": _Entry(
        (),
        lambda s: lower.population_risk(s.n, s.rank, **_descent(s)),
    ),
    "nobody below, margin losses": _Entry(
        ("diameter",),
        lambda s: centring.lower_bound(
            s.n,
            s.rank,
            epsilon=s.epsilon,
            diameter=s.diameter,
            norm=s.norm,
            lipschitz=s.lipschitz,
        ),
    ),
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
            risk = entry.bound(setting)
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
