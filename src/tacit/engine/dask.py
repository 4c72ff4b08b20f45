"""An engine whose rows are on the workers of a cluster.

Every partition has an ordinary engine, on the worker that holds it. Weights go out, clipped sums
come back, added up as a tree. All rows of a person are in one partition. Units and lattices follow
from public facts, so in exact arithmetic the sums are those of one engine with all rows, bit for
bit. Noise is none of the workers' business: whoever asked for a sum adds it, once, when the sum is
there.

A worker that is lost changes nothing: its partitions are read again, must be what they were, and
the sums are computed again. Sums are not noisy, so that costs nothing.

Sums in floating point ("rounded", after noiseless stages) are rounded once, after they have been
added up. On its way a row's share passes through the additions of its own partition and at most 7
on each level of the tree: `tacit.engine.quantization.rounding_error` allows for 64 beyond the
blocks of all rows, an engine with few rows takes 17 of them, and the rest is enough for 8^6
partitions.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tacit.data.dask_rows import DaskSource, Parts, Piece, without_rows
from tacit.data.owners import Owners
from tacit.data.rows import Rows
from tacit.engine.elsewhere import EngineElsewhere
from tacit.engine.engine import Engine, LatticeSum
from tacit.engine.quantization import ROUNDED_ROWS
from tacit.engine.storage import checked_batch
from tacit.exceptions import ClusterError, InputError
from tacit.losses import Loss
from tacit.progress import Progress


class ClusterEngine(EngineElsewhere):
    """What `tacit.engine.engine.Engine` is to rows in one place, for rows on a cluster.

    Parameters
    ----------
    rows : Rows
        Of Dask (`tacit.data.dask_rows`).
    targets : Parts
        Targets of every partition, as made by ``loss.targets``.
    loss : Loss
    **settings
        As for `Engine`: ``intercept, arithmetic, shift, split``.
    """

    def __init__(
        self,
        rows: Rows,
        targets: Parts,
        loss: Loss,
        *,
        arithmetic: str = "exact",
        progress: Progress | None = None,
        **settings: Any,
    ) -> None:
        source: DaskSource = rows.source
        if not isinstance(targets, Parts) or targets.sizes != source.sizes:
            raise InputError("targets must be in partitions like those of the rows")
        if arithmetic == "rounded" and rows.n > ROUNDED_ROWS:
            raise InputError(
                f"after a noiseless stage at most {ROUNDED_ROWS:,} rows can be summed; there are "
                "more"
            )
        self._cluster = source.cluster
        self._starts, owners = dealt(rows)
        count = len(source.parts)
        threads = max(1, self._cluster.threads // count)
        order = self._cluster.parcel(
            without_rows(rows), loss, {**settings, "arithmetic": arithmetic, "threads": threads}
        )
        blanked: Sequence[np.ndarray | None] = [None] * count
        if rows.blanked is not None:
            blanked = np.split(rows.blanked, source.offsets[1:])
        carried = list(zip(blanked, owners, strict=True))
        self.engines = self._cluster.each(
            _built, source.parts, source.digests, targets.parts, [order] * count, carried
        )
        facts = self._cluster.values(self._cluster.each(_facts, self.engines))
        self._digests = [digest for digest, _ in facts]
        shapes = {outputs for _, outputs in facts}
        if len(shapes) > 1:
            raise InputError("targets of the partitions differ in shape")
        (outputs,) = shapes
        none = np.empty(0, dtype=np.intp) if outputs is None else np.empty((0, outputs))
        public: Any = "exact" if arithmetic == "strict" else arithmetic
        hollow = Engine(rows.hidden(), none, loss, arithmetic=public, threads=1, **settings)
        super().__init__(hollow, rows.units, arithmetic)
        if progress is not None:
            progress("rows", rows.n, rows.n)

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        """As `Engine.gradient_sums`."""
        sums = self._hollow.raw_sums(weights, clips, per_class=per_class)  # zero, and checked
        batches: list[np.ndarray | None] = [None] * len(self.engines)
        if batch is not None:
            index = checked_batch(batch, self.n)
            cut = np.split(index, np.searchsorted(index, self._starts[1:]))
            batches = [part - start for part, start in zip(cut, self._starts, strict=True)]
        total = self._total(_sums, (weights, clips, per_class), batches)
        found = [
            replace(zero, values=zero.values + total[:, part])
            for zero, part in zip(sums, self.parts, strict=True)
        ]
        return [each.rounded() for each in found] if self.arithmetic == "rounded" else found

    def row_sum(
        self, weights: np.ndarray, counts: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """As `Engine.row_sum`; ``counts`` must be known by name on the workers."""
        zero = self._hollow.row_sum(weights, counts)
        none = [None] * len(self.engines)
        return np.asarray(zero + self._total(_counts, (weights, counts), none))

    def _total(self, function: Any, content: tuple[Any, ...], batches: Sequence[Any]) -> Any:
        order = self._cluster.parcel(*content, copies=len(self.engines))
        orders = [order] * len(self.engines)
        return self._cluster.total(
            self._cluster.each(function, self.engines, self._digests, orders, batches)
        )


def dealt(rows: Rows) -> tuple[np.ndarray, list[Owners | None]]:
    """The first unit of every partition, and whose its rows are, if they are people's."""
    offsets, owners = rows.source.offsets, rows.owners
    if owners is None:
        return np.array(offsets), [None] * len(offsets)
    codes = np.split(owners.codes, offsets[1:])
    whole = all(len(some) for some in codes) and bool((np.diff(owners.codes) >= 0).all())
    if not whole or any(one[-1] >= other[0] for one, other in pairwise(codes)):
        raise InputError("rows of one person are in several partitions: choose among them first")
    starts = np.array([0, *(some[0] for some in codes[1:])])
    marks = np.split(owners.marks, starts[1:])
    parts = zip(codes, starts, marks, strict=True)
    return starts, [Owners(owners.unit, some - start, each) for some, start, each in parts]


