"""Pairs of tables that differ in one row and drift far apart once they are preprocessed.

Rows have norm 1 at most. What a mechanism sees of a row is g(x), 1-Lipschitz and within an interval
of length ``width``: f = Σ ±g(xᵢ) then has global sensitivity ``width`` and is 1-Lipschitz, and
``shift`` says how far the two values of f lie apart, in the worst case of signs. At width 1 that is
the function of Hu et al.'s Table 2 for noise on outputs, at width 2 the gradient of a loss with
L = μ = 1 for descent. A bound with τ promises a shift of width + τ at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.integrate import trapezoid

from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift
from tacit.research.price.claims import preprocessor
from tacit.research.price.smooth import SampledSGD

UNIT = Drift(1.0)
Tables = tuple[np.ndarray, np.ndarray]


def _pair(common: Any, z1: Any, z2: Any) -> Tables:
    """The two tables; the row in which they differ is the last."""
    return tuple(np.vstack([common, np.atleast_2d(z)]) for z in (z1, z2))  # type: ignore[return-value]


def _apart(
    first: np.ndarray, second: np.ndarray, along: np.ndarray, width: float
) -> dict[str, Any]:
    """How far common rows move, and the shift of f for g(x) = ⟨x, along⟩ within ±width/2."""
    moves = np.linalg.norm(first[:-1] - second[:-1], axis=1)
    seen = [np.clip(table @ along, -width / 2, width / 2) for table in (first, second)]
    return {
        "each": float(moves.max()),
        "moved": int((moves > 1e-12).sum()),
        "total": float(moves.sum()),
        "shift": float(np.abs(seen[0] - seen[1]).sum()),
    }


def _found(apart: dict[str, Any], claimed: float, allowed: Drift | float) -> dict[str, Any]:
    total = allowed.l1 if isinstance(allowed, Drift) else allowed
    return {**apart, "claimed": claimed, "allowed": total}


# --- imputation -------------------------------------------------------------------------------


def imputed(n: int, missing: int, width: float) -> dict[str, Any]:
    """Mean imputation, ``missing`` rows with gaps: z₁ and z₂ have theirs in different columns."""
    h, gap, r = math.sqrt(0.5), math.nan, missing - 1
    common = np.vstack([np.tile([0, -h, -h], (n - 1 - r, 1)), np.full((r, 3), gap)])
    tables = _pair(common, [h, h, gap], [-h, gap, h])
    means = [np.nanmean(table, axis=0) for table in tables]
    filled = [np.where(np.isnan(t), mean, t) for t, mean in zip(tables, means, strict=True)]
    along = (means[0] - means[1]) / np.linalg.norm(means[0] - means[1])
    claim = preprocessor("mean", n=n, missing=missing)
    ours = rules.impute_mean(UNIT, n, r)
    return _found(_apart(filled[0], filled[1], along, width), claim.l1, ours) | {
        "claimed each": claim.linf,
        "allowed each": ours.linf,
    }


# --- near-duplicates --------------------------------------------------------------------------


def _good_clusters(rows: np.ndarray, eta: float) -> Iterator[tuple[int, np.ndarray]]:
    """Centres of good clusters and who is in them (section 4.1); two are equal or disjoint."""
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    near, around = apart <= eta, apart <= 3 * eta
    taken = np.zeros(len(rows), dtype=bool)
    for centre in np.flatnonzero(near.sum(axis=1) == around.sum(axis=1)):
        members = near[centre]
        if not taken[members].any():
            taken |= members
            yield int(centre), members


def _quantise(rows: np.ndarray, eta: float) -> np.ndarray:
    """Rows of a good cluster become its centre."""
    moved = rows.copy()
    for centre, members in _good_clusters(rows, eta):
        moved[members] = rows[centre]
    return moved


def _good(rows: np.ndarray, eta: float) -> list[int]:
    """Sizes of the good clusters."""
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    sizes = (apart <= eta).sum(axis=1)
    return [int(size) for size in sizes[sizes == (apart <= 3 * eta).sum(axis=1)]]


def _crowd(values: np.ndarray, length: float) -> int:
    ends = np.searchsorted(values, values + length * (1 + 1e-12), side="right")
    return int((ends - np.arange(len(values))).max())


def quantised(radius: float, cluster: int, width: float) -> dict[str, Any]:
    """Quantisation on a line: each of z₁ and z₂ stands between two clusters and breaks both."""
    far = 1 - 3.05 * radius
    spots = np.array([-far if width == 2 else -3.05 * radius, far])
    rows = [
        [spot + side * part * radius]
        for spot in spots
        for side in (-1, 1)
        for part in [2.05] + [1.06] * (cluster - 1)  # a centre, and rows within η of it
    ]
    tables = _pair(np.array(rows), [spots[0]], [spots[1]])
    size = max(size for table in tables for size in _good(table, radius))
    first, second = (_quantise(table, radius) for table in tables)
    claim = preprocessor("quantize", radius=radius, cluster=size)
    # On a line, a ball of radius 4η that holds most rows can begin at one of them.
    crowd = max(_crowd(np.sort(table[:, 0]), 8 * radius) for table in tables)
    ours = 2 * radius * (crowd - 1)
    seen = [table if width == 2 else np.abs(table) - 0.5 for table in (first, second)]  # g(x)
    apart = _apart(first, second, np.ones(1), width)
    apart |= {"shift": _apart(seen[0], seen[1], np.ones(1), width)["shift"]}
    found = _found(apart, claim.l1, ours)
    return found | {"cluster": size, "claimed moved": claim.l0}


def thinned(columns: int, size: int) -> dict[str, Any]:
    """De-duplication: one row breaks every good cluster around it, as many as there is room for."""
    eta, golden = 0.01, (1 + math.sqrt(5)) / 2
    turns = 2 * math.pi * np.arange(5) / 5
    corners = [(0.0, s, t * golden) for s in (-1, 1) for t in (-1, 1)]
    centres = {  # more than 3η from each other and at most 3η from the origin, in η
        1: np.array([[-2.0], [2.0]]),
        2: 2.8 * np.column_stack([np.cos(turns), np.sin(turns)]),
        3: 2.95 / math.hypot(1, golden)
        * np.array([np.roll(at, turn) for turn in range(3) for at in corners]),
    }[columns]  # fmt: skip
    spots, rng = np.zeros((2, columns)), np.random.default_rng(columns)
    spots[1, 0] = 0.5
    rows = [
        spot + eta * (centre + rng.uniform(-1e-4, 1e-4, columns))
        for spot in spots
        for centre in centres
        for _ in range(size)
    ]
    tables = _pair(np.array(rows), *spots)
    kept = [_kept(table, eta)[:-1] for table in tables]
    largest = max(max(_good(table, eta)) for table in tables)
    claim = preprocessor("dedup", cluster=largest)
    return {"changed": int((kept[0] != kept[1]).sum()), "claimed": claim.l0, "cluster": largest}


def _kept(rows: np.ndarray, eta: float) -> np.ndarray:
    """Which rows stay: of a good cluster, its centre."""
    kept = np.ones(len(rows), dtype=bool)
    for centre, members in _good_clusters(rows, eta):
        kept[members] = np.flatnonzero(members) == centre
    return kept


# --- scaling ----------------------------------------------------------------------------------


def scaled(n: int, deviation: float, width: float) -> dict[str, Any]:
    """Standard scaling of one column, rows clipped to norm 1 again; g is linear there."""
    half = (n - 1) // 2
    common = np.concatenate([np.full(half, -1.0), np.full(n - 1 - half, -1 + 2 * deviation)])
    tables = _pair(common[:, None], -1 + deviation, 1.0)
    sigma = min(float(table.std()) for table in tables)
    first, second = (np.clip((t - t.mean()) / t.std(), -1, 1) for t in tables)
    ours = rules.scale_by_floor(UNIT, n, sigma**2, 1.0)
    apart = _apart(first * width / 2, second * width / 2, np.ones(1), width)
    moves = np.abs(first - second)[:-1]
    apart |= {"each": float(moves.max()), "total": float(moves.sum())}
    return _found(apart, 4 / sigma**3, ours) | {"deviation": sigma}


# --- principal components ---------------------------------------------------------------------


def _basis(rows: np.ndarray, centred: bool) -> tuple[np.ndarray, float]:
    """First component, and the gap behind it."""
    values, vectors = np.linalg.eigh(np.cov(rows.T) if centred else rows.T @ rows / len(rows))
    return vectors[:, -1], float(values[-1] - values[-2])


def turned(n: int, gap: float, width: float, norm: float = 1.0) -> dict[str, Any]:
    """Projection on one component, which a row (1, 1)/√2 turns one way, (1, −1)/√2 the other."""
    long = round((n - 1) / 2 * (1 + gap))  # rows along the first axis, the others along the second
    common = np.vstack([np.tile([1.0, 0.0], (long, 1)), np.tile([0.0, 1.0], (n - 1 - long, 1))])
    h = math.sqrt(0.5)
    tables = tuple(norm * table for table in _pair(common, [h, h], [h, -h]))
    found = [_basis(table, centred=False) for table in tables]
    true = min(each[1] for each in found)
    projectors = [np.outer(v, v) for v, _ in found]
    first, second = (table @ p for table, p in zip(tables, projectors, strict=True))
    along = np.array([0.0, 1.0])
    ours = (norm**2 / true) * norm * (n - 1) / n
    apart = _apart(first, second, along, width * norm)
    return _found(apart, 12.2 / true * norm, ours) | {"gap": true}


def beside(n: int, gap: float) -> dict[str, Any]:
    """Two neighbours on either side of an eigengap, which is returned: descent after projection.

    Components are those of the covariance; rows come with both signs, so that they have no mean.
    """
    long = 2 * round((n - 1) / 4 * (1 + gap))
    signs = np.where(np.arange(n - 1) % 2, 1.0, -1.0)[:, None]
    axes = np.vstack([np.tile([1.0, 0.0], (long, 1)), np.tile([0.0, 1.0], (n - 1 - long, 1))])
    tables = _pair(signs * axes, [0.6, 0.8], [0.8, -0.6])
    found = [_basis(table, centred=True) for table in tables]
    bad, good = found[0][1], found[1][1]
    first, second = (table @ np.outer(v, v) for table, (v, _) in zip(tables, found, strict=True))
    apart = _apart(first, second, np.array([0.0, 1.0]), 2.0)
    return {**apart, "gap": (bad + good) / 2, "bad": bad, "good": good}


def crowded(members: int) -> dict[str, Any]:
    """De-duplication (section 5.1): a row in their midst makes one cluster of rows that are none.

    Gradients are one and the same unit vector, which is lost with every row that is removed.
    """
    eta = 0.1
    rows = 0.9 * eta * np.eye(members + 1)
    tables = _pair(rows[:-1], np.zeros(members + 1), rows[-1])
    kept = [_kept(table, eta) for table in tables]
    sizes = [max(_good(table, eta), default=0) for table in tables]
    claim = preprocessor("dedup", cluster=1)  # of a collection whose good clusters are single rows
    return {
        "shift": abs(int(kept[0].sum()) - int(kept[1].sum())),
        "clusters": sizes,
        "claimed": claim.l1,
    }


def dimensions(n: int) -> dict[str, Any]:
    """Coordinates on one component: the sign of an eigenvector turns, whatever rule sets it."""
    along, across = np.array([1, -1]) / math.sqrt(2), np.array([1, 1]) / math.sqrt(2)
    signs = np.where(np.arange(n - 1) % 2, 1.0, -1.0)
    tables = _pair(0.9 * signs[:, None] * along, 0.7 * (along + across), 0.7 * (along - across))
    found = [_basis(table, centred=True) for table in tables]
    # scikit-learn's rule: the entry of largest modulus is positive.
    vectors = [v * np.sign(v[np.abs(v).argmax()]) for v, _ in found]
    gap = min(each[1] for each in found)
    claim = preprocessor("pca-dim", n=n, gap=gap)
    turn = np.linalg.norm(np.outer(vectors[0], vectors[0]) - np.outer(vectors[1], vectors[1]), 2)
    return {
        "gap": gap,
        "claimed": claim.linf,
        "found": float(np.linalg.norm(vectors[0] - vectors[1])),
        "projection": float(turn),
    }


# --- mechanisms -------------------------------------------------------------------------------


def sampled(n: int, alpha: float) -> dict[str, Any]:
    """DP-SGD on single sampled rows, T = n², σ = L√T/(εn) = 1: its divergence, and Table 1's."""
    mechanism = SampledSGD(1.0, n=n, steps=n**2)
    x = np.linspace(-12, 13, 200_001)

    def density(shift: float) -> np.ndarray:
        found: np.ndarray = (1 - 1 / n) * np.exp(-(x**2) / 2) + np.exp(-((x - shift) ** 2) / 2) / n
        return found / math.sqrt(2 * math.pi)

    p, q = density(1.0), density(-1.0)
    w = p / q - 1
    excess = trapezoid(q * (np.expm1(alpha * np.log1p(w)) - alpha * w), x)
    found = n**2 * math.log1p(float(excess)) / (alpha - 1)
    return {"found": found, "claimed": mechanism.rdp(alpha)}
