"""Features of images, texts or vectors from a pre-trained network, as the first stage of a plan.

The network is public: it was trained elsewhere, on other rows. So the stage costs
nothing; what it assumes is in the certificate, with a digest of the network.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk, DenseSource, Rows, SparseSource, as_rows
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError
from tacit.features.cache import Cache, open_cache
from tacit.features.extractors import NAMED, Extractor, assumed, open_extractor
from tacit.features.sources import Row, image_row, text_row, vector_row
from tacit.features.work import compute
from tacit.preprocessing.base import Context, Kind, Stage, densify
from tacit.progress import Progress


class _Slot:
    """The open network of a stage and its copies; sent elsewhere, it is opened again there."""

    network: Extractor | None = None

    def __deepcopy__(self, memo: Any) -> _Slot:
        return self

    def __reduce__(self) -> Any:
        return _Slot, ()


@dataclass
class PublicFeatures(Stage):
    """What a pre-trained network says of each row.

    Every row goes through the network by itself. The network's answers have no
    public bound, so Normalize or ClipNorm comes next.

    Parameters
    ----------
    extractor : str, path or Extractor
        A name (``"efficientnet-lite0"``, ``"minilm"``), the path of an ONNX or TorchScript file or
        of a BERT folder, or what `tacit.features.open_extractor` gives.
    shape : (int, int) or (int, int, int)
        Height, width and channels of the images that rows are, flattened: pixels from 0 to 255
        in an array of integers. For networks of images.
    column : str
        The column of a table that holds the text. For networks of text.
    settings : dict, optional
        How rows are prepared for the network: see `tacit.features.open_extractor`.
    cache : bool or path
        Keep features on disk, by default in the user's cache folder, for the passes that fitting
        makes and for the next run. They tell as much as the rows do: keep them from others.
    jobs : int, optional
        Rows worked at at once; one a core unless given.
    network, digest, weights, outputs
        Name of the network, digest of it with its settings, SHA-256 of its weights and number of
        features: filled in by `fit`. A digest that is given must match.

    Examples
    --------
    >>> from tacit.preprocessing import Normalize, PrivateCenter
    >>> stages = [PublicFeatures("minilm", column="review"), Normalize(), PrivateCenter()]
    """

    extractor: Any = None
    shape: Sequence[int] | None = None
    column: str | None = None
    settings: Mapping[str, Any] | None = None
    cache: Any = True
    jobs: int | None = None
    network: str | None = None
    digest: str | None = None
    weights: str | None = None
    outputs: int | None = None
    kind: ClassVar[Kind] = "public"
    must_be_first: ClassVar[bool] = True
    thread_safe: ClassVar[bool] = False
    external: ClassVar[bool] = True
    unsaved: ClassVar[tuple[str, ...]] = ("extractor", "cache", "jobs")

    def __post_init__(self) -> None:
        self._slot = _Slot()
        if self.extractor is None and self.network is None:
            raise InputError(
                "PublicFeatures needs extractor=: a name, such as 'efficientnet-lite0' or "
                "'minilm', or the path of a network"
            )
        if self.shape is not None:
            sides = list(self.shape) if isinstance(self.shape, Sequence) else []
            if len(sides) not in (2, 3) or not all(type(s) is int and s > 0 for s in sides):
                raise InputError(
                    f"PublicFeatures(shape={self.shape!r}) must be (height, width) or (height, "
                    "width, channels)"
                )
            if len(sides) == 3 and sides[2] not in (1, 3, 4):
                raise InputError(f"PublicFeatures: images have 1, 3 or 4 channels, not {sides[2]}")
            if not isinstance(self.shape, tuple):  # or no clone would have the very same
                self.shape = tuple(sides)
        if self.shape is not None and self.column is not None:
            raise InputError("PublicFeatures takes shape= for images or column= for text, not both")
        if self.settings is not None and not isinstance(self.settings, Mapping):
            raise InputError(f"PublicFeatures(settings={self.settings!r:.80}) must be a dict")
        given = self.extractor
        if isinstance(given, Extractor) and dict(self.settings or given.given) != dict(given.given):
            raise InputError("PublicFeatures: an extractor that is open already takes no settings")
        if not isinstance(self.cache, bool | str | os.PathLike):
            raise InputError(f"PublicFeatures(cache={self.cache!r}) must be True, False or a path")

    def __sklearn_clone__(self) -> Self:
        return copy.deepcopy(self)  # a network that is open is shared

    @property
    def takes_tables(self) -> bool:
        return self.column is not None

    def opened(self) -> Extractor:
        """The network, which must be the one that the stage was fitted with, if it was.

        Returns
        -------
        Extractor
            Open, and the same each time.
        """
        found = self._slot.network
        if found is None:
            found = self._slot.network = self._open()
        if self.digest is not None and found.digest != self.digest:
            raise InputError(
                f"{found.name} is not the network that the model was fitted with: its digest is "
                f"{found.digest}, and should be {self.digest} ({self.network})"
            )
        return found

    def _open(self) -> Extractor:
        given: Any = self.extractor
        if given is None:  # from a file, which holds no network
            given = self.network
            if given not in NAMED:
                raise InputError(
                    f"this model needs the network {self.network!r} with digest {self.digest}, "
                    "which is not part of its file: pass extractor= to tacit.load, or --extractor "
                    "on the command line"
                )
        settings = {} if isinstance(given, Extractor) else dict(self.settings or {})
        found = open_extractor(given, **settings)
        needs = {"image": "shape", "text": "column"}.get(found.takes)
        for name in ("shape", "column"):
            if (getattr(self, name) is None) == (name == needs):
                raise InputError(
                    f"{found.name} takes {found.takes}s: "
                    + (f"pass {name}=" if name == needs else f"leave out {name}=")
                )
        return found

    def supply(self, network: Any) -> None:
        """Give a stage that comes from a file its network; another one is refused.

        Parameters
        ----------
        network : str, path or Extractor
            The network, whose digest must be the one that was saved.
        """
        self.extractor, self._slot = network, _Slot()
        self.opened()

    def width(self, d: int) -> int:
        found = self.opened() if self.outputs is None else self._slot.network
        cells = None if found is None else found.columns
        if self.shape is not None:
            cells = math.prod(self.shape)
        if cells is not None and d != cells:
            what = "a vector" if self.shape is None else f"an image of shape {self.shape}"
            raise InputError(f"PublicFeatures: rows have {d} columns, {what} has {cells}")
        return int(self.outputs or self.opened().width)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return None  # whatever comes in

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        """Open the network and note which it is; nothing is learned from the rows."""
        rows = self._rows(rows)
        found = self.opened()
        self.network, self.weights, self.digest = found.name, found.weights, found.digest
        self.settings, self.outputs = dict(found.given), found.width
        self._check(rows)
        return self

    def _rows(self, rows: Any) -> Rows:
        """Rows of any kind; of a table if the network takes text."""
        if isinstance(rows, Rows):
            return rows
        return as_rows(as_table(rows) if self.takes_tables else rows)

    def _check(self, rows: Rows) -> None:
        """Check the shape of the rows, which is public."""
        if rows.maps:
            raise InputError("PublicFeatures must be the first stage: it takes rows as they come")
        if rows.distributed:
            rows = rows.hidden()
        if self.column is not None:
            table = rows.source.empty()  # of a file, too
            if not isinstance(table, Table):
                raise InputError("PublicFeatures(column=...) needs a table with named columns")
            if table.kind(self.column) != "text":
                raise InputError(f"column {self.column!r} holds numbers, not text")
            return
        if isinstance(rows.source.empty(), Table):
            raise InputError("a table of text needs PublicFeatures(column=...)")
        self.width(rows.d)
        if self.shape is not None:
            source = rows.source
            kept = source.array if isinstance(source, DenseSource) else None
            kept = source.matrix if isinstance(source, SparseSource) else kept
            if kept is not None and kept.dtype.kind not in "iub":
                raise InputError(
                    f"PublicFeatures: pixels are integers from 0 to 255, of a type such as "
                    f"uint8, not {kept.dtype}"
                )

    def through(self, rows: Rows) -> Rows:
        self._check(rows)
        return super().through(rows)

    def transform(self, rows: Any) -> Any:
        seen = self.through(self._rows(rows))
        return seen if isinstance(rows, Rows) else seen.collect()

    def precompute(self, rows: Rows, context: Context, progress: Progress) -> None:
        """Fill the cache, so that every later pass over the rows is quick."""
        if self.cache is False or rows.distributed:  # workers fill theirs as they go
            return
        done = 0
        for _, chunk in rows.chunks(64):
            done += len(self.apply(chunk))
            # Of the public size: how many rows there are may be private.
            progress("features", min(done, context.size), context.size)

    def apply(self, chunk: Chunk) -> np.ndarray:
        found, _ = compute(self.opened(), self._items(chunk), cache=self._cache(), jobs=self.jobs)
        out = found.astype(np.float64)
        # A row on which the network fails counts nothing; in a sum it would spoil all others.
        out[~np.isfinite(out).all(axis=1)] = 0.0
        return out

    def _items(self, chunk: Chunk) -> list[Row]:
        if isinstance(chunk, Table):
            assert self.column is not None
            return [text_row(cell) for cell in chunk.column(self.column)]
        dense = densify(chunk)
        if self.shape is None:
            return [vector_row(row) for row in dense]
        cells = np.clip(np.rint(dense), 0, 255).astype(np.uint8)
        return [image_row(row.reshape(self.shape)) for row in cells]

    def _cache(self) -> Cache | None:
        if self.cache is False:
            return None
        return open_cache(self.opened(), None if self.cache is True else self.cache)

    def note(self) -> str:
        return (
            f"features of each row by itself, from the pre-trained network {self.network} with "
            f"digest {self.digest}"
        )

    def assumption(self) -> str:
        found = self.opened()
        return assumed(found.name, found.digest, found.weights)
