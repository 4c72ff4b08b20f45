"""What Hu, Sanyal & Schölkopf claim of preprocessors, as printed, each with a verdict.

Propositions 3, 5, 6 and 16, Corollary 4 and Tables 2 and 3 of "Provable Privacy with Non-Private
Pre-Processing" (2024). Formulas that are wrong are computed all the same, and labelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tacit.exceptions import InputError
from tacit.research.price.smooth import Priced, choose, number, whole

GAP = "; rows of norm at most 1 have no eigenvalue, and so no gap, above 1"
DEVIATION = "; columns of rows of norm at most 1 do not deviate by more than 1"
MISSING = "; with gaps in every row there is nothing to impute from"


@dataclass(frozen=True)
class Sensitivity:
    """The two sensitivities of a preprocessor (Def. 4, (2)), as the paper states them.

    Attributes
    ----------
    l0 : float
        Δ∞, how many common rows may differ.
    linf : float
        Δ₂, how far any of them may move; infinite where the paper has no bound.
    formula, sound, note
        As in `tacit.research.price.smooth.Priced`; ``sound`` is about Δ∞ and Δ₂ both.
    """

    l0: float
    linf: float
    formula: str
    sound: bool
    note: str

    @property
    def l1(self) -> float:
        """Δ₂·Δ∞, the τ of Theorem 2."""
        return self.l0 * self.linf


def preprocessor(name: str, **parameters: Any) -> Sensitivity:
    """What the paper says of a preprocessor, and whether it is true.

    Parameters
    ----------
    name : str
        One of `PREPROCESSORS`.
    **parameters
        ``dedup``: cluster, the largest good cluster. ``quantize``: radius (η) and cluster.
        ``mean``: n, missing (p). ``median``: missing, high, low, the extreme medians.
        ``trimmed-mean``: n, missing, trim (m), high, low. ``regression``: missing, largest,
        smallest, the extreme eigenvalues of XᵀX. ``pca-rank``, ``pca-dim``: n, gap.
        ``scale``: n, deviation (σ_min). ``min-max``: n.

    Examples
    --------
    >>> found = preprocessor("pca-rank", n=10_000, gap=0.1)
    >>> round(found.l1, 1), found.sound
    (120.0, True)
    >>> preprocessor("scale", n=10_000, deviation=0.109).sound
    False
    """
    found = choose("preprocessor", name, PREPROCESSORS, parameters)(**parameters)
    assert isinstance(found, Sensitivity)
    return found


_CLUSTERS = "One row can break every good cluster around it, not one only as Δ∞ assumes."


def dedup_claim(cluster: int) -> Sensitivity:
    whole("cluster", cluster, 1)
    return Sensitivity(2 * cluster, 1.0, "Proposition 3", False, _CLUSTERS)


def quantize_claim(radius: float, cluster: int) -> Sensitivity:
    note = _CLUSTERS + " And the centres may be the replaced rows, up to 2η apart, not η."
    whole("cluster", cluster, 1)
    return Sensitivity(2 * cluster, number("radius", radius), "Proposition 3", False, note)


def mean_claim(n: int, missing: int) -> Sensitivity:
    whole("missing", missing, 0, whole("n", n, 2) - 1, advice=MISSING)
    note = (
        "Overlooks that the two rows may have gaps in different columns, which changes the "
        "counts behind the means and not the sums alone."
    )
    return Sensitivity(missing, 2 / (n - missing), "Corollary 4; Table 3; eq. (34)", False, note)


def median_claim(missing: int, high: float, low: float) -> Sensitivity:
    whole("missing", missing, 0)
    note = "Holds column by column; a row with gaps in k columns may move √k times as far."
    return Sensitivity(missing, high - low, "Proposition 16; Table 3", False, note)


def trimmed_mean_claim(n: int, missing: int, trim: int, high: float, low: float) -> Sensitivity:
    kept = whole("n", n, 2) - whole("missing", missing, 0) - 2 * whole("trim", trim, 0)
    whole("n − missing − 2·trim", kept, 1)
    note = (
        "The order statistics are swapped, which makes it negative as printed, and a factor √k "
        "for gaps in k columns is missing."
    )
    return Sensitivity(missing, (high - low) / kept, "Proposition 16; Table 3", False, note)


def regression_claim(missing: int, largest: float, smallest: float) -> Sensitivity:
    whole("missing", missing, 0)
    low, top = number("smallest", smallest), number("largest", largest)
    note = (
        "Derived for a row added, not replaced, and one column, (35): unproven if λmin is below "
        "λmax/(λmax + 1), and a factor √k for gaps in k columns is missing."
    )
    each = top**2 / ((top + 1) * low**2) + 1 / low
    return Sensitivity(missing, each, "Proposition 16; Table 3; eq. (35)", False, note)


def pca_rank_claim(n: int, gap: float) -> Sensitivity:
    number("gap", gap, most=1.0, advice=GAP)
    each = 4 * (3 * whole("n", n, 2) + 2) / (n * (n - 1) * gap)  # (42)
    note = "True but loose: τ is about 12/gap, where 1/gap (centred: 2.6/gap) is enough."
    return Sensitivity(n, each, "Proposition 5, rank reduction", True, note)


def _pca_dim_claim(n: int, gap: float) -> Sensitivity:
    note = (
        "No rule for the signs of eigenvectors is continuous: there are neighbours between which "
        "a sign turns, and every row moves by twice its length; (36) and (37) also lose a square."
    )
    each = 2 * pca_rank_claim(n, gap).linf
    return Sensitivity(n, each, "Proposition 5, dimension reduction", False, note)


def scale_claim(n: int, deviation: float) -> Sensitivity:
    sigma = number("deviation", deviation, most=1.0, advice=DEVIATION)
    each = (2 / sigma**3 + 2 / sigma) / whole("n", n, 2)
    note = "A variance moves by up to 4/n, not by the 2/n put into (44)."
    return Sensitivity(n, each, "Proposition 6, standard scaling", False, note)


def _min_max_claim(n: int) -> Sensitivity:
    note = "No Δ₂ is given and no useful one exists: one row can move half of them by nearly 1."
    return Sensitivity(whole("n", n, 2), math.inf, "Proposition 6, min-max scaling", False, note)


#: Every preprocessor of the paper.
PREPROCESSORS: dict[str, Callable[..., Sensitivity]] = {
    "dedup": dedup_claim,
    "quantize": quantize_claim,
    "mean": mean_claim,
    "median": median_claim,
    "trimmed-mean": trimmed_mean_claim,
    "regression": regression_claim,
    "pca-rank": pca_rank_claim,
    "pca-dim": _pca_dim_claim,
    "scale": scale_claim,
    "min-max": _min_max_claim,
}


# --- Table 2, which is Theorem 17 -------------------------------------------------------------


def table2(
    mechanism: str,
    name: str,
    *,
    n: int,
    alpha: float,
    epsilon: float,
    ratio: float = 1.0,
    **parameters: Any,
) -> Priced:
    """The Rényi ε̂(α) that Table 2 prints for a mechanism on preprocessed rows, with its label.

    Parameters
    ----------
    mechanism : str
        ``gaussian``, ``gd``, ``laplace``, ``exponential``, ``sgd-sampled`` or ``sgd-iterated``.
    name : str
        ``dedup``, ``quantize``, ``mean``, ``pca-rank`` or ``scale``, with the ``parameters`` of
        `preprocessor`.
    alpha, epsilon : float
        The order, and the mechanism's own parameter.
    ratio : float
        μ/L, which Table 2 sets to one; Theorem 8 shows where it stands.

    Examples
    --------
    >>> found = table2("gaussian", "scale", n=10**6, deviation=0.05, alpha=11.0, epsilon=0.1)
    >>> round(found.epsilon / (11.0 * 0.1**2)), found.sound
    (33601, False)
    """
    if mechanism not in _ROWS or name not in _COLUMNS:
        known = f"{', '.join(_ROWS)} by {', '.join(_COLUMNS)}"
        raise InputError(f"Table 2 has no entry for {mechanism!r} by {name!r}; it has {known}")
    column = choose("column of Table 2", name, _COLUMNS, {"n": n, **parameters})
    claim: Sensitivity = column(n=n, **parameters)
    where = f"Table 2, {mechanism} by {name}"
    if mechanism == ("sgd-iterated" if name in ("pca-rank", "scale") else "sgd-sampled"):
        return Priced(math.inf, where, True, "Table 2 has no such entry.")
    if name == "pca-rank" and n < 101:
        return Priced(math.inf, where, True, "Table 2 is for 101 rows or more.")
    if alpha < 11 and mechanism not in ("laplace", "exponential"):
        return Priced(math.inf, where, True, "Table 2 is for orders from 11 on.")
    tau, sound, note = claim.l1 * ratio, claim.sound, claim.note
    square = tau**2
    if name == "scale":
        square, sound, note = tau * ratio, True, "True if rows are clipped again after scaling."
        if mechanism in ("gaussian", "gd"):
            sound, note = False, "4/σ³, a bound of τ, is put in the place of τ² without a square."
    if mechanism.startswith("sgd"):
        sound, note = False, "The mechanism's own row of Table 1 gives no usable number."
    return Priced(_ROWS[mechanism](alpha, epsilon, tau, square, n, claim.l0), where, sound, note)


def _iterated_shape(n: int, moved: float) -> float:
    left = n - moved
    return n * math.log(left) / (left * math.log(n)) if left > 1 else math.inf


# a: the order, e: the mechanism's ε, t: τ, s: what is printed for τ², p: rows that move
_ROWS: dict[str, Callable[..., float]] = {
    "gaussian": lambda a, e, t, s, n, p: 1.05 * a * e**2 * (1 + s),
    "gd": lambda a, e, t, s, n, p: 1.05 * a * e**2 * (4 + s),
    "laplace": lambda a, e, t, s, n, p: e * (1 + t),
    "exponential": lambda a, e, t, s, n, p: e * (1 + t),
    "sgd-sampled": lambda a, e, t, s, n, p: 1.05 * a * e**2 * (2 * a + t**2),
    "sgd-iterated": lambda a, e, t, s, n, p: 1.1 * a * e**2 * (1 + t**2 * _iterated_shape(n, p)),
}
# The sensitivities as Table 2 rounds them.
_COLUMNS: dict[str, Callable[..., Sensitivity]] = {
    "dedup": lambda n, cluster: dedup_claim(cluster),
    "quantize": lambda n, radius, cluster: quantize_claim(radius, cluster),
    "mean": mean_claim,
    "pca-rank": lambda n, gap: replace(pca_rank_claim(n, gap), linf=12.2 / (n * gap)),
    "scale": lambda n, deviation: replace(scale_claim(n, deviation), linf=4 / deviation**3 / n),
}
