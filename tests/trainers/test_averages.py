"""What a run returns, of iterates and noisy gradients that have been released."""

import numpy as np
import pytest

from tacit import DPLinearClassifier
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.averaging import AVERAGES, Averages

STEPS = 17


def returned(names, weights, gradients, noise=0.0):
    """Of weights (T, S, d, K), the last row of which is the constant's."""
    made = Averages(names, weights[0].shape, len(weights), weights[0].shape[1] - 1)
    for step, (each, gradient) in enumerate(zip(weights, gradients, strict=True)):
        made.look(step, gradient, [noise] * len(names))
        made.add(step, each)
    return made.result()


def run(names, first, then, seed=0, spread=0.0):
    """Gradients of one direction in the first half and of another in the second, with noise."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(STEPS, len(names), 4, 2))
    directions = np.where(np.arange(STEPS)[:, None] < STEPS // 2, first, then)
    gradients = directions[:, None, :, None] + spread * rng.normal(size=weights.shape)
    return weights, gradients


@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_of_equal_iterates_is_that_iterate(name):
    weights = np.tile(np.arange(8.0).reshape(1, 1, 4, 2), (STEPS, 1, 1, 1))
    assert returned([name], weights, weights) == pytest.approx(weights[0])


def test_weights_that_still_grow_are_returned_as_they_are():
    weights, gradients = run(["converged"], np.ones(4), np.ones(4))
    assert np.array_equal(returned(["converged"], weights, gradients), weights[-1])


def test_weights_that_wander_are_averaged_over_the_second_half():
    weights, gradients = run(["converged"], [1, 0, 0, 5], [0, 1, 0, 5])
    found = returned(["converged"], weights, gradients, noise=1.0)
    assert found == pytest.approx(weights[STEPS // 2 :].mean(axis=0))


def test_the_constant_has_no_say():
    """It grows, and it takes back; neither decides."""
    for constant in (100.0, -100.0):
        weights, gradients = run(["converged"], [1, 0, 0, 100.0], [0, 1, 0, constant])
        found = returned(["converged"], weights, gradients)
        assert found == pytest.approx(weights[STEPS // 2 :].mean(axis=0))


def test_weights_on_their_way_back_by_more_than_their_noise_are_not_averaged():
    weights, gradients = run(["converged"], np.ones(4), -np.ones(4))
    half = STEPS // 2
    product = 3 * 2 * half * (STEPS - half)  # features, outputs, steps there and back
    last = returned(["converged"], weights, gradients, noise=product / half * 0.99)
    assert np.array_equal(last, weights[-1])
    mean = returned(["converged"], weights, gradients, noise=product / half * 1.01)
    assert mean == pytest.approx(weights[half:].mean(axis=0))


def test_settings_are_judged_one_by_one():
    names = ["converged", "last", "converged", "uniform"]
    weights, gradients = run(names, np.ones(4), np.ones(4))
    gradients[STEPS // 2 :, 2] = 0.0
    found = returned(names, weights, gradients)
    assert np.array_equal(found[:2], weights[-1, :2])
    assert found[2] == pytest.approx(weights[STEPS // 2 :, 2].mean(axis=0))
    assert found[3] == pytest.approx(weights[:, 3].mean(axis=0))


def test_noise_alone_is_averaged_about_half_of_the_time():
    """Its product is as often positive; where it is not, it hardly ever exceeds the noise."""
    chosen = []
    for seed in range(300):
        weights, gradients = run(["converged"], np.zeros(4), np.zeros(4), seed, spread=1.0)
        found = returned(["converged"], weights, gradients, noise=6.0)
        chosen.append(not np.array_equal(found, weights[-1]))
    assert 0.35 < np.mean(chosen) < 0.65


@pytest.mark.parametrize("trainer", [DPGD(steps=10), DPSGD(steps=10, batch_size=200)])
def test_centred_rows_ask_for_it_and_others_do_not(trainer):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 5)) + y[:, None]
    fitted = DPLinearClassifier(trainer=trainer, random_state=0).fit(X, y)
    assert fitted.plan_.trainer.average == "converged"
    assert fitted.certificate_.verify().holds
    bare = DPLinearClassifier(trainer=trainer, stages=[], random_state=0)
    bare.set_params(stages=[fitted.plan_.plan.stages[0]])
    assert bare.fit(X, y).plan_.trainer.average == "last"
