"""Intervals hold the truth as often as they say, where counts are few or noise is all there is."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.metrics.counts import Plain
from tacit.metrics.evaluate import plan_evaluation
from tacit.metrics.intervals import interval, linear, quantile, shares
from tacit.privacy.budget import Budget

RUNS = 150


def outcomes(model, draw, n, epsilon, **how):
    """Evaluations of fresh rows, through fresh noise."""
    plan = plan_evaluation(model, n, Budget(epsilon, 1e-5), "replace_special", **how)
    rng = np.random.default_rng(1)
    for seed in range(RUNS):
        yield plan.run(*draw(rng, n), None, Releases(Key.from_seed(seed), plan.spent))


def require_coverage(found, truth):
    """Not refuted that figures are held in 95% of all runs, at one in a thousand together."""
    seen = {name: [evaluation[name] for evaluation in found] for name in truth}
    for name, true in truth.items():
        assert all(each.low <= each.high for each in seen[name]), name
        held = sum(each.low <= true <= each.high for each in seen[name])
        assert binom.cdf(held, RUNS, 0.95) > 1e-3 / len(truth), (name, held)


def classifier(classes):
    return SimpleNamespace(classes_=tuple(range(classes)), predict_proba=None)


NUMBERS = SimpleNamespace(target_bounds_=(-50.0, 50.0))


@pytest.mark.parametrize("seen", [0, 1, 7, 60])
def test_the_interval_of_a_share_without_noise_is_that_of_wilson(seen):
    counts = Plain(np.array([60.0 - seen, seen]), 0.0, 0.0)
    share, z = seen / 60, quantile(0.95)
    middle = (share + z**2 / 120) / (1 + z**2 / 60)
    half = z / (1 + z**2 / 60) * math.sqrt(share * (1 - share) / 60 + z**2 / 14400)
    form = linear(counts, np.array([0.0, 1.0]), np.ones(2))
    for found in (interval(form, form), shares(counts, confidence=0.95)[1]):
        limits = (max(middle - half, 0.0), min(middle + half, 1.0))
        assert (found.low, found.high) == pytest.approx(limits, abs=1e-12)


def test_figures_of_a_rare_class_are_held_where_hardly_any_noise_is():
    def draw(rng, n):
        y = (rng.random(n) < 0.03).astype(int)
        wrong = rng.random(n) < np.where(y, 0.4, 0.005)
        return y, np.where(wrong, 1 - y, y) * 0.98 + 0.01

    truth = {"prevalence": 0.03, "specificity": 0.995, "recall": 0.6}
    truth["accuracy"] = 0.97 * 0.995 + 0.03 * 0.6
    require_coverage(list(outcomes(classifier(2), draw, 60, 20.0)), truth)


def test_figures_of_a_model_that_is_never_wrong_are_held():
    def draw(rng, n):
        y = (rng.random(n) < 0.4).astype(int)
        return y, np.where(y, 0.99, 0.01)

    truth = {"roc_auc": 1.0, "balanced_accuracy": 1.0, "log_loss": -math.log(0.99)}
    require_coverage(list(outcomes(classifier(2), draw, 60, 20.0)), truth)


def test_a_score_that_is_a_sum_over_classes_is_not_what_clamped_parts_add_up_to():
    def draw(rng, n):
        y = rng.integers(0, 9, n)
        p = np.full((n, 9), 0.0125)
        p[np.arange(n), y] = 0.9
        return y, p

    truth = {"brier_score": 0.1**2 + 8 * 0.0125**2}
    require_coverage(list(outcomes(classifier(9), draw, 60, 2.0)), truth)


@pytest.mark.parametrize("epsilon", [2.0, 20.0])
def test_errors_are_held_that_are_far_smaller_than_they_might_be(epsilon):
    def draw(rng, n):
        x = rng.normal(size=n)
        return x + rng.uniform(-0.5, 0.5, n), x

    truth = {"median_error": 0.25, "error_90": 0.45, "mae": 0.25, "mean_error": 0.0}
    found = outcomes(NUMBERS, draw, 500, epsilon, error_bound=25.0)
    require_coverage(list(found), truth)


def test_there_is_no_estimate_where_noise_hides_what_is_divided_by():
    for counted, known in [(6.0, False), (60.0, True)]:
        counts = Plain(np.array([counted, counted]), 100.0, 0.0)
        form = linear(counts, np.array([0.0, 1.0]), np.ones(2))
        found = interval(form, form)
        assert math.isfinite(found.value) is known
        assert known or (found.low, found.high) == (0.0, 1.0)
