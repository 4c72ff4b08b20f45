"""Model files: safetensors with the certificate inside.

Loading reads numbers and JSON, never code. A digest over everything finds
damage and careless edits; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit import preprocessing as stage_classes
from tacit.data.rows import as_rows
from tacit.exceptions import FileError, InputError
from tacit.files import parse_json, write_bytes
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.losses import Loss, Tempered, get_loss
from tacit.plan.fit import apply_stages
from tacit.preprocessing import Stage
from tacit.privacy.certificate import Certificate

__all__ = ["load", "save"]

FORMAT = "tacit-model/1"
LIMIT = 1 << 30  # bytes of a file: 100 million coefficients
LONGEST_TEXT = 32 << 20  # characters of its description, or of its certificate
MOST_TENSORS = 1000
PICTURE = 1 << 22  # numbers of a picture that a network is shown
LABELS = re.compile(r"[<>|](b1|[iuf][1248]|O8?|U\d+)")  # types that labels may have
ESTIMATORS = {cls.__name__: cls for cls in (DPLinearClassifier, DPLinearRegressor)}
STAGES: dict[str, type[Stage]] = {
    name: getattr(stage_classes, name)
    for name in stage_classes.__all__
    if name not in ("Context", "Stage") and getattr(stage_classes, name).kind != "noiseless"
}


def save(estimator: DPLinearClassifier | DPLinearRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to ``path``, whole or not at all.

    What is written was released by the certificate: coefficients, the stages
    that prediction needs (free and public ones), and the certificate itself.

    Parameters
    ----------
    estimator : DPLinearClassifier or DPLinearRegressor
        Fitted.
    path : path
        The file to write, or to replace.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.trainers import DPGD
    >>> clf = DPLinearClassifier(trainer=DPGD(steps=2)).fit(np.eye(100), [0, 1] * 50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(clf, f"{folder}/model.safetensors")
    ...     again = load(f"{folder}/model.safetensors")
    >>> bool((again.coef_ == clf.coef_).all())
    True
    """
    write_bytes(path, dumps(estimator))


def dumps(estimator: DPLinearClassifier | DPLinearRegressor) -> bytes:
    """What `save` writes."""
    from safetensors.numpy import save as to_bytes

    if type(estimator) not in ESTIMATORS.values():
        raise InputError(f"save takes {' or '.join(ESTIMATORS)}, not {type(estimator).__name__}")
    check_is_fitted(estimator, "coef_")
    tensors = {
        "coef": np.ascontiguousarray(np.atleast_2d(estimator.coef_), dtype=np.float64),
        "intercept": np.ascontiguousarray(np.atleast_1d(estimator.intercept_), dtype=np.float64),
    }
    kept = []
    for i, stage in enumerate(estimator.stages_):
        kept.append({"name": stage.name, "parameters": stage.parameters()})
        for name, value in stage.arrays().items():
            tensors[f"stage.{i}.{name}"] = np.asarray(value, order="C")  # single numbers too
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    model = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "loss": _described(estimator.loss),
        "features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else [classes.dtype.str, classes.tolist()],
        "stages": kept,
    }
    bounds = getattr(estimator, "target_bounds_", None)
    if bounds is not None:
        model["target_bounds"] = list(bounds)
    metadata = {
        "tacit": json.dumps(model, allow_nan=False),
        "certificate": estimator.certificate_.to_json(),
    }
    if max(map(len, metadata.values())) > LONGEST_TEXT:
        raise InputError("names of features or labels are too long to be kept in a model file")
    metadata["digest"] = digest_of(tensors, metadata)
    return bytes(to_bytes(tensors, metadata=metadata))


def _described(loss: str | Loss) -> str | dict[str, Any]:
    """A loss by its name; with its parameters, if probabilities depend on them.

    Versions that know of names alone refuse what has more, and do not get probabilities wrong.
    """
    if isinstance(loss, Tempered) and loss.tail != 1:
        return {"loss": loss.name, **asdict(loss)}
    return loss if isinstance(loss, str) else loss.name


