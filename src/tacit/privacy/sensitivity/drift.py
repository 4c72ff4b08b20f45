r"""How far apart neighbouring tables may lie once they were preprocessed without noise.

Two tables differ in one row, z₁ against z₂; their number of rows n is public. After some
stages the copies are (z₁, x₁ … xₙ₋₁) and (z₂, x₁′ … xₙ₋₁′), row by row aligned, each row of norm
at most R. With dᵢ = xᵢ − xᵢ′ over the *common* rows, `Drift` bounds Σ‖dᵢ‖ (total), max ‖dᵢ‖
(each), how many dᵢ are not zero (moved) and (Σ‖dᵢ‖²)^½ (energy). z₁ and z₂ are arbitrary.

Every function below takes the drift of the rows that come in, so stages chain; ``docs/drift.md``
has the proofs. Constants such as a penalty or a gap are public. A rule that needs a condition on
the data (an eigengap, few gaps) says so: it holds only behind a test (`tacit.privacy.ptr`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.exceptions import InputError

__all__ = [
    "Drift",
    "center",
    "deduplicate",
    "impute_mean",
    "impute_median",
    "impute_regression",
    "impute_ridge",
    "impute_shrunk_mean",
    "impute_trimmed_mean",
    "pca",
    "quantize",
    "scale",
    "scale_by_floor",
    "scale_centered",
    "soft_pca",
]

UP = 1 + 2.0**-45  # more than the rounding of any formula here


@dataclass(frozen=True)
class Drift:
    """Bounds on how far the two copies of the common rows lie apart.

    Numbers are tightened against each other on the way in: no row moves farther
    than the total or than 2R, and so on (``docs/drift.md``, section 1).

    Attributes
    ----------
    bound : float
        R, norm of any row.
    total : float
        τ ≥ Σ‖xᵢ − xᵢ′‖ over the common rows.
    each : float
        t ≥ ‖xᵢ − xᵢ′‖ for every one of them.
    moved : float
        m ≥ number of common rows that differ at all.
    energy : float, optional
        φ ≥ (Σ‖xᵢ − xᵢ′‖²)^½; if not given, what the others imply.

    Examples
    --------
    >>> Drift(1.0)
    Drift(bound=1.0, total=0.0, each=0.0, moved=0.0, energy=0.0)
    >>> Drift(1.0, total=4.0, each=0.5, moved=6).total
    3.0
    """

    bound: float
    total: float = 0.0
    each: float = 0.0
    moved: float = 0.0
    energy: float | None = None

    def __post_init__(self) -> None:
        given = {k: getattr(self, k) for k in ("bound", "total", "each", "moved", "energy")}
        if given["energy"] is None:
            given["energy"] = math.inf
        for name, value in given.items():
            if isinstance(value, bool) or not value >= 0:
                raise InputError(f"Drift({name}={value!r}): {name} must be a number from 0")
        if not 0 < given["bound"] < math.inf:
            raise InputError(f"Drift(bound={self.bound!r}): bound must be positive and finite")
        bound, total, each, moved, energy = (float(value) for value in given.values())
        if total and not (each and moved):
            raise InputError(
                f"Drift(total={total:g}, each={each:g}, moved={moved:g}): where rows move, all "
                "three are positive; math.inf stands for what is not known"
            )
        if 0.0 in (total, each, moved, energy):
            total = each = moved = energy = 0.0
        else:
            for _ in range(2):
                each = min(each, total, energy, 2 * bound)
                total = min(total, _times(moved, each), math.sqrt(moved) * energy)
                energy = min(energy, total, math.sqrt(each) * math.sqrt(total))
        values = (bound, total, each, moved, energy)
        for name, value in zip(given, values, strict=True):
            object.__setattr__(self, name, value)

    def lipschitz(self, factor: float, bound: float) -> Drift:
        """Behind a public row-wise map of that Lipschitz constant into the ball of ``bound``.

        Parameters
        ----------
        factor : float
            Lipschitz constant of the map.
        bound : float
            Norm bound of the rows out.

        Returns
        -------
        Drift
            Of the rows out.
        """
        total, each, energy = (
            _times(factor, v) * UP for v in (self.total, self.each, _energy(self))
        )
        return Drift(bound, total, each, self.moved, energy)

    def row_wise(self, bound: float) -> Drift:
        """Behind *any* public row-wise map into the ball of ``bound``: rounding, one-hot, signs.

        Such a map may be discontinuous: every row that moved at all may move by 2R.

        Parameters
        ----------
        bound : float
            Norm bound of the rows out.

        Returns
        -------
        Drift
            Of the rows out.
        """
        return Drift(bound, 2 * bound * self.moved, 2 * bound, self.moved)

    def clipped(self, radius: float) -> Drift:
        """Rows brought back into a ball: a projection on a convex set, so nothing moves apart.

        Parameters
        ----------
        radius : float
            Of the ball.

        Returns
        -------
        Drift
            Of the rows out.
        """
        return replace(self, bound=min(self.bound, radius))

    def rounded(self, slip: float) -> Drift:
        """With every row that moves off by up to ``slip`` in either copy, as computers are.

        Rows that do not move are computed from the same numbers in the same way.

        Parameters
        ----------
        slip : float
            In the L2 norm.

        Returns
        -------
        Drift
            Of the rows as computed.
        """
        if not self.moved:
            return self
        return Drift(
            self.bound + slip,
            self.total + 2 * slip * self.moved,
            self.each + 2 * slip,
            self.moved,
            _energy(self) + 2 * slip * math.sqrt(self.moved),
        )

    def to_dict(self) -> dict[str, Any]:
        """The drift as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        names = ("bound", "total", "each", "moved", "energy")
        return {name: getattr(self, name) for name in names}

    # --- what a released statistic of such rows may differ by: docs/drift.md, section 4 ---

    @property
    def sum(self) -> float:
        """Largest change of Σxᵢ in norm: 2R for the replaced row, τ for the others."""
        return (2 * self.bound + self.total) * UP

    def second_moment(self, n: int) -> float:
        """Largest change of (1/n)Σxxᵀ in Frobenius norm.

        ‖z₁z₁ᵀ − z₂z₂ᵀ‖ ≤ √2·R², and ‖xxᵀ − x′x′ᵀ‖ ≤ ‖d‖·‖x + x′‖ ≤ 2R‖d‖.

        Parameters
        ----------
        n : int
            Number of rows.

        Returns
        -------
        float
            In squared norms of rows.
        """
        r = self.bound
        return (math.sqrt(2) * r**2 + 2 * r * self.total) / n * UP

    def count(self) -> float:
        """Largest change of the number of rows with any given property.

        Returns
        -------
        float
            In rows.
        """
        return 1 + self.moved


