r"""What preprocessing without noise costs, four ways side by side.

The base is full-batch DP-GD, or any sum of clipped row contributions with Gaussian noise, on
rows of norm at most 1: one row replaced moves the sum by 2C, and a row that moves by t moves it
by at most min(μt, 2C). Noise is such that training alone has a given ε. The four ways:

``tacit``
    Exact Gaussian DP of sensitivity 2C + b, b from the rules of `tacit.privacy.sensitivity.drift`.
``theorem2``
    Theorem 2 of Hu, Sanyal & Schölkopf with the paper's τ = Δ₂Δ∞, everything optimised.
``table2``
    The paper's Table 2, in closed form.
``group``
    Group privacy: as if every row that may move were replaced.

Formulas of the paper that are wrong are computed as printed, and labelled; see `smooth`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import gaussian_epsilon, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift
from tacit.research.price.claims import (
    GAP,
    MISSING,
    Sensitivity,
    dedup_claim,
    mean_claim,
    median_claim,
    pca_rank_claim,
    quantize_claim,
    regression_claim,
    scale_claim,
    table2,
    trimmed_mean_claim,
)
from tacit.research.price.smooth import (
    GradientDescent,
    Priced,
    choose,
    group_privacy,
    number,
    rdp_to_dp,
    theorem2,
    whole,
)

WAYS = ("tacit", "theorem2", "table2", "group")


# --- stages ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stage:
    """What the four ways need to know of a stage."""

    drift: Drift
    group: int
    condition: str = ""
    flips: bool = False  # a row that moves becomes a null row, or stops being one
    claim: Sensitivity | None = None  # the paper's
    believe: str = ""  # why the product Δ₂Δ∞ is right although ``claim`` is not
    column: Mapping[str, Any] | None = None  # of Table 2, with its parameters

    def step(self, clip: float, constant: float) -> float:
        """b: how far the sums of clipped contributions of the common rows lie apart."""
        if self.flips:
            return clip * self.drift.l0
        each = min(constant * self.drift.linf, 2 * clip)
        return min(constant * self.drift.l1, self.drift.l0 * each)


_TESTED = "Holds if {} on both tables, which takes a private test."


def _by_strength(rule: Callable[[Drift, int, float], Drift]) -> Callable[..., _Stage]:
    """Stages that hold for all tables, as strong as a number says."""
    return lambda n, strength: _Stage(rule(Drift(1.0), n, number("strength", strength)), n)


def _crowd(crowd: int, n: int) -> int:
    return whole("crowd", crowd, 1, n, advice="; a ball holds at least one row and at most n")


def _with_crowd(claim: Sensitivity) -> Sensitivity:
    return replace(claim, note=claim.note + " (Here the crowd, never smaller, stands for |B|.)")


def _pca(n: int, gap: float, centered: bool = False) -> _Stage:
    number("gap", gap, most=1.0, advice=GAP)
    if not isinstance(centered, bool):
        raise InputError(f"centered must be True or False, not {centered!r:.40}")
    found = rules.pca(Drift(1.0), n, gap)
    if centered:
        # Rule d1 with the centred covariance, for the paper's map: the row itself is projected.
        # rules.pca(centered=True) also shifts rows by the mean, which adds 2 to the total.
        turn = min(1.0, 1.5 * math.sqrt(3) / (n * gap)) * rules.UP
        found = Drift(1.0, (n - 1) * turn, turn, n - 1)
    return _Stage(
        found,
        n,
        _TESTED.format(f"the eigengap is at least {gap:g}"),
        claim=pca_rank_claim(n, gap),
        column={"name": "pca-rank", "gap": gap},
    )


def _scale(n: int, deviation: float | None = None, strength: float | None = None) -> _Stage:
    if (deviation is None) == (strength is None):
        raise InputError(
            "stage 'scale' needs one of deviation, a floor under every column's standard "
            "deviation, and strength, a number added to every variance"
        )
    if strength is not None:
        return _by_strength(partial(rules.scale_centered, radius=1.0))(n, strength)
    assert deviation is not None
    claim = scale_claim(n, deviation)
    return _Stage(
        rules.scale_by_floor(Drift(1.0), n, deviation**2, 1.0),
        n,
        _TESTED.format(f"every column deviates by at least {deviation:g}"),
        claim=claim,
        believe="Δ₂ is wrong, yet nΔ₂ does bound the sum if rows are clipped again afterwards.",
        column={"name": "scale", "deviation": deviation},
    )


def _mean_imputation(n: int, missing: int) -> _Stage:
    claim = mean_claim(n, missing)
    return _Stage(
        rules.impute_mean(Drift(1.0), n, missing),
        missing + 1,
        _TESTED.format(f"at most {missing:,} rows have gaps"),
        claim=claim,
        column={"name": "mean", "missing": missing},
    )


def _cells(cells: int) -> int:
    return whole("cells", cells, 1, advice="; it is the most values that a row may lack")


def _gaps(missing: int, n: int) -> str:
    return f"at most {whole('missing', missing, 0, n - 1, advice=MISSING):,} rows have gaps"


def _median_imputation(n: int, missing: int, change: float, cells: int = 1) -> _Stage:
    number("change", change, most=2.0, advice="; medians of rows of norm at most 1 lie within ±1")
    claim = median_claim(missing, high=change, low=0.0)
    note = " (Here the most that one row may move a median stands for the range of all medians.)"
    return _Stage(
        rules.impute_median(Drift(1.0), n, missing, change, _cells(cells)),
        missing + 1,
        _TESTED.format(f"{_gaps(missing, n)} and no row moves a median by more than {change:g}"),
        claim=replace(claim, note=claim.note + note, sound=cells == 1),
    )


def _trimmed_mean_imputation(n: int, missing: int, trim: int, cells: int = 1) -> _Stage:
    whole("trim", trim, 1, advice="; with nothing trimmed it is 'mean-imputation'")
    claim = trimmed_mean_claim(n, missing, trim, high=1.0, low=-1.0)
    note = " (Here it is turned the right way round, and order statistics lie within ±1.)"
    return _Stage(
        rules.impute_trimmed_mean(Drift(1.0), n, missing, trim, _cells(cells)),
        missing + 1,
        _TESTED.format(_gaps(missing, n)),
        claim=replace(claim, note=claim.note + note),
    )


def _regression_imputation(n: int, missing: int, smallest: float, largest: float) -> _Stage:
    if not number("smallest", smallest) <= number("largest", largest, most=float(n)):
        raise InputError(f"smallest={smallest!r} must not exceed largest={largest!r}")
    return _Stage(
        rules.impute_regression(Drift(1.0), n, smallest / n, missing),
        missing + 1,
        _TESTED.format(f"{_gaps(missing, n)} and no eigenvalue of XᵀX is below {smallest:g}"),
        claim=regression_claim(missing, largest, smallest),
    )


def _quantize(n: int, radius: float, crowd: int) -> _Stage:
    number("radius", radius)
    found = rules.quantize(Drift(1.0), n, radius, _crowd(crowd, n))
    # Rule g: table 1 → common rows → table 2; per hop at most crowd − 1 rows move, by η at most.
    hops = 2 * (crowd - 1)
    return _Stage(
        Drift(1.0, radius * hops * rules.UP, found.linf, found.l0),
        min(n, 2 * crowd - 1),
        _TESTED.format(f"no ball of four times the radius holds more than {crowd:,} rows"),
        claim=_with_crowd(quantize_claim(radius, crowd)),
        column={"name": "quantize", "radius": radius, "cluster": crowd},
    )


def _dedup(n: int, crowd: int) -> _Stage:
    return _Stage(
        rules.deduplicate(Drift(1.0), n, _crowd(crowd, n)),
        min(n, 2 * crowd - 1),
        _TESTED.format(f"no ball of four times the radius holds more than {crowd:,} rows"),
        flips=True,
        claim=_with_crowd(dedup_claim(crowd)),
        column={"name": "dedup", "cluster": crowd},
    )


#: Every stage that has a price.
STAGES: dict[str, Callable[..., _Stage]] = {
    "pca": _pca,
    "soft-pca": _by_strength(rules.soft_pca),
    "scale": _scale,
    "mean-imputation": _mean_imputation,
    "median-imputation": _median_imputation,
    "trimmed-mean-imputation": _trimmed_mean_imputation,
    "regression-imputation": _regression_imputation,
    "shrunk-mean": _by_strength(rules.impute_shrunk_mean),
    "ridge": _by_strength(rules.impute_ridge),
    "quantize": _quantize,
    "dedup": _dedup,
}
_NUMBERS = ("n", "clip", "constant", "epsilon", "base_epsilon", "delta", "inflation")
_REFUSED = {
    "pca-dim": (
        "coordinates in a basis of eigenvectors have no price: signs of eigenvectors, or bases of "
        "close eigenvalues, turn at some pair of neighbours under any rule, and every row jumps. "
        "Use 'pca', which projects within the full space, 'soft-pca', or a basis from public rows"
    ),
    "min-max": (
        "scaling by the extremes of the data has no price: one row can move half of the others "
        "by nearly 1, however many there are. Use public bounds, or 'scale' with strength"
    ),
}


# --- the calculator --------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """What a stage costs, four ways.

    Attributes
    ----------
    stage, parameters, n, delta, clip, constant
        What was asked.
    epsilon : float or None
        The overall ε that was asked for, if it was.
    base_epsilon : float or None
        ε of training alone; if ``epsilon`` was given, the one at which ``tacit`` comes to it,
        None if that is none.
    inflation : float
        (2C + b)/2C, how much more noise pays for the stage, by ``tacit``.
    ways : dict of str to Priced
        Overall ε by each of `WAYS`, at ``base_epsilon``.
    base : dict of str to float or None, optional
        If ``epsilon`` was given: the base ε that leads there by each way.
    """

    stage: str
    parameters: Mapping[str, Any]
    n: int
    delta: float
    clip: float
    constant: float
    epsilon: float | None
    base_epsilon: float | None
    inflation: float
    ways: Mapping[str, Priced]
    base: Mapping[str, float | None] | None = None

    @property
    def overall(self) -> dict[str, float | None]:
        """Overall ε by each way, None where there is none."""
        return {way: _finite(found.epsilon) for way, found in self.ways.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them; what is infinite or missing is None.

        Returns
        -------
        dict
            Attributes by name, with ``overall`` and ``labels`` (sound, formula, note) in the place
            of ``ways``.
        """
        labels = {
            way: {"sound": found.sound, "formula": found.formula, "note": found.note}
            for way, found in self.ways.items()
        }
        return {
            "stage": self.stage,
            "parameters": dict(self.parameters),
            **{name: getattr(self, name) for name in _NUMBERS},
            "overall": self.overall,
            "base": None if self.base is None else dict(self.base),
            "labels": labels,
        }


