"""Features in files: written whole, and read from what anybody has written as arrays.

An ``.npz`` of Tacit's own has ``features``, ``labels`` and what is known of the network. Any other
one is taken by the names that people give to arrays: ``x`` and ``y``, or ``x_train`` and so on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.npz import npz_names, read_npz
from tacit.exceptions import FileError, InputError, of_rows
from tacit.features.extractors import assumed
from tacit.files import new_file, write_file

FORMAT = "tacit-features/1"
QUANTISER = "x = 6 * (q / 255) ** 2"
NETWORK = ("extractor", "digest", "weights_sha256")
NAMED = "features, as their file says: "
READY = (
    "features: nothing is known of what made them; it is assumed to be public, and to look at one "
    "row at a time"
)
#: Names of rows and of their labels, the likeliest first.
PAIRS = {"features": "labels", "x": "y"}
PARTS = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}


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

    @property
    def network(self) -> bool:
        """Whether anything is said of a network that they come from."""
        return any(name in self.metadata for name in NETWORK)

    def assumption(self) -> str:
        """What a certificate takes for granted of where the features come from.

        Returns
        -------
        str
            A sentence.
        """
        if not self.network:
            return READY
        # Of a file, which may say anything.
        facts = [self.metadata.get(name) for name in NETWORK]
        known = [f if isinstance(f, str) and f.isprintable() else "unknown" for f in facts]
        return f"{NAMED}{assumed(*(word[:100] for word in known))}"


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


def load_features(
    path: str | os.PathLike[str],
    *,
    part: str | None = None,
    key: str | None = None,
    labels: str | None = None,
) -> FeatureSet:
    """Features from a file that `save_features` wrote, or from arrays of any ``.npz`` file.

    Parameters
    ----------
    path : path
        An ``.npz`` file: ``features`` and ``labels``; or ``x`` and ``y``; or ``x_train``,
        ``y_train``, ``x_test``, ``y_test``. (``X`` is as good as ``x``.) Pickles are refused.
    part : {"train", "test"}, optional
        Which rows to take where there are both.
    key : str, optional
        Name of the array that holds the rows, where it has another.
    labels : str, optional
        Name of the array that holds the labels, where it has another.

    Returns
    -------
    FeatureSet
        To be passed as ``X``. Bytes that `save_features` wrote are float32 again.

    Examples
    --------
    >>> found = load_features("features.npz")  # doctest: +SKIP
    """
    path = Path(path)
    names = npz_names(path)
    key = rows_in(path, part) if key is None else key
    if labels is None:
        both = {**PAIRS, **dict(PARTS.values())}
        partner = next((n for n in names if n.lower() == both.get(key.lower())), None)
    else:
        partner = labels
    for wanted in (key, *([] if partner is None else [partner])):
        if wanted not in names:
            raise FileError(f"{path} has no array {wanted!r}; it has {_listed(names)}")
    more = [name for name in ("metadata", "names") if key == "features" and name in names]
    arrays = read_npz(path, dict.fromkeys([key, *([partner] if partner else []), *more]))
    features, facts = arrays[key], _facts(arrays.get("metadata"), path)
    if facts.get("quantiser") == QUANTISER:
        features = (6 * (features.astype(np.float32) / 255) ** 2).astype(np.float32)
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise FileError(
            f"{path}: the array {key!r} holds no rows of numbers; features of images or texts are "
            "made by tacit features"
        )
    found = None if partner is None else _labels_of(arrays[partner], len(features), path, partner)
    return FeatureSet(features, arrays.get("names"), found, facts)


def rows_in(path: Path, part: str | None) -> str:
    """Name of the array of a file that holds its rows, or those of a part."""
    names = npz_names(path)
    parts = [rows for rows, _ in PARTS.values()]
    first = [PARTS[part][0]] if part == "test" else []
    for wanted in (*first, *PAIRS, *([PARTS[part][0]] if part else parts)):
        found = [name for name in names if name.lower() == wanted]
        both = part is None and wanted in parts and {n.lower() for n in names} >= set(parts)
        if len(found) == 1 and not both:
            return found[0]
    raise FileError(f"which array of {path} holds the rows? Name it as key: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name)[:80] for name in names[:20])


def _facts(metadata: np.ndarray | None, path: Path) -> dict[str, Any]:
    """What a file says of its features; nothing, if Tacit did not write it."""
    try:
        facts = json.loads(str(metadata[()])) if metadata is not None else {}
    except (ValueError, RecursionError):
        return {}
    written = facts.get("format") if isinstance(facts, dict) else None
    if written == FORMAT:
        return facts
    if isinstance(written, str) and written.startswith(FORMAT.rstrip("1")):
        # Its numbers may mean something else, and the network they are of would be forgotten.
        raise FileError(
            f"{path} was written by another version of Tacit, which this one cannot read"
        )
    return {}


def _labels_of(labels: np.ndarray, n: int, path: Path, name: str) -> np.ndarray:
    if labels.shape != (n,) or labels.dtype.kind not in "biufU":
        raise of_rows(
            InputError(f"{path}: the array {name!r} does not hold one number or word for every row")
        )
    return labels
