"""Planted bugs: each makes the library less private than it says, or wrong.

`PLANT` has a function for each, which takes a `pytest.MonkeyPatch`. The plugin
`tests.audit.planted` plants one for a whole run of pytest.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from tacit.engine import engine
from tacit.engine.quantization import Clipping
from tacit.mechanisms.noise import Stream
from tacit.plan import plan
from tacit.preprocessing import PrivateCenter
from tacit.preprocessing import private_center as private
from tacit.privacy import events
from tacit.privacy.budget import Budget
from tacit.trainers import gradient, rivals


def less_noise(patch):
    """Noise scaled by 1/√2."""
    real = gradient._add_noise

    def add(total, deviations, key, step):
        return real(total, [d / np.sqrt(2) for d in deviations], key, step)

    patch.setattr(gradient, "_add_noise", add)


def half_sensitivity(patch):
    """Sensitivity C where a row is replaced, which moves a sum by 2C."""
    patch.setitem(events.NEIGHBORS, "replace_one", 1.0)


def sum_not_divided(patch):
    """The private mean is a sum: not divided by n."""
    real = PrivateCenter.fit

    def fit(self, rows, context=None):
        return real(self, rows, None if context is None else replace(context, size=1))

    patch.setattr(PrivateCenter, "fit", fit)


def noise_divided(patch):
    """Noise for the mean, on the sum: divided by n once too often."""
    real = private.noisy_sum

    def noisy(chunks, d, bound, z, stream, **more):
        held = list(chunks)
        return real(held, d, bound, z / sum(len(chunk) for chunk in held), stream, **more)

    patch.setattr(private, "noisy_sum", noisy)


def batch_normaliser(patch):
    """Sums divided by the size of the batch that was drawn."""
    real_sums, real_noise = engine.Engine.gradient_sums, gradient._add_noise
    drawn = {}

    def gradient_sums(self, weights, clips, *, batch=None, **more):
        drawn["size"] = None if batch is None else len(batch)
        drawn["rows"] = self.n
        return real_sums(self, weights, clips, batch=batch, **more)

    real_include = Stream.include

    def include(self, n, probability):
        drawn["expected"] = probability * n
        return real_include(self, n, probability)

    def add(total, deviations, key, step):
        noisy = real_noise(total, deviations, key, step)
        if drawn["size"] is None:
            return noisy
        return noisy * drawn["expected"] / max(drawn["size"], 1)

    patch.setattr(engine.Engine, "gradient_sums", gradient_sums)
    patch.setattr(Stream, "include", include)
    patch.setattr(gradient, "_add_noise", add)


def forgotten_event(patch):
    """Only training is counted; what a private stage releases is not."""
    real = plan.calibrate

    def calibrate(listed, budget, neighbors):
        return real(lambda z: listed(z)[-1:], budget, neighbors)

    patch.setattr(plan, "calibrate", calibrate)


def unprojected_weights(patch):
    """Behind plain stages: noise for weights of norm zero, which then grow freely."""
    real = gradient.GradientTrainer.deviation

    def deviation(self, noise_multiplier, norm, moves):
        return real(self, noise_multiplier, 0.0, moves)

    patch.setattr(gradient.GradientTrainer, "deviation", deviation)


def unclipped_rows(patch):
    """Gradients of rows are summed as they are."""

    def apply(self, residual, inverse_norm):
        residual *= self.multiplier[:, :, None]
        if self.arithmetic == "exact":
            np.rint(residual, out=residual)

    patch.setattr(Clipping, "apply", apply)


def reused_noise(patch):
    """Noise drawn in the first step and used in all."""
    real = gradient._add_noise
    kept = {}

    def add(total, deviations, key, step):
        if step == 0:
            noisy = real(total, deviations, key, step)
            kept["noise"] = noisy - total.float()
            return noisy
        return total.float() + kept["noise"]

    patch.setattr(gradient, "_add_noise", add)


def shuffled_batches(patch):
    """Batches of a shuffled table, one after the other, counted as Poisson samples."""
    rng = np.random.default_rng(0)
    step = itertools.count()
    order = {}

    def include(self, n, probability):
        batches = round(1 / probability)
        turn = next(step) % batches
        if turn == 0:
            order["rows"] = rng.permutation(n)
        size = -(-n // batches)
        return np.sort(order["rows"][turn * size : (turn + 1) * size]).astype(np.intp)

    patch.setattr(Stream, "include", include)


def parts_counted_once(patch):
    """Two sums per step, each with the noise of the whole budget."""

    def deviations(self, noise_multiplier, norm, moves):
        return tuple(noise_multiplier * clip for clip in self.clips)

    patch.setattr(rivals.GEP, "deviations", deviations)


def wrong_delta(patch):
    """Training is calibrated for ten times the δ that is claimed."""
    real = plan.calibrate

    def calibrate(listed, budget, neighbors):
        return real(listed, Budget(budget.epsilon, 10 * budget.delta), neighbors)

    patch.setattr(plan, "calibrate", calibrate)


PLANT = {
    bug.__name__: bug
    for bug in (
        less_noise,
        half_sensitivity,
        sum_not_divided,
        noise_divided,
        batch_normaliser,
        forgotten_event,
        unprojected_weights,
        unclipped_rows,
        reused_noise,
        shuffled_batches,
        parts_counted_once,
        wrong_delta,
    )
}
