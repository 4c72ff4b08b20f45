"""What rows that moved do to a gradient sum, and that the noise grows with it."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.seam import run_of
from tests.soundness import attack

from tacit.data.rows import as_rows
from tacit.engine import sensitivity as movement
from tacit.engine.engine import Engine
from tacit.engine.quantization import SHRINK, rounding_error
from tacit.engine.sensitivity import GradientSensitivity, data_lipschitz
from tacit.exceptions import InputError
from tacit.losses import Logistic, clipped, get_loss
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.random_streams import Key, Stream
from tacit.privacy.sensitivity.drift import Drift
from tacit.privacy.sensitivity.sampling import bernstein, flat
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.settings import PublicFacts

# How fast a clipped gradient changes with its row


def clipped_gradients(loss, theta, rows, targets, clip, *, per_class=False):
    """(b, d, K): residual ⊗ row, shortened as a whole or output by output."""
    scores = np.einsum("bd,bdk->bk", rows, theta)
    gradients = rows[:, :, None] * loss.residual(scores, targets)[:, None, :]
    axes, limit = ((1,), clip / math.sqrt(theta.shape[2])) if per_class else ((1, 2), clip)
    norms = np.sqrt((gradients**2).sum(axis=axes, keepdims=True))
    return gradients * np.minimum(1.0, limit / np.maximum(norms, 1e-300))


class Search:
    """Rows x and x′ of norm at most R, weights of norm at most B, targets: all at once.

    ``tilt`` is the constant feature, for the intercept; the rows with it have norm at most R.
    """

    def __init__(self, loss, *, norm, bound, clip, outputs=1, per_class=False, tilt=0.0):
        self.loss, self.norm, self.bound, self.clip = loss, norm, bound, clip
        self.outputs, self.per_class, self.tilt = outputs, per_class, tilt
        self.rng = np.random.default_rng(50)
        self.d = 3

    def start(self, count):
        rng = self.rng
        theta = rng.normal(size=(count, self.d, self.outputs))
        rows = rng.normal(size=(count, self.d))
        along = rng.random(count) < 0.5  # rows along the weights are what hurts
        rows[along] = theta[along, :, 0] * rng.choice([-1.0, 1.0], size=(along.sum(), 1))
        rows += rng.normal(size=rows.shape) * 0.1
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= self.bound * rng.random((count, 1)) ** rng.choice([0.05, 1.0]) / lengths
        apart = rng.normal(size=rows.shape) * 10 ** rng.uniform(-4, 0, size=(count, 1)) * self.bound
        if self.loss.task == "regression":
            targets = rng.uniform(-1, 1, size=(count, 1)).round(rng.integers(0, 3))
        else:
            classes = max(self.outputs, 2)
            targets = self.loss.targets(rng.integers(0, classes, count), self.outputs)
        return theta * 10 ** rng.uniform(-1, 1, size=(count, 1, 1)), rows, rows + apart, targets

    def allowed(self, theta, first, second):
        norms = np.sqrt((theta**2).sum(axis=(1, 2), keepdims=True))
        theta = theta * np.minimum(1.0, self.norm / norms)
        room = math.sqrt(self.bound**2 - self.tilt**2)
        tables = []
        for rows in (first, second):
            if self.tilt:
                rows = rows.copy()
                rows[:, -1] = 0.0
            rows = attack.into_ball(rows, room)
            if self.tilt:
                rows[:, -1] = self.tilt
            tables.append(rows)
        return theta, *tables

    def ratios(self, theta, first, second, targets):
        """‖g(x) − g(x′)‖ / ‖x − x′‖."""
        gradients = [
            clipped_gradients(self.loss, theta, x, targets, self.clip, per_class=self.per_class)
            for x in (first, second)
        ]
        change = np.sqrt(((gradients[0] - gradients[1]) ** 2).sum(axis=(1, 2)))
        apart = np.linalg.norm(first - second, axis=1)
        return np.where(apart > 1e-6 * self.bound, change / np.maximum(apart, 1e-300), 0.0)

    def steepest(self, count=1500, rounds=60):
        theta, first, second, targets = self.start(count)
        theta, first, second = self.allowed(theta, first, second)
        here = self.ratios(theta, first, second, targets)
        rng = self.rng
        for i in range(rounds):
            if i == rounds // 3:  # from here on only the best go on
                best = np.argsort(-here)[:200]
                theta, first, second = theta[best], first[best], second[best]
                targets, here = targets[best], here[best]
            step = 10 ** rng.uniform(-4, 0, size=(len(here), 1))
            shift = rng.normal(size=first.shape) * step * self.bound
            closer = 10 ** rng.uniform(-0.5, 0.2, size=(len(here), 1))
            tried = self.allowed(
                theta + rng.normal(size=theta.shape) * step[:, :, None] * self.norm,
                first + shift,
                first
                + shift
                + (second - first) * closer
                + rng.normal(size=first.shape)
                * 0.1
                * np.linalg.norm(second - first, axis=1)[:, None],
            )
            found = self.ratios(*tried, targets)
            better = found > here
            theta[better], first[better], second[better] = (part[better] for part in tried)
            here = np.where(better, found, here)
        return float(here.max())


BOUNDED = ("savage", "tangent", "tempered")
#: Loss, B, R, C, outputs, and the part of the constant that the search must reach.
CONSTANTS = [
    ("logistic", 1.0, 1.0, math.inf, 1, 0.97),
    ("logistic", 10.0, 1.0, math.inf, 1, 0.8),
    ("logistic", 10.0, 1.0, 0.1, 1, 0.9),
    ("logistic", 3.0, 2.0, 0.5, 1, 0.8),
    ("logistic", 0.2, 1.0, 0.3, 1, 0.9),
    ("softmax", 0.3, 1.0, math.inf, 3, 0.6),
    ("softmax", 1.0, 1.0, math.inf, 4, 0.6),
    ("softmax", 5.0, 1.0, math.inf, 2, 0.6),
    ("softmax", 5.0, 1.0, 0.2, 3, 0.3),
    ("squared", 1.0, 1.0, math.inf, 1, 0.9),
    ("squared", 4.0, 1.0, 0.5, 1, 0.9),
    ("squared", 0.1, 1.0, 0.3, 1, 0.8),
    ("huber", 2.0, 1.0, 0.5, 1, 0.6),
    ("huber-hinge", 1.0, 2.0, math.inf, 1, 0.6),
    ("huber-hinge", 4.0, 1.0, 0.5, 1, 0.6),
    ("savage", 1.0, 1.0, math.inf, 1, 0.5),
    ("savage", 6.0, 1.0, 0.2, 1, 0.2),
    ("tangent", 0.5, 1.0, math.inf, 1, 0.5),
    ("tangent", 3.0, 1.0, 2.0, 1, 0.2),
    ("tempered", 1.0, 1.0, math.inf, 1, 0.5),
    ("tempered", 6.0, 1.0, 0.2, 1, 0.2),
    (get_loss("tempered", temperature=0.5, tail=2.0), 1.0, 1.0, math.inf, 1, 0.5),
    (clipped("logistic", 0.3), 2.0, 1.0, math.inf, 1, 0.5),
    (clipped("squared", 0.5), 1.0, 1.0, 0.4, 1, 0.3),
    (clipped("softmax", 0.4), 1.0, 1.0, math.inf, 3, 0.2),
]


@pytest.mark.parametrize("case", CONSTANTS, ids=str)
def test_no_clipped_gradient_changes_faster_than_its_constant(case):
    name, norm, bound, clip, outputs, least = case
    loss = get_loss(name)
    constant = data_lipschitz(loss, norm=norm, bound=bound, clip=clip, outputs=outputs)
    search = Search(loss, norm=norm, bound=bound, clip=clip, outputs=outputs)
    found = search.steepest() / constant
    assert least <= found <= 1 + 1e-8


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared", "huber-hinge", *BOUNDED])
def test_the_constant_feature_of_an_intercept_is_covered(name):
    """Rows and weights count with it; a large intercept must not hide a steep slope."""
    loss, outputs = get_loss(name), 3 if name == "softmax" else 1
    bound = math.hypot(1.0, 0.5)
    for norm, clip in ((0.5, math.inf), (5.0, math.inf), (5.0, 0.3)):
        constant = data_lipschitz(loss, norm=norm, bound=bound, clip=clip, outputs=outputs)
        search = Search(loss, norm=norm, bound=bound, clip=clip, outputs=outputs, tilt=0.5)
        assert search.steepest(rounds=30) <= constant * (1 + 1e-8)


@pytest.mark.parametrize("name", ["logistic", "softmax", "huber-hinge"])
def test_clipping_each_output_by_itself_is_covered(name):
    loss = get_loss(name)
    for norm in (0.5, 5.0):
        constant = data_lipschitz(loss, norm=norm, bound=1.0, outputs=3)
        for clip in (0.1, 1.0):
            search = Search(loss, norm=norm, bound=1.0, clip=clip, outputs=3, per_class=True)
            assert search.steepest(rounds=30) <= constant * (1 + 1e-8)


@pytest.mark.parametrize("name", ["logistic", "huber-hinge", *BOUNDED])
def test_several_outputs_of_a_scalar_loss_are_covered(name):
    loss = get_loss(name)
    for norm, clip in ((1.0, math.inf), (5.0, 0.3)):
        constant = data_lipschitz(loss, norm=norm, bound=1.0, clip=clip, outputs=3)
        search = Search(loss, norm=norm, bound=1.0, clip=clip, outputs=3)
        assert search.steepest(rounds=30) <= constant * (1 + 1e-8)


@pytest.mark.parametrize("name", ["logistic", "softmax", "squared", "huber", "huber-hinge"])
def test_the_search_notices_half_a_constant(name, monkeypatch):
    loss = get_loss(name)
    outputs = 3 if name == "softmax" else 1
    real = movement.CONSTANTS[type(loss)]
    monkeypatch.setitem(movement.CONSTANTS, type(loss), lambda *given: 0.5 * real(*given))
    constant = data_lipschitz(loss, norm=1.0, bound=1.0, outputs=outputs)
    search = Search(loss, norm=1.0, bound=1.0, clip=math.inf, outputs=outputs)
    assert search.steepest() > constant


@pytest.mark.parametrize("name", ["hinge", "absolute"])
def test_a_loss_with_a_kink_has_no_constant_and_pays_a_whole_clip_both_ways(name):
    loss = get_loss(name)
    assert data_lipschitz(loss, norm=1.0, bound=1.0) == math.inf
    for clip in (0.3, 5.0):
        moves = GradientSensitivity(Drift(1.0, 1e-3, 1e-4, 20), loss, 1, 3, 100, rounded=False)
        assert moves.distance(2.0, clip) == pytest.approx(20 * 2 * min(clip, 1.0))
        search = Search(loss, norm=2.0, bound=1.0, clip=clip)
        theta, first, second, targets = search.start(3000)
        theta, first, second = search.allowed(theta, first, second)
        change = [clipped_gradients(loss, theta, x, targets, clip) for x in (first, second)]
        apart = np.sqrt(((change[0] - change[1]) ** 2).sum(axis=(1, 2))).max()
        assert min(clip, 1.0) < apart <= moves.most(clip)


# One step of the engine, on neighbours behind real stages


def step(pair, makers, name, *, clip, norm, seed, labels=None, weights=None, per_class=False):
    """Distance of neighbours' integer sums, and what is allowed; in units of the lattice."""
    result = attack.outcome(makers, pair)
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs, intercept = (3 if name == "softmax" else 1), 0.3
    if loss.task == "regression":
        values = rng.uniform(-1, 1, size=pair.n)
    else:
        values = rng.integers(0, max(outputs, 2), size=pair.n)
    values = values if labels is None else labels
    others = values.copy()
    others[0] = values.max() if others[0] == values.min() else values.min()
    d = pair.d + 1
    if weights is None:
        weights = rng.normal(size=(1, d, outputs))
        weights *= norm / np.sqrt((weights**2).sum())
    bound = result.claimed.bound
    moves = GradientSensitivity(
        result.claimed.rounded(2.0**-36 * bound), loss, outputs, d, pair.n, intercept
    )
    sums = []
    for rows, target in zip(result.rows, (values, others), strict=True):
        with Engine(
            as_rows(rows, bound=bound),
            loss.targets(target, outputs),
            loss,
            intercept=intercept,
            arithmetic="rounded",
            threads=1,
        ) as engine:
            sums.append(engine.gradient_sum(weights, clip, per_class=per_class))
    lattice = float(sums[0].lattice[0])
    apart = np.linalg.norm((sums[0].values - sums[1].values).astype(float))
    assert sums[0].values.dtype == np.int64
    length = float(np.sqrt((weights**2).sum()))
    b = moves.distance(length, clip, per_class=per_class)
    return apart, (2 * clip + b) / lattice, 2 * clip / lattice


