"""Facts about dp-accounting 0.6 that Tacit steers around.

Each test pins a *fault* of another library. If one fails, an upgrade has mended
(or moved) it: read the code that steers around it before changing the number.
"""

from __future__ import annotations

import math

import dp_accounting as dpa
import pytest
from dp_accounting import dp_event, pld, rdp

from tacit.privacy.accounting.accountants import gaussian_epsilon

REPLACE_ONE = dpa.NeighboringRelation.REPLACE_ONE


def test_rdp_does_not_double_the_sensitivity_under_replace_one():
    event, truth = dpa.GaussianDpEvent(5.0), gaussian_epsilon(2 / 5.0, 1e-5)
    by_rdp = rdp.RdpAccountant(neighboring_relation=REPLACE_ONE).compose(event).get_epsilon(1e-5)
    by_pld = pld.PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert truth == pytest.approx(1.55498, abs=1e-5)
    assert by_pld == pytest.approx(truth, rel=1e-4)
    # RDP only ever rounds up, so a value this far below the truth is not one of rounding.
    assert by_rdp == pytest.approx(0.795, abs=1e-3)
    as_if_removed = rdp.RdpAccountant(neighboring_relation=dpa.NeighboringRelation.REPLACE_SPECIAL)
    assert by_rdp == as_if_removed.compose(event).get_epsilon(1e-5)


def test_there_is_no_event_for_the_exponential_mechanism():
    assert not hasattr(dpa, "ExponentialMechanismDpEvent")
    assert not hasattr(dp_event, "ExponentialMechanismDpEvent")


def test_pld_ignores_the_count_of_randomised_response():
    # One answer is ln 3 at this noise: P[own] = 3/4, P[other] = 1/4.
    event = dpa.RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)
    once = pld.PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5)
    counted = pld.PLDAccountant(REPLACE_ONE).compose(event, 10).get_epsilon(1e-5)
    repeated = pld.PLDAccountant(REPLACE_ONE)
    for _ in range(10):
        repeated.compose(event)
    assert once == pytest.approx(math.log(3), abs=1e-3)
    assert repeated.get_epsilon(1e-5) == pytest.approx(10 * math.log(3), abs=1e-2)
    assert counted == once


@pytest.mark.parametrize(
    "event",
    [dpa.GaussianDpEvent(4.0), dpa.PoissonSampledDpEvent(0.25, dpa.GaussianDpEvent(4.0))],
    ids=["gaussian", "poisson-gaussian"],
)
def test_pld_respects_the_count_of_the_events_that_tacit_uses(event):
    counted = pld.PLDAccountant(REPLACE_ONE, 1e-3).compose(event, 6).get_epsilon(1e-5)
    repeated = pld.PLDAccountant(REPLACE_ONE, 1e-3)
    for _ in range(6):
        repeated.compose(event)
    assert counted == pytest.approx(repeated.get_epsilon(1e-5), rel=1e-3)
    assert counted > 2 * pld.PLDAccountant(REPLACE_ONE, 1e-3).compose(event).get_epsilon(1e-5)


def test_pld_of_sampled_steps_gives_no_epsilon_near_its_truncation():
    # Self-composition gives away a mass of 1e-15, so a delta below it has no finite answer.
    event = dpa.PoissonSampledDpEvent(0.3, dpa.GaussianDpEvent(20.0))
    accountant = pld.PLDAccountant(REPLACE_ONE, 1e-3).compose(event, 100)
    assert accountant.get_epsilon(1e-12) < 5
    assert accountant.get_epsilon(1e-16) == math.inf
