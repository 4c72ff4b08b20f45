"""How crowded rows are: what de-duplication would find, and what it would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.diagnostics.base import NotReleasable, require_rows
from tacit.diagnostics.moments import blocks
from tacit.preprocessing.good_clusters import crowd_limit, good_clusters


@dataclass(frozen=True, eq=False)
class Crowding(NotReleasable):
    """De-duplication at several radii.

    Attributes
    ----------
    radii : tuple of float
        η, within which rows count as copies; 0 for equal rows.
    crowd : tuple of int
        For each, the limit that ``Dedup(radius, crowd)`` would have to be told, at least: no ball
        of radius 4η holds more rows.
    copies : tuple of float
        Part of the rows that would be blanked out.
    """

    radii: tuple[float, ...]
    crowd: tuple[int, ...]
    copies: tuple[float, ...]


def crowding(data: Any, radii: Sequence[float] = (0.0,)) -> Crowding:
    """Crowds and copies among rows, exactly (`tacit.preprocessing.good_clusters`).

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    radii : sequence of float
        At which crowds are looked for; 0 finds equal rows.

    Returns
    -------
    Crowding
        Not releasable.

    Examples
    --------
    >>> crowding([[0.0], [0.0], [1.0], [5.0]], radii=[0.0, 0.1]).copies
    (0.25, 0.25)
    """
    rows = require_rows(data)
    held = np.empty((rows.n, rows.d))
    for span, block in blocks(rows):
        held[span] = block
    crowd, copies = [], []
    for radius in radii:
        crowd.append(crowd_limit(held, radius))
        centre = good_clusters(held, radius)
        copies.append(float(((centre >= 0) & (centre != np.arange(rows.n))).mean()))
    return Crowding(tuple(float(r) for r in radii), tuple(crowd), tuple(copies))
