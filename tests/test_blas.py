"""Whichever kernels the BLAS has for a processor, noise is added to the same integers.

OpenBLAS has kernels for many processors and takes those that it is told to, by
``OPENBLAS_CORETYPE``. They add up in different orders. The same seeded fits are made in this
process and in others with other kernels; all integers to which noise is added are compared bit
for bit, and what is computed from the noisy ones to 1e-12.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.data import scan
from tacit.data.rows import as_rows
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import (
    Encode,
    Normalize,
    PrivateCenter,
    PrivateEqualize,
    PrivatePCA,
    PrivateScale,
)
from tacit.preprocessing.base import Context
from tacit.privacy.events import Gaussian
from tacit.trainers import SufficientStatistics

ROOT = Path(__file__).resolve().parents[1]
D = 45  # columns
CLOSE = 1e-12  # of what is computed from noisy integers, relative to the largest of it


class _Drawn(np.ndarray):
    """Noise that remembers what it is added to."""

    tape: list[np.ndarray]

    def __array_finalize__(self, source: Any) -> None:
        self.tape = getattr(source, "tape", [])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(value) for value in inputs]
        if ufunc is np.add and method == "__call__":
            (total,) = [p for p, v in zip(plain, inputs, strict=True) if not isinstance(v, _Drawn)]
            self.tape.append(total.copy())
        if "out" in options:
            options["out"] = tuple(np.asarray(value) for value in options["out"])
        return getattr(ufunc, method)(*plain, **options)


@contextmanager
def recorded() -> Iterator[list[np.ndarray]]:
    """All integers to which noise is added from now on; none may be missed."""
    tape: list[np.ndarray] = []
    draws: list[int] = []
    real = Stream.discrete_gaussian

    def draw(self: Stream, sigma: Any, size: int) -> np.ndarray:
        draws.append(size)
        noise = real(self, sigma, size).view(_Drawn)
        noise.tape = tape
        return noise

    Stream.discrete_gaussian = draw  # type: ignore[method-assign]
    try:
        yield tape
    finally:
        Stream.discrete_gaussian = real  # type: ignore[method-assign]
    assert [total.size for total in tape] == draws
    assert all(total.dtype == np.int64 for total in tape)


def fits(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Named fits: an estimator, its rows and its labels."""
    rng = np.random.default_rng(0)
    n, d = 400, D
    rows = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + rng.normal(size=d)
    scores = (rows[:, :, None] * rng.normal(size=(d, 3))).sum(axis=1)  # not by the BLAS
    two, three = (scores[:, 0] > 0).astype(int), scores.argmax(axis=1)
    sparse = sp.csr_array(np.where(np.abs(rows) > 1.5, rows, 0.0))
    pixels = np.clip(30 * rows + 100, 0, 255).astype(np.uint8)
    np.save(folder / "rows.npy", rows)
    files = scan(folder / "rows.npy", memory=1)
    table = {f"x{j}": rows[:, j] for j in range(5)}
    schema = {"columns": {name: {"kind": "number", "low": -9, "high": 9} for name in table}}

    def classifier(**more: Any) -> Any:
        return DPLinearClassifier(1.0, 1e-5, random_state=0, **more)

    def regressor(**more: Any) -> Any:
        return DPLinearRegressor(1.0, 1e-5, random_state=0, target_bounds=(-50, 50), **more)

    return {
        "two classes": (classifier(classes=[0, 1]), rows, two),
        "three classes": (classifier(classes=[0, 1, 2]), rows, three),
        "regression": (regressor(), rows, scores[:, 0]),
        "sparse": (classifier(classes=[0, 1]), sparse, two),
        "sparse, three classes": (classifier(classes=[0, 1, 2]), sparse, three),
        "sparse regression": (regressor(), sparse, scores[:, 0]),
        "bytes": (classifier(classes=[0, 1]), pixels, two),
        "bytes, three classes": (classifier(classes=[0, 1, 2]), pixels, three),
        "bytes, regression": (regressor(), pixels, scores[:, 0]),
        "streamed": (classifier(classes=[0, 1]), files, two),
        "streamed regression": (regressor(), files, scores[:, 0]),
        "encoded": (classifier(classes=[0, 1], stages=[Encode(schema), Normalize()]), table, two),
        "statistics": (regressor(trainer=SufficientStatistics()), rows, scores[:, 0]),
        "components": (
            classifier(classes=[0, 1], stages=[Normalize(), PrivatePCA(5, share=0.5)]),
            rows,
            two,
        ),
    }


