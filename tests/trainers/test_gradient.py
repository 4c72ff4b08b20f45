"""Noisy gradient descent: what runs is what the event says, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare, kstest
from tests.seam import Quiet, run_of

from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.engine.quantization import Scale, Weights
from tacit.exceptions import InputError
from tacit.losses import LOSSES, get_loss
from tacit.mechanisms.lattice import accounted_sigma, inclusion_threshold
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import Draws
from tacit.privacy import Gaussian, PoissonGaussian
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.averaging import AVERAGES
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.dpgd import MOST_STEPS
from tacit.trainers.gradient import SCHEDULES
from tacit.trainers.settings import PublicFacts

EVERY_TRAINER = [DPGD, DPSGD]
EVERY_LOSS = sorted(LOSSES)


def problem(name="logistic", *, n=60, d=4, outputs=1, seed=0):
    """Rows that are stored without rounding, so that plain float64 gives the same gradients."""
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = outputs if loss.task == "classification" else 1
    rows = np.rint(rng.uniform(-0.5, 0.5, size=(n, d)) * 256) / 256
    if loss.task == "regression":
        values = np.rint(rng.normal(size=n) * 16) / 16
    else:
        values = rng.integers(0, max(outputs, 2), n)
    return rows, loss.targets(values, outputs), loss


def facts_of(n=60, d=4, outputs=1, **more):
    return PublicFacts(n, d, outputs, 1.0, 1.0, **more)


def complete(cls=DPGD, **given):
    settings = dict(
        steps=6, learning_rate=1.0, clip=0.3, momentum=0.0, average="last", schedule="constant"
    )
    if cls is DPSGD:
        settings["batch_size"] = 20
    return cls(**{**settings, "intercept_fraction": 0.1, **given})


def run(trainer, rows, targets, loss, *, z=1.0, seed=0, facts=None, init=None, **options):
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, **options)
    outputs = engine.outputs or int(targets.max()) + 1
    facts = facts or facts_of(rows.shape[0], rows.shape[1], outputs)
    allowed = run_of(trainer, z, facts, Key.from_seed(seed))
    return trainer.train(engine, allowed, facts, init=init)


@pytest.fixture
def silence(monkeypatch):
    """The noise patched to zero."""
    zeros = lambda self, sigma, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(Stream, "discrete_gaussian", zeros)
    monkeypatch.setattr(Stream, "normal", lambda self, count: np.zeros(count))


# Settings


REFUSED = [
    ("steps", [0, -1, 1.5, True, None, "many", math.nan, math.inf], "an integer from 1"),
    ("learning_rate", [0, -1.0, math.nan, math.inf, True, None, "fast"], "a positive number"),
    ("clip", [0, -1.0, math.nan, math.inf, None, "x"], "a positive number"),
    ("intercept_fraction", [0, -0.1, math.nan, None], "a positive number"),
    ("momentum", [-0.1, 1.0, 2, math.nan, None, "x"], r"in \[0, 1\)"),
    ("average", ["mean", None, 3], "one of last, uniform, weighted, converged"),
    ("schedule", ["step", None, 3], "one of constant"),
    ("radius", [0, -1.0, math.nan, "x"], "a positive number or None"),
    ("alpha", [-1.0, math.nan, math.inf, None, "x"], "0 or a positive number"),
    ("anchor", [-1.0, math.nan, math.inf, None, "x"], "0 or a positive number"),
    ("clipping", ["none", None], "flat or per-class"),
]
REFUSALS = [(name, value, allowed) for name, values, allowed in REFUSED for value in values]


@pytest.mark.parametrize("cls", EVERY_TRAINER)
@pytest.mark.parametrize(("name", "value", "allowed"), REFUSALS)
def test_settings_that_make_no_sense_are_refused_by_name(cls, name, value, allowed):
    with pytest.raises(InputError, match=rf"{cls.__name__}\({name}=.*{name} must be {allowed}"):
        cls(**{name: value}).resolve(facts_of())


@pytest.mark.parametrize("value", [0, -1, 61, math.nan, math.inf, "x", None])
def test_an_expected_batch_is_no_larger_than_the_table(value):
    with pytest.raises(InputError, match=r"DPSGD\(batch_size=.*batch_size must be .*60"):
        DPSGD(batch_size=value).resolve(facts_of())


@pytest.mark.parametrize("name", ["radius", "alpha", "anchor", "clipping"])
def test_settings_without_an_automatic_value_do_not_take_auto(name):
    with pytest.raises(InputError, match=f"{name} must be"):
        DPGD(**{name: "auto"}).resolve(facts_of())


@pytest.mark.parametrize("name", ["steps", "batch_size", "clipping"])
def test_settings_trained_together_must_share_what_they_share(name):
    rows, targets, loss = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    other = {"steps": 7, "batch_size": 30, "clipping": "per-class"}[name]
    pair = [complete(DPSGD), complete(DPSGD, **{name: other})]
    with pytest.raises(InputError, match=f"must have the same {name}"):
        train_together(
            engine, pair, rehearsal(pair, [1.0, 1.0], facts_of(), Key.from_seed(0)), facts_of()
        )
    with pytest.raises(InputError, match="must have the same batch_size"):
        train_together(
            engine,
            [complete(DPSGD), complete()],
            rehearsal([complete(DPSGD), complete()], [1.0, 1.0], facts_of(), Key.from_seed(0)),
            facts_of(),
        )


# Without noise: a naive reference


FIXED = [name for name in AVERAGES if name != "converged"]  # which iterates count is known before


def on_grid(weights):
    """Weights as rows of norm 1 meet them."""
    scale = Scale.of(1.0, len(weights), None, 0.0)
    grid = Weights.of(weights[None], scale, "exact")
    return (grid.columns * grid.unit / scale.unit).T


def reference(trainer, rows, targets, loss, *, size, outputs, batches=None, q=1.0, init=None):
    """The same descent with one gradient per row, in plain float64."""
    w = velocity = np.zeros((rows.shape[1], outputs))
    if init is not None:
        w = init * min(1.0, (trainer.radius or np.inf) / np.linalg.norm(init))
    first = w
    iterates = []
    for t in range(trainer.steps):
        kept = np.arange(len(rows)) if batches is None else batches[t]
        residual = loss.residual(rows[kept] @ on_grid(w), targets[kept])
        gradients = rows[kept][:, :, None] * residual[:, None, :]
        axes, limit = ((1, 2), trainer.clip)
        if trainer.clipping == "per-class":
            axes, limit = (1,), trainer.clip / math.sqrt(outputs)
        norms = np.sqrt((gradients**2).sum(axis=axes, keepdims=True))
        total = (gradients * np.minimum(1, limit / np.maximum(norms, 1e-300))).sum(axis=0)
        velocity = trainer.momentum * velocity + total / (q * size)
        velocity = velocity + trainer.alpha * w + trainer.anchor * (w - first)
        left = 1 - t / trainer.steps
        rate = {
            "constant": 1.0,
            "late": min(1.0, 4 * left),
            "linear": left,
            "cosine": (1 + math.cos(math.pi * (1 - left))) / 2,
            "sqrt": 1 / math.sqrt(1 + t),
        }[trainer.schedule]
        w = w - trainer.learning_rate * rate * velocity
        if trainer.radius is not None and np.linalg.norm(w) > trainer.radius:
            w = w * (trainer.radius / np.linalg.norm(w))
        iterates.append(w)
    weights = {
        "last": [0.0] * (trainer.steps - 1) + [1.0],
        "uniform": [1 / trainer.steps] * trainer.steps,
        "weighted": [2 * (t + 1) / (trainer.steps * (trainer.steps + 1)) for t in range(99)],
    }[trainer.average]
    return sum(a * w for a, w in zip(weights, iterates, strict=False))


VARIANTS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "alpha": {"alpha": 0.7},
    "anchor": {"anchor": 0.7},
    "radius": {"radius": 0.2, "learning_rate": 5.0},
    "everything": {"momentum": 0.5, "alpha": 0.3, "radius": 0.4, "average": "weighted"},
    "large clip": {"clip": 100.0},
    "small clip": {"clip": 1e-3, "learning_rate": 300.0},
    **{f"schedule {name}": {"schedule": name} for name in SCHEDULES},
    **{f"average {name}": {"average": name, "learning_rate": 4.0} for name in FIXED},
}


def test_an_anchor_is_algorithm_1_of_li_et_al(silence):
    """x ← x − η(∇f(x) + α(x − x⁽⁰⁾)), and the mean of x⁽¹⁾ … x⁽ᵀ⁾ is returned, as printed."""
    rows, targets, loss = problem()
    eta, alpha = 0.8, 0.6
    first = np.linspace(-2, 1, rows.shape[1])[:, None]
    x, seen = first, []
    for _ in range(5):
        gradient = rows.T @ loss.residual(rows @ x, targets) / len(rows)
        x = x - eta * (gradient + alpha * (x - first))
        seen.append(x)
    printed = {"learning_rate": eta, "average": "uniform", "schedule": "constant", "momentum": 0.0}
    trainer = complete(steps=5, clip=100.0, anchor=alpha, **printed)  # nothing is clipped
    found = run(trainer, rows, targets, loss, init=first)
    assert found == pytest.approx(np.mean(seen, axis=0), abs=1e-6)
    towards_zero = run(replace(trainer, anchor=0.0, alpha=alpha), rows, targets, loss, init=first)
    assert np.linalg.norm(found - towards_zero) > 0.5
    penalised = replace(trainer, anchor=0.0, alpha=alpha)
    from_zero = [run(each, rows, targets, loss) for each in (trainer, penalised)]
    np.testing.assert_array_equal(*from_zero)


@pytest.mark.parametrize("cls", [DPGD, DPSGD])
def test_pulls_cost_nothing_and_noise_follows_the_weights_that_they_lead_to(cls):
    rows, targets, loss = problem()
    facts, start = facts_of(60, rows.shape[1], 1), np.full((rows.shape[1], 1), 0.5)
    seen, told = [], []

    class Listening(cls):
        def reaches(self, norm, moves):
            told.append(norm)
            return super().reaches(norm, moves)

    pulled = replace(complete(cls), alpha=0.3, anchor=0.4)
    assert pulled.events(1.3, facts) == complete(cls).events(1.3, facts)
    trainer = Listening(**pulled.__dict__)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    train_together(
        engine,
        [trainer],
        rehearsal([trainer], [1.0], facts, Key.from_seed(0)),
        facts,
        init=start,
        visit=lambda weights, _: seen.append(np.linalg.norm(weights)),
    )
    assert told == pytest.approx(seen)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.5}, {"anchor": 0.4}])
def test_what_was_shown_on_the_way_stays_as_it_was(settings):
    rows, targets, loss = problem()
    facts, trainer = facts_of(60, rows.shape[1], 1), replace(complete(steps=4), **settings)
    shown, copies = [], []

    def look(*arrays):
        shown.extend(arrays)
        copies.extend(array.copy() for array in arrays)

    train_together(
        Engine(as_rows(rows, bound=1.0), targets, loss),
        [trainer],
        rehearsal([trainer], [1.0], facts, Key.from_seed(0)),
        facts,
        visit=lambda weights, total: look(weights, total.values),
        on_gradient=look,
    )
    assert len(shown) == 12
    for array, copy in zip(shown, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("radius", [None, 0.2])
def test_a_run_that_is_watched_ends_where_one_is_that_nobody_watches(average, radius, monkeypatch):
    """The latter changes weights where they lie, piece by piece."""
    monkeypatch.setattr("tacit.trainers.descent.PIECE", 2)
    rows, targets, loss = problem()
    facts, start = facts_of(60, rows.shape[1], 1), np.full((rows.shape[1], 1), 0.1)

    def weights(**options):
        trainer = complete(steps=5, average=average, radius=radius)
        tokens = rehearsal([trainer], [1.0], facts, Key.from_seed(0))
        engine = Engine(as_rows(rows, bound=1.0), targets, loss)
        return train_together(engine, [trainer], tokens, facts, init=start, **options)

    np.testing.assert_array_equal(weights(), weights(visit=lambda *_: None))
    np.testing.assert_array_equal(start, 0.1)


@pytest.mark.parametrize("begin", [0.0, 0.1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_descent_without_noise_is_the_naive_one(silence, variant, begin):
    rows, targets, loss = problem()
    trainer = complete(**VARIANTS[variant])
    start = np.full((rows.shape[1], 1), begin) if begin else None
    expected = reference(trainer, rows, targets, loss, size=60, outputs=1, init=start)
    found = run(trainer, rows, targets, loss, init=start)
    # The lattice is in proportion to the clip; a weight may round to the next step of its grid.
    assert found == pytest.approx(expected, abs=5e-7 * max(1.0, trainer.clip))
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("clipping", ["flat", "per-class"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_every_loss_without_noise_is_the_naive_one(silence, name, clipping):
    rows, targets, loss = problem(name, outputs=3)
    outputs = 3 if loss.task == "classification" else 1
    # Hinge and absolute loss jump: a rate that does not land on the jump.
    trainer = complete(clipping=clipping, learning_rate=0.37, momentum=0.3, clip=0.21)
    expected = reference(trainer, rows, targets, loss, size=60, outputs=outputs)
    found = run(trainer, rows, targets, loss)
    assert found.shape == (4, outputs)
    assert found == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_sampled_descent_without_noise_is_the_naive_one_on_the_same_batches(silence, variant):
    rows, targets, loss = problem()
    trainer = complete(DPSGD, **VARIANTS[variant])
    q = trainer.sampling_probability(facts_of())
    key = Key.from_seed(3)
    batches = [key.stream("batch", step).include(60, q) for step in range(6)]
    assert len({len(batch) for batch in batches}) > 1
    expected = reference(trainer, rows, targets, loss, size=60, outputs=1, batches=batches, q=q)
    assert run(trainer, rows, targets, loss, seed=3) == pytest.approx(expected, abs=1e-8)


def test_fast_arithmetic_without_noise_is_nearly_the_naive_one(silence):
    rows, targets, loss = problem()
    expected = reference(complete(), rows, targets, loss, size=60, outputs=1)
    found = run(complete(), rows, targets, loss, arithmetic="fast")
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_sums_are_divided_by_the_public_size_whatever_the_rows_are(silence, cls):
    rows, targets, loss = problem()
    trainer = complete(cls, steps=1, average="last")
    sums = []
    for size in (60, 120, 6000):
        if cls is DPSGD:  # the same probability, so the same batch, at every public size
            trainer = complete(cls, steps=1, batch_size=size / 4)
        facts = facts_of(size)
        weights = run(trainer, rows, targets, loss, facts=facts)
        sums.append(-weights * trainer.sampling_probability(facts) * size)
    assert sums[1] == pytest.approx(sums[0], rel=1e-12)
    assert sums[2] == pytest.approx(sums[0], rel=1e-12)


def test_rates_start_at_the_learning_rate_and_never_rise():
    for schedule in SCHEDULES:
        rates = complete(schedule=schedule, learning_rate=3.0, steps=50).rates()
        assert rates.shape == (50,)
        assert rates[0] == pytest.approx(3.0)
        assert (np.diff(rates) <= 0).all() and (rates > 0).all()


# What runs is what was counted


class Records:
    """Streams that were opened, noise that was drawn, batches that were summed."""

    def __init__(self, monkeypatch):
        self.streams, self.draws, self.batches, self.sums = [], [], [], []
        stream, gaussian = Key.stream, Stream.discrete_gaussian
        gradient_sums, add_noise = Engine.gradient_sums, Draws.gaussian

        def spy_stream(key, label, step=0, worker=0):
            self.streams.append((label, step, worker))
            return stream(key, label, step, worker)

        def spy_gaussian(this, sigma, count):
            drawn = gaussian(this, sigma, count)
            self.draws.append((sigma, drawn.copy()))
            return drawn

        def spy_sum(this, weights, clips, *, batch=None, per_class=False):
            self.batches.append(batch)
            return gradient_sums(this, weights, clips, batch=batch, per_class=per_class)

        def spy_noise(this, total, *args):
            self.sums.append(total)
            return add_noise(this, total, *args)

        monkeypatch.setattr(Key, "stream", spy_stream)
        monkeypatch.setattr(Stream, "discrete_gaussian", spy_gaussian)
        monkeypatch.setattr(Engine, "gradient_sums", spy_sum)
        monkeypatch.setattr(Draws, "gaussian", spy_noise)


@pytest.fixture
def records(monkeypatch):
    return Records(monkeypatch)


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_every_step_draws_fresh_noise_once_for_every_weight(records, cls):
    rows, targets, loss = problem("softmax", outputs=3)
    trainer = complete(cls, steps=9)
    run(trainer, rows, targets, loss, z=2.5, intercept=0.1, facts=facts_of(60, 4, 3))
    event = trainer.event(2.5, facts_of())
    noise = [address for address in records.streams if address[0] == "noise"]
    assert event.count == 9 == len(noise) == len(records.batches) == len(records.draws)
    assert len(set(records.streams)) == len(records.streams)
    assert [drawn.size for _, drawn in records.draws] == [5 * 3] * 9
    for i in range(9):
        for j in range(i):
            assert (records.draws[i][1] != records.draws[j][1]).any()


@pytest.mark.parametrize("clip", [0.3, 0.1, 1 / 3, 1.0, 7.7])
@pytest.mark.parametrize("z", [0.5, 1 / 3, 2.5, 1.1, 37.3])
def test_the_noise_drawn_is_never_less_than_the_event_says(records, z, clip):
    rows, targets, loss = problem()
    trainer = complete(steps=2, clip=clip)
    run(trainer, rows, targets, loss, z=z)
    assert trainer.event(z, facts_of()).noise_multiplier == z
    for (sigma, _), total in zip(records.draws, records.sums, strict=True):
        unit = Fraction(clip) / Fraction(total.unit)  # one row, in lattice units
        assert Fraction(accounted_sigma(sigma)) >= Fraction(z) * unit * (1 - Fraction(1, 2**50))
        assert Fraction(accounted_sigma(sigma)) <= Fraction(z) * unit * (1 + Fraction(1, 2**30))


def test_the_noise_drawn_is_exactly_enough_without_a_rounding_error(records):
    rows, targets, loss = problem(n=2)
    rng = np.random.default_rng(0)
    for clip, z in rng.uniform(0.1, 5, size=(40, 2)):
        run(complete(steps=1, clip=float(clip)), rows, targets, loss, z=float(z))
        sigma, total = records.draws[-1][0], records.sums[-1]
        unit = Fraction(float(clip)) / Fraction(total.unit)
        assert Fraction(accounted_sigma(sigma)) >= Fraction(float(z)) * unit


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_the_released_sum_carries_noise_of_the_stated_scale(silence, monkeypatch, arithmetic):
    rows, targets, loss = problem(d=4)
    wide = np.zeros((60, 20_000))
    wide[:, :4] = rows
    trainer = complete(steps=1, learning_rate=1.0, clip=0.3)
    quiet = run(trainer, wide, targets, loss, arithmetic=arithmetic)
    monkeypatch.undo()
    noisy = run(trainer, wide, targets, loss, z=2.0, arithmetic=arithmetic)
    noise = (noisy - quiet).ravel() * 60 / (2.0 * 0.3)
    assert noise.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * noise.size))
    assert kstest(noise, "norm").pvalue > 0.01


def test_full_batches_use_every_row_and_say_so(records):
    rows, targets, loss = problem()
    trainer = complete()
    run(trainer, rows, targets, loss)
    assert records.batches == [None] * 6
    assert {label for label, _, _ in records.streams} == {"noise"}
    assert trainer.event(3.0, facts_of()) == Gaussian(3.0, 6)


def test_the_sampled_event_has_the_probability_that_is_drawn_with():
    for size, batch in [(60, 20), (1000, 1), (7, 7), (10**7, 256), (3, 1), (10, 1e-18)]:
        facts, trainer = facts_of(size), complete(DPSGD, batch_size=batch)
        event = trainer.event(2.0, facts)
        q = trainer.sampling_probability(facts)
        assert event == PoissonGaussian(2.0, 6, sampling_probability=q)
        # A row is drawn with threshold / 2^64, which is what the event says or less.
        assert Fraction(inclusion_threshold(q), 2**64) <= Fraction(q)
        assert Fraction(q) >= Fraction(batch / size)
        assert q == pytest.approx(batch / size, rel=1e-9, abs=2.0**-63)


def test_batches_are_independent_draws_of_every_row(records):
    n, steps, q = 40, 1500, 0.25
    rows, targets, loss = problem(n=n)
    trainer = complete(DPSGD, steps=steps, batch_size=q * n, learning_rate=1e-3)
    run(trainer, rows, targets, loss)
    member = np.zeros((steps, n))
    for step, batch in enumerate(records.batches):
        member[step, batch] = 1
    assert [a for a in records.streams if a[0] == "batch"] == [
        ("batch", t, 0) for t in range(steps)
    ]
    # How often, over all and for each row.
    deviation = math.sqrt(q * (1 - q) / (n * steps))
    assert member.mean() == pytest.approx(q, abs=4 * deviation)
    per_row = member.sum(axis=0)
    assert ((per_row - q * steps) ** 2).sum() / (steps * q * (1 - q)) == pytest.approx(n, abs=36)
    # Sizes vary as a binomial's do: batches of a fixed size would not.
    sizes = member.sum(axis=1)
    assert sizes.var() == pytest.approx(n * q * (1 - q), rel=0.15)
    # Pairs of rows, and of steps, meet as often as independent ones.
    centred = member - q
    pairs = centred.T @ centred / steps
    off = pairs[~np.eye(n, dtype=bool)]
    assert np.abs(off).max() < 5 * q * (1 - q) / math.sqrt(steps)
    later = (centred[1:] * centred[:-1]).mean()
    assert abs(later) < 4 * q * (1 - q) / math.sqrt(n * steps)
    observed = np.bincount(np.clip(sizes.astype(int), 4, 16) - 4, minlength=13)
    probabilities = np.array([math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)])
    expected = np.r_[probabilities[:5].sum(), probabilities[5:16], probabilities[16:].sum()] * steps
    assert chisquare(observed, expected).pvalue > 0.01


def test_empty_batches_add_noise_and_count(records):
    rows, targets, loss = problem()
    trainer = complete(DPSGD, steps=5, batch_size=1e-6)
    weights = run(trainer, rows, targets, loss, z=1.5)
    assert [len(batch) for batch in records.batches] == [0] * 5
    assert all((total.values == 0).all() for total in records.sums)
    assert len(records.draws) == 5 == trainer.event(1.5, facts_of()).count
    # The weights are the noise, divided by the expected size of a batch all the same.
    noise = sum(drawn for _, drawn in records.draws).astype(float)[:, None]
    q = trainer.sampling_probability(facts_of())
    expected = -noise * records.sums[0].unit / (q * 60)
    assert weights == pytest.approx(expected, rel=1e-12)


def test_a_table_without_rows_gives_noise_under_a_public_size(records):
    loss = get_loss("logistic")
    for cls in EVERY_TRAINER:
        weights = run(
            complete(cls), np.empty((0, 4)), np.empty((0, 1)), loss, facts=facts_of(60), z=1.0
        )
        assert np.isfinite(weights).all() and (weights != 0).all()


# Together


class Shifted:
    """A key that answers with the noise of another setting."""

    def __init__(self, key, setting):
        self.key, self.setting = key, setting

    def stream(self, label, step=0, worker=0):
        return self.key.stream(label, step, worker + (self.setting if label == "noise" else 0))


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_settings_together_are_the_settings_one_by_one(cls, arithmetic):
    rows, targets, loss = problem("softmax", outputs=3)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
    trainers = [
        complete(cls),
        complete(cls, clip=0.05, learning_rate=9.0, momentum=0.9, schedule="linear"),
        complete(cls, radius=0.3, alpha=0.5, average="uniform"),
    ]
    noise, facts = [1.0, 0.4, 3.0], facts_of(60, 4, 3)
    together = train_together(
        engine, trainers, rehearsal(trainers, noise, facts, Key.from_seed(0)), facts
    )
    assert together.shape == (3, 4, 3)
    for s, trainer in enumerate(trainers):
        alone = trainer.train(
            engine, run_of(trainer, noise[s], facts, Shifted(Key.from_seed(0), s)), facts
        )
        if arithmetic == "exact":
            assert (together[s] == alone).all()
        else:
            assert together[s] == pytest.approx(alone, abs=1e-5)


def test_each_setting_has_noise_of_its_own(records):
    rows, targets, loss = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    train_together(
        engine,
        [complete(), complete()],
        rehearsal([complete(), complete()], [1.0, 1.0], facts_of(), Key.from_seed(0)),
        facts_of(),
    )
    assert len(records.draws) == 12
    for first, second in zip(records.draws[::2], records.draws[1::2], strict=True):
        assert (first[1] != second[1]).all()


@pytest.mark.parametrize("z", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_is_none_is_refused(z):
    rows, targets, loss = problem()
    with pytest.raises(InputError):
        run(complete(), rows, targets, loss, z=z)


# One step, attacked


def neighbours(rng, loss, outputs, n=6, d=3):
    """Rows and targets, and one more row with its target: adversarial ones among them."""
    scale = rng.choice([1.0, 1.0, 1e-3, 1e3, 1e8], size=(n + 1, 1))
    rows = rng.normal(size=(n + 1, d)) * scale
    rows[rng.random(size=rows.shape) < 0.2] = 0.0
    if loss.task == "regression":
        values = rng.normal(size=n + 1) * rng.choice([1.0, 1e6, 1e-9], size=n + 1)
    else:
        values = rng.integers(0, max(2, outputs), n + 1)
    return rows, loss.targets(values, outputs)


def squared(values):
    return sum(int(v) ** 2 for v in np.ravel(values))


def first_sum(trainer, rows, targets, loss, *, outputs, **options):
    """The exact integers of a trainer's first noiseless sum, and one row's share in them."""
    facts, quiet = facts_of(6, rows.shape[1], outputs), Quiet()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, **options)
    trainer.train(engine, run_of(trainer, 1.0, facts, Key.from_seed(0), quiet), facts)
    total, deviation = quiet.asked[0]
    assert deviation == math.nextafter(trainer.clip, math.inf)
    return total.values, Fraction(trainer.clip) / Fraction(total.unit)


@pytest.mark.parametrize("clipping", ["flat", "per-class"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_no_neighbour_moves_a_step_beyond_the_clip(name, clipping):
    rng = np.random.default_rng(0)
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    trainer = complete(steps=1, clip=0.3, clipping=clipping)
    for trial in range(12):
        rows, targets = neighbours(rng, loss, outputs)
        kind = sp.csr_array if trial % 3 == 0 else np.asarray
        options = {"intercept": 0.1} if trial % 2 else {}

        def total(index, rows=rows, targets=targets, kind=kind, options=options):
            return first_sum(
                trainer,
                kind(rows[index]),
                targets[index],
                loss,
                outputs=outputs,
                **options,
            )

        whole, unit = total(np.arange(7))
        without, _ = total(np.arange(6))  # remove one, or swap it for a row that counts nothing
        assert squared(whole - without) <= unit**2
        replaced, _ = total(np.r_[np.arange(5), 6])
        assert squared(without - replaced) <= (2 * unit) ** 2
        moved, _ = total(np.arange(7)[::-1])
        assert (whole == moved).all()


@pytest.mark.parametrize("clip", [0.3, 0.01, 1.0])
def test_the_attack_reaches_the_bound_and_no_further(clip):
    # Opposite rows with the same label: one leaves at the clip, the other enters at it.
    loss = get_loss("logistic")
    trainer = complete(steps=1, clip=clip)
    rng = np.random.default_rng(0)
    best = Fraction(0)
    for _ in range(60):
        row = rng.normal(size=(1, 3)) * rng.choice([1.0, 30.0])
        common = rng.normal(size=(2, 3))
        targets = loss.targets([0, 1, 0], 1)
        sums = [
            first_sum(trainer, np.concatenate([common, one]), targets, loss, outputs=1)
            for one in (row, -row)
        ]
        distance = Fraction(squared(sums[0][0] - sums[1][0])) / sums[0][1] ** 2
        assert distance <= 4
        best = max(best, distance)
    if clip < 0.1:  # every row is clipped
        assert best > Fraction(4) * (1 - Fraction(1, 10**6))


# Steps and rate by Song et al. 2021, Theorem 3.1


def test_a_bound_on_the_norm_sets_steps_and_rate_by_the_theorem():
    loss = get_loss("logistic")
    facts = PublicFacts(500, 7, 1, 1.0, 0.05, loss=loss)
    found = DPGD(norm=2.0, rank=3).resolve(facts)
    clip = math.sqrt(1 + 0.1**2)  # L, with the constant feature
    steps = math.ceil((500 * 0.05) ** 2)
    assert (found.steps, found.clip) == (steps, pytest.approx(clip))
    variance = steps * (clip / (500 * 0.05)) ** 2  # of a step's noise on the mean gradient
    rate = 2.0 / math.sqrt((steps + 1) * (clip**2 + 3 * variance))
    assert found.learning_rate == pytest.approx(rate)
    assert (found.momentum, found.average, found.schedule) == (0.0, "uniform", "constant")


def test_what_is_given_stays_beside_a_norm():
    facts = PublicFacts(10**6, 7, 1, 1.0, 1.0, loss=get_loss("logistic"))
    assert DPGD(norm=2.0).resolve(facts).steps == MOST_STEPS
    found = DPGD(norm=2.0, steps=50, clip=0.25, momentum=0.5, average="last").resolve(facts)
    assert (found.steps, found.clip, found.momentum, found.average) == (50, 0.25, 0.5, "last")
    full = DPGD(norm=2.0, steps=50, clip=0.25).resolve(facts)
    assert found.learning_rate == pytest.approx(full.learning_rate / 2)
    low = DPGD(norm=2.0, steps=50, clip=0.25, rank=1).resolve(facts)
    assert low.learning_rate > full.learning_rate
    # Every output has noise of its own.
    many = DPGD(norm=2.0, steps=10_000, clip=0.25).resolve(PublicFacts(100, 7, 5, 1.0, 1.0))
    one = DPGD(norm=2.0, steps=10_000, clip=0.25).resolve(PublicFacts(100, 7, 1, 1.0, 1.0))
    assert many.learning_rate == pytest.approx(one.learning_rate / math.sqrt(5), rel=0.06)


def test_the_theorem_is_refused_where_it_says_nothing():
    with pytest.raises(InputError, match="is for convex losses, not 'savage'"):
        DPGD(norm=1.0).resolve(facts_of(loss=get_loss("savage")))
    with pytest.raises(InputError, match="have no bound; pass clip="):
        DPGD(norm=1.0).resolve(facts_of(loss=get_loss("squared")))
    with pytest.raises(InputError, match="of use with norm= only"):
        DPGD(rank=3).resolve(facts_of())
    for bad in (0, -1.0, math.nan, "x"):
        with pytest.raises(InputError, match="norm must be"):
            DPGD(norm=bad).resolve(facts_of())


def test_the_bound_of_the_theorem_holds_on_average():
    """Excess of the mean iterate over seeds, against N·L·√((1 + 1/T)(1/T + r/(nμ)²))."""
    rng = np.random.default_rng(0)
    rows = np.rint(rng.uniform(-0.5, 0.5, size=(200, 3)) * 256) / 256
    loss = get_loss("logistic")
    targets = loss.targets((rng.random(200) < 0.5 + rows[:, 0]).astype(int), 1)
    facts = PublicFacts(200, 3, 1, 1.0, 0.1, loss=loss)
    best = np.zeros(3)
    for _ in range(2000):
        slope = loss.residual(rows @ best[:, None], targets)
        best -= 2.0 * (rows * slope).mean(axis=0)
    value = lambda theta: loss.value(rows @ theta.reshape(3, 1), targets).mean()  # noqa: E731
    trainer = DPGD(norm=float(np.linalg.norm(best)), rank=3).resolve(facts)
    z = math.sqrt(trainer.steps) / facts.mu
    lost = [value(run(trainer, rows, targets, loss, z=z, seed=s, facts=facts)) for s in range(40)]
    n, steps = trainer.norm * trainer.clip, trainer.steps
    bound = n * math.sqrt((1 + 1 / steps) * (1 / steps + 3 / (200 * 0.1) ** 2))
    assert np.mean(lost) - value(best) <= bound
