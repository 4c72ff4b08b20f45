"""Events are frozen data: checked when made, the same after JSON, and never anything else."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.exceptions import InputError
from tacit.privacy.events import (
    EVENTS,
    NEIGHBORS,
    Event,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
    sensitivity,
)

SAMPLES = {
    "gaussian": Gaussian(3.5, count=7),
    "selection": Selection(2.5, count=3),
    "iterated": Iterated(2.5, count=3, steps=7),
    "gamma": Gamma(2.5, count=3, sampling_probability=0.1),
    "poisson-gaussian": PoissonGaussian(0.8, 12, sampling_probability=0.03),
    "repeated": Repeated(
        count=2, trial=[[Gaussian(3.0, 5), Gaussian(9.0)], [PoissonGaussian(2.0)]], rate=0.2
    ),
    "parallel": Parallel([[Gaussian(3.0, 5), Failure(1e-9)], [PoissonGaussian(2.0)]], count=2),
    "failure": Failure(1e-7, count=3),
}
COMPOUND = (Repeated, Parallel, Failure)  # with no noise of their own
STEPS = {kind: event for kind, event in EVENTS.items() if event not in COMPOUND}
EVERY_EVENT = [pytest.param(SAMPLES.get(kind), id=kind) for kind in EVENTS]


def test_every_registered_kind_is_tested():
    assert set(SAMPLES) == set(EVENTS)
    assert all(
        event.kind == kind and type(event) is EVENTS[kind] for kind, event in SAMPLES.items()
    )


# Validation


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("noise", [0, 0.0, -1.0, math.nan, math.inf, -math.inf])
def test_noise_must_be_positive_and_finite(kind, noise):
    with pytest.raises(InputError, match="noise_multiplier must be positive"):
        EVENTS[kind](noise)


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("count", [0, -1, 1.5, True, False, "3"])
def test_count_must_be_an_integer_from_one(kind, count):
    with pytest.raises(InputError, match="count must be an integer of at least 1"):
        EVENTS[kind](1.0, count=count)


@pytest.mark.parametrize("probability", [0, -0.1, 1.0000001, math.nan, math.inf])
def test_sampling_probability_must_be_a_probability_above_zero(probability):
    with pytest.raises(InputError, match="sampling_probability must lie in"):
        PoissonGaussian(1.0, sampling_probability=probability)


@pytest.mark.parametrize("event", EVERY_EVENT)
def test_events_cannot_be_changed(event):
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, 1)


@pytest.mark.parametrize("event", EVERY_EVENT)
def test_times_multiplies_the_count_and_nothing_else(event):
    more = event.times(5)
    assert more == dataclasses.replace(event, count=event.count * 5)
    assert type(more) is type(event)
    with pytest.raises(InputError):
        event.times(0)


def test_events_of_different_kinds_are_different():
    assert Gaussian(1.0) != PoissonGaussian(1.0)


# Relations


def test_relations_carry_the_names_of_dp_accounting():
    from dp_accounting import NeighboringRelation

    assert set(NEIGHBORS) == {relation.name.lower() for relation in NeighboringRelation}


def test_replacing_a_row_moves_a_sum_twice_as_far_as_removing_it():
    sizes = {name: sensitivity(name) for name in NEIGHBORS}
    assert sizes == {"replace_special": 1.0, "add_or_remove_one": 1.0, "replace_one": 2.0}


@pytest.mark.parametrize("name", ["", "REPLACE_ONE", "substitute", None, 1])
def test_unknown_relations_are_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match="replace_special, add_or_remove_one, replace_one"):
        sensitivity(name)


# JSON


@pytest.mark.parametrize("event", EVERY_EVENT)
def test_json_round_trip(event):
    again = Event.from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert type(again) is type(event)


@pytest.mark.parametrize(
    ("noise", "count"), [(2, 3), (np.float64(2), 3), (np.float32(2), np.int64(3)), (2.0, 3.0)]
)
@pytest.mark.parametrize("kind", STEPS)
def test_numbers_of_any_type_become_plain_ones(kind, noise, count):
    event = EVENTS[kind](noise, count=count)
    data = json.loads(json.dumps(event.to_dict()))
    assert Event.from_dict(data) == EVENTS[kind](2.0, count=3)
    assert type(event.count) is int


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "unknown kind of event None"),
        ({"kind": "laplace", "parameters": {}}, "known are gaussian, poisson-gaussian"),
        ({"kind": "gaussian"}, "has no parameters"),
        ({"kind": "gaussian", "parameters": [1.0]}, "has no parameters"),
        ({"kind": "gaussian", "parameters": {}}, "noise_multiplier"),
        ({"kind": "gaussian", "parameters": {"noise_multiplier": 1, "seed": 0}}, "seed"),
        (
            {"kind": "gaussian", "parameters": {"noise_multiplier": "much"}},
            "gaussian|noise_multiplier",
        ),
        (
            {"kind": "gaussian", "parameters": {"noise_multiplier": None}},
            "gaussian|noise_multiplier",
        ),
    ],
)
def test_unreadable_events_are_refused_in_words(data, message):
    with pytest.raises(InputError, match=message):
        Event.from_dict(data)


HOSTILE = (
    st.sampled_from([math.inf, -math.inf, math.nan, 10**400, -(10**400), 1e308, 5e-324, 0, -1])
    | st.floats()
    | st.integers()
    | st.booleans()
    | st.none()
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
)


@settings(derandomize=True, deadline=None)
@given(
    st.sampled_from([*EVENTS, None, "", 3]),
    st.sampled_from(["noise_multiplier", "count", "sampling_probability", "kind"]),
    HOSTILE,
)
@example("gaussian", "count", math.inf)
@example("gaussian", "count", math.nan)
@example("gaussian", "noise_multiplier", 10**400)
def test_hostile_parameters_give_an_event_or_an_input_error(kind, name, value):
    parameters = dict(SAMPLES.get(kind, SAMPLES["gaussian"]).to_dict()["parameters"])
    try:
        event = Event.from_dict({"kind": kind, "parameters": {**parameters, name: value}})
    except InputError:
        return
    assert 0 < event.noise_multiplier < math.inf or type(event) is Failure
    assert event.count >= 1


@pytest.mark.parametrize(
    "given, says",
    [
        ({}, "from 1 to 64"),
        ({"trial": [[]]}, "from 1 to 32"),
        ({"trial": "ab"}, "lists of events"),
        ({"trial": [Gaussian(1.0)]}, "lists of events"),
        ({"trial": [[1.0]]}, "lists of events"),
        ({"trial": [[SAMPLES["repeated"]]]}, "cannot itself"),
        ({"trial": [[SAMPLES["repeated"].to_dict()]]}, "cannot itself"),
        ({"trial": [[PoissonGaussian(1.0 + i)] for i in range(9)]}, "8 kinds"),
        ({"trial": [["gaussian"]]}, "lists of events"),
        ({"trial": [[{"kind": "gaussian"}]]}, "no parameters"),
        ({"trial": [[PoissonGaussian(1.0, failure=1e-9)]]}, "cannot be repeated"),
        ({"rate": 0.0}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"shape": -1.0}, "shape"),
        ({"shape": "x"}, "above -1"),
        ({"distribution": "uniform"}, "distribution"),
        ({"distribution": "poisson", "rate": 1e9}, "rate"),
        ({"noise_multiplier": 2.0}, "trial="),
        ({"count": 0}, "count"),
    ],
)
def test_repeated_trials_are_checked(given, says):
    given = {"trial": [[Gaussian(1.0)]]} | given if given else given
    with pytest.raises(InputError, match=says):
        Repeated(**given)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Parallel([]), "from 1 to 64"),
        (lambda: Parallel([[]]), "from 1 to 32"),
        (lambda: Parallel([[Gaussian(1.0)], []]), "from 1 to 32"),
        (lambda: Parallel("ab"), "lists of events"),
        (lambda: Parallel([Gaussian(1.0)]), "lists of events"),
        (lambda: Parallel([[SAMPLES["parallel"]]]), "cannot itself hold parallel"),
        (lambda: Parallel([[SAMPLES["parallel"].to_dict()]]), "cannot itself hold parallel"),
        (lambda: Parallel([[{"kind": "nothing", "parameters": {}}]]), "unknown kind"),
        (lambda: Parallel([[PoissonGaussian(1.0 + i)] for i in range(9)]), "8 kinds"),
        (lambda: Parallel([[Failure(1e-9)]]), "have noise"),
        (lambda: Parallel([[Gaussian(1.0)]], count=0), "count"),
        (lambda: Repeated(trial=[[Gaussian(1.0), Failure(0.0)]]), "cannot itself hold failure"),
        (lambda: Repeated(trial=[[SAMPLES["parallel"]]]), "cannot itself hold parallel"),
        (lambda: Failure(1.0), "probability"),
        (lambda: Failure(-1e-9), "probability"),
        (lambda: Failure(math.nan), "probability"),
        (lambda: Failure("x"), "number from 0 to 1"),
        (lambda: Failure(1e-9, count=1.5), "count"),
        (lambda: Event.from_dict({"kind": "failure", "parameters": {"chance": 0.1}}), "chance"),
        (lambda: Event.from_dict({"kind": "failure", "parameters": {"drift": []}}), "drift"),
    ],
)
def test_parallel_parts_and_failures_are_checked(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_parts_may_hold_searches_and_know_their_least_noise_and_most_failure():
    parts = [[SAMPLES["repeated"], Failure(2e-9)], [Gaussian(7.0), Failure(1e-9), Failure(5e-9)]]
    event = Parallel(parts, count=3)
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert event.noise_multiplier == 2.0 and event.sampled and not event.gaussian
    assert event.failure == pytest.approx(18e-9, rel=1e-12)
    more = event.scaled(2.0)
    assert more.noise_multiplier == 4.0 and more.failure == event.failure
    assert Parallel([[Gaussian(3.0)], [Selection(2.0)]]).gaussian


def test_more_noise_in_repeated_trials_is_more_in_each_of_their_events():
    event = SAMPLES["repeated"]
    more = event.scaled(2.0)
    assert [e.noise_multiplier for e in more.leaves] == [6.0, 18.0, 4.0]
    assert more.noise_multiplier == 4.0
    assert (more.count, more.rate) == (event.count, event.rate)