def load(
    path: str | os.PathLike[str], *, extractor: Any = None
) -> DPLinearClassifier | DPLinearRegressor:
    """A fitted estimator from a file that `save` wrote.

    It predicts, and carries its certificate; it does not remember the plan's
    objects, so fitting it again starts from default settings.

    Parameters
    ----------
    path : path
        The file to read.
    extractor : str, path or Extractor, optional
        The pre-trained network of a model that begins with `PublicFeatures`. Its file
        holds the network's digest, and another network is refused. Those with a name
        (``"efficientnet-lite0"``, ``"minilm"``) are found without it.

    Returns
    -------
    DPLinearClassifier or DPLinearRegressor
        With coefficients, stages and certificate.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.trainers import DPGD
    >>> clf = DPLinearClassifier(trainer=DPGD(steps=2)).fit(np.eye(100), [0, 1] * 50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(clf, f"{folder}/model.safetensors")
    ...     load(f"{folder}/model.safetensors").certificate_.epsilon
    1.0
    """
    estimator = _load(path)
    if extractor is not None:
        stages = [stage for stage in estimator.stages_ if stage.external]
        if not stages:
            raise InputError(f"{path} needs no extractor: its rows are not seen through a network")
        for stage in stages:
            stage.supply(extractor)
    return estimator


def _load(path: str | os.PathLike[str]) -> DPLinearClassifier | DPLinearRegressor:
    tensors, metadata = _read(Path(path))
    if not {"tacit", "certificate", "digest"} <= metadata.keys():
        raise FileError(f"{path} is a safetensors file, but not one of Tacit's models")
    if digest_of(tensors, metadata) != metadata["digest"]:
        raise FileError(f"{path} was changed after it was written, or is damaged: wrong digest")
    try:
        model = parse_json(metadata["tacit"])
        if model["format"] != FORMAT:
            raise FileError(f"{path} has format {model['format']!r}; this version reads {FORMAT}")
        return _rebuild(model, tensors, Certificate.from_json(metadata["certificate"]))
    except FileError:
        raise
    except Exception as error:  # whatever strange content may cause, deep nesting included
        raise FileError(f"{path} is not a complete model: {error!r:.300}") from error


def _rebuild(
    model: Mapping[str, Any], tensors: Mapping[str, np.ndarray], certificate: Certificate
) -> DPLinearClassifier | DPLinearRegressor:
    loss, names, width = model["loss"], model["feature_names"], operator.index(model["features"])
    if isinstance(loss, dict):
        loss = get_loss(**loss)
    elif not isinstance(loss, str):
        raise ValueError("its loss has no name")
    # Something in the file is as wide as the rows: what follows need not be ready for any width.
    # A network in front is not in the file; its rows may be as wide as a picture.
    first = dict(next(iter(model["stages"]), {}))
    most = PICTURE if first and STAGES[first["name"]].external else 0
    if not 0 < width <= max(most, sum(value.size for value in tensors.values())):
        raise ValueError(f"{width} features do not fit the rest")
    estimator = ESTIMATORS[model["estimator"]](certificate.epsilon, certificate.delta, loss=loss)
    estimator.certificate_ = certificate
    estimator.stages_ = tuple(_restore(i, e, tensors) for i, e in enumerate(model["stages"]))
    estimator.n_features_in_ = width
    if names is not None:
        texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not texts or len(names) != width:
            raise ValueError("names of features do not fit the rest")
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    row, behind = _some_row(estimator)
    for stage in estimator.stages_:
        width = stage.width(width)
    outputs = 1
    if isinstance(estimator, DPLinearClassifier):
        estimator.classes_ = _classes(*model["classes"])
        outputs = len(estimator.classes_) if len(estimator.classes_) > 2 else 1
    coef, intercept = tensors["coef"], tensors["intercept"]
    if coef.shape != (outputs, width) or intercept.shape != (outputs,):
        raise ValueError(f"coefficients of shape {coef.shape} do not fit the rest")
    if not all(np.isfinite(value).all() for value in tensors.values()):
        raise ValueError("some numbers are not finite")
    if (coef.dtype, intercept.dtype) != (np.float64, np.float64):
        raise ValueError("coefficients are not of double precision")
    with np.errstate(divide="raise", over="raise", invalid="raise"):  # or predicting would fail
        for _, chunk in apply_stages(as_rows(row), behind).chunks():
            if np.shape(chunk @ coef.T) != (1, outputs):
                raise ValueError("the stages do not fit the rest")
    estimator.coef_, estimator.intercept_ = coef, intercept
    if isinstance(estimator, DPLinearRegressor):
        estimator.coef_, estimator.intercept_ = coef[0], float(intercept[0])
        if "target_bounds" in model:  # not in files of earlier versions
            low, high = map(float, model["target_bounds"])
            if not -math.inf < low < high < math.inf:
                raise ValueError("the limits of the target are no limits")
            estimator.target_bounds_ = low, high
    return estimator


