"""Directions of a run's gradients: against full decompositions, and what may go out of them."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from tacit.diagnostics import NotReleasable, inspect
from tacit.diagnostics.page import render_page
from tacit.diagnostics.text import render_inspection
from tacit.exceptions import InputError, MissingBound
from tacit.preprocessing import ClipNorm, NoiselessPCA, Normalize
from tacit.privacy.accounting.accountants import epsilon
from tacit.research.trainers import FlattestDPGD, GammaSGD
from tacit.research.trajectories import (
    Directions,
    RowFile,
    Sketch,
    row_file,
    trajectory,
    trajectory_privately,
)
from tacit.research.trajectories.sketch import Pass
from tacit.trainers import DPGD, DPSGD


def falling(r=300, p=600, decay=0.6, seed=0):
    """A matrix whose singular values are k^-decay."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(r, r)))[0]
    right = np.linalg.qr(rng.normal(size=(p, r)))[0]
    return (left * np.arange(1, r + 1) ** -decay) @ right.T


def sketched(matrix, k, **options):
    sketch = Sketch(k, **options)
    for row in matrix:
        sketch.add(row)
    return sketch.directions()


def again(matrix, start):
    further = Pass(start)
    for row in matrix:
        further.add(row)
    return further.directions()


def labelled(n=600, d=12, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.normal(size=(n, d)) + 2 * np.eye(3, d)[y], y


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [5, 40])
def test_a_sketch_agrees_with_the_full_decomposition(k, dtype):
    matrix = falling()
    truth, directions = np.linalg.svd(matrix, full_matrices=False)[1:]
    first = sketched(matrix, k, dtype=dtype)
    assert len(first.values) >= k and first.rows == 300
    found = again(matrix, again(matrix, first)).first(k)
    rounding = 1e-12 if dtype is np.float64 else 1e-5
    for each, close in ((first.first(k), 0.15), (found, 0.02)):
        assert each.values == pytest.approx(truth[:k], rel=close)
        assert (each.values <= truth[:k] * (1 + rounding)).all()
        assert (truth[:k] <= each.at_most * (1 + rounding)).all()
        unit = each.vectors @ each.vectors.T
        assert unit == pytest.approx(np.eye(k), abs=1e-12 if dtype is np.float64 else 1e-5)
        assert each.square == pytest.approx((truth**2).sum(), rel=1e-5)
    assert found.values[: k // 2] == pytest.approx(truth[: k // 2], rel=1e-2)
    # The first direction is that of the decomposition.
    assert abs(found.vectors[0] @ directions[0]) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_singular_values_lie_between_the_ends_that_are_told(seed):
    rng = np.random.default_rng(seed)
    r, p, k = rng.integers([2, 2, 1], [120, 60, 12])
    matrix = rng.normal(size=(r, p)) * np.exp(rng.normal(size=p) * 2)
    if seed % 2:  # what comes late is larger than all before
        matrix *= np.geomspace(1e-3, 1e3, r)[:, None]
    truth = np.linalg.svd(matrix, compute_uv=False)
    for found in (first := sketched(matrix, int(k), spare=1), again(matrix, first)):
        many = len(found.values)
        assert (found.values <= truth[:many] * (1 + 1e-9)).all()
        assert (found.at_most >= truth[:many] * (1 - 1e-9)).all()
        assert (np.diff(found.explained) >= -1e-12).all() and found.explained[-1] <= 1


def test_few_rows_are_decomposed_exactly():
    matrix = falling(r=20, p=50)
    found = sketched(matrix, 20)
    truth = np.linalg.svd(matrix, compute_uv=False)
    assert found.values == pytest.approx(truth, rel=1e-9)
    assert found.at_most == pytest.approx(truth, rel=1e-9)
    assert found.explained[-1] == pytest.approx(1.0)
    row = np.random.default_rng(0).normal(size=20) @ matrix
    assert found.project(row) == pytest.approx(row, abs=1e-10)


def test_memory_is_for_the_directions_and_not_for_the_steps():
    rng = np.random.default_rng(0)
    p, k, r = 20_000, 4, 200
    row = np.empty(p)

    def measure(work):
        tracemalloc.start()
        work()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / (8 * p)  # in rows

    def rows():
        for _ in range(r):
            rng.standard_normal(out=row)
            yield row

    kept = []
    assert measure(lambda: kept.append(sketched(rows(), k))) < 2 * (k + 4) + 16
    assert measure(lambda: again(rows(), kept[0].first(k))) < 2 * (k + 4) + 16


def in_a_file(matrix, folder, **options):
    rows = RowFile(folder, **options)
    for row in matrix:
        rows.add(row)
    return rows.directions()


def test_rows_in_a_file_have_the_values_and_vectors_of_the_full_decomposition(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(row_file, "PANEL", 512)
    monkeypatch.setattr(row_file, "GATHERED", 40_000)  # so that 15 rows wait to be written
    matrix = falling(100, 1300)
    truth, directions = np.linalg.svd(matrix, full_matrices=False)[1:]
    found = in_a_file(matrix, tmp_path)
    assert not list(tmp_path.iterdir())  # a file without a name
    assert len(found.values) == found.rows == 100
    assert (found.values < truth).all() and (truth < found.at_most).all()
    assert (found.at_most < 1.01 * found.values).all()
    # The ends are those of the worst rounding; it is most often in the middle of them.
    assert (found.at_most + found.values) / 2 == pytest.approx(truth, rel=1e-5)
    assert found.vectors @ found.vectors.T == pytest.approx(np.eye(100), abs=1e-5)
    along = np.abs((found.vectors * directions).sum(axis=1))
    assert along == pytest.approx(np.ones(100), abs=1e-3)
    assert found.square == pytest.approx((truth**2).sum(), rel=1e-12)
    assert 0.99 < found.explained[-1] < 1
    few = in_a_file(matrix, tmp_path, vectors=3)
    assert np.array_equal(few.values, found.values) and few.vectors.shape == (3, 1300)
    assert few.vectors == pytest.approx(found.vectors[:3], abs=1e-5)
    none = in_a_file(matrix, tmp_path, vectors=0)
    assert np.array_equal(none.values, found.values) and none.vectors.shape == (0, 1300)


@pytest.mark.parametrize("seed", range(10))
def test_what_a_file_rounds_away_is_between_the_ends_or_not_told(seed, tmp_path):
    rng = np.random.default_rng(seed)
    r, p = rng.integers([2, 2], [60, 700])
    matrix = rng.normal(size=(r, p)) * np.exp(rng.normal(size=p) * 4)
    matrix *= np.geomspace(1e-4, 10.0 ** rng.integers(-40, 30), r)[:, None]
    matrix[0] = 0.0
    matrix[-1, : p // 2] = np.abs(matrix[-1]).max() * (1 - 2.0**-20)  # largest integers
    found = in_a_file(matrix, tmp_path, vectors=1)
    truth = np.linalg.svd(matrix, compute_uv=False)
    many = len(found.values)
    assert many >= 1 or truth[0] < 1e-30
    assert (found.values <= truth[:many]).all() and (found.at_most >= truth[:many]).all()
    assert (found.at_most <= row_file.TOLD * found.values).all()


def test_a_row_file_refuses_what_it_cannot_use(tmp_path):
    with pytest.raises(InputError, match="vectors=-1"):
        RowFile(tmp_path, vectors=-1)
    rows = RowFile(tmp_path)
    with pytest.raises(InputError, match="rows are needed"):
        rows.directions()
    rows.add(np.ones(3))
    with pytest.raises(InputError, match="4 entries"):
        rows.add(np.ones(4))
    for value in (np.nan, np.inf, 1e39):
        with pytest.raises(InputError, match="single precision"):
            rows.add(np.array([1.0, value, 0.0]))
    assert rows.directions().values == pytest.approx([3**0.5], rel=1e-4)
    with pytest.raises(InputError, match="answer once"):
        rows.directions()
    assert len(in_a_file(np.zeros((3, 4)), tmp_path).values) == 0


def test_a_sketch_refuses_what_it_cannot_use():
    with pytest.raises(InputError, match="at least 1"):
        Sketch(0)
    with pytest.raises(InputError, match="needs rows"):
        Sketch(2).directions()
    sketch = Sketch(2)
    sketch.add(np.ones(3))
    with pytest.raises(InputError, match="4 entries"):
        sketch.add(np.ones(4))
    with pytest.raises(InputError, match="no finite number"):
        sketch.add(np.array([1.0, np.nan, 0.0]))
    assert len(sketched(np.zeros((3, 4)), 2).values) == 0


@pytest.mark.parametrize("decay", [0.3, 0.6, 1.5])
def test_the_power_of_a_trajectory_is_the_planted_one(decay, monkeypatch):
    """Through all of `follow`: an engine whose gradients were made in advance."""
    import sys

    module = sys.modules["tacit.research.trajectories.trajectory"]
    from tacit.engine.engine import LatticeSum
    from tacit.trainers.settings import PublicFacts

    matrix = falling(r=100, p=400, decay=decay)

    class Planted:
        n, d, split = 50, 400, None

        def __enter__(self):
            self.step = 0
            return self

        def __exit__(self, *error):
            pass

        def gradient_sums(self, weights, clips, *, batch=None, per_class=False):
            self.step += 1
            total = 50 * matrix[self.step - 1].reshape(1, 400, 1)
            return [LatticeSum(total, np.ones(1), clips[0])]

    settings = {"learning_rate": 1.0, "momentum": 0.0, "average": "last", "schedule": "constant"}
    run = module.Run(
        Planted(),
        DPGD(steps=100, clip=1.0, intercept_fraction=0.1, **settings),
        PublicFacts(50, 400, 1, 1.0, 1.0),
        1.0,
        score=lambda weights: 0.0,
    )
    found = module.follow(run, components=100, retrain=[1, 5], passes=2, measure="accuracy")
    assert found.singular_values == pytest.approx(np.arange(1, 101) ** -decay, rel=1e-6)
    assert found.law.decay == pytest.approx(decay, abs=1e-6)
    assert found.law.fit == pytest.approx(1.0)


@pytest.mark.parametrize(
    "trainer", [DPGD(steps=40, clip=0.1), DPSGD(steps=40, clip=0.1, batch_size=100)]
)
def test_all_directions_are_as_good_as_no_projection(trainer):
    X, y = labelled()
    found = trajectory(X, y, trainer=trainer, retrain=[1, 1000], epsilon=None)
    rank = len(found.singular_values)
    assert found.kept == (1,) and rank <= 39  # (12 + 1) · 3 parameters, which sum to zero
    whole = trajectory(X, y, trainer=trainer, retrain=[rank], epsilon=None)
    assert whole.kept == (rank,) and whole.scores == (whole.score,)
    assert whole.score > 0.6


def test_projected_weights_are_those_without_projection_if_nothing_is_lost():
    import sys

    module = sys.modules["tacit.research.trajectories.trajectory"]
    X, y = labelled()
    ready = module.rehearse(X, y, loss=None, centre=True, most_values=1 << 20)
    train, test = module.split_rows(ready)
    run = module.linear_run(train, test, DPGD(steps=30, clip=0.1), (1.0, 1e-6), 0)
    sketch = Sketch(39)
    free = run.train(on_gradient=sketch.add)
    found = sketch.directions()
    assert run.train(within=found) == pytest.approx(free, abs=1e-6)
    few = run.train(within=found.first(1))
    assert np.abs(few - free).max() > 1e-3
    # Noise stays in all directions, as in the paper; only what it is added to is projected.
    outside = few.reshape(-1) - found.first(1).project(few.reshape(-1))
    assert np.linalg.norm(outside) > 0


def test_few_directions_do_where_classes_differ_in_few():
    X, y = labelled(3000, 40)
    found = trajectory(X, y, trainer=DPGD(steps=60), epsilon=4.0, retrain=[2, 20])
    assert found.scores[0] > found.score - 0.03
    assert found.explained[2] > 0.7 and found.law.decay > 0.6


def test_more_passes_bring_the_values_up():
    X, y = labelled(400, 60)
    options = {"trainer": DPSGD(steps=120, clip=0.1, batch_size=40), "retrain": [], "epsilon": None}
    one, three = (trajectory(X, y, components=8, passes=n, **options) for n in (1, 3))
    assert three.passes == 3 and (three.singular_values >= one.singular_values * (1 - 1e-9)).all()
    assert (three.at_most <= one.at_most * (1 + 1e-9)).all()


def test_regression_has_its_own_measure():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 6)) / 3
    found = trajectory(X, np.tanh(X[:, 0]), loss="squared", epsilon=8.0, retrain=[1])
    assert found.measure == "R²" and found.score > 0.2
    assert trajectory(X, X[:, 0], loss="squared", epsilon=None, retrain=[]).noise < 1e-300


def test_private_gradients_are_not_releasable(tmp_path):
    X, y = labelled()
    found = trajectory(X, y, trainer=DPGD(steps=20), retrain=[1])
    assert isinstance(found, NotReleasable) and not found.releasable
    told = json.loads(json.dumps(found.to_dict()))
    assert told["releasable"] is False and "directions" not in told
    assert "NOT RELEASABLE" in str(found)


def test_what_a_trajectory_refuses():
    X, y = labelled(60)
    with pytest.raises(InputError, match="held out"):
        trajectory(X[:8], y[:8])
    with pytest.raises(InputError, match="DPGD or DPSGD"):
        trajectory(X, y, trainer=GammaSGD())
    for name in ("components", "passes"):
        with pytest.raises(InputError, match=f"{name}=0"):
            trajectory(X, y, **{name: 0})
    with pytest.raises(InputError, match="retrain=0"):
        trajectory(X, y, retrain=[0])
    with pytest.raises(InputError, match="one for each"):
        trajectory(X, y[:5])


def test_an_inspection_shows_it():
    X, y = labelled(300)
    found = inspect(X, y, trajectory=True)
    assert found.to_dict()["trajectory"]["steps"] == found.trajectory.steps
    text, page = render_inspection(found), render_page(found)
    assert "gradients of a run fall as" in text and "accuracy with k directions" in text
    assert "Singular values of a run" in page and "NOT RELEASABLE" in page
    assert inspect(X, y).trajectory is None
    with pytest.raises(InputError, match="a run needs labels"):
        inspect(X, trajectory=True)


# --- From noisy gradients -------------------------------------------------------------------------


def test_released_directions_carry_the_certificate_of_their_run():
    X, y = labelled(2000, 10)
    options = {"epsilon": 2.0, "delta": 1e-6, "classes": [0, 1, 2]}
    found = trajectory_privately(X, y, **options, trainer=DPGD(steps=25))
    assert found.releasable and found.certificate is found.fit.certificate
    assert found.certificate.verify().holds
    events = [expense.event for expense in found.certificate.events]
    assert epsilon(events, 1e-6, "replace_special") <= 2.0
    assert found.above_noise >= 1 and len(found.singular_values) == 25
    assert json.loads(json.dumps(found.to_dict()))["certificate"]["epsilon"] == 2.0
    seeded = trajectory_privately(X, y, **options, trainer=DPGD(steps=5), random_state=0)
    assert not seeded.releasable and "seeded" in seeded.certificate.reasons[0]


def test_directions_of_sampled_steps_are_released_as_well():
    X, y = labelled(500, 4)
    found = trajectory_privately(
        X,
        y,
        epsilon=2.0,
        delta=1e-6,
        classes=[0, 1, 2],
        trainer=DPSGD(steps=4, batch_size=100),
        components=2,
    )
    assert found.releasable and len(found.singular_values) == 2
    sampled = found.certificate.events[-1].event
    assert sampled.kind == "poisson-gaussian" and sampled.count == 4


def test_released_directions_are_those_of_the_noisy_gradients_and_of_nothing_else():
    """The model follows from the noisy gradients alone, so they are what the trainer released."""
    X, y = labelled(500, 4)
    plain = {"momentum": 0.0, "average": "last", "schedule": "constant", "intercept_fraction": 0.1}
    trainer = DPGD(steps=6, clip=0.1, learning_rate=3.0, **plain)
    shown = []
    sketch = Sketch.add
    try:
        Sketch.add = lambda self, row: (shown.append(np.array(row)), sketch(self, row))[1]
        found = trajectory_privately(
            X,
            y,
            epsilon=1.0,
            delta=1e-6,
            classes=[0, 1, 2],
            stages=[Normalize()],
            trainer=trainer,
            random_state=1,
        )
    finally:
        Sketch.add = sketch
    weights = -3.0 * sum(shown)[0]
    assert found.fit.coef == pytest.approx(weights[:-1].T, rel=1e-9)
    values = np.linalg.svd(np.stack([g.reshape(-1) for g in shown]), compute_uv=False)
    assert found.singular_values == pytest.approx(values, rel=1e-9)


def test_pure_noise_stays_below_the_edge():
    """Labels without meaning: nothing is seen, in any of some runs (5% each by the bound)."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 30)), rng.integers(0, 2, 300)
    options = {"epsilon": 0.05, "delta": 1e-6, "classes": [0, 1], "stages": [ClipNorm(1.0)]}
    trainer = DPGD(steps=20, clip=0.1)
    seen = [
        trajectory_privately(X, y, **options, trainer=trainer, random_state=i).above_noise
        for i in range(8)
    ]
    assert sum(seen) <= 2


def test_what_a_released_trajectory_refuses():
    X, y = labelled(100)
    options = {"epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(MissingBound, match="classes="):
        trajectory_privately(X, y, **options)
    with pytest.raises(InputError, match="not among the classes"):
        trajectory_privately(X, y, **options, classes=[0, 1])
    with pytest.raises(MissingBound, match="public_size="):
        trajectory_privately(X, y, **options, classes=[0, 1, 2], neighbors="add_or_remove_one")
    with pytest.raises(InputError, match="does not cover the gradients"):
        trajectory_privately(X, y, **options, classes=[0, 1, 2], trainer=FlattestDPGD())
    with pytest.raises(InputError, match="noiseless stage"):
        trajectory_privately(X, y, **options, classes=[0, 1, 2], stages=[NoiselessPCA(2, gap=0.1)])


def test_directions_project_onto_themselves():
    vectors = np.eye(3)[:2]
    found = Directions(np.ones(2), np.ones(2), vectors, 2.0, 2)
    assert found.project(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 0.0]
    assert found.first(1).project(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 0.0, 0.0]
    assert found.explained.tolist() == [0.0, 0.5, 1.0]
