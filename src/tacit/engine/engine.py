"""Clipped gradient sums of linear models, at the speed of the matrix products.

The gradient of a row is its residual times the row, so its norm is a product of
two norms: rows are clipped without a gradient of their own. In exact arithmetic
every sum is an integer multiple of a public lattice spacing, the same for any
order, blocking or number of threads, and one row counts for at most the clipping
bound, with no slack for rounding (`tacit.engine.quantization` has the argument). A
split engine does the same for two parts of every row: one forward product, and for
each part clipping, a lattice and a backward product of its own.

Two things are assumed: the products come from a conventional BLAS (those of exact
sums over dense rows from compiled loops of integers, `tacit.engine.kernels.compact`), and a
loss computes the residual of a row in the same way wherever the row stands in
an array. Blocks are padded to a multiple of 16 rows, so vector code has no
remainder in which it might differ, and a sum over outputs always runs in the
same order. What the stages before the engine do to a row must have that
property as well. In strict arithmetic both are checked while the engine works
(`tacit.engine.checks`), and residuals are computed from correctly rounded
operations alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np

from tacit.data.memory import allowed_memory, machine_memory
from tacit.data.rows import Rows
from tacit.engine.checks import StepCheck, Watch
from tacit.engine.kernels.compact import FUSED, Fused
from tacit.engine.people import PersonClipping, Tile, clipping_of, lay_out
from tacit.engine.quantization import (
    LIMIT,
    ROUNDED_ROWS,
    Clipping,
    Scale,
    Weights,
    check_range,
)
from tacit.engine.schedule import LANES, Block, groups_of, ordered_sum, padded
from tacit.engine.selftest import tested
from tacit.engine.storage import Workspace, checked_batch, checked_targets
from tacit.engine.streaming import Streamed, make_store, reading
from tacit.exceptions import InputError, MissingBound, of_rows
from tacit.losses import Loss
from tacit.mechanisms.covariance import blas
from tacit.mechanisms.release import BoundedSum
from tacit.privacy.unit import ROW, Unit
from tacit.progress import Progress, silent

Number: TypeAlias = float  # `LatticeSum.float` has taken the name
SHARED = 1 << 21  # products of 16-bit integers from which on threads share a step
LOSS_UNIT = 1 << 20  # the most that one row counts for in a sum of losses


@dataclass(frozen=True)
class LatticeSum:
    """Gradient sums of S settings.

    Attributes
    ----------
    values : ndarray of shape (S, d, K)
        int64 multiples of the lattice spacing, or float64 (fast).
    lattice : ndarray of shape (S,)
        Spacing of each setting, a power of two; 1.0 in fast arithmetic.
    clip : ndarray of shape (S,)
        Norm that no row, or no person, exceeds in the sum of a setting: it was clipped to that.
    start : int
        First column, where the sum is over a part of the columns.
    owner : Unit
        Whose gradients were clipped.
    """

    values: np.ndarray
    lattice: np.ndarray
    clip: np.ndarray
    start: int = 0
    owner: Unit = ROW

    def float(self) -> np.ndarray:
        """The sums as numbers, of shape (S, d, K)."""
        return self.values * self.lattice[:, None, None]

    def bounded(self, setting: int, reach: Number) -> BoundedSum:
        """The sum of one setting as noise is added to it; ``reach`` is at least its clip."""
        values, unit = self.values[setting], self.lattice[setting].item()
        bound = self.clip[setting].item()
        return BoundedSum(values, unit, bound, reach, "step", self.start, self.owner)

    def rounded(self) -> LatticeSum:
        """Sums in float64 as multiples of the lattice; below 2^63: at most 2^26 rows."""
        values = np.rint(self.values / self.lattice[:, None, None]).astype(np.int64)
        return replace(self, values=values)


@dataclass(frozen=True)
class _Step:
    """What every group of rows needs for one sum."""

    index: np.ndarray | None
    operand: Any
    clippings: tuple[Clipping, ...]
    outputs: int
    check: StepCheck | None
    fused: Fused | None
    #: What compiled loops have added up so far, one array for every thread that is at it.
    sums: list[np.ndarray]
    #: Rows of people, by size: where they are among the rows of the sum.
    tiles: Sequence[Tile] = ()


class GradientSource(Protocol):
    """What a trainer needs of whoever sums gradients: an `Engine`, or something in its place."""

    n: int
    d: int
    split: int | None
    unit: Unit

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> None: ...

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]: ...


class Engine:
    """Sums of clipped gradients over all rows or a batch of them.

    Parameters
    ----------
    rows : Rows
        Read once, chunk by chunk, and kept; if they are too many for that, read
        again for every sum, with the same result. ``rows.bound`` sets the scale and is never
        trusted: a feature beyond it is clamped, and every row is clipped by the
        norm it has. Rows that are blanked count nothing, not even for the intercept. If they
        have owners, what is clipped is the whole gradient of a person (`tacit.engine.people`),
        and ``n`` is the number of people, who batches are drawn from.
    targets : ndarray
        As made by ``loss.targets``.
    loss : Loss
        Gives the residual.
    intercept : float
        Size of a constant feature appended to every row; 0 for none.
    arithmetic : {"exact", "strict", "rounded", "fast"}
        Integers; integers, with every product checked; float64 sums rounded to a
        lattice, off by at most `tacit.engine.quantization.rounding_error`; or float32
        without a guarantee.
    shift : ndarray of shape (rows.d,), optional
        Public vector subtracted from every row. Sparse rows stay sparse.
    split : int, optional
        Columns before this one, and those from it on (the intercept's among them),
        are two parts of a row's gradient, clipped and summed by themselves.
    threads : int, optional
        Workers; by default one per available core.
    progress : Progress, optional
        Told how many rows are read.
    memory : int, optional
        Bytes that rows may take; by default what their source says, or else a
        quarter of the machine's memory.

    Notes
    -----
    While an engine works whose products are not those of compiled loops, the BLAS library is
    limited to one thread in this process, since the engine runs several products at once. Use
    the engine as a context manager around a training loop to set this up only once.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.data.rows import as_rows
    >>> from tacit.losses import get_loss
    >>> loss = get_loss("logistic")
    >>> rows = as_rows(np.array([[0.5], [1.0], [-1.0]]), bound=1.0)
    >>> with Engine(rows, loss.targets([0, 1, 0], outputs=1), loss) as engine:
    ...     total = engine.gradient_sum(np.zeros((1, 1, 1)), clip=0.25)
    >>> total.float().ravel().round(6)
    array([-0.25])
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        loss: Loss,
        *,
        intercept: float = 0.0,
        arithmetic: Literal["exact", "strict", "rounded", "fast"] = "exact",
        shift: np.ndarray | None = None,
        split: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        memory: int | None = None,
    ) -> None:
        if rows.bound is None:
            raise MissingBound("the engine", "rows with a bound, e.g. after ClipNorm(radius)")
        if arithmetic not in ("exact", "strict", "rounded", "fast"):
            raise InputError(
                f"arithmetic is {arithmetic!r}; it must be exact, strict, rounded or fast"
            )
        if not 0 <= intercept <= LIMIT:
            raise InputError(f"intercept is {intercept}; it must be 0 or a positive number")
        if threads is not None and threads < 1:
            raise InputError(f"threads is {threads}; it must be at least 1")
        if arithmetic == "rounded" and rows.n > ROUNDED_ROWS:
            raise InputError(
                f"after a noiseless stage at most {ROUNDED_ROWS:,} rows can be summed; there are "
                f"more"
            )
        if shift is not None:
            shift = np.asarray(shift, dtype=np.float64)
            if shift.shape != (rows.d,) or not np.isfinite(shift).all():
                raise InputError(f"shift must hold {rows.d} finite numbers")
        if arithmetic != "fast":
            tested()
        self.n, self.unit, bound = rows.units, rows.unit, rows.bound
        self.d = rows.d + (1 if intercept else 0)
        self._blanked = rows.blanked is not None
        self.people, rows, targets = lay_out(rows, targets, arithmetic)
        self._count = rows.n
        if split is not None and not 0 < split < self.d:
            raise InputError(f"split is {split}; it must leave columns of {self.d} on either side")
        self.split = split
        cuts = [0, self.d] if split is None else [0, int(split), self.d]
        self.parts = tuple(slice(*ends) for ends in pairwise(cuts))
        self.loss = loss
        self.arithmetic = arithmetic
        strict = arithmetic == "strict"
        self._kind = "exact" if strict else arithmetic
        exact = self._kind == "exact"
        self._residual = (loss.portable() if exact else loss).residual
        self.threads = _available_cores() if threads is None else int(threads)
        self.targets = checked_targets(targets, rows.n, self._kind)
        self.scale = Scale.of(bound, self.d, shift, float(intercept), exact=exact)
        shown = silent if progress is None else progress
        if self.people is not None and memory is None:  # a plan has refused what may be too much
            memory = max(allowed_memory(rows), machine_memory())
        self.store = make_store(
            rows,
            self.scale,
            self._kind,
            float(intercept),
            shift,
            parts=self.parts,
            progress=shown,
            memory=memory,
        )
        if self.people is not None:
            if isinstance(self.store, Streamed):  # they were too many for the plan to know
                raise of_rows(
                    InputError(
                        "rows of people are summed in memory, and these are too many for it: lower "
                        "max_rows_per_group"
                    )
                )
            self.people.measure(self.store)
        self.watch = Watch(self.store, self.n, self.d) if strict else None
        self._latest_class = int(self.targets.max(initial=0)) if self.outputs is None else 0
        self._idle: list[Workspace] = []
        self._clippings: dict[Any, Clipping] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._entered: list[ExitStack] = []

    @property
    def outputs(self) -> int | None:
        """Scores per row; None where class indices leave it to the weights."""
        return self.targets.shape[1] if self.targets.ndim == 2 else None

    @property
    def _fuses(self) -> bool:
        """Whether residuals are computed in the compiled loops of
        `tacit.engine.kernels.compact`.
        """
        return self.store.compiled and type(self.loss) in FUSED

    def _shares(self, count: int, values: int) -> list[range]:
        """Rows for every call of compiled loops: all of them, unless several threads are worth it.

        ``values`` are those of the weights, each of which meets every row.
        """
        shares = 1 if self.threads == 1 or count * values < SHARED else 4 * self.threads
        size = max(1, -(-count // shares))
        size += -size % LANES  # whole vectors
        return [range(start, min(start + size, count)) for start in range(0, count, size)]

    def _share(self, values: int) -> int | None:
        """Rows of people for every call of compiled loops; None for all of them."""
        if self.threads == 1 or self._count * values < SHARED:
            return None
        return -(-self._count // (4 * self.threads))

    @property
    def _total_type(self) -> type[np.int64] | type[np.float64]:
        return np.int64 if self._kind == "exact" else np.float64

    def __enter__(self) -> Self:
        stack = ExitStack()
        if not self._entered:
            if not self.store.compiled:  # compiled loops do without, and looking it up is slow
                stack.enter_context(blas().limit(limits=1, user_api="blas"))
            if self.threads > 1:
                self._pool = stack.enter_context(ThreadPoolExecutor(self.threads - 1))
        self._entered.append(stack)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()
        if not self._entered:
            self._pool = None

    def gradient_sum(
        self,
        weights: np.ndarray,
        clip: float | np.ndarray,
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> LatticeSum:
        """Sum over rows of the gradient, clipped to norm `clip` row by row.

        Parameters
        ----------
        weights : ndarray of shape (S, d, K)
            Public weights of S settings.
        clip : float or ndarray of shape (S,)
            Bound on the norm of one row's gradient.
        batch : ndarray of int, optional
            Strictly increasing row indices, possibly none; all rows by default.
        per_class : bool
            Clip the gradient of each output to ``clip / sqrt(K)`` instead of the
            whole; its norm is at most `clip` either way.

        Returns
        -------
        LatticeSum
            One row counts for at most ``clip`` in norm, exactly so in exact
            arithmetic.
        """
        (total,) = self.gradient_sums(weights, [clip], batch=batch, per_class=per_class)
        return total

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        """`gradient_sum` of every part of the columns, each with a clip of its own.

        One row counts for at most ``clips[p]`` in the sum of part p: together for the
        root of the sum of their squares, which is reached.
        """
        found = self.raw_sums(weights, clips, batch=batch, per_class=per_class)
        return [total.rounded() for total in found] if self._kind == "rounded" else found

    def raw_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        """`gradient_sums`, where "rounded" ones are not rounded yet and may still be added up."""
        weights = np.asarray(weights, dtype=np.float64)
        grid, clippings = self.terms(weights, clips, per_class)
        settings, _, outputs = weights.shape
        index = None if batch is None else checked_batch(batch, self.n)
        count = self._count if index is None else index.size
        check = None if self.watch is None else self.watch.step(grid, whole=index is None)
        width = settings * outputs + (0 if check is None else check.extra)
        operand, fused = self.store.operand(grid), None
        if check is None and len(self.parts) == 1 and self._fuses:
            fused = Fused(self.loss, clippings[0], operand)
        tiles: Sequence[Tile] = ()
        if self.people is not None:
            # Of integers, so that any block will do for compiled loops.
            block_rows = self.store.block_rows if fused is None else self._share(operand[0].size)
            if index is None:
                groups, tiles = self.people.whole(block_rows)
            else:
                index, groups, tiles = self.people.batch(index, block_rows)
        step = _Step(index, operand, clippings, outputs, check, fused, [], tiles)
        if self.people is not None:
            pass
        elif fused is not None and not isinstance(self.store, Streamed):
            groups = self._shares(count, operand[0].size)  # of integers, so that any will do
        else:
            groups = list(groups_of(count, self.store.block_rows, self.store.group_rows))
        # Sums of an output lie together, as compiled loops find them.
        total = np.zeros((self.d, width), dtype=self._total_type, order="F")
        with self, reading(self.store, groups, index) as at:
            task = partial(self._group_sum if fused is None else self._fused_sum, step, at)
            ordered_sum(task, groups, total, self._pool, self.threads)
        for found in step.sums:
            store: Any = self.store  # one that compiled loops know
            total += store.in_order(found)
        if check is not None:
            total = check.conclude(total)
        cube = total.T.reshape(settings, outputs, self.d).transpose(0, 2, 1)
        sums = []
        for part, clipping in zip(self.parts, clippings, strict=True):
            values = np.ascontiguousarray(cube[:, part])
            how = (clipping.lattice, clipping.clip, part.start, self.unit)
            sums.append(LatticeSum(values, *how))
        return sums

    def terms(
        self, weights: np.ndarray, clips: Sequence[float | np.ndarray], per_class: bool
    ) -> tuple[Weights, tuple[Clipping, ...]]:
        """Public numbers of a sum, checked: rounded weights, and the clipping of every part."""
        self._check_weights(weights)
        settings, _, outputs = weights.shape
        if len(clips) != len(self.parts):
            raise InputError(f"{len(clips)} clips do not suit {len(self.parts)} parts of the rows")
        clippings = tuple(self._clipping(c, settings, outputs, per_class) for c in clips)
        return Weights.of(weights, self.scale, self._kind), clippings

    def _clipping(
        self, clip: float | np.ndarray, settings: int, outputs: int, per_class: bool
    ) -> Clipping:
        clips = np.asarray(clip, dtype=np.float64)
        if clips.shape != (settings,):
            try:
                clips = np.broadcast_to(clips, (settings,))
            except ValueError:
                said = f"clip must be one number or {settings}, one per setting"
                raise InputError(said) from None
        key = (clips.tobytes(), outputs, per_class)
        if key not in self._clippings:  # mostly those of the last step
            how: dict[str, Any] = {"arithmetic": self._kind, "per_class": per_class}
            how["rows"] = self.unit.rows
            made = clipping_of(np.array(clips), outputs, self.scale, **how)
            self._clippings = {key: made}
        return self._clippings[key]

    def loss_sum(self, weights: np.ndarray, ceiling: float) -> np.ndarray:
        """Sum over rows of the loss, each cut to [0, ceiling], in whole numbers.

        Half the ceiling counts nothing, no loss ``-LOSS_UNIT`` and the ceiling or more
        ``LOSS_UNIT``: so one row, whatever it is, counts for at most ``LOSS_UNIT`` either way, and
        a row that is replaced moves the sum by twice that at most.

        Parameters
        ----------
        weights : ndarray of shape (S, d, K)
            Public weights of S settings.
        ceiling : float
            Positive.

        Returns
        -------
        ndarray of int64, shape (S,)
        """
        return self.row_sum(weights, loss_counts(self.loss, ceiling))

    def row_sum(
        self, weights: np.ndarray, counts: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Sum over rows of what each of them counts for, in whole numbers.

        Parameters
        ----------
        weights : ndarray of shape (S, d, K)
            Public weights of S settings.
        counts : callable
            Gives a number for every row from scores (b, K) and targets, in the same way wherever
            the row stands. It is cut to [-1, 1], where what is no number counts 1, and 1 becomes
            ``LOSS_UNIT``: so one row, whatever it is, counts for at most ``LOSS_UNIT`` either way.

        Returns
        -------
        ndarray of int64, shape (S,)
            Of people, the row that stands for each of them counts.
        """
        if self._blanked:
            raise InputError("rows that were blanked would count: their losses are not summed")
        weights = np.asarray(weights, dtype=np.float64)
        self._check_weights(weights)
        settings, _, outputs = weights.shape
        operand = self.store.operand(Weights.of(weights, self.scale, self._kind))
        groups = list(groups_of(self._count, self.store.block_rows, self.store.group_rows))
        total = np.zeros(settings, dtype=np.int64)
        with self, reading(self.store, groups, None) as at:
            task = partial(self._group_counts, operand, outputs, counts, at)
            ordered_sum(task, groups, total, self._pool, self.threads)
        return total

    def _group_counts(
        self,
        operand: Any,
        outputs: int,
        counts: Callable[[np.ndarray, np.ndarray], np.ndarray],
        at: Callable[[range], Any],
        group: range,
    ) -> np.ndarray:
        try:
            work = self._idle.pop()
        except IndexError:
            work = Workspace()
        total: Any = 0
        store = at(group)
        with np.errstate(all="ignore"):
            for start in group:
                stop = min(start + group.step, group.stop)
                block = padded(None, start, stop)
                _, scores = store.forward(block, operand, work)
                cube = scores.reshape(-1, outputs, scores.shape[1])
                targets = self.targets[block]
                total += count_rows(
                    counts, cube, targets, stop - start, self._standing(start, stop)
                )
        self._idle.append(work)
        return np.asarray(total)

    def _standing(self, start: int, stop: int) -> np.ndarray | None:
        """Which rows count by themselves: all, or the one that stands for a person."""
        return None if self.people is None else self.people.first_rows[start:stop]

    def _group_sum(
        self, step: _Step, at: Callable[[range], Any], group: range
    ) -> np.ndarray | None:
        """Sum over a group of blocks; at most ``LATTICE_ROWS`` rows, so float64 is exact."""
        try:
            work = self._idle.pop()
        except IndexError:
            work = Workspace()
        total: np.ndarray | None = None
        store = at(group)
        with np.errstate(all="ignore"):
            for start in group:
                stop = min(start + group.step, group.stop)
                block = padded(step.index, start, stop)
                tile = _tile(step.tiles, start, stop)
                part = self._block_sum(step, block, stop - start, store, work, tile=tile)
                if total is None:
                    total = part.astype(np.int64 if part.dtype == np.int64 else np.float64)
                else:
                    total += part
            if total is not None:
                total = total.astype(self._total_type, copy=False)
        self._idle.append(work)
        return total

    def _fused_sum(self, step: _Step, at: Callable[[range], Any], group: range) -> None:
        """The same in compiled loops, added to the step's own sums."""
        assert step.fused is not None
        columns, _ = step.fused.weights
        try:
            onto = step.sums.pop()
        except IndexError:
            onto = np.zeros(columns.shape, dtype=np.int64)
        spans: list[tuple[range, tuple[Any, ...]]] = [(group, ())] if self.people is None else []
        for tile in step.tiles:
            rows = range(max(group.start, tile.start), min(group.stop, tile.stop))
            if rows:
                spans.append((rows, tile.terms(rows.start, step.outputs)))
        at(group).step(step.fused, step.index, spans, self.targets, onto)
        step.sums.append(onto)

    def _block_sum(
        self,
        step: _Step,
        block: Block,
        count: int,
        store: Any,
        work: Workspace,
        *,
        tile: Tile | None,
    ) -> np.ndarray:
        rows, scores = store.forward(block, step.operand, work)
        how: dict[str, Any] = {"norms": store.norms(block), "tile": tile}
        multipliers = self._multipliers(step, block, count, scores, work, **how)
        return np.asarray(store.backward(rows, multipliers, work))

    def _multipliers(
        self,
        step: _Step,
        block: Block,
        count: int,
        scores: np.ndarray,
        work: Workspace,
        *,
        norms: Sequence[np.ndarray],
        tile: Tile | None,
    ) -> list[np.ndarray]:
        """What the parts of a block's rows are summed with; rows from ``count`` on get 0."""
        targets = self.targets[block]
        if step.check is None:
            found = self._clipped(step, scores, targets, norms, work, tile=tile)
        else:
            step.check.scores(block, count, scores)
            again = step.check.elsewhere(scores)
            found = self._clipped(step, scores, targets, norms, work)
            if again is not None:
                which, moved = again
                theirs = [norm[which] for norm in norms]
                others = self._clipped(step, moved, targets[which], theirs, Workspace())
                step.check.same(found, which, others)
        for each in found:
            each[:, count:] = 0.0  # padding counts nothing
        return found if step.check is None else step.check.multipliers(block, count, found)

    def _clipped(
        self,
        step: _Step,
        scores: np.ndarray,
        targets: np.ndarray,
        norms: Sequence[np.ndarray],
        work: Workspace,
        *,
        tile: Tile | None = None,
    ) -> list[np.ndarray]:
        """Clipped multipliers of every part, made of scores (S*K, b) and written over them."""
        # Outputs before rows: a sum over outputs then adds whole vectors of rows. One setting at
        # a time: every row takes the same path whatever runs beside it.
        cube = scores.reshape(-1, step.outputs, scores.shape[1])
        for setting in cube:
            self._residual(setting.T, targets, out=setting.T)
        # Clipping is in place, so all parts but the last work on a copy.
        found = [work.copy("multipliers", scores) for _ in self.parts[1:]] + [scores]
        for i, (each, clipping, inverse) in enumerate(
            zip(found, step.clippings, norms, strict=True)
        ):
            if tile is None:
                clipping.apply(each.reshape(cube.shape), inverse)
            else:
                person = PersonClipping(clipping)
                person.apply(each.reshape(cube.shape), inverse, tile.rows, tile.gram[i])
        return found

    def _check_weights(self, weights: np.ndarray) -> None:
        if weights.ndim != 3 or weights.shape[1] != self.d or 0 in weights.shape:
            raise InputError(f"weights have shape {weights.shape}, not (settings, {self.d}, K)")
        outputs = weights.shape[2]
        if self.outputs is not None and outputs != self.outputs:
            raise InputError(f"weights have {outputs} outputs, the targets {self.outputs}")
        if self._latest_class >= outputs:
            raise InputError(f"weights have {outputs} outputs; a target names a later class")


def loss_counts(loss: Loss, ceiling: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What a row counts for in a sum of losses: -1 for none, 1 for the ceiling."""
    scale = 2 / check_range("ceiling", float(ceiling))

    def counts(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.asarray(loss.value(scores, targets), dtype=np.float64) * scale - 1

    return counts


def count_rows(
    counts: Callable[[np.ndarray, np.ndarray], np.ndarray],
    cube: np.ndarray,
    targets: np.ndarray,
    many: int,
    which: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over the first ``many`` rows, or ``which`` of them, of what each counts for.

    Scores are (S, K, b).
    """
    # One setting at a time, as for gradients: a row decides its own value.
    part = np.stack([counts(setting.T, targets) for setting in cube])
    part = np.rint(np.clip(np.nan_to_num(part, nan=1.0), -1.0, 1.0) * LOSS_UNIT)
    found = part[:, :many].astype(np.int64)
    return np.asarray((found if which is None else found[:, which]).sum(axis=1))


def _tile(tiles: Sequence[Tile], start: int, stop: int) -> Tile | None:
    """The people whose rows these are; None if rows are nobody's in particular."""
    for tile in tiles:
        if tile.start <= start < tile.stop:
            first, last = ((at - tile.start) // tile.rows for at in (start, stop))
            return tile._replace(gram=tile.gram[:, :, first:last])
    return None


_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Engines that are made meanwhile work on one thread, unless told otherwise."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def _available_cores() -> int:
    if _ALONE.get():
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1
