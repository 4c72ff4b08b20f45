"""Rows are read once, chunk by chunk, into the store that suits them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Rows
from tacit.data.shaped import ShapedChunk
from tacit.engine.kernels import compact
from tacit.engine.kernels.shapes import ShapedStore
from tacit.engine.shaped import fits, rounded
from tacit.engine.storage import DenseStore, Parts, Rounding, SparseStore
from tacit.exceptions import InputError
from tacit.progress import Progress


def kind_of(
    rows: Rows, rounding: Rounding, arithmetic: str, parts: Parts, compiled: bool = True
) -> partial[Any]:
    """What makes a store for so many rows: for compiled loops, if there are any that know them."""
    compiled = compiled and rounding.exact and compact.level() is not None
    kind: Any = compact.CompactStore if compiled else DenseStore
    if rows.layout is not None and fits(rows.layout, rounding):
        kind = DenseStore
        if compiled and len(parts) == 1:
            kind = partial(ShapedStore, layout=rows.layout, rounding=rounding)
    how = {"arithmetic": arithmetic, "parts": parts, "longest": rounding.scale.longest}
    return partial(kind, d=parts[-1].stop, **how)


def rows_in(chunk: Any, shaped: bool) -> Any:
    """A chunk, dense if it is of shapes where those are not kept as such."""
    return np.asarray(chunk) if isinstance(chunk, ShapedChunk) and not shaped else chunk


def ingest(
    rows: Rows,
    rounding: Rounding,
    arithmetic: str,
    *,
    parts: Parts,
    progress: Progress,
    compiled: bool = True,
) -> DenseStore | SparseStore:
    """Read rows once, chunk by chunk, into a store; ``compiled`` if loops may be used."""
    made, shaped = kind_of(rows, rounding, arithmetic, parts, compiled), fits(rows.layout, rounding)
    looked_up = shaped and made.func is ShapedStore
    dense: Any = None
    held: list[sp.csr_array] = []
    for span, chunk in rows.chunks(rows.near, shaped=True):
        chunk = rows_in(chunk, shaped)
        if chunk.shape != (span.stop - span.start, rows.d):
            raise InputError(f"a chunk has shape {chunk.shape}, not {rows.d} columns as announced")
        blanked = rows.blanked_in(span.start, span.stop)
        if shaped and not looked_up:
            held.append(rounded(chunk, rounding, blanked).sparse())
        elif sp.issparse(chunk) and dense is None:
            held.append(rounding.sparse(chunk, blanked))
        elif not sp.issparse(chunk) and not held:
            dense = dense or made(rows.n)
            dense.take(span, chunk, rounding, blanked)
        else:
            raise InputError("some chunks of the rows are sparse and others dense")
        progress("rows", span.stop, rows.n)
    if not held:
        found: DenseStore = dense or made(0)
        return found
    matrix = sp.csr_array(sp.vstack(held, format="csr"))
    return SparseStore(matrix, rounding.offset(), arithmetic, parts, rows.blanked)