@pytest.mark.parametrize(
    "name", ["logistic", "softmax", "squared", "huber", "huber-hinge", "hinge", "absolute"]
)
def test_integer_sums_of_neighbours_lie_within_the_sensitivity(name):
    rng = np.random.default_rng(51)
    chains = [[attack.soft_pca(0.05)], [attack.pca(1)], [attack.scale(0.2, radius=1.0)]]
    for makers in chains:
        met = 0
        for i, pair in enumerate(attack.random_pairs(rng, 12)):
            if attack.outcome(makers, pair) is None:
                continue
            met += 1
            clip, norm = 10 ** rng.uniform(-1.5, 0.5), 10 ** rng.uniform(-1, 1)
            per_class = name == "softmax" and i % 2 == 0
            apart, allowed, _ = step(
                pair, makers, name, clip=clip, norm=norm, seed=i, per_class=per_class
            )
            assert apart <= allowed
        assert met > 2


def test_without_the_price_of_drift_the_sensitivity_would_be_exceeded():
    """Labels that line up what moves: neighbours are farther apart than two clips."""
    pair = attack.turned(n=200, share=0.6)
    makers = [attack.pca(1)]
    rows = attack.outcome(makers, pair).rows
    labels = ((rows[0] - rows[1])[:, 1] > 0).astype(int)
    apart, allowed, undrifted = step(
        pair,
        makers,
        "logistic",
        clip=0.5,
        norm=0,
        seed=0,
        labels=labels,
        weights=np.zeros((1, 3, 1)),
    )
    assert undrifted < apart <= allowed
    assert apart > 0.4 * allowed