def stages() -> dict[str, list[np.ndarray]]:
    """What private stages make of their noisy sums, where noise is most of them."""
    rng = np.random.default_rng(1)
    found: dict[str, list[np.ndarray]] = {}
    for stage in (PrivateCenter(), PrivateEqualize(), PrivateScale()):
        for seed in range(25):
            rows = rng.normal(0.3, 1.0, size=(60, 37))
            rows /= np.sqrt((rows**2).sum(axis=1))[:, None]
            context = Context.paid(Gaussian(5.0), 60, key=Key.from_seed(seed))
            stage.fit(replace(as_rows(rows), bound=1.0), context)
            learned = [getattr(stage, name, ()) for name in ("mean_", "scale_")]
            found.setdefault(stage.name, []).append(
                np.concatenate([*learned, [stage.bound(1.0, 37)]])
            )
    return found


def outcome() -> dict[str, Any]:
    """Digests of all sums, and the models in hexadecimal."""
    Key.from_seed(0)  # the first one is tested, by draws
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, rows, labels) in fits(Path(folder)).items():
            with recorded() as tape:
                model.fit(rows, labels)
            learned = np.append(model.coef_, model.intercept_).astype(np.float64)
            results[name] = {
                "sums": [hashlib.sha256(total.tobytes()).hexdigest() for total in tape],
                "model": [number.hex() for number in learned.tolist()],
            }
    learned = {name: np.concatenate(parts).tolist() for name, parts in stages().items()}
    results["stages"] = {k: [number.hex() for number in v] for k, v in learned.items()}
    results["kernels"] = kernels()
    return results


def kernels() -> list[str]:
    found = threadpoolctl.threadpool_info()
    return sorted({i["architecture"] for i in found if i.get("internal_api") == "openblas"})


def others() -> list[str]:
    """Two kinds of kernels that this processor can run and does not."""
    if platform.machine() != "x86_64" or sys.platform != "linux" or len(kernels()) != 1:
        pytest.skip("needs OpenBLAS on x86")
    flags = Path("/proc/cpuinfo").read_text().split("flags", 2)[1].split("\n")[0].split()
    known = {"Prescott": "pni", "Haswell": "avx2", "Nehalem": "sse4_2"}
    return [name for name, flag in known.items() if flag in flags and name != kernels()[0]][:2]


def elsewhere(kind: str) -> dict[str, Any]:
    """What comes out with other kernels."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": paths, "OPENBLAS_CORETYPE": kind, "OMP_NUM_THREADS": "1"}
    program = "import json; from tests.test_blas import outcome; print(json.dumps(outcome()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | settings,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What comes out here, and with other kernels."""
    with ThreadPoolExecutor() as pool:
        started = pool.map(elsewhere, others())
        here = outcome()
        there = list(started)
    assert len({tuple(found["kernels"]) for found in [here, *there]}) == 3
    return here, there


def numbers(texts: list[str]) -> np.ndarray:
    return np.array([float.fromhex(text) for text in texts])


def test_noise_is_added_to_the_same_integers(results):
    here, there = results
    for name in here.keys() - {"kernels", "stages", "components"}:
        for found in there:
            assert found[name]["sums"] == here[name]["sums"], name
    # The noisy second moment: its diagonal and d - 1 columns. Sums along its directions, which
    # are equal up to rounding only, need not be the same.
    for found in there:
        assert found["components"]["sums"][:D] == here["components"]["sums"][:D]


def test_what_private_stages_learn_is_the_same_bit_for_bit(results):
    here, there = results
    assert all(found["stages"] == here["stages"] for found in there)


def test_models_agree_to_twelve_digits(results):
    here, there = results
    apart = {}
    for name in here.keys() - {"kernels", "stages"}:
        mine = numbers(here[name]["model"])
        for found in there:
            gap = np.abs(numbers(found[name]["model"]) - mine).max() / np.abs(mine).max()
            apart[name] = max(apart.get(name, 0.0), float(gap))
    assert max(apart.values()) <= CLOSE, apart
    assert max(apart.values()) > 0  # or these kernels are all the same
