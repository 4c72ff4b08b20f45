"""Principal components of a noisy second moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from scipy.linalg import eigh

from tacit.mechanisms.covariance import noisy_second_moment
from tacit.preprocessing.base import Context, PrivateStage, block_rows, require_count
from tacit.preprocessing.projection import Subspace


@dataclass
class PrivatePCA(PrivateStage, Subspace):
    """Project rows on the top eigenvectors of their noisy second moment: "DP-PCA".

    Σxxᵀ of rows of norm at most R, uncentred, is released with symmetric Gaussian
    noise E and decomposed (Dwork, Talwar, Thakurta & Zhang 2014, "Analyze Gauss",
    Algorithm 1). What is learned is public, so prediction uses the same
    projection, and coefficients fold back through it.

    Parameters
    ----------
    n_components : int or "auto"
        k, columns out; at most the number of columns in. ``"auto"``: 40, or all if there are fewer.

    Notes
    -----
    *Noise.* One row contributes a matrix of Frobenius norm at most R², so noise of
    standard deviation σ = z·R² on the diagonal and σ/√2 beside it has the event
    ``Gaussian(z)``. (The paper counts the upper triangle once, and its noise beside
    the diagonal is √2 times as large.) Under ``replace_one`` two contributions lie
    √2·R² apart and the accounting takes 2R²: there it is too careful by √2.

    *Error.* E has mean largest eigenvalue at most σ√(2d), and exceeds it by tσ with
    probability e^(−t²/2) at most. So, as in the paper's worst-case bound O(k√d), the
    mean square of the rows along the components is less than along the best k
    directions by at most 2kσ(√(2d) + t)/n, except with probability 2e^(−t²/2). If the
    eigenvalues k and k+1 of (1/n)Σxxᵀ are γ apart, the components span the true
    ones up to an angle of sine 2σ(√(2d) + t)/(nγ) (Davis & Kahan 1970), as in the
    paper's bound with a gap. It takes n ≫ z√d·R²/γ rows to see anything but noise.

    *Cost.* d² numbers in memory, four times over; n·d² and 4d³/3 operations.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows([[0.6, 0.8, 0.0], [-0.3, -0.4, 0.0]] * 500, bound=1.0)
    >>> stage = PrivatePCA(1, noise_multiplier=1.0).fit(rows)
    >>> stage.transform(rows).d
    1
    """

    n_components: int | str = "auto"
    share: float = field(default=0.1, kw_only=True)
    noise_multiplier: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_components != "auto":
            require_count(self, "n_components")

    def draws(self, d: int) -> int:
        return d * (d + 1) // 2

    def gathers(self, *, moved: bool) -> bool:
        return moved  # products in floating point, rounded as seldom as was counted

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        k, d = self.width(rows.d), rows.d
        moment = noisy_second_moment(
            rows.passes(block_rows(d)),
            d,
            bound,
            context.release("components"),
            size=context.size,
            drift=context.drift,
            strict=context.strict,
        )
        _, vectors = eigh(
            moment, subset_by_index=(d - k, d - 1), overwrite_a=True, check_finite=False
        )
        self._set(vectors[:, ::-1], rows, context)
        return self

    def note(self) -> str:
        return (
            f"rows are projected on {self.n_components} components of their second moment, which "
            "was released with Gaussian noise"
        )