def center(rows: Drift, n: int) -> Drift:
    """Rows less their exact mean (`docs/drift.md`, rule c1). The bound doubles."""
    r = rows.bound
    total = min(2 * rows.total, math.sqrt(n - 1) * _energy(rows)) + 2 * r
    each = rows.each + (2 * r + rows.total) / n
    energy = _energy(rows) + 2 * r / math.sqrt(n)
    return _made(2 * r, total, each, n - 1, energy)


# --- filling gaps: rules c2 and f ------------------------------------------------------------
# r bounds the common rows that have gaps; a column then lacks at most r + 1 values, the
# replaced row's among them. Rows are clipped back to R afterwards.


def _present(n: int, gaps: int, name: str) -> int:
    """n − p, the values that every column keeps."""
    present = n - (gaps + 1)
    if present < 1:
        raise InputError(
            f"{name}: with gaps in {gaps} of {n} rows a column might lack all its values; declare "
            "fewer rows_with_gaps, or use strategy='shrunk-mean' or 'ridge', which need no such "
            "declaration"
        )
    return present


def _filled(rows: Drift, n: int, gaps: float, change: float, energy: float | None) -> Drift:
    """Rows whose gaps, in at most ``gaps`` common rows, move by at most ``change``."""
    total = rows.total + gaps * change
    each = math.hypot(rows.each, change)
    return _made(rows.bound, total, each, min(n - 1, rows.moved + gaps), energy)


def impute_mean(rows: Drift, n: int, gaps: int) -> Drift:
    """Gaps filled by column means; at most ``gaps`` rows have any (a tested condition)."""
    present = _present(n, gaps, "mean imputation")
    r, rho2 = rows.bound, (n - 1) / present
    alone = r * math.sqrt(4 + 2 * rho2)
    energy = _energy(rows) * math.sqrt(n / present) + math.sqrt(gaps) * alone / present
    return _filled(rows, n, gaps, (alone + rows.total) / present, energy)


