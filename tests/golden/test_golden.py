"""Fits of every kind come out as recorded: see `tests.golden.plans`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.golden import plans

from tacit.mechanisms.release import Releases

#: Plans in "fast" arithmetic: their last bits are those of float32.
FLOAT32 = {"fast", "gamma", "iterated"}
RECORD = json.loads(plans.RECORD.read_text("utf-8"))


def numbers(listed):
    return np.array([float.fromhex(value) for value in listed])


def test_the_record_is_of_these_plans():
    assert set(RECORD) == set(plans.PLANS)
    assert len(RECORD) >= 40


@pytest.fixture
def left_open(monkeypatch):
    """Runs with something counted to draw that were not closed."""
    found, made, close = [], Releases.__init__, Releases.close

    def make(self, key, counted, **more):
        made(self, key, counted, **more)
        if counted:
            found.append(self)

    def closed(self, **how):
        close(self, **how)
        found.remove(self)

    monkeypatch.setattr(Releases, "__init__", make)
    monkeypatch.setattr(Releases, "close", closed)
    return found


@pytest.mark.parametrize("name", plans.PLANS)
def test_a_fit_comes_out_as_recorded(name, left_open):
    found, recorded = plans.outcome(name), RECORD[name]
    assert left_open == []  # all that was counted was drawn, and a search's trials as well
    weights = ("coef", "intercept")
    assert {k: v for k, v in found.items() if k not in weights} == {
        k: v for k, v in recorded.items() if k not in weights
    }
    # Bit for bit on one machine; algebra behind the noise may differ in last bits on another.
    # Those of float32 are relative to the largest weight: a small one is a difference of others.
    single = name in FLOAT32
    sizes = [np.abs(numbers(recorded[key])).max() for key in weights if key in recorded]
    largest = max(sizes, default=0.0)
    rtol, atol = (1e-5, 2.0**-22 * largest) if single else (1e-10, 1e-12)
    for key in weights:
        if key in recorded:
            np.testing.assert_allclose(
                numbers(found[key]), numbers(recorded[key]), rtol=rtol, atol=atol
            )
