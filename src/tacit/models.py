"""Model files: safetensors with the certificate inside.

Loading reads numbers and JSON, never code. A digest over everything finds
damage and careless edits; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit import stages as stage_classes
from tacit.estimators import DPLinearClassifier, DPLinearRegressor
from tacit.exceptions import FileError, InputError
from tacit.files import write_bytes
from tacit.privacy.certificate import Certificate
from tacit.stages import Encode, PublicFeatures, Stage

__all__ = ["load", "save"]

FORMAT = "tacit-model/1"
LIMIT = 4 << 30  # bytes; a linear model is never larger
ESTIMATORS = {cls.__name__: cls for cls in (DPLinearClassifier, DPLinearRegressor)}
STAGES: dict[str, type[Stage]] = {
    name: getattr(stage_classes, name)
    for name in stage_classes.__all__
    if name not in ("Context", "Stage")
}


def save(estimator: DPLinearClassifier | DPLinearRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to ``path``, whole or not at all.

    What is written was released by the certificate: coefficients, the stages
    that prediction needs (free and public ones), and the certificate itself.
    """
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
        "loss": estimator.loss if isinstance(estimator.loss, str) else estimator.loss.name,
        "features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else [classes.dtype.str, classes.tolist()],
        "stages": kept,
    }
    metadata = {
        "tacit": json.dumps(model, allow_nan=False),
        "certificate": estimator.certificate_.to_json(),
    }
    metadata["digest"] = _digest(tensors, metadata)
    write_bytes(path, to_bytes(tensors, metadata=metadata))


def load(
    path: str | os.PathLike[str], *, extractor: Any = None
) -> DPLinearClassifier | DPLinearRegressor:
    """A fitted estimator from a file that `save` wrote.

    It predicts, and carries its certificate; it does not remember the plan's
    objects, so fitting it again starts from default settings.

    Parameters
    ----------
    path : path
    extractor : str, path or Extractor, optional
        The pre-trained network of a model that begins with `PublicFeatures`. Its file
        holds the network's digest, and another network is refused. Those with a name
        (``"efficientnet-lite0"``, ``"minilm"``) are found without it.
    """
    estimator = _load(path)
    if extractor is not None:
        stages = [stage for stage in estimator.stages_ if isinstance(stage, PublicFeatures)]
        if not stages:
            raise InputError(f"{path} needs no extractor: its rows are not seen through a network")
        for stage in stages:
            stage.supply(extractor)
    return estimator


def _load(path: str | os.PathLike[str]) -> DPLinearClassifier | DPLinearRegressor:
    tensors, metadata = _read(Path(path))
    if not {"tacit", "certificate", "digest"} <= metadata.keys():
        raise FileError(f"{path} is a safetensors file, but not one of Tacit's models")
    if _digest(tensors, metadata) != metadata["digest"]:
        raise FileError(f"{path} was changed after it was written, or is damaged: wrong digest")
    try:
        model = json.loads(metadata["tacit"])
        if model["format"] != FORMAT:
            raise FileError(f"{path} has format {model['format']!r}; this version reads {FORMAT}")
        return _rebuild(model, tensors, Certificate.from_json(metadata["certificate"]))
    except FileError:
        raise
    except Exception as error:  # whatever strange content may cause, deep nesting included
        raise FileError(f"{path} is not a complete model: {error!r}") from error


def _rebuild(
    model: Mapping[str, Any], tensors: Mapping[str, np.ndarray], certificate: Certificate
) -> DPLinearClassifier | DPLinearRegressor:
    estimator = ESTIMATORS[model["estimator"]](
        certificate.epsilon, certificate.delta, loss=str(model["loss"])
    )
    estimator.certificate_ = certificate
    estimator.stages_ = tuple(_restore(i, e, tensors) for i, e in enumerate(model["stages"]))
    estimator.n_features_in_ = width = operator.index(model["features"])
    if model["feature_names"] is not None:
        estimator.feature_names_in_ = np.asarray(model["feature_names"], dtype=object)
    for stage in estimator.stages_:
        width = stage.width(width)
    outputs = 1
    if isinstance(estimator, DPLinearClassifier):
        estimator.classes_ = _classes(*model["classes"])
        outputs = len(estimator.classes_) if len(estimator.classes_) > 2 else 1
    coef, intercept = tensors["coef"], tensors["intercept"]
    if coef.shape != (outputs, width) or intercept.shape != (outputs,):
        raise ValueError(f"coefficients of shape {coef.shape} do not fit the rest")
    for values in (coef, intercept):
        if values.dtype != np.float64 or not np.isfinite(values).all():
            raise ValueError("some coefficients are not finite numbers")
    estimator.coef_, estimator.intercept_ = coef, intercept
    if isinstance(estimator, DPLinearRegressor):
        estimator.coef_, estimator.intercept_ = coef[0], float(intercept[0])
    return estimator


def _classes(dtype: str, labels: list[Any]) -> np.ndarray:
    classes = np.array(labels, dtype=np.dtype(dtype))
    if classes.dtype.kind not in "biufUO" or classes.ndim != 1 or len(np.unique(classes)) < 2:
        raise ValueError("classes must be two labels or more")
    return classes


def _restore(position: int, entry: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Stage:
    """A fitted stage: its class looked up by name, its settings and what it learned set."""
    cls, parameters = STAGES[entry["name"]], entry["parameters"]
    if cls is Encode and not isinstance(parameters["schema"], Mapping):
        raise ValueError("the schema must be in the file itself")  # no path of another one
    if cls is PublicFeatures and parameters.keys() & set(PublicFeatures.unsaved):
        raise ValueError("a network is never named by its place")
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
            raise FileError(f"{path} is larger than any linear model")
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # the reader's own kind, or NumPy's where it lacks a type
        raise FileError(f"{path} is damaged or not a model file: {error}") from error


def _digest(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    parts = [metadata["tacit"].encode(), metadata["certificate"].encode()]
    for name in sorted(tensors):
        value = tensors[name]
        parts += [name.encode(), value.dtype.str.encode(), repr(value.shape).encode()]
        parts.append(value.tobytes())
    for part in parts:  # lengths keep neighbouring parts apart
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
