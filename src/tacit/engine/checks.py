"""An engine that is watched: every product is checked, and multipliers are, before they count.

`tacit.mechanisms.checksum` has the lemma. Of the two products of a step,

- *sums* G = XᵀZ hold if τᵀG = (Xτ)ᵀZ, where τ has a number for every column. Xτ is computed once,
  when the rows are read. (Parts of the columns that are clipped by themselves have a Z each, and
  add up: τᵀG = Σ(Xτ)ᵀZ with τ cut to the parts.)
- *scores* A = XW hold if ρᵀA = (ρᵀX)W, where ρ has a number for every row. ρᵀX over all rows is
  computed in the first step on all of them, that over a batch in every step: as two more columns
  of Z, so it is checked like the other sums. (Its error may depend on ρ, but not on τ.)

So every score is exact, hence its own row's affair, and so is the sum, except with probability
2^-30 at most that an error passes.

Multipliers are functions of one row, from correctly rounded operations alone. Should that not be
so, because of a loss that was defined elsewhere or a faulty machine, it is likely to show: one
block in four, at random, is computed a second time with its rows in other places, beside a few
more, and must come out the same. A row whose multiplier would be another one in a share f of the
places, or beside the others, is found with probability f/4 or more in every step.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from tacit.engine.quantization import Weights
from tacit.engine.schedule import LANES, Block
from tacit.engine.streaming import Store
from tacit.exceptions import InputError
from tacit.mechanisms.checksum import Probe, Residues, combine, fault, integers, require_equal
from tacit.mechanisms.random_streams import Key

AGAIN = 4  # one block in so many is computed a second time
MOST_ROWS = 1 << 24  # sums over fewer of them cannot wrap around 2^64


class Watch:
    """Secret numbers for the rows and columns of a store, and what they give once and for all."""

    def __init__(self, store: Store, n: int, d: int) -> None:
        if n >= MOST_ROWS:
            raise InputError(
                f"arithmetic='strict' checks sums of fewer than {MOST_ROWS:,} rows, and there are "
                "more; use arithmetic='exact'"
            )
        self.rows, self.columns = Probe(n), Probe(d)
        self.along = [store.along(self._only(part, d)) for part in store.parts]
        self.everything: Residues | None = None  # ρᵀX over all rows, once they have been summed
        self.turns = Key.fresh().stream("turns")

    def _only(self, part: slice, d: int) -> np.ndarray:
        """τ in two halves, 0 outside a part of the columns."""
        halves = np.zeros((2, d))
        halves[:, part] = self.columns.halves(part)
        return halves

    def step(self, weights: Weights, *, whole: bool) -> StepCheck:
        """A check for one step, on all rows or on a batch."""
        return StepCheck(self, weights, whole=whole)


class StepCheck:
    """The check of one step, to which blocks of rows contribute in any order.

    Attributes
    ----------
    extra : int
        Columns that `multipliers` adds to those of the step.
    """

    def __init__(self, watch: Watch, weights: Weights, *, whole: bool) -> None:
        self._watch, self._whole = watch, whole
        self._lock = threading.Lock()
        self._columns = integers(weights.columns, "a rounded weight")
        self._per_unit = 1.0 / weights.unit  # powers of two
        self._mixed = watch.everything if whole else None
        self.extra = 2 if self._mixed is None else 0
        self._scores = Residues.zeros(len(weights.columns))
        self._sums = Residues.zeros(len(weights.columns) + self.extra)

    def scores(self, block: Block, count: int, scores: np.ndarray) -> None:
        """Take in the scores (S*K, b) of a block; from row ``count`` on it is padding."""
        exact = integers(scores * self._per_unit, "a score")
        seen = combine(exact[:, :count], self._watch.rows.residues[block][:count])
        with self._lock:
            self._scores += seen

    def elsewhere(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows of a block in another order and some rows of zeros: which, and their scores.

        None three times in four.
        """
        b, word = scores.shape[1], int(self._watch.turns.words(1)[0])
        if word % AGAIN:
            return None
        turn = 1 + word // AGAIN % (b - 1)
        which = np.arange(turn, turn + b + LANES) % b
        moved = np.take(scores, which, axis=1)
        moved[:, b:] = 0.0
        return which, moved

    def same(
        self, found: Sequence[np.ndarray], which: np.ndarray, others: Sequence[np.ndarray]
    ) -> None:
        """Compare multipliers (S*K, b) of every part with those found elsewhere."""
        for here, there in zip(found, others, strict=True):
            b = here.shape[1]
            if not np.array_equal(np.take(here, which[:b], axis=1), there[:, :b]):
                raise fault("the clipped residual of a row, which depends on where the row stands,")

    def multipliers(
        self, block: Block, count: int, found: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Take in the multipliers (S*K, b) of every part, and return what to sum rows with."""
        used = list(found)
        if self.extra:
            numbers = self._watch.rows.halves(block)
            numbers[:, count:] = 0.0
            used = [np.concatenate([each, numbers]) for each in found]
        for each, along in zip(used, self._watch.along, strict=True):
            seen = combine(each.astype(np.int64), along[block])
            with self._lock:
                self._sums += seen
        return used

    def conclude(self, total: np.ndarray) -> np.ndarray:
        """Compare all of it with the sum over all blocks, (d, S*K + extra); the sum (d, S*K)."""
        sums = combine(np.ascontiguousarray(total.T), self._watch.columns.residues)
        require_equal(sums, self._sums, "the sum of gradients")
        outputs = total.shape[1] - self.extra
        mixed = self._mixed
        if mixed is None:
            mixed = Residues.joined(total[:, outputs], total[:, outputs + 1])
            if self._whole:
                self._watch.everything = mixed
        scores = combine(self._columns, mixed)
        require_equal(scores, self._scores, "the product of rows and weights")
        return total[:, :outputs]
