"""What default settings reach on real data, with nothing tuned and nothing unaccounted."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import DPLinearClassifier
from tacit.datasets import load_adult, load_fashion_mnist, load_mnist
from tacit.exceptions import FileError
from tacit.preprocessing import Encode

RUNS, RUNS_OF_IMAGES = 5, 3  # five of these are in benchmarks/RESULTS.md


def mean_accuracy(epsilon, data, runs=RUNS):
    X, y, X_test, y_test = data
    fits = (DPLinearClassifier(epsilon, 1e-5, random_state=s).fit(X, y) for s in range(runs))
    return np.mean([fit.score(X_test, y_test) for fit in fits])


@pytest.fixture(scope="module")
def adult():
    train, test, schema = load_adult()
    encode = Encode(schema)
    return tuple(
        part
        for table in (train, test)
        for part in (encode.transform(table), table.match(schema.target, schema.classes))
    )


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.845), (0.1, 0.835)])
def test_census(adult, epsilon, least):
    assert mean_accuracy(epsilon, adult) >= least


@pytest.mark.slow
@pytest.mark.parametrize(("load", "least"), [(load_mnist, 0.915), (load_fashion_mnist, 0.845)])
def test_images(load, least):
    try:
        data = load(download=False)
    except FileError:
        pytest.skip("set TACIT_DATA to a directory with the image files")
    assert mean_accuracy(1.0, data, RUNS_OF_IMAGES) >= least
