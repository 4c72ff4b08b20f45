"""Song et al. 2021, Figure 2, in small: columns of zeros do harm with gamma noise, and none with
Gaussian.

``tacit reproduce song-dimension`` has it at full size.
"""

from __future__ import annotations

import lzma
import math
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.research.trainers import GammaSGD
from tacit.trainers import DPSGD
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

BATCH, STEPS, RATES = 250, 200, (2.0, 5.0, 10.0)
NOISE = {DPSGD: 0.63, GammaSGD: 0.57}
FEW, MANY = 9, 5000


@pytest.fixture(scope="module")
def cod_rna():
    """Every fourth row of Cod-RNA, scaled as in the paper's appendix E, and their classes."""
    file = Path(os.environ.get("TACIT_DATA", "")) / "cod_rna" / "cod-rna.xz"
    if not file.is_file():
        pytest.skip("set TACIT_DATA to a directory with cod_rna")
    with lzma.open(file) as opened:
        rows, labels = load_svmlight_file(opened, n_features=8)
    rows, labels = rows.toarray()[::4], (labels > 0).astype(int)[::4]
    low, high = rows.min(axis=0), rows.max(axis=0)
    rows = (rows - low) / (high - low) - 0.5
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= np.minimum(1, math.sqrt(8 / 9) / np.maximum(norms, 1e-12))
    return np.hstack([rows, np.full((len(rows), 1), 1 / 3)]), labels


def best_accuracy(kind, d, rows, labels):
    """On the rows that are trained on, at the best of some rates."""
    loss, n = get_loss("logistic"), len(rows)
    narrow = sp.csr_array(rows)
    padded = sp.csr_array((narrow.data, narrow.indices, narrow.indptr), shape=(n, d))
    plain = {"momentum": 0.0, "average": "last", "schedule": "constant", "intercept_fraction": 0.1}
    settings = [
        kind(steps=STEPS, batch_size=BATCH, learning_rate=rate, clip=1.0, **plain) for rate in RATES
    ]
    engine = Engine(as_rows(padded, bound=1.0), loss.targets(labels, 1), loss, arithmetic="fast")
    facts, key = PublicFacts(n, d, 1, 1.0, 1.0), Key.from_seed(0)
    weights = train_together(
        engine, settings, rehearsal(settings, [NOISE[kind]] * len(RATES), facts, key), facts
    )
    right = (rows @ weights[:, :9, 0].T > 0) == (labels == 1)[:, None]
    return float(right.mean(axis=0).max())


def test_columns_of_zeros_harm_gamma_noise_only(cod_rna):
    gaussian = [best_accuracy(DPSGD, d, *cod_rna) for d in (FEW, MANY)]
    gamma = [best_accuracy(GammaSGD, d, *cod_rna) for d in (FEW, MANY)]
    assert min(*gaussian, gamma[0]) > 0.88
    assert abs(gaussian[0] - gaussian[1]) < 0.02
    assert gamma[1] < gamma[0] - 0.05
