r"""How far apart neighbouring tables may lie once they were preprocessed without noise.

Two tables differ in one row, z₁ against z₂; their number of rows n is public. After some
stages the copies are (z₁, x₁ … xₙ₋₁) and (z₂, x₁′ … xₙ₋₁′), row by row aligned, each row of norm
at most R. With dᵢ = xᵢ − xᵢ′ over the *common* rows, `Drift` bounds norms of (‖d₁‖, …, ‖dₙ₋₁‖):
Σ‖dᵢ‖ (l1), max ‖dᵢ‖ (linf), how many dᵢ are not zero (l0) and (Σ‖dᵢ‖²)^½ (l2). z₁ and z₂ are
arbitrary.

Every function below takes the drift of the rows that come in, so stages chain; ``docs/drift.md``
has the proofs. Constants such as a penalty or a gap are public. A rule that needs a condition on
the data (an eigengap, few gaps) says so: it holds only behind a test (`tacit.privacy.ptr`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.exceptions import InputError

UP = 1 + 2.0**-45  # more than the rounding of any formula here
#: Names in certificates, which are older than those of the attributes.
WRITTEN = {"bound": "bound", "total": "l1", "each": "linf", "moved": "l0", "energy": "l2"}


@dataclass(frozen=True)
class Drift:
    """Bounds on how far the two copies of the common rows lie apart.

    Numbers are tightened against each other on the way in: no row moves farther
    than all together or than 2R, and so on (``docs/drift.md``, section 1).

    Attributes
    ----------
    bound : float
        R, norm of any row.
    l1 : float
        τ ≥ Σ‖xᵢ − xᵢ′‖ over the common rows.
    linf : float
        t ≥ ‖xᵢ − xᵢ′‖ for every one of them.
    l0 : float
        m ≥ number of common rows that differ at all.
    l2 : float, optional
        φ ≥ (Σ‖xᵢ − xᵢ′‖²)^½; if not given, what the others imply.

    Examples
    --------
    >>> Drift(1.0)
    Drift(bound=1.0, l1=0.0, linf=0.0, l0=0.0, l2=0.0)
    >>> Drift(1.0, l1=4.0, linf=0.5, l0=6).l1
    3.0
    """

    bound: float
    l1: float = 0.0
    linf: float = 0.0
    l0: float = 0.0
    l2: float | None = None

    def __post_init__(self) -> None:
        given = {k: getattr(self, k) for k in ("bound", "l1", "linf", "l0", "l2")}
        if given["l2"] is None:
            given["l2"] = math.inf
        for name, value in given.items():
            if isinstance(value, bool) or not value >= 0:
                raise InputError(f"Drift({name}={value!r}): {name} must be a number from 0")
        if not 0 < given["bound"] < math.inf:
            raise InputError(f"Drift(bound={self.bound!r}): bound must be positive and finite")
        bound, l1, linf, l0, l2 = (float(value) for value in given.values())
        if l1 and not (linf and l0):
            raise InputError(
                f"Drift(l1={l1:g}, linf={linf:g}, l0={l0:g}): where rows move, all "
                "three are positive; math.inf stands for what is not known"
            )
        if 0.0 in (l1, linf, l0, l2):
            l1 = linf = l0 = l2 = 0.0
        else:
            for _ in range(2):
                linf = min(linf, l1, l2, 2 * bound)
                l1 = min(l1, _times(l0, linf), math.sqrt(l0) * l2)
                l2 = min(l2, l1, math.sqrt(linf) * math.sqrt(l1))
        values = (bound, l1, linf, l0, l2)
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
        l1, linf, l2 = (_times(factor, v) * UP for v in (self.l1, self.linf, _l2(self)))
        return Drift(bound, l1, linf, self.l0, l2)

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
        return Drift(bound, 2 * bound * self.l0, 2 * bound, self.l0)

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

    def rounded(self, rounding_bound: float) -> Drift:
        """With every row that moves off by ``rounding_bound`` at most in either copy.

        Rows that do not move are computed from the same numbers in the same way.

        Parameters
        ----------
        rounding_bound : float
            In the L2 norm.

        Returns
        -------
        Drift
            Of the rows as computed.
        """
        if not self.l0:
            return self
        return Drift(
            self.bound + rounding_bound,
            self.l1 + 2 * rounding_bound * self.l0,
            self.linf + 2 * rounding_bound,
            self.l0,
            _l2(self) + 2 * rounding_bound * math.sqrt(self.l0),
        )

    def to_dict(self) -> dict[str, Any]:
        """The drift as plain JSON values.

        Returns
        -------
        dict
            By the names that certificates have for them (`WRITTEN`).
        """
        return {name: getattr(self, field) for name, field in WRITTEN.items()}

    # --- what a released statistic of such rows may differ by: docs/drift.md, section 4 ---

    @property
    def sum(self) -> float:
        """Largest change of Σxᵢ in norm: 2R for the replaced row, τ for the others."""
        return (2 * self.bound + self.l1) * UP

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
        return (math.sqrt(2) * r**2 + 2 * r * self.l1) / n * UP

    def count(self) -> float:
        """Largest change of the number of rows with any given property.

        Returns
        -------
        float
            In rows.
        """
        return 1 + self.l0


def center(rows: Drift, n: int) -> Drift:
    """Rows less their exact mean (`docs/drift.md`, rule c1). The bound doubles."""
    r = rows.bound
    l1 = min(2 * rows.l1, math.sqrt(n - 1) * _l2(rows)) + 2 * r
    linf = rows.linf + (2 * r + rows.l1) / n
    l2 = _l2(rows) + 2 * r / math.sqrt(n)
    return _made(2 * r, l1, linf, n - 1, l2)


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


def _filled(rows: Drift, n: int, gaps: float, change: float, l2: float | None) -> Drift:
    """Rows whose gaps, in at most ``gaps`` common rows, move by at most ``change``."""
    l1 = rows.l1 + gaps * change
    linf = math.hypot(rows.linf, change)
    return _made(rows.bound, l1, linf, min(n - 1, rows.l0 + gaps), l2)


def impute_mean(rows: Drift, n: int, gaps: int) -> Drift:
    """Gaps filled by column means; at most ``gaps`` rows have any (a tested condition)."""
    present = _present(n, gaps, "mean imputation")
    r, rho2 = rows.bound, (n - 1) / present
    alone = r * math.sqrt(4 + 2 * rho2)
    l2 = _l2(rows) * math.sqrt(n / present) + math.sqrt(gaps) * alone / present
    return _filled(rows, n, gaps, (alone + rows.l1) / present, l2)


def impute_shrunk_mean(rows: Drift, n: int, strength: float, gaps: int | None = None) -> Drift:
    """Gaps filled by sum / (count + κ), κ = ``strength``; unconditional without ``gaps``."""
    r, k = rows.bound, strength
    alone = math.sqrt(4 / (k + 1) ** 2 + 27 * (n - 1) / (128 * k**3))
    drifted = min(rows.l1 / (k + 1), _l2(rows) / (2 * math.sqrt(k)))
    if gaps is not None and gaps < n - 1:  # then every column has n − 1 − r values or more
        present = n - 1 - gaps
        alone = min(alone, math.sqrt(4 + 2 * (n - 1) / present) / (k + present + 1))
        drifted = min(drifted, rows.l1 / (k + present))
    return _filled(rows, n, n - 1 if gaps is None else gaps, r * alone + drifted, None)


def impute_trimmed_mean(rows: Drift, n: int, gaps: int, trim: int, cells: int) -> Drift:
    """Gaps filled by means without the ``trim`` least and greatest; ``cells`` may lack in a row."""
    kept = _present(n, gaps, "trimmed-mean imputation") - 2 * trim
    if kept < 1:
        raise InputError(f"trimming {trim} values at either end leaves none of {kept + 2 * trim}")
    alone = min(2 * math.sqrt(cells), math.sqrt(4 + 2 * (n - 1) / kept))
    change = (rows.bound * alone + rows.l1) / kept
    return _filled(rows, n, gaps, change, None)


def impute_median(rows: Drift, n: int, gaps: int, width: float, cells: int) -> Drift:
    """Gaps filled by medians that no single row moves by more than ``width`` (tested)."""
    if rows.l1:
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
    l1 = rows.l1 * stretch + common * rows.bound * change
    linf = rows.linf * stretch + rows.bound * change
    return _made(rows.bound, l1, linf, min(n - 1, rows.l0 + common), None)


def impute_ridge(rows: Drift, n: int, strength: float, gaps: int | None = None) -> Drift:
    """Gaps filled by ridge regression on complete columns, penalty λn, λ = ``strength``."""
    r, norm = rows.bound, rows.bound / (2 * math.sqrt(strength))
    root = math.sqrt(1 + norm**2)
    drifted = min(
        r * (norm + root) * rows.l1 / (strength * n),
        _l2(rows) / math.sqrt(n) * (r / strength + root / (2 * math.sqrt(strength))),
    )
    return _regressed(rows, n, gaps, norm, r**2 * root / (strength * n) + drifted)


def impute_regression(rows: Drift, n: int, floor: float, gaps: int | None = None) -> Drift:
    """Gaps filled by least squares; (1/n)AᵀA ≥ ``floor`` on both copies (a tested condition)."""
    r, norm = rows.bound, rows.bound / math.sqrt(floor)
    root = math.sqrt(1 + norm**2)
    change = (r**2 * root + r * (norm + root) * rows.l1) / (floor * n)
    return _regressed(rows, n, gaps, norm, change)


# --- principal components: rules d1 and d2 ---------------------------------------------------


def pca(rows: Drift, n: int, gap: float, *, centered: bool = False) -> Drift:
    """Projection on the first k components, eigengap ≥ ``gap`` on both copies (tested).

    Centred, the projection is on the affine subspace through the mean.
    """
    r, tau = rows.bound, rows.l1
    if not centered:
        turn = min(1.0, (r**2 + r * tau) / (n * gap))
        l1 = tau + (n - 1) * r * turn
        l2 = _l2(rows) + math.sqrt(n) * r * turn
        return _made(r, l1, rows.linf + r * turn, n - 1, l2)
    turn = min(1.0, (1.5 * math.sqrt(3) * r**2 + 2 * r * tau) / (n * gap))
    l1 = min(2 * tau, math.sqrt(n - 1) * _l2(rows)) + 2 * r + n * r * turn
    return _made(r, l1, rows.linf + (2 * r + tau) / n + 2 * r * turn, n - 1, None)


def soft_pca(rows: Drift, n: int, strength: float) -> Drift:
    """x → M(M+λI)⁻¹x with M = (1/n)Σxxᵀ and λ = ``strength``; unconditional.

    Examples
    --------
    >>> round(soft_pca(Drift(1.0), 10_000, 0.05).l1, 3)
    2.236
    """
    r, root = rows.bound, math.sqrt(strength)
    l1 = min(rows.l1 * (1 + 0.65 * r / root), 1.125 * math.sqrt(n - 1) * _l2(rows))
    linf = rows.linf + r**3 / (n * strength + r**2)
    linf += r * min(2 * r * rows.l1 / (n * strength), _l2(rows) / (math.sqrt(n) * root))
    # Over n − 1, not n, as would do: so √m·φ leaves l1 at R²/(2√λ) for every n.
    l2 = 1.125 * _l2(rows) + r**2 / (2 * math.sqrt(n - 1) * root)
    return _made(r, l1 + r**2 / (2 * root), linf, n - 1, l2)


# --- scaling: rule e -------------------------------------------------------------------------


#: max over v of √v/(2(v+λ)^1.5)·λ, at v = λ/2: how steeply a column's scale follows its variance,
#: seen from the copy with the smaller one.
STEEPNESS = 1 / (3 * math.sqrt(3))


def scale(rows: Drift, n: int, strength: float) -> Drift:
    """Columns divided by √(mean square + λ), λ = ``strength``; the bound becomes R/√λ."""
    r, root = rows.bound, math.sqrt(strength)
    alone = math.sqrt(2) * r**2 * STEEPNESS / strength
    l1 = alone + min(
        rows.l1 * (1 / root + 0.385 * r / strength),
        math.sqrt(n - 1) * _l2(rows) / root,
    )
    linf = rows.linf / root + r * (r**2 + 2 * r * rows.l1) / (2 * n * strength * root)
    return _made(r / root, l1, linf, n - 1, _l2(rows) / root + alone / math.sqrt(n))


def _reclipped(rows: Drift, n: int, variance: float, radius: float) -> float:
    """How far a row moves that is centred, scaled and clipped to ``radius``."""
    r, tau = rows.bound, rows.l1
    chord = radius * (2 * r**2 + 2 * r * tau) / (n * variance)
    chord += (2 * r + tau) / (n * math.sqrt(variance)) + rows.linf / math.sqrt(variance)
    return math.sqrt(2) * chord if chord < radius else 2 * radius


def scale_centered(rows: Drift, n: int, strength: float, radius: float) -> Drift:
    """Columns centred, divided by √(variance + λ), rows clipped to ``radius``."""
    r, root = rows.bound, math.sqrt(strength)
    alone = math.sqrt((4 * r**2 * STEEPNESS / strength) ** 2 + 4 * r**2 / strength)
    l1 = alone + min(
        rows.l1 * (2 / root + 0.77 * r / strength),
        math.sqrt(n - 1) * _l2(rows) / root,
    )
    return _made(radius, l1, _reclipped(rows, n, strength, radius), n - 1, None)


def scale_by_floor(rows: Drift, n: int, variance: float, radius: float) -> Drift:
    """Columns centred and divided by their deviation, all variances ≥ ``variance`` (tested)."""
    r, tau, sigma = rows.bound, rows.l1, math.sqrt(variance)
    l1 = math.hypot((2 * r**2 + 2 * r * tau) / variance, (2 * r + tau) / sigma) + tau / sigma
    return _made(radius, l1, _reclipped(rows, n, variance, radius), n - 1, None)


# --- crowds: rule g --------------------------------------------------------------------------


def _first(rows: Drift, name: str) -> None:
    if rows.l1:
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
    l0 = min(n - 1, 2 * (crowd - 1))
    return _made(rows.bound, 2 * radius * (crowd - 1), 2 * radius, l0, None)


def _made(bound: float, l1: float, linf: float, l0: float, l2: float | None) -> Drift:
    """A drift rounded up."""
    return Drift(bound, l1 * UP, linf * UP, l0, None if l2 is None else l2 * UP)


def _l2(rows: Drift) -> float:
    assert rows.l2 is not None  # filled on the way in
    return rows.l2


def _times(a: float, b: float) -> float:
    return 0.0 if 0.0 in (a, b) else a * b