# Sums in float64


def ideal_logistic(rows, signs, weights, clip):
    """The sum of clipped gradients, to 40 digits."""
    limit = mpmath.mpf(clip) * mpmath.mpf(SHRINK["rounded"])
    total = [mpmath.mpf(0)] * rows.shape[1]
    for row, sign in zip(rows.tolist(), signs.tolist(), strict=True):
        row = [mpmath.mpf(x) for x in row]
        margin = mpmath.fsum(x * mpmath.mpf(w) for x, w in zip(row, weights.tolist(), strict=True))
        residual = -sign / (1 + mpmath.exp(sign * margin))
        length = mpmath.sqrt(mpmath.fsum(x * x for x in row))
        if abs(residual) * length > limit:
            residual *= limit / (abs(residual) * length)
        total = [t + residual * x for t, x in zip(total, row, strict=True)]
    return total


def nasty(rng, n, d):
    """Rows that cancel, and rows of all magnitudes."""
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-12, 1, size=(n, 1))
    rows[n // 2 :] = -rows[: n - n // 2]
    rows[::7] *= 1 + 2.0**-50
    return attack.into_ball(rows, 1.0)


@pytest.mark.parametrize("clip", [0.01, 0.4, 3.0])
@pytest.mark.parametrize("norm", [0.0, 1.0, 50.0])
def test_float_sums_lie_within_their_error_bound_for_the_logistic_loss(clip, norm):
    rng = np.random.default_rng(52)
    n, d = 160, 3
    loss = get_loss("logistic")
    rows, labels = nasty(rng, n, d), rng.integers(0, 2, n)
    weights = rng.normal(size=d)
    weights *= norm / np.linalg.norm(weights)
    with mpmath.workdps(40):
        ideal = ideal_logistic(rows, 2 * labels - 1, weights, clip)
        engine = Engine(
            as_rows(rows, bound=1.0), loss.targets(labels, 1), loss, arithmetic="rounded"
        )
        found = engine.gradient_sum(weights.reshape(1, d, 1), clip)
        values = [mpmath.mpf(int(v)) * float(found.lattice[0]) for v in found.values.ravel()]
        error = mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(values, ideal, strict=True)))
    assert error <= rounding_error(clip, n=n, d=d, outputs=1, reach=norm, curvature=0.25)