def impute_shrunk_mean(rows: Drift, n: int, strength: float, gaps: int | None = None) -> Drift:
    """Gaps filled by sum / (count + κ), κ = ``strength``; unconditional without ``gaps``."""
    r, k = rows.bound, strength
    alone = math.sqrt(4 / (k + 1) ** 2 + 27 * (n - 1) / (128 * k**3))
    moved = min(rows.total / (k + 1), _energy(rows) / (2 * math.sqrt(k)))
    if gaps is not None and gaps < n - 1:  # then every column has n − 1 − r values or more
        present = n - 1 - gaps
        alone = min(alone, math.sqrt(4 + 2 * (n - 1) / present) / (k + present + 1))
        moved = min(moved, rows.total / (k + present))
    return _filled(rows, n, n - 1 if gaps is None else gaps, r * alone + moved, None)


def impute_trimmed_mean(rows: Drift, n: int, gaps: int, trim: int, cells: int) -> Drift:
    """Gaps filled by means without the ``trim`` least and greatest; ``cells`` may lack in a row."""
    kept = _present(n, gaps, "trimmed-mean imputation") - 2 * trim
    if kept < 1:
        raise InputError(f"trimming {trim} values at either end leaves none of {kept + 2 * trim}")
    alone = min(2 * math.sqrt(cells), math.sqrt(4 + 2 * (n - 1) / kept))
    change = (rows.bound * alone + rows.total) / kept
    return _filled(rows, n, gaps, change, None)


def impute_median(rows: Drift, n: int, gaps: int, width: float, cells: int) -> Drift:
    """Gaps filled by medians that no single row moves by more than ``width`` (tested)."""
    if rows.total:
        raise InputError(
            "NoiselessImpute(strategy='median') must come before any other noiseless stage: how "
            "far a "
            "median moves cannot be tested on rows that have moved themselves"
        )
    return _filled(rows, n, gaps, min(width, 2 * rows.bound) * math.sqrt(cells), None)


def _regressed(rows: Drift, n: int, gaps: int | None, norm: float, change: float) -> Drift:
    """Gaps filled by a regression of weight norm ``norm`` that moves by at most ``change``."""
    common = n - 1 if gaps is None else gaps
    stretch = math.sqrt(1 + norm**2)
    total = rows.total * stretch + common * rows.bound * change
    each = rows.each * stretch + rows.bound * change
    return _made(rows.bound, total, each, min(n - 1, rows.moved + common), None)


def impute_ridge(rows: Drift, n: int, strength: float, gaps: int | None = None) -> Drift:
    """Gaps filled by ridge regression on complete columns, penalty λn, λ = ``strength``."""
    r, norm = rows.bound, rows.bound / (2 * math.sqrt(strength))
    root = math.sqrt(1 + norm**2)
    drifted = min(
        r * (norm + root) * rows.total / (strength * n),
        _energy(rows) / math.sqrt(n) * (r / strength + root / (2 * math.sqrt(strength))),
    )
    return _regressed(rows, n, gaps, norm, r**2 * root / (strength * n) + drifted)


def impute_regression(rows: Drift, n: int, floor: float, gaps: int | None = None) -> Drift:
    """Gaps filled by least squares; (1/n)AᵀA ≥ ``floor`` on both copies (a tested condition)."""
    r, norm = rows.bound, rows.bound / math.sqrt(floor)
    root = math.sqrt(1 + norm**2)
    change = (r**2 * root + r * (norm + root) * rows.total) / (floor * n)
    return _regressed(rows, n, gaps, norm, change)


# --- principal components: rules d1 and d2 ---------------------------------------------------


def pca(rows: Drift, n: int, gap: float, *, centered: bool = False) -> Drift:
    """Projection on the first k components, eigengap ≥ ``gap`` on both copies (tested).

    Centred, the projection is on the affine subspace through the mean.
    """
    r, tau = rows.bound, rows.total
    if not centered:
        turn = min(1.0, (r**2 + r * tau) / (n * gap))
        total = tau + (n - 1) * r * turn
        energy = _energy(rows) + math.sqrt(n) * r * turn
        return _made(r, total, rows.each + r * turn, n - 1, energy)
    turn = min(1.0, (1.5 * math.sqrt(3) * r**2 + 2 * r * tau) / (n * gap))
    total = min(2 * tau, math.sqrt(n - 1) * _energy(rows)) + 2 * r + n * r * turn
    return _made(r, total, rows.each + (2 * r + tau) / n + 2 * r * turn, n - 1, None)


