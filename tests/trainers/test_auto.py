"""The rule of public facts: what it balances, and where it stops."""

from __future__ import annotations

import pytest

from tacit.trainers.settings import LARGEST_INTERCEPT_FRACTION, RULE_CONSTANTS, PublicFacts, suggest

TWO_CLASSES = RULE_CONSTANTS["two classes"]


def facts_of(signal, task="classification", bound=1.0, **more):
    """A thousand rows that say so much in a score, in units of its noise."""
    return PublicFacts(1000, 20, 1, bound, signal / 1000, task, **more)


def noise_left(facts, **given):
    """In the score of a row of the norm of the bound (docs/decisions/0010)."""
    found = suggest(facts, given)
    way = found["learning_rate"] * found["clip"] * facts.typical_norm * found["steps"]
    return way / ((1 - found["momentum"]) * facts.mu * facts.size)


@pytest.mark.parametrize("signal", [300, 1_000, 5_000])
@pytest.mark.parametrize("given", [{}, {"steps": 250}, {"clip": 0.7}, {"momentum": 0.5}])
def test_the_noise_left_in_a_score_is_a_constant(signal, given):
    assert noise_left(facts_of(signal), **given) == pytest.approx(TWO_CLASSES.noise)


@pytest.mark.parametrize("bound", [0.01, 1.0, 300.0])
def test_the_length_of_rows_changes_nothing_but_units(bound):
    found, usual = (suggest(facts_of(1000, bound=size), {}) for size in (bound, 1.0))
    assert found["clip"] == pytest.approx(usual["clip"] * bound)
    assert found["learning_rate"] == pytest.approx(usual["learning_rate"] / bound**2)


def test_where_rows_say_little_a_run_goes_as_far_as_it_would_with_more_of_them():
    ways = []
    for signal in (60, 100, 150):
        noise = noise_left(facts_of(signal))
        assert TWO_CLASSES.noise < noise < TWO_CLASSES.most
        ways.append(noise * signal)
    assert ways == pytest.approx([TWO_CLASSES.least] * 3)


@pytest.mark.parametrize("signal", [0.1, 5, 40])
def test_there_is_an_end_to_that(signal):
    assert noise_left(facts_of(signal)) == pytest.approx(TWO_CLASSES.most)


@pytest.mark.parametrize("signal", [5, 1000])
def test_numbers_have_no_such_end(signal):
    assert noise_left(facts_of(signal, "regression")) <= RULE_CONSTANTS["regression"].noise * 1.001


def test_steps_stay_stable_however_much_rows_say():
    found = suggest(facts_of(1e7), {})
    assert (found["steps"], found["schedule"]) == (300, "late")
    assert found["learning_rate"] * found["clip"] == pytest.approx(TWO_CLASSES.reach)


def test_rows_that_drift_are_left_less_noise():
    less = noise_left(facts_of(1000, drift=0.5))
    assert less < RULE_CONSTANTS["drift"].noise
    assert noise_left(facts_of(1e4, drift=1e-9)) == pytest.approx(RULE_CONSTANTS["drift"].noise)


def test_many_classes_have_constants_of_their_own():
    found = suggest(PublicFacts(1000, 20, 5, 1.0, 1.0), {})
    assert found["clip"] == RULE_CONSTANTS["classes"].clip != TWO_CLASSES.clip


def test_the_constant_outweighs_what_noise_left_of_the_mean():
    fractions = [
        suggest(facts_of(1000, mean_noise_norm=norm), {})["intercept_fraction"]
        for norm in (0.0, 0.01, 0.05, 9.0)
    ]
    assert fractions == [
        TWO_CLASSES.intercept_fraction,
        TWO_CLASSES.intercept_fraction,
        TWO_CLASSES.intercept_per_mean_noise * 0.05,
        LARGEST_INTERCEPT_FRACTION,
    ]
    assert (
        suggest(facts_of(1000, mean_noise_norm=0.1, bound=2.0), {})["intercept_fraction"]
        == fractions[2]
    )  # in row bounds