def test_float_sums_lie_within_their_error_bound_over_many_rows():
    """Squared loss, unclipped: the ideal sum is a fraction."""
    rng = np.random.default_rng(53)
    n, d, clip = 20_000, 2, 4.0
    loss = get_loss("squared")
    rows, y = attack.into_ball(nasty(rng, n, d) * 1e3, 1.0), rng.uniform(-1, 1, n)
    y[n // 2 :] = -y[: n // 2]
    weights = np.array([1.0, -0.5])
    ideal = [Fraction(0), Fraction(0)]
    exact = [Fraction(w) for w in weights.tolist()]
    for row, target in zip(rows.tolist(), y.tolist(), strict=True):
        x = [Fraction(v) for v in row]
        residual = x[0] * exact[0] + x[1] * exact[1] - Fraction(target)
        ideal = [t + residual * v for t, v in zip(ideal, x, strict=True)]
    engine = Engine(as_rows(rows, bound=1.0), loss.targets(y, 1), loss, arithmetic="rounded")
    found = engine.gradient_sum(weights.reshape(1, d, 1), clip)
    unit = Fraction(float(found.lattice[0]))
    errors = [
        float(int(v) * unit - t) for v, t in zip(found.values.ravel().tolist(), ideal, strict=True)
    ]
    reach = float(np.linalg.norm(weights))
    bound = rounding_error(clip, n=n, d=d, outputs=1, reach=reach, curvature=1.0)
    assert math.hypot(*errors) <= bound < 1e-5 * clip


# Noise


def test_the_noise_of_every_step_follows_the_weights(monkeypatch):
    """σ = z·(C + b/2) at the weights that the step begins with."""
    rng = np.random.default_rng(54)
    n, d, z, clip = 300, 4, 3.0, 0.2
    loss = get_loss("logistic")
    drift = Drift(1.0, 0.5, 0.01, n - 1)
    moves = GradientSensitivity(drift, loss, 1, d, n)
    rows = attack.into_ball(rng.normal(size=(n, d)), 1.0)
    rows[:, 0] = np.abs(rows[:, 0])  # so the weights grow
    engine = Engine(
        as_rows(rows, bound=1.0), loss.targets(np.ones(n, int), 1), loss, arithmetic="rounded"
    )
    drawn, asked = [], []
    real_draw, real_distance = Stream.discrete_gaussian, GradientSensitivity.distance

    def draw(self, sigma, count):
        drawn.append(sigma)
        return real_draw(self, sigma, count)

    def distance(self, norm, at, **more):
        asked.append((norm, real_distance(self, norm, at, **more)))
        return asked[-1][1]

    monkeypatch.setattr(Stream, "discrete_gaussian", draw)
    monkeypatch.setattr(GradientSensitivity, "distance", distance)
    facts = PublicFacts(n, d, 1, 1.0, 1.0)
    trainer = DPGD(steps=6, clip=clip, learning_rate=20.0, momentum=0.0).resolve(facts)
    trainer.train(engine, run_of(trainer, z, facts, Key.from_seed(55)), facts, moves=moves)
    lattice = float(engine.gradient_sum(np.zeros((1, d, 1)), clip).lattice[0])
    assert len(drawn) == len(asked) == 6  # for the noise alone: no average asks
    assert asked[0][0] == 0.0 and asked[-1][0] > 1.0
    for sigma, (norm, b) in zip(drawn, asked, strict=True):
        mu = data_lipschitz(loss, norm=norm, bound=1.0, clip=clip)
        assert b == pytest.approx(mu * drift.l1 + moves.rounding(norm, clip), rel=1e-9)
        assert sigma == pytest.approx(sigma_for(z * (clip + b / 2) / lattice), rel=1e-9)
        assert sigma * lattice >= z * (clip + b / 2)
    assert drawn[-1] > drawn[0]


def test_sampled_steps_beyond_the_reference_weights_add_as_much_noise_as_they_need():
    """Scaled down by the growth of the noise, clip, drift and rounding are those accounted for."""
    for name in ("logistic", "softmax", "squared", "huber-hinge", *BOUNDED):
        loss, outputs = get_loss(name), 3 if name == "softmax" else 1
        for clip, per_class in ((0.04, False), (1.0, False), (0.3, True)):
            drift = Drift(1.0, 2.0, 0.05, 999, 0.1)
            moves = GradientSensitivity(drift, loss, outputs, 5, 1000, 0.1)
            clipping = "per-class" if per_class else "flat"
            trainer = DPSGD(clip=clip, clipping=clipping, batch_size=50)
            base = trainer.reference_norm(moves)

            def law(norm, moves=moves, clip=clip, per_class=per_class):
                given = {
                    "constant": moves.constant(norm, clip, per_class=per_class),
                    "clip": clip,
                    "most": moves.most(clip),
                }
                sampled = {"probability": 0.05, "steps": 100, "delta": 1e-5}
                ((_, tail),), _ = bernstein(moves.rows, **given, **sampled)
                return np.array([flat(moves.rows, **given), tail]) * clip, moves.rounding(
                    norm, clip
                )

            at_base, rounding_at_base = law(base)
            for norm in (0.0, base / 2, base, 3 * base, 100 * base, 1e4 * base):
                grown = trainer.deviation(1.0, norm, moves) / clip
                shifts, rounding = law(norm)
                assert grown >= 1
                assert (shifts <= grown * at_base * (1 + 1e-9)).all()
                assert rounding <= grown * rounding_at_base * (1 + 1e-9)


@pytest.mark.parametrize("loss", [get_loss("hinge"), clipped("absolute", 0.5)], ids=repr)
def test_kinked_losses_are_refused_where_batches_are_drawn(loss):
    moves = GradientSensitivity(Drift(1.0, 0.1, 0.1, 1), loss, 1, 3, 10)
    with pytest.raises(InputError, match="full batches"):
        moves.require_smooth()


def test_a_loss_without_a_known_constant_is_refused_where_batches_are_drawn():
    """It would pass for smooth: the ratio by which noise must grow with the weights is unknown."""

    class Own(Logistic):
        name = "own"

    moves = GradientSensitivity(Drift(1.0, 0.1, 0.1, 1), Own(), 1, 3, 10)
    assert moves.constant(1.0, 1.0) == math.inf
    with pytest.raises(InputError, match="not known how fast gradients of loss='own' change"):
        moves.require_smooth()
    GradientSensitivity(Drift(1.0, 0.1, 0.1, 1), get_loss("tempered"), 1, 3, 10).require_smooth()
