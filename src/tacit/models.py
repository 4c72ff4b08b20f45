"""Model files: safetensors with the certificate inside.

Loading reads numbers and JSON, never code. A digest over everything finds
damage and careless edits; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit import stages as stage_classes
from tacit.estimators import DPLinearClassifier, DPLinearRegressor
from tacit.exceptions import CertificateError, FileError, InputError
from tacit.files import write_bytes
from tacit.privacy.certificate import Certificate
from tacit.stages import Stage

__all__ = ["load", "save"]

FORMAT = "tacit-model/1"
LIMIT = 4 << 30  # bytes; a linear model is never larger
ESTIMATORS = {cls.__name__: cls for cls in (DPLinearClassifier, DPLinearRegressor)}


def save(estimator: DPLinearClassifier | DPLinearRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to ``path``, whole or not at all.

    What is written was released by the certificate: coefficients, the stages
    that prediction needs (free and public ones), and the certificate itself.
    """
    from safetensors.numpy import save as to_bytes

    check_is_fitted(estimator, "coef_")
    tensors = {
        "coef": np.ascontiguousarray(np.atleast_2d(estimator.coef_), dtype=np.float64),
        "intercept": np.ascontiguousarray(np.atleast_1d(estimator.intercept_), dtype=np.float64),
    }
    kept = []
    for i, stage in enumerate(estimator.stages_):
        kept.append({"name": stage.name, "parameters": stage.parameters()})
        for name, value in stage.arrays().items():
            tensors[f"stage.{i}.{name}"] = np.ascontiguousarray(value)
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    model = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "loss": estimator.loss if isinstance(estimator.loss, str) else estimator.loss.name,
        "features": int(estimator.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "stages": kept,
    }
    metadata = {
        "tacit": json.dumps(model, allow_nan=False),
        "certificate": estimator.certificate_.to_json(),
    }
    metadata["digest"] = _digest(tensors, metadata)
    write_bytes(path, to_bytes(tensors, metadata=metadata))


def load(path: str | os.PathLike[str]) -> DPLinearClassifier | DPLinearRegressor:
    """A fitted estimator from a file that `save` wrote.

    It predicts, and carries its certificate; it does not remember the plan's
    objects, so fitting it again starts from default settings.
    """
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
    except CertificateError as error:
        raise FileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise FileError(f"{path} is not a complete model: {error!r}") from error


def _rebuild(
    model: Mapping[str, Any], tensors: Mapping[str, np.ndarray], certificate: Certificate
) -> DPLinearClassifier | DPLinearRegressor:
    estimator = ESTIMATORS[model["estimator"]](
        certificate.epsilon, certificate.delta, loss=model["loss"]
    )
    kept: list[Stage] = []
    for i, entry in enumerate(model["stages"]):
        cls = getattr(stage_classes, entry["name"]) if entry["name"] in _STAGES else None
        if cls is None:
            raise ValueError(f"unknown stage {entry['name']!r}")
        start = f"stage.{i}."
        arrays = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
        kept.append(cls.restore(entry["parameters"], arrays))
    estimator.stages_ = tuple(kept)
    estimator.certificate_ = certificate
    estimator.n_features_in_ = int(model["features"])
    if model["feature_names"] is not None:
        estimator.feature_names_in_ = np.asarray(model["feature_names"], dtype=object)
    estimator.coef_, estimator.intercept_ = tensors["coef"], tensors["intercept"]
    if len(estimator.coef_) != len(estimator.intercept_) or estimator.coef_.ndim != 2:
        raise ValueError("coefficients and intercepts do not fit each other")
    if isinstance(estimator, DPLinearRegressor):
        estimator.coef_ = estimator.coef_[0]
        estimator.intercept_ = float(estimator.intercept_[0])
    else:
        estimator.classes_ = np.asarray(model["classes"])
    return estimator


_STAGES = {name for name in stage_classes.__all__ if name not in ("Context", "Stage")}


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > LIMIT:
            raise FileError(f"{path} is larger than any linear model")
        with safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, TypeError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} is damaged or not a model file: {error}") from error


def _digest(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    parts = [metadata["tacit"].encode(), metadata["certificate"].encode()]
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        parts += [name.encode(), value.dtype.str.encode(), repr(value.shape).encode()]
        parts.append(value.tobytes())
    for part in parts:  # lengths keep neighbouring parts apart
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