def _some_row(estimator: DPLinearClassifier | DPLinearRegressor) -> tuple[Any, tuple[Stage, ...]]:
    """A row that the model must be able to predict for, and the stages that it goes through."""
    stages, width = estimator.stages_, estimator.n_features_in_
    if stages and stages[0].external:  # the network is not here yet
        width, stages = stages[0].width(width), stages[1:]
        if not 0 < width <= PICTURE:
            raise ValueError(f"{width} features do not fit the rest")
    return stages[0].example(width) if stages else np.zeros((1, width)), stages


def _classes(dtype: str, labels: list[Any]) -> np.ndarray:
    if not LABELS.fullmatch(dtype) or not isinstance(labels, list):
        raise ValueError("classes must be a list of labels and their type")
    if len(labels) * np.dtype(dtype).itemsize > LONGEST_TEXT:  # each is as long as the longest
        raise ValueError("the labels of the classes are too long")
    classes = np.array(labels, dtype=dtype)
    if classes.ndim != 1 or len(np.unique(classes)) < 2:
        raise ValueError("classes must be two labels or more")
    "".join(map(str, labels)).encode()  # or predictions could not be written
    return classes


def _restore(position: int, entry: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Stage:
    """A fitted stage: its class looked up by name, its settings and what it learned set."""
    cls, parameters = STAGES[entry["name"]], entry["parameters"]
    if parameters.keys() & set(cls.unsaved):
        raise ValueError("rows and networks are never named by their place")
    start = f"stage.{position}."
    arrays = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
    if not all(name.isidentifier() and name.strip("_") + "_" == name for name in arrays):
        raise ValueError(f"{entry['name']} has no attributes {', '.join(arrays)}")
    return cls.restore(parameters, arrays)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    from safetensors import safe_open

    try:
        size = path.stat().st_size
        if not path.is_file():
            raise FileError(f"{path} is not a file")
        if size > LIMIT:
            raise FileError(
                f"{path} is larger than {LIMIT >> 20} MB; a linear model hardly ever is. To read "
                "it all the same, set tacit.persistence.LIMIT"
            )
        with safe_open(path, framework="np") as file:
            names, metadata = list(file.keys()), dict(file.metadata() or {})
            lengths = [len(text) for text in metadata.values()]
            if len(names) > MOST_TENSORS or max(lengths, default=0) > LONGEST_TEXT:
                raise FileError(f"{path} holds more than any linear model")
            return {name: file.get_tensor(name) for name in names}, metadata
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # the reader's own kind, or NumPy's where it lacks a type
        raise FileError(f"{path} is damaged or not a model file: {error!s:.300}") from error


def digest_of(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    parts = [metadata["tacit"].encode(), metadata["certificate"].encode()]
    for name in sorted(tensors):
        value = tensors[name]
        parts += [name.encode(), value.dtype.str.encode(), repr(value.shape).encode()]
        parts.append(value.tobytes())
    for part in parts:  # lengths keep neighbouring parts apart
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