def price(
    stage: str,
    *,
    n: int,
    delta: float,
    base_epsilon: float | None = None,
    epsilon: float | None = None,
    clip: float = 1.0,
    constant: float = 1.0,
    **parameters: Any,
) -> Price:
    """What a stage fitted on the private rows without noise costs, four ways.

    Parameters
    ----------
    stage : str
        ``pca`` (gap, centered), ``soft-pca`` (strength), ``scale`` (deviation or strength),
        ``mean-imputation`` (missing), ``median-imputation`` (missing, change, cells),
        ``trimmed-mean-imputation`` (missing, trim, cells), ``regression-imputation`` (missing,
        smallest, largest), ``shrunk-mean`` (strength), ``ridge`` (strength), ``quantize``
        (radius, crowd) or ``dedup`` (crowd).
    n : int
        Rows, of norm at most 1.
    delta : float
        δ of the base and of the whole.
    base_epsilon : float, optional
        ε of training alone; answers what the whole has.
    epsilon : float, optional
        Instead of it, ε of the whole; answers what is left for training.
    clip : float
        C, the norm to which contributions of rows are clipped.
    constant : float
        μ, Lipschitz constant of a clipped contribution in its row.
    **parameters
        Those of the stage; None is the same as not given.

    Returns
    -------
    Price

    Examples
    --------
    >>> found = price("pca", n=10_000, gap=0.1, base_epsilon=1.0, delta=1e-5)
    >>> round(found.inflation, 3)
    6.0
    >>> {way: float(f"{value:.3g}") for way, value in found.overall.items()}
    {'tacit': 7.67, 'theorem2': 212.0, 'table2': 3090.0, 'group': 3600000.0}
    >>> inverse = price("pca", n=10_000, gap=0.1, epsilon=1.0, delta=1e-5)
    >>> round(inverse.base_epsilon, 3)
    0.142
    """
    given = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in parameters.items()
        if value is not None
    }
    if stage in _REFUSED:
        raise InputError(f"stage {stage!r} is refused: {_REFUSED[stage]}")
    make = choose("stage", stage, STAGES, {"n": n, **given})
    n = whole("n", n, 2, advice="; neighbours differ in one row and share the others")
    if (base_epsilon is None) == (epsilon is None):
        raise InputError(
            "price() needs one of base_epsilon, the epsilon of training alone, and epsilon, that "
            "of training and preprocessing together"
        )
    asked = base_epsilon if epsilon is None else epsilon
    name = "base_epsilon" if epsilon is None else "epsilon"
    asked = number(name, asked, most=1e6, advice="; 1 is strong, 0.1 very strong, 10 weak")
    delta = Budget(asked, delta).delta
    clip, constant = number("clip", clip), number("constant", constant)
    ways, inflation = _ways(make(n=n, **given), n, delta, clip, constant)
    base = None
    alone: float | None = asked
    if epsilon is not None:
        base = {way: _inverse(cost, asked, delta) for way, cost in ways.items()}
        alone = base["tacit"]
    mu = math.inf if alone is None else gaussian_mu(alone, delta)
    return Price(
        stage,
        given,
        n,
        delta,
        clip,
        constant,
        None if epsilon is None else asked,
        alone,
        inflation,
        {way: cost(mu) for way, cost in ways.items()},
        base,
    )


