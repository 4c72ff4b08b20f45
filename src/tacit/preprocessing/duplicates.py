"""Near-duplicates taken out, or moved together, without noise.

A *good cluster* is a ball around a row that holds as many rows as the ball of three times its
radius: rows that lie together and apart from all others (Hu et al. 2024, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.memory import require_room
from tacit.data.rows import Chunk, Rows, as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.preprocessing.base import (
    Context,
    NoiselessStage,
    densify,
    require_count,
    require_positive,
    require_share,
)
from tacit.preprocessing.good_clusters import crowd_limit, good_clusters
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift


@dataclass
class _Crowds(NoiselessStage):
    """What both stages share: clusters, and the test that no crowd is too large.

    One row can make or break every cluster near it, so the price follows the
    largest crowd: the number of rows in a ball of four radii, wherever it stands.
    """

    radius: float = 0.0
    crowd: int | None = None
    share: float = 0.1

    def __post_init__(self) -> None:
        if self.radius:
            require_positive(self, "radius")
        if self.crowd is None:
            raise MissingBound(
                self.name, "crowd=, the most rows in any ball of four radii, which is then tested"
            )
        require_count(self, "crowd")
        require_share(self)

    @property
    def in_memory(self) -> bool:
        return True

    def rounding_bound(self, radius: float) -> float:
        return 0.0  # rows are copied or zeroed, never computed

    @property
    def tested(self) -> bool:
        return True

    def gathers(self, *, moved: bool) -> bool:
        return True

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        require_room(rows, self.name, rows.d)
        points = densify(rows.collect())
        self._margin = self._most() - crowd_limit(points, self.radius)
        self._centres = good_clusters(points, self.radius)
        self._points = points
        return self

    def _most(self) -> int:
        assert self.crowd is not None
        return int(self.crowd)

    def through(self, rows: Rows) -> Rows:
        """The rows that were fitted, changed: which row is a duplicate depends on where it stands.

        A map of single rows cannot know that, so the result is held as it is.
        """
        changed, blanked = self._changed(self._require("_points"), self._centres)
        if rows.blanked is not None:  # once taken out, for good
            blanked = rows.blanked if blanked is None else rows.blanked | blanked
        return replace(as_rows(changed, bound=rows.bound), blanked=blanked)

    def apply(self, chunk: Chunk) -> Chunk:
        raise InputError(f"{self.name} looks at all rows at once; it maps no single rows")

    def transform(self, rows: Any) -> Any:
        """The fitted rows, changed."""
        return self.through(as_rows(rows)).collect()

    def _changed(
        self, points: np.ndarray, centres: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The rows, and which of them are taken out."""
        raise NotImplementedError


@dataclass
class Dedup(_Crowds):
    """Keep one row of every group of near-duplicates; blank out the others.

    Rows that are taken out become rows of zeros that count nothing, so that the
    number of rows, which is public, and their places stay as they are. Nothing
    is needed at prediction. Must come before any other noiseless stage.

    Parameters
    ----------
    radius : float
        η: rows within it of a cluster's centre are its duplicates; 0 for equal rows.
    crowd : int
        Most rows that any ball of radius 4η holds; tested privately.
    share : float
        Part of the plan's μ spent on the test.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), bound=1.0)
    >>> Dedup(crowd=2).fit(rows).through(rows).collect()
    array([[1., 0.],
           [0., 0.],
           [0., 1.]])
    """

    keeps_zero: ClassVar[bool] = True
    blanks: ClassVar[bool] = True

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        return rules.deduplicate(incoming, n, self._most())

    def _changed(
        self, points: np.ndarray, centres: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        taken = (centres >= 0) & (centres != np.arange(len(centres)))
        return np.where(taken[:, None], 0.0, points), taken

    def note(self) -> str:
        return (
            f"near-duplicates within {self.radius:g} were taken out, behind a private test that no "
            f"crowd exceeds {self._most()} rows; how many were taken out is not released"
        )


@dataclass
class Quantize(_Crowds):
    """Move near-duplicates to the centre of their cluster.

    Nothing is needed at prediction. Must come before any other noiseless stage.

    Parameters
    ----------
    radius : float
        η: rows within it of a cluster's centre move there.
    crowd : int
        Most rows that any ball of radius 4η holds; tested privately.
    share : float
        Part of the plan's μ spent on the test.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.array([[1.0, 0.0], [0.999, 0.0], [0.0, 1.0]]), bound=1.0)
    >>> Quantize(0.01, crowd=2).fit(rows).through(rows).collect()
    array([[1., 0.],
           [1., 0.],
           [0., 1.]])
    """

    radius: float = 0.01

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        # Distances are computed, and right to far better than a millionth.
        return rules.quantize(incoming, n, self.radius * (1 + 1e-6), self._most())

    def _changed(
        self, points: np.ndarray, centres: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return points[np.where(centres >= 0, centres, np.arange(len(centres)))], None

    def note(self) -> str:
        return (
            f"near-duplicates within {self.radius:g} were moved together, behind a private test "
            f"that no crowd exceeds {self._most()} rows"
        )
