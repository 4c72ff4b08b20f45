"""Features of many rows: computed once, kept, shown as they come."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError, carried
from tacit.features.cache import Cache, open_cache
from tacit.features.extractors import Extractor, open_extractor
from tacit.features.sources import Row, is_table, open_source
from tacit.features.stored import FORMAT, FeatureSet
from tacit.progress import Progress, silent


def compute(
    extractor: Extractor,
    rows: Sequence[Row],
    *,
    cache: Cache | None = None,
    jobs: int | None = None,
    progress: Progress = silent,
) -> tuple[np.ndarray, int]:
    """Features (n, width) of rows, each by itself, and how many were in the cache."""

    def one(row: Row) -> tuple[np.ndarray, bool]:
        key = b"" if cache is None else row.key()
        found = None if cache is None else cache.get(key)
        if found is not None:
            return found, True
        try:
            values = extractor.alone(row.load())
        except FileError:
            raise
        except InputError as error:
            again = InputError(f"{row.name}: {error}" if row.name else str(error))
            raise carried(again, error) from error
        if len(values) != extractor.width:
            raise InputError(f"{extractor.name} answers rows of different lengths")
        if cache is not None:
            cache.put(key, values)
        return values, False

    out = np.empty((len(rows), extractor.width), dtype=np.float32)
    cached = 0
    with extractor.workers(jobs) as each:
        for i, (values, hit) in enumerate(each(one, rows)):
            out[i] = values
            cached += hit
            progress("features", i + 1, len(rows))
    return out, cached


def extract(
    source: str | os.PathLike[str],
    extractor: Any = None,
    *,
    column: str | None = None,
    key: str | None = None,
    labels: str | None = None,
    cache: bool | str | os.PathLike[str] = True,
    jobs: int | None = None,
    progress: Progress = silent,
    **settings: Any,
) -> FeatureSet:
    """Features of the images, texts or vectors in a file or folder.

    Parameters
    ----------
    source : path
        A folder or a list of images, an array, or a table: see `tacit.features.sources`.
    extractor : str, path or Extractor
        See `open_extractor`. Left out, it is ``"minilm"`` for a table and
        ``"efficientnet-lite0"`` for images.
    cache : bool or path
        Where features are kept, so that an interrupted run goes on where it stopped: by default
        in the user's cache folder. They tell as much as the rows.
    jobs : int, optional
        Rows worked at at once; one a core unless given.
    column : str, optional
        The column of a table that holds the text.
    key : str, optional
        The array of an ``.npz``, if it has more than one.
    labels : str, optional
        ``"folders"`` for the first folder below the path; the name of a column, or of an array of
        the ``.npz``; or a file with a label per row: text, ``.npy`` or idx.
    progress : callable
        Told how far it is.
    **settings
        How rows are prepared for the network.

    Returns
    -------
    FeatureSet
        To be passed as ``X``.

    Examples
    --------
    >>> found = extract("reviews.csv", "minilm", column="text")  # doctest: +SKIP
    """
    if not Path(source).exists():  # before a network is opened, which may take a while
        raise FileError(f"no such file or folder: {source}; check the spelling")
    if extractor is None:
        if Path(source).suffix.lower() == ".txt":
            raise InputError(
                f"{source}: say which extractor: efficientnet-lite0 if its lines name images, "
                "minilm if each line is a text"
            )
        text = column is not None or is_table(Path(source))
        extractor = "minilm" if text else "efficientnet-lite0"
    network = open_extractor(extractor, **settings)
    found = open_source(source, network.takes, column=column, key=key, labels=labels)
    kept = None if cache is False else open_cache(network, None if cache is True else cache)
    features, cached = compute(network, found.rows, cache=kept, jobs=jobs, progress=progress)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise InputError(f"{found.rows[wrong[0]].name}: {network.name} answers no finite numbers")
    facts = {**network.describe(), "format": FORMAT, "versions": _versions(network)}
    return FeatureSet(features, found.names, found.labels, facts, cached, found.skipped)


def _versions(extractor: Extractor) -> dict[str, str]:
    try:
        ours = {"tacit": version("tacit")}
    except PackageNotFoundError:
        ours = {}
    return {**ours, "numpy": np.__version__, **extractor.versions}