def _ways(
    stage: _Stage, n: int, delta: float, clip: float, constant: float
) -> tuple[dict[str, Callable[[float], Priced]], float]:
    """Each way as a function of the base's μ = 2C/σ, and the inflation of sensitivity."""
    step = stage.step(clip, constant)
    inflation = (2 * clip + step) / (2 * clip)
    claim, column = stage.claim, stage.column

    def tacit(mu: float) -> Priced:
        value = group_privacy(mu * inflation, 1, delta).epsilon
        note = stage.condition or "Holds for all tables."
        return Priced(value, "Gaussian DP of sensitivity 2C + b", True, note)

    def by_theorem2(mu: float) -> Priced:
        if not mu < 1e150:
            return Priced(math.inf, "Theorem 2, eq. (3)", True, "No base ε, no overall ε.")
        descent = GradientDescent(mu / 2, lipschitz=clip, smoothness=constant)
        tau = step / constant if claim is None else claim.l1
        found = theorem2(descent, tau, delta)
        if claim is None:
            note = "The paper has no bound for this stage: Theorem 2 with Tacit's τ."
            return Priced(found.epsilon, found.formula, True, note)
        formula = f"{found.formula}, {claim.formula}"
        sound = claim.sound or bool(stage.believe)
        return Priced(found.epsilon, formula, sound, stage.believe or claim.note)

    def by_table2(mu: float) -> Priced:
        if column is None:
            return Priced(math.inf, "Table 2", True, "Table 2 has no entry for this stage.")

        def entry(alpha: float) -> Priced:
            ratio = constant / clip
            return table2("gd", n=n, alpha=alpha, epsilon=mu / 2, ratio=ratio, **column)

        first = entry(11.0)
        value = first.epsilon
        if value < math.inf:
            value = rdp_to_dp(lambda alpha: entry(alpha).epsilon, delta, least=11.0)
        return Priced(value, first.formula, first.sound, first.note)

    def by_group(mu: float) -> Priced:
        return group_privacy(mu, stage.group, delta)

    functions = (tacit, by_theorem2, by_table2, by_group)
    return dict(zip(WAYS, functions, strict=True)), inflation


def _inverse(cost: Callable[[float], Priced], epsilon: float, delta: float) -> float | None:
    """ε of training alone that a way turns into ``epsilon``; None if there is none."""

    def excess(log_mu: float) -> float:
        return cost(math.exp(log_mu)).epsilon - epsilon

    low = high = math.log(gaussian_mu(epsilon, delta))
    while excess(high) < 0:
        low, high = high, high + 1
    while excess(low) > 0:
        low, high = low - 1, low
        if low < math.log(1e-12):
            return None
    mu = math.exp(low if low == high else brentq(excess, low, high, xtol=1e-12, rtol=1e-14))
    return gaussian_epsilon(mu, delta) or None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
