"""Planted bugs: each makes the library less private than it says, or wrong.

`PLANT` has a function for each, which takes a `pytest.MonkeyPatch`. The plugin
`tests.audit.planted` plants one for a whole run of pytest. Those of `STOPPED` ask for what was not
counted, or do without what was: `tacit.mechanisms.release` refuses to go on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from tacit.engine.kernels import compact
from tacit.engine.quantization import Clipping
from tacit.mechanisms.additive import bounded_sum
from tacit.mechanisms.release import Draws, Token
from tacit.plan import plan
from tacit.preprocessing import PrivateCenter
from tacit.preprocessing import private_center as private
from tacit.privacy import events
from tacit.privacy.budget import Budget
from tacit.research.trainers import rivals
from tacit.trainers import gradient


def less_noise(patch):
    """Noise scaled by 1/√2."""
    real = Token.deviation_of
    patch.setattr(Token, "deviation_of", lambda self, total: real(self, total) / math.sqrt(2))


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
    """Noise for the mean, on the sum: what a row counts for is divided by n once too often."""
    patch.setattr(private, "noisy_sum", _scaled("bound", "reach"))


def small_reach(patch):
    """The same, where it is known what a row counts for: noise for less than that."""
    patch.setattr(private, "noisy_sum", _scaled("reach"))


def _scaled(*names):
    def noisy(chunks, d, bound, token, **more):
        held = list(chunks)
        total, n = bounded_sum(held, d, bound, **more), sum(chunk.shape[0] for chunk in held)
        return token.gaussian(replace(total, **{name: getattr(total, name) / n for name in names}))

    return noisy


def batch_normaliser(patch):
    """Sums divided by the size of the batch that was drawn."""
    real_batch, real_noisy = Draws.batch, gradient.GradientTrainer.noisy
    expected = {}

    def batch(self, n, probability, stream):
        expected["rows"] = probability * n
        return real_batch(self, n, probability, stream)

    def noisy(self, total, token, step, rows):
        released = real_noisy(self, total, token, step, rows)
        return released * expected["rows"] / max(rows, 1) if token.samples else released

    patch.setattr(Draws, "batch", batch)
    patch.setattr(gradient.GradientTrainer, "noisy", noisy)


def forgotten_event(patch):
    """Only training is counted; what a private stage releases is not."""
    real = plan.calibrate

    def calibrate(listed, budget, neighbors):
        return real(lambda z: listed(z)[-1:], budget, neighbors)

    patch.setattr(plan, "calibrate", calibrate)


def unlisted_event(patch):
    """A private stage is in no account at all, and releases all the same."""
    patch.setattr(plan.Plan, "stage_events", lambda self: [])


def unprojected_weights(patch):
    """Behind noiseless stages: noise for weights of norm zero, which then grow freely."""
    real = gradient.GradientTrainer.reach
    patch.setattr(
        gradient.GradientTrainer, "reach", lambda self, norm, moves: real(self, 0.0, moves)
    )


def unclipped_rows(patch):
    """Gradients of rows are summed as they are."""

    def apply(self, residual, inverse_norm):
        residual *= self.multiplier[:, :, None]
        if self.arithmetic == "exact":
            np.rint(residual, out=residual)

    patch.setattr(Clipping, "apply", apply)
    patch.setattr(compact, "level", lambda: None)  # compiled loops clip by themselves


def reused_noise(patch):
    """Noise drawn in the first step and used in all."""
    real_draw, real_noisy = Draws.gaussian, gradient.GradientTrainer.noisy
    at, kept = {}, {}

    def noisy(self, total, token, step, rows):
        at["step"] = step
        return real_noisy(self, total, token, step, rows)

    def draw(self, total, deviation, stream):
        if at["step"] == 0:
            kept["noise"] = real_draw(self, total, deviation, stream) - total.values
        return total.values + kept["noise"]

    patch.setattr(gradient.GradientTrainer, "noisy", noisy)
    patch.setattr(Draws, "gaussian", draw)


def noise_of_its_own(patch):
    """The same by a trainer that keeps its noise, and asks for no other."""
    real, kept = gradient.GradientTrainer.noisy, {}

    def noisy(self, total, token, step, rows):
        if step == 0:
            kept["noise"] = real(self, total, token, step, rows) - total.numbers()
        return total.numbers() + kept["noise"]

    patch.setattr(gradient.GradientTrainer, "noisy", noisy)


def another_step(patch):
    """A trainer counts a step less than it takes."""
    real = gradient.GradientTrainer.event

    def event(self, noise_multiplier, facts):
        counted = real(self, noise_multiplier, facts)
        return replace(counted, count=counted.count - 1)

    patch.setattr(gradient.GradientTrainer, "event", event)


def shuffled_batches(patch):
    """Batches of a shuffled table, one after the other, counted as Poisson samples."""
    rng = np.random.default_rng(0)
    step = itertools.count()
    order = {}

    def batch(self, n, probability, stream):
        batches = round(1 / probability)
        turn = next(step) % batches
        if turn == 0:
            order["rows"] = rng.permutation(n)
        size = -(-n // batches)
        return np.sort(order["rows"][turn * size : (turn + 1) * size]).astype(np.intp)

    patch.setattr(Draws, "batch", batch)


def parts_counted_once(patch):
    """Two sums per step, each with the noise of the whole budget."""

    def part(self, share):
        self._budget.take(share)
        return self._divided(self.noise_multiplier, 1)

    patch.setattr(Token, "part", part)


def whole_parts(patch):
    """The same by a trainer that takes each of its two sums for a step."""
    patch.setattr(rivals.GEP, "shares", (1.0, 1.0))


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
        small_reach,
        batch_normaliser,
        forgotten_event,
        unlisted_event,
        unprojected_weights,
        unclipped_rows,
        reused_noise,
        noise_of_its_own,
        another_step,
        shuffled_batches,
        parts_counted_once,
        whole_parts,
        wrong_delta,
    )
}
