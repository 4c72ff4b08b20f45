"""Seeded fits of every kind, and what came of them: moving code must not move a bit.

`python -m tests.golden.plans` writes the record anew; do so only where a default, a rule or a
stream of randomness is changed on purpose, and say so in the changelog.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, recipe
from tacit.data import as_table
from tacit.data.schema import CategoryColumn, NumberColumn, Schema
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Dedup,
    Encode,
    FillGaps,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Normalize,
    PrivateBounds,
    PrivateCenter,
    PrivateClip,
    PrivateEqualize,
    PrivateImpute,
    PrivatePCA,
    PrivateScale,
    Quantize,
    RandomProjection,
    SoftPCA,
)
from tacit.research.trainers import FlattestDPGD, GammaSGD, IteratedSGD, LocalDPGD, NoisySGD
from tacit.trainers import DPGD, DPSGD, SufficientStatistics

RECORD = Path(__file__).with_name("record.json")
N, D = 1200, 6
SEED = 20261117

Fit = Callable[[], Any]


def _table(kind: str = "dense", classes: int = 2) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(7)
    y = rng.integers(0, classes, N)
    X = 0.5 * rng.normal(size=(N, D))
    X[np.arange(N), y % D] += 0.8
    if kind == "bytes":
        X = np.clip(64 * X + 100, 0, 255).astype(np.uint8)
    elif kind == "sparse":
        X = sp.csr_array(np.where(rng.random(X.shape) < 0.4, X, 0.0))
    elif kind == "single":
        X = X.astype(np.float32)
    elif kind == "gaps":
        X[rng.random(N) < 0.05, 2] = np.nan
    elif kind == "duplicates":
        X[: N // 8] = X[N // 8 : N // 4]
    elif kind == "wide":
        X = np.hstack([X, 0.05 * rng.normal(size=(N, 40))])
    return X, y


def _public() -> np.ndarray:
    return _table()[0][:200] * 0.9 + 0.01


def _classifier(kind: str = "dense", classes: int = 2, /, **settings: Any) -> Fit:
    def fit() -> Any:
        X, y = _table(kind, classes)
        return DPLinearClassifier(random_state=SEED, **settings).fit(X, y)

    return fit


def _regressor(kind: str = "dense", /, **settings: Any) -> Fit:
    def fit() -> Any:
        X, y = _table(kind)
        amount = np.nan_to_num(X if kind == "dense" else X.toarray())[:, 0] + 0.1 * y
        bounds = {"target_bounds": (-3.0, 3.0), **settings}
        return DPLinearRegressor(random_state=SEED, **bounds).fit(X, amount)

    return fit


def _recipe(name: str, classes: int = 2, /, **options: Any) -> Fit:
    def fit() -> Any:
        X, y = _table("dense", classes)
        model = DPLinearClassifier(epsilon=2.0, random_state=SEED, **recipe(name, **options))
        return model.fit(X, y)

    return fit


def _schema() -> Any:
    rng = np.random.default_rng(3)
    job = np.array(["cook", "nurse", "smith"], dtype=object)[rng.integers(0, 3, N)]
    age = rng.integers(18, 90, N).astype(float)
    schema = Schema(
        {"age": NumberColumn(0, 120), "job": CategoryColumn(["cook", "nurse", "smith"])}
    )
    table = as_table({"age": age, "job": job})
    stages = [Encode(schema), Normalize(), PrivateCenter()]
    labels = (age > 50).astype(int)
    return DPLinearClassifier(stages=stages, random_state=SEED).fit(table, labels)


def _search() -> Any:
    X, y = _table()
    base = DPLinearClassifier(epsilon=2.0, random_state=SEED)
    grid = {"trainer": [DPGD(steps=5, clip=c) for c in (0.1, 1.0)]}
    return DPSearch(base, grid).fit(X, y).best_estimator_


FEW = DPGD(steps=6)
SAMPLED = DPSGD(steps=6, batch_size=200)

PLANS: dict[str, Fit] = {
    "default": _classifier(),
    "default, three classes": _classifier("dense", 3),
    "default, single precision": _classifier("single", 3),
    "default, bytes": _classifier("bytes", 3),
    "default, sparse": _classifier("sparse", 3),
    "default, more columns": _classifier("wide", 3),
    "default, small budget": _classifier(epsilon=0.1, delta=1e-6),
    "default, no intercept": _classifier(fit_intercept=False),
    "default, rows replaced": _classifier(neighbors="replace_one"),
    "default, rows added": _classifier(neighbors="add_or_remove_one", public_size=1000),
    "strict": _classifier(arithmetic="strict", trainer=FEW),
    "fast": _classifier(arithmetic="fast", trainer=FEW),
    "sampled": _classifier("dense", 3, trainer=SAMPLED),
    "sampled, rows replaced": _classifier(trainer=SAMPLED, neighbors="replace_one"),
    "sampled, rows added": _classifier(
        trainer=SAMPLED, neighbors="add_or_remove_one", public_size=1000
    ),
    "clipped class by class": _classifier("dense", 3, trainer=DPGD(steps=6, clipping="per-class")),
    "hinge": _classifier(loss="hinge", trainer=FEW),
    "savage": _classifier(loss="savage", trainer=FEW),
    "projected and averaged": _classifier(
        trainer=DPGD(steps=6, radius=2.0, average="uniform", momentum=0.5)
    ),
    "regression": _regressor(),
    "regression, huber": _regressor(loss="huber", trainer=FEW),
    "regression, absolute": _regressor(loss="absolute", trainer=FEW),
    "regression, sparse": _regressor("sparse", trainer=FEW),
    "regression, statistics": _regressor(trainer=SufficientStatistics()),
    "private bounds": _classifier(stages=[PrivateBounds(), Normalize()], trainer=FEW),
    "private scale": _classifier(stages=[ClipNorm(3.0), PrivateScale()], trainer=FEW),
    "private clip": _classifier(stages=[ClipNorm(9.0), PrivateClip()], trainer=FEW),
    "private equalize": _classifier(
        stages=[Normalize(), PrivateEqualize(), Normalize()], trainer=FEW
    ),
    "private impute": _classifier("gaps", stages=[Bound(-3, 3), PrivateImpute()], trainer=FEW),
    "private components": _classifier(stages=[Normalize(), PrivatePCA(3)], trainer=FEW),
    "constants for gaps": _classifier(
        "gaps", stages=[ClipNorm(3.0), FillGaps(0.0), Normalize()], trainer=FEW
    ),
    "random projection": _classifier(
        stages=[Normalize(), RandomProjection(3, seed=1)], trainer=FEW
    ),
    "soft PCA": _classifier(stages=[ClipNorm(1.0), SoftPCA(0.05)], trainer=FEW),
    "soft PCA, sampled": _classifier(stages=[ClipNorm(1.0), SoftPCA(0.05)], trainer=SAMPLED),
    "PCA behind a test": _classifier(
        epsilon=8.0, stages=[ClipNorm(1.0), NoiselessPCA(2, gap=0.01, share=0.5)], trainer=FEW
    ),
    "scaled without noise": _classifier(
        stages=[ClipNorm(1.0), NoiselessScale(0.1, radius=1.0)], trainer=FEW
    ),
    "imputed without noise": _classifier(
        "gaps", stages=[ClipNorm(1.0), NoiselessImpute(), SoftPCA(0.05)], trainer=FEW
    ),
    "duplicates taken out": _classifier(
        "duplicates",
        epsilon=8.0,
        stages=[Normalize(), Dedup(crowd=90, share=0.5), SoftPCA(0.05)],
        trainer=FEW,
    ),
    "near-duplicates moved": _classifier(
        "duplicates",
        epsilon=8.0,
        stages=[Normalize(), Quantize(1e-3, crowd=90, share=0.5)],
        trainer=FEW,
    ),
    "flattest": _classifier(
        loss="savage", stages=[ClipNorm(1.0)], trainer=FlattestDPGD(steps=6), epsilon=2.0
    ),
    "noisy SGD": _classifier(stages=[ClipNorm(1.0)], trainer=NoisySGD(), epsilon=2.0),
    "gamma": _classifier(
        stages=[Normalize()], trainer=GammaSGD(steps=6, batch_size=200), arithmetic="fast"
    ),
    "iterated": _classifier(
        epsilon=4.0, stages=[ClipNorm(1.0)], trainer=IteratedSGD(), arithmetic="fast"
    ),
    "local": _classifier(epsilon=8.0, trainer=LocalDPGD(), classes=[0, 1]),
    "table with a schema": _schema,
    "search": _search,
    "recipe dpsgd": _recipe("dpsgd", steps=6),
    "recipe dpsgd-f": _recipe("dpsgd-f", 3),
    "recipe dpsgd-f-theory": _recipe("dpsgd-f-theory", radius=9.0),
    "recipe dp-gd": _recipe("dp-gd"),
    "recipe pillar": _recipe("pillar", 3, public=_public(), n_components=3, check=0),
    "recipe pillar, checked": _recipe("pillar", 3, public=_public(), n_components=3),
    "recipe gep": _recipe("gep", 3, public=_public(), n_components=2),
    "recipe adadps": _recipe("adadps", 3, public=_public()),
    "recipe dp-raft": _recipe("dp-raft", 3),
    "recipe dp-raft+pillar": _recipe("dp-raft+pillar", 3, public=_public(), n_components=3),
    "recipe jl": _recipe("jl", n_components=3, seed=4),
    "recipe dp-pca": _recipe("dp-pca", n_components=3),
    "recipe soft-pca": _recipe("soft-pca"),
    "recipe ptr-pca": _recipe("ptr-pca", n_components=2, gap=0.1),
    "recipe local": _recipe("local"),
}


def outcome(name: str) -> dict[str, Any]:
    """Weights bit for bit, and the numbers of the certificate; or how the fit was refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PLANS[name]()
    except Exception as error:
        return {"refused": type(error).__name__}
    certificate = model.certificate_
    return {
        "coef": [float(v).hex() for v in np.ravel(model.coef_)],
        "intercept": [float(v).hex() for v in np.ravel(model.intercept_)],
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "neighbors": certificate.neighbors,
        "numerical_delta": certificate.numerical_delta,
        "accountant": certificate.accountant,
        "events": [expense.event.to_dict() for expense in certificate.events],
    }


def record() -> dict[str, Any]:
    return {name: outcome(name) for name in PLANS}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=0, sort_keys=True) + "\n", encoding="utf-8")