# --- On the workers ------------------------------------------------------------------------------


class PartEngine:
    """The engine of one partition. It is made again wherever it is sent."""

    def __init__(
        self,
        piece: Piece,
        targets: np.ndarray,
        order: Any,
        carried: tuple[np.ndarray | None, Owners | None],
    ) -> None:
        rows, loss, settings = order.open()
        self._made_of = piece, targets, order, carried
        blanked, owners = carried
        rows = replace(rows, source=piece.source, blanked=blanked, owners=owners)
        self.engine = Engine(rows, targets, loss, **settings)
        cells = np.ascontiguousarray(targets).tobytes()
        self.digest = hashlib.blake2b(cells, key=piece.digest, digest_size=16).digest()
        self.seconds = 0.0  # of the last sum

    def require(self, digest: bytes) -> None:
        if self.digest != digest:
            raise ClusterError(
                "targets had to be read again, after a worker was lost, and are not what they were "
                "before: what is fitted to must not change. What was reserved in a ledger counts "
                "as spent"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return PartEngine, self._made_of

    def __sizeof__(self) -> int:
        return self._made_of[0].__sizeof__() + self._made_of[1].nbytes


def _built(
    piece: Piece,
    digest: bytes,
    targets: np.ndarray,
    order: Any,
    carried: tuple[np.ndarray | None, Owners | None],
) -> PartEngine:
    piece.require(digest)
    return PartEngine(piece, targets, order, carried)


def _facts(part: PartEngine) -> tuple[bytes, int | None]:
    return part.digest, part.engine.outputs


def _sums(part: PartEngine, digest: bytes, order: Any, batch: np.ndarray | None) -> np.ndarray:
    began = time.perf_counter()
    part.require(digest)
    weights, clips, per_class = order.open()
    sums = part.engine.raw_sums(weights, clips, batch=batch, per_class=per_class)
    total = np.concatenate([each.values for each in sums], axis=1)
    part.seconds = time.perf_counter() - began
    return total


def _counts(part: PartEngine, digest: bytes, order: Any, _: None) -> np.ndarray:
    part.require(digest)
    return part.engine.row_sum(*order.open())
