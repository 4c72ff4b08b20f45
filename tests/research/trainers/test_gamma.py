"""Descent with gamma noise: the noise that is counted, and what it does in many dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma, kstest
from tests.seam import token

from tacit import DPLinearClassifier
from tacit.exceptions import InputError
from tacit.mechanisms.release import BoundedSum
from tacit.preprocessing import Normalize, PrivateCenter
from tacit.privacy import Gamma
from tacit.research.trainers import GammaSGD

TRAINER = GammaSGD(steps=20, batch_size=30)


def drawn(d, count, scale=0.7):
    zero = BoundedSum(np.zeros((d, 1)), 1.0, 1.0, 1.0, "step")
    paid = token(Gamma(scale, count), d)
    return np.stack([TRAINER.noisy(zero, paid.at("noise", i), i, 1)[:, 0] for i in range(count)])


@pytest.mark.parametrize("d", [1, 2, 30])
def test_lengths_are_gamma_and_directions_uniform(d):
    noise = drawn(d, 2000)
    lengths = np.linalg.norm(noise, axis=1)
    assert kstest(lengths, gamma(d, scale=0.7).cdf).pvalue > 1e-6
    cosines = noise[:, 0] / lengths
    assert abs((cosines > 0).mean() - 0.5) < 5 * 0.5 / math.sqrt(2000)
    assert (cosines**2).mean() == pytest.approx(1 / d, rel=0.25 if d > 1 else 1e-9)
    # Deviation in every direction: √(d + 1) scales.
    assert noise.std() == pytest.approx(0.7 * math.sqrt(d + 1), rel=0.15)


def fitted(**more):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4))
    labels = (rows[:, 0] > 0).astype(int)
    given = {"stages": [Normalize()], "arithmetic": "fast", **more}
    return DPLinearClassifier(trainer=TRAINER, **given).fit(rows, labels)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
def test_the_certificate_names_its_accountant_and_verifies(neighbors):
    certificate = fitted(neighbors=neighbors).certificate_
    assert certificate.accountant == "rdp"
    (expense,) = certificate.events
    assert isinstance(expense.event, Gamma)
    assert expense.event.sampling_probability == pytest.approx(0.15)
    found = certificate.verify()
    assert found.holds
    assert found.recomputed["recheck"] == pytest.approx(1.0, rel=2e-3)
    assert found.recomputed["dp-accounting"] < 1.0
    assert any("ideal arithmetic assumed" in text for text in certificate.assumptions)


def test_beside_a_private_stage_it_is_one_account():
    certificate = fitted(stages=[Normalize(), PrivateCenter(0.3)]).certificate_
    assert certificate.accountant == "rdp" and certificate.verify().holds


def test_exact_arithmetic_is_refused():
    with pytest.raises(InputError, match="pass arithmetic='fast'"):
        fitted(arithmetic="exact")
