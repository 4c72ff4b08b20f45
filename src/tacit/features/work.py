"""Features of many rows: computed once, kept, shown as they come, written whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import FileError, InputError, carried
from tacit.features.cache import Cache, open_cache
from tacit.features.extractors import Extractor, assumed, open_extractor
from tacit.features.sources import Row, is_table, open_source, read_npz
from tacit.files import new_file, write_file
from tacit.progress import Progress, silent

FORMAT = "tacit-features/1"
QUANTISER = "x = 6 * (q / 255) ** 2"


@dataclass(frozen=True)
class FeatureSet:
    """Features of rows, and where they come from.

    Attributes
    ----------
    features : ndarray of shape (n, width)
        float32.
    names, labels : ndarray of shape (n,), or None
        Where they are known.
    metadata : dict
        The extractor: name, digests, settings, width, versions.
    cached, skipped : int
        How many features were at hand already, and how many files of a folder were no images.
    """

    features: np.ndarray
    names: np.ndarray | None = None
    labels: np.ndarray | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    cached: int = 0
    skipped: int = 0

    def assumption(self) -> str:
        """What a certificate takes for granted of where the features come from; or nothing.

        Returns
        -------
        str
            A sentence.
        """
        names = ("extractor", "digest", "weights_sha256")
        if not any(name in self.metadata for name in names):
            return ""
        # Of a file, which may say anything.
        facts = [self.metadata.get(name) for name in names]
        known = [f if isinstance(f, str) and f.isprintable() else "unknown" for f in facts]
        return f"features, as their file says: {assumed(*(word[:100] for word in known))}"


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


def save_features(
    found: FeatureSet, path: str | os.PathLike[str], *, compact: bool = False, force: bool = False
) -> None:
    """Write features to an ``.npz`` file, whole or not at all.

    Parameters
    ----------
    compact : bool
        Store bytes q with x = 6 (q / 255)², a fixed quantiser for features between 0 and 6,
        as EfficientNet-Lite's are.
    found : FeatureSet
        What `extract` gave.
    path : path
        The file to write.
    force : bool
        Whether to replace a file.

    Examples
    --------
    >>> save_features(found, "features.npz")  # doctest: +SKIP
    """
    target = new_file(Path(path), force, (".npz",))
    facts = dict(found.metadata)
    features = found.features
    if compact:
        if features.min(initial=0.0) < 0 or features.max(initial=0.0) > 6:
            raise InputError(
                "bytes are for features between 0 and 6, and some of these lie beyond; keep float32"
            )
        features = np.rint(255 * np.sqrt(features / 6)).astype(np.uint8)
        facts["quantiser"] = QUANTISER
    arrays = {"features": features, "metadata": np.array(json.dumps(facts, allow_nan=False))}
    arrays |= {} if found.names is None else {"names": found.names}
    arrays |= {} if found.labels is None else {"labels": found.labels}

    write_file(target, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load_features(path: str | os.PathLike[str]) -> FeatureSet:
    """Features from a file that `save_features` wrote; bytes become float32 again.

    Parameters
    ----------
    path : path
        An ``.npz`` file.

    Returns
    -------
    FeatureSet
        To be passed as ``X``.

    Examples
    --------
    >>> found = load_features("features.npz")  # doctest: +SKIP
    """
    arrays = read_npz(Path(path))
    try:
        facts = json.loads(str(arrays["metadata"][()]))
        features = arrays["features"]
        if facts["format"] != FORMAT or features.ndim != 2:
            raise ValueError
    except (KeyError, ValueError, TypeError, RecursionError):
        raise FileError(f"{path} holds no features that Tacit wrote") from None
    if facts.get("quantiser") == QUANTISER:
        features = (6 * (features.astype(np.float32) / 255) ** 2).astype(np.float32)
    return FeatureSet(features, arrays.get("names"), arrays.get("labels"), facts)


def _versions(extractor: Extractor) -> dict[str, str]:
    try:
        ours = {"tacit": version("tacit")}
    except PackageNotFoundError:
        ours = {}
    return {**ours, "numpy": np.__version__, **extractor.versions}