def soft_pca(rows: Drift, n: int, strength: float) -> Drift:
    """x → M(M+λI)⁻¹x with M = (1/n)Σxxᵀ and λ = ``strength``; unconditional.

    Examples
    --------
    >>> round(soft_pca(Drift(1.0), 10_000, 0.05).total, 3)
    2.236
    """
    r, root = rows.bound, math.sqrt(strength)
    total = min(rows.total * (1 + 0.65 * r / root), 1.125 * math.sqrt(n - 1) * _energy(rows))
    each = rows.each + r**3 / (n * strength + r**2)
    each += r * min(2 * r * rows.total / (n * strength), _energy(rows) / (math.sqrt(n) * root))
    # Over n − 1, not n, as would do: so √m·φ leaves the total at R²/(2√λ) for every n.
    energy = 1.125 * _energy(rows) + r**2 / (2 * math.sqrt(n - 1) * root)
    return _made(r, total + r**2 / (2 * root), each, n - 1, energy)


# --- scaling: rule e -------------------------------------------------------------------------


#: max over v of √v/(2(v+λ)^1.5)·λ, at v = λ/2: how steeply a column's scale follows its variance,
#: seen from the copy with the smaller one.
STEEPNESS = 1 / (3 * math.sqrt(3))


def scale(rows: Drift, n: int, strength: float) -> Drift:
    """Columns divided by √(mean square + λ), λ = ``strength``; the bound becomes R/√λ."""
    r, root = rows.bound, math.sqrt(strength)
    alone = math.sqrt(2) * r**2 * STEEPNESS / strength
    total = alone + min(
        rows.total * (1 / root + 0.385 * r / strength),
        math.sqrt(n - 1) * _energy(rows) / root,
    )
    each = rows.each / root + r * (r**2 + 2 * r * rows.total) / (2 * n * strength * root)
    return _made(r / root, total, each, n - 1, _energy(rows) / root + alone / math.sqrt(n))


def _reclipped(rows: Drift, n: int, variance: float, radius: float) -> float:
    """How far a row moves that is centred, scaled and clipped to ``radius``."""
    r, tau = rows.bound, rows.total
    chord = radius * (2 * r**2 + 2 * r * tau) / (n * variance)
    chord += (2 * r + tau) / (n * math.sqrt(variance)) + rows.each / math.sqrt(variance)
    return math.sqrt(2) * chord if chord < radius else 2 * radius


def scale_centered(rows: Drift, n: int, strength: float, radius: float) -> Drift:
    """Columns centred, divided by √(variance + λ), rows clipped to ``radius``."""
    r, root = rows.bound, math.sqrt(strength)
    alone = math.sqrt((4 * r**2 * STEEPNESS / strength) ** 2 + 4 * r**2 / strength)
    total = alone + min(
        rows.total * (2 / root + 0.77 * r / strength),
        math.sqrt(n - 1) * _energy(rows) / root,
    )
    return _made(radius, total, _reclipped(rows, n, strength, radius), n - 1, None)


def scale_by_floor(rows: Drift, n: int, variance: float, radius: float) -> Drift:
    """Columns centred and divided by their deviation, all variances ≥ ``variance`` (tested)."""
    r, tau, sigma = rows.bound, rows.total, math.sqrt(variance)
    total = math.hypot((2 * r**2 + 2 * r * tau) / variance, (2 * r + tau) / sigma) + tau / sigma
    return _made(radius, total, _reclipped(rows, n, variance, radius), n - 1, None)


# --- crowds: rule g --------------------------------------------------------------------------


def _first(rows: Drift, name: str) -> None:
    if rows.total:
        raise InputError(
            f"{name} must come before any other noiseless stage: whether rows are near-duplicates "
            "jumps when they move, so on moved rows no useful bound exists"
        )


def deduplicate(rows: Drift, n: int, crowd: int) -> Drift:
    """Near-duplicates blanked out; no ball of radius 4η holds more than ``crowd`` rows (tested)."""
    _first(rows, "Dedup")
    flips = min(n - 1, 2 * (crowd - 1))
    return _made(rows.bound, rows.bound * flips, rows.bound, flips, None)


def quantize(rows: Drift, n: int, radius: float, crowd: int) -> Drift:
    """Near-duplicates moved to the centre of their cluster, η = ``radius``; crowds as above.

    z₁ out and z₂ in are two hops, each of which moves crowd − 1 rows by η at most.
    """
    _first(rows, "Quantize")
    moved = min(n - 1, 2 * (crowd - 1))
    return _made(rows.bound, 2 * radius * (crowd - 1), 2 * radius, moved, None)


def _made(bound: float, total: float, each: float, moved: float, energy: float | None) -> Drift:
    """A drift rounded up."""
    return Drift(bound, total * UP, each * UP, moved, None if energy is None else energy * UP)


def _energy(rows: Drift) -> float:
    assert rows.energy is not None  # filled on the way in
    return rows.energy


def _times(a: float, b: float) -> float:
    return 0.0 if 0.0 in (a, b) else a * b
