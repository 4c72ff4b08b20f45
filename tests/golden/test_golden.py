"""Fits of every kind come out as recorded: see `tests.golden.plans`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.golden import plans

RECORD = json.loads(plans.RECORD.read_text("utf-8"))


def numbers(listed):
    return np.array([float.fromhex(value) for value in listed])


def test_the_record_is_of_these_plans():
    assert set(RECORD) == set(plans.PLANS)
    assert len(RECORD) >= 40


@pytest.mark.parametrize("name", plans.PLANS)
def test_a_fit_comes_out_as_recorded(name):
    found, recorded = plans.outcome(name), RECORD[name]
    weights = ("coef", "intercept")
    assert {k: v for k, v in found.items() if k not in weights} == {
        k: v for k, v in recorded.items() if k not in weights
    }
    # Bit for bit on one machine; algebra behind the noise may differ in last bits on another.
    for key in weights:
        if key in recorded:
            np.testing.assert_allclose(
                numbers(found[key]), numbers(recorded[key]), rtol=1e-10, atol=1e-12
            )
