"""Components of public rows, and a check through noise that private rows lie along them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from tacit.data.rows import Chunk, Rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import noisy_sum, row_norms, shorten
from tacit.preprocessing.base import Context, PrivateStage, block_rows
from tacit.preprocessing.public import PublicPCA
from tacit.preprocessing.public_components import Spectrum
from tacit.privacy.sensitivity.drift import Drift

LEAST = 0.75  # of the energy that public rows keep: docs/decisions/0059-check-of-public-rows.md
CERTAIN = 3.0  # standard deviations: noise alone says so once in 740 times
OTHERWISE = ("keep", "warn")


@dataclass
class PrivateCheckedPCA(PrivateStage, PublicPCA):
    """`PublicPCA`, unless noise and private rows say that the public rows are unlike them.

    Public rows of another kind have other directions, and what private rows have to say is lost
    without a word (Pinto et al. 2024, Table III). So the energy of the private rows is released,
    in two numbers with Gaussian noise: what components keep, Σ‖Aᵀx‖², and what they lose,
    Σ‖x‖² − Σ‖Aᵀx‖², of rows shortened to r, the root mean square of the public rows' norms. The
    share that is kept, s, is compared with the share e that components of one half of the public
    rows keep of the other half. If s < ``least``·e beyond doubt, there is a warning, which the
    certificate has too, and rows stay as they are: all columns reach the trainer.

    Parameters
    ----------
    least : float
        Part of e that s must reach.
    otherwise : {"keep", "warn"}
        What happens if it does not: all columns are kept, or rows are projected all the same.

    Notes
    -----
    *Sensitivity.* In units of r², which is public, a row counts for a pair of numbers ≥ 0 whose sum
    is min(‖x‖/r, 1)² ≤ 1, so of norm at most 1: that is the contribution which ``Gaussian(z)``
    counts, for a row that is added, removed or blanked out. Under ``replace_one`` two pairs lie √2
    apart at most, and 2 is counted. Rows behind a noiseless stage have moved all together; they
    are refused.

    *Doubt.* (1 − t)·kept − t·lost, where t = ``least``·e, is negative where s < t, and its noise
    has the deviation z·√((1 − t)² + t²), which is public. Three of them are beyond doubt: rows that
    keep enough are taken for strangers once in 740 times at most.

    *Either way* the noise of everything behind is the same. It depends on clips, not on columns,
    and what is drawn at most is counted for all columns.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(size=(300, 3)) * [2.0, 1.0, 0.1]
    >>> rows = as_rows(rng.normal(size=(3000, 3)) * [0.2, 0.1, 0.01], bound=1.0)
    >>> stage = PrivateCheckedPCA(public, 1, noise_multiplier=1.0).fit(rows)
    >>> round(stage.kept_share, 1), round(stage.expected_share_, 1), stage.transform(rows).d
    (0.8, 0.8, 1)
    """

    share: float = field(default=0.1, kw_only=True)
    noise_multiplier: float | None = field(default=None, kw_only=True)
    least: float = field(default=LEAST, kw_only=True)
    otherwise: str = field(default="keep", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.least, bool) or not 0 < self.least <= 1:
            raise InputError(f"{self.name}(least={self.least!r}): least must lie in (0, 1]")
        if self.otherwise not in OTHERWISE:
            raise InputError(
                f"{self.name}(otherwise={self.otherwise!r}) must be one of {', '.join(OTHERWISE)}"
            )

    @property
    def kept_share(self) -> float:
        """After `fit`: share of the private rows' energy that is kept, as released."""
        kept, lost = self._require("energies_").tolist()
        return min(max(kept / (kept + lost), 0.0), 1.0) if kept + lost > 0 else 0.0

    @property
    def kept_share_error(self) -> float:
        """After `fit`: standard deviation of that share by its noise, to first order."""
        total = float(self._require("energies_").sum())
        spread = math.hypot(1 - self.kept_share, self.kept_share)
        return self.deviation_ * spread / total if total > 0 else math.inf

    @property
    def keeps_all(self) -> bool:
        """After `fit`: whether rows stay as they are, for public rows are unlike them."""
        return self.otherwise == "keep" and not getattr(self, "alike_", True)

    def draws(self, d: int) -> int:
        return 2

    def width(self, d: int) -> int:
        return d if self.keeps_all else super().width(d)

    def widest(self, d: int) -> int:
        return super().widest(d) if self.otherwise == "warn" or hasattr(self, "alike_") else d

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return radius if self.keeps_all else super().bound(radius, d)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        if incoming.l1:
            raise InputError(
                f"{self.name} releases the energy of the rows, which all rows that were moved may "
                "change together, so it cannot follow a noiseless stage; put it in front of that, "
                "or use PublicPCA (in a recipe: check=0), which looks at no private row"
            )
        return super().drift(incoming, n, d)

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        # Rows as long as public ones, of which nothing is kept, where e = 1.
        if self.least * size > CERTAIN * noise_multiplier * math.hypot(1 - self.least, self.least):
            return ""
        return (
            f"{self.name}: with {size} rows at this budget, noise hides whether the private rows "
            "are like the public ones."
        )

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        self.alike_ = True  # until the rows say otherwise
        if context.drift is not None:
            self.drift(context.drift, rows.n, rows.d)
        public = self._see(rows, context)
        self._project(public, rows, context)
        judged = Spectrum.of(public).kept[: self.width(rows.d)]
        self.expected_share_ = float(judged[-1]) if len(judged) else 0.0
        radius = min(math.sqrt(_mean_square(public)), bound)
        token = context.release("energies")
        passes = rows.passes(block_rows(rows.d))
        energies = passes.map(partial(_energies, stage=self, radius=radius))
        self.energies_ = noisy_sum(energies, 2, 1.0, token)
        self.deviation_ = token.noise_multiplier
        kept, lost = self.energies_.tolist()
        least = self.least * self.expected_share_
        deviation = self.deviation_ * math.hypot(1 - least, least)
        self.alike_ = (1 - least) * kept - least * lost >= -CERTAIN * deviation
        if not self.alike_:
            text = f"the public rows of {self.name} are unlike the private ones: {self.found()}; "
            text += (
                "no column was left out"
                if self.keeps_all
                else "rows were projected all the same, and what the model needs may be lost"
            )
            self._cautions = (*self._cautions, text)
            warnings.warn(text, stacklevel=3)
        if self.keeps_all:
            del self.matrix_, self.unit_, self.norm_, self.radius_, self._check
        return self

    def found(self) -> str:
        if not hasattr(self, "energies_"):
            return ""
        error = self.kept_share_error
        kept = f"{self.kept_share:.0%} ± {error:.0%}" if error < 0.5 else "a part that noise hides"
        return (
            f"components of public rows keep {kept} of the energy of the private rows, and "
            f"{self.expected_share_:.0%} of that of public rows that they were not made from"
        )

    def apply(self, chunk: Chunk) -> Chunk:
        return chunk if self.keeps_all else super().apply(chunk)

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (coef, intercept) if self.keeps_all else super().fold(coef, intercept)

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (coef, intercept) if self.keeps_all else super().unfold(coef, intercept)

    def note(self) -> str:
        return "; ".join(text for text in (super().note(), self.found()) if text)

    def why(self) -> str:
        chosen = super().why()
        return f"{chosen}; {self._rule()}" if chosen else self._rule()

    def _rule(self) -> str:
        then = "all columns are kept" if self.otherwise == "keep" else "there is a warning"
        return (
            "the share of energy that they keep of the private rows is released: where it is less "
            f"than {self.least:.0%} of what they keep of public rows, {then}"
        )

    def assumption(self) -> str:
        return "its public rows are public"


def _mean_square(public: Rows) -> float:
    return sum(float((row_norms(chunk) ** 2).sum()) for _, chunk in public.chunks()) / public.n


def _energies(chunk: Chunk, stage: PublicPCA, radius: float) -> np.ndarray:
    """What components keep of the energy of every row, and what they lose, in units of r²."""
    short = shorten(chunk, radius)
    total = np.minimum(row_norms(short) / radius, 1.0) ** 2
    kept = np.minimum((row_norms(stage.apply(short)) / radius) ** 2, total)
    return np.stack([kept, total - kept], axis=1)
