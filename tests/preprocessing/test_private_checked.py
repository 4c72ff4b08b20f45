"""Components of public rows, kept where private rows lie along them."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import Quiet

from tacit import DPLinearClassifier, DPSearch, load, recipe, save
from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.plan import Plan
from tacit.preprocessing import (
    ClipNorm,
    Context,
    Normalize,
    PrivateCheckedPCA,
    PublicCenter,
    SoftPCA,
)
from tacit.privacy import Budget
from tacit.privacy.events import Gaussian
from tacit.privacy.sensitivity.drift import Drift
from tacit.trainers import DPGD

D = 8
SCALES = np.arange(1, D + 1) ** -1.0


def rows_of(n, seed, scales=SCALES):
    return np.random.default_rng(seed).normal(size=(n, len(scales))) * scales


PUBLIC = rows_of(400, 1) / 4
LIKE, UNLIKE = rows_of(2000, 2) / 4, rows_of(2000, 2, SCALES[::-1]) / 4
LABELS = (LIKE[:, 0] > 0).astype(int)


def fitted(rows, z=3.0, seed=0, bound=1.0, **settings):
    stage = PrivateCheckedPCA(PUBLIC, 3, **settings)
    given = as_rows(rows, bound=bound)
    context = Context.paid(Gaussian(z), given.n, key=Key.from_seed(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return stage.fit(given, context)


def energies(rows, bound=1.0):
    """What would be released if there were no noise, and the noise that there would be."""
    quiet = Quiet()
    run = Releases(Key.from_seed(0), [("stage", Gaussian(3.0))], draws=quiet)
    given = as_rows(rows, bound=bound)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PrivateCheckedPCA(PUBLIC, 3).fit(given, Context(given.n, run.token("stage")))
    ((total, deviation),) = quiet.asked
    assert deviation == pytest.approx(3.0, rel=1e-9)
    return total.values * total.unit


# What is released


def test_energies_are_those_of_rows_shortened_to_the_norm_of_public_ones():
    rows = rows_of(50, 3) * np.geomspace(1e-3, 1, 50)[:, None]
    values, vectors = np.linalg.eigh(PUBLIC.T @ PUBLIC)
    radius = min(math.sqrt(values.sum() / len(PUBLIC)), 0.9)
    short = rows * np.minimum(1, radius / np.linalg.norm(rows, axis=1))[:, None]
    kept = ((short @ vectors[:, -3:]) ** 2).sum() / radius**2
    lost = (short**2).sum() / radius**2 - kept
    for given in (rows, sp.csr_array(rows), np.asfortranarray(rows)):
        assert energies(given, bound=0.9) == pytest.approx([kept, lost], rel=1e-5)


def test_no_row_counts_for_more_than_one_and_no_other_in_its_place_for_more_than_root_two():
    rng = np.random.default_rng(4)
    rows = np.concatenate([rows_of(60, 5), np.eye(D), 1e6 * np.eye(D), 1e-200 * np.eye(D)])
    rows = np.concatenate([rows, 10.0 ** rng.uniform(-308, 308, (20, D))])
    found = np.array([energies(row[None]) for row in rows])
    assert (found >= 0).all() and np.linalg.norm(found, axis=1).max() <= 1
    assert found.sum(axis=1).max() <= 1 + 1e-12
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    assert 1.3 < apart.max() <= math.sqrt(2)  # of which 2 is counted


def test_one_row_moves_the_energies_of_a_table_by_what_it_counts_for():
    table = rows_of(200, 6)
    whole = energies(table)
    for i in range(0, 200, 20):
        assert np.linalg.norm(whole - energies(np.delete(table, i, axis=0))) <= 1
        other = table.copy()
        other[i] = 1e9 * np.eye(D)[i // 20 % D]
        assert np.linalg.norm(whole - energies(other)) <= math.sqrt(2)


# What is found


def test_like_rows_are_projected_and_others_are_kept_whole():
    like, unlike = fitted(LIKE), fitted(UNLIKE)
    assert like.alike_ and like.transform(LIKE).shape == (2000, 3)
    assert like.kept_share == pytest.approx(like.expected_share_, abs=0.05)
    assert not unlike.alike_ and unlike.kept_share < 0.3 < unlike.expected_share_
    assert unlike.transform(UNLIKE) == pytest.approx(UNLIKE)
    assert unlike.bound(1.0, D) == 1.0 and unlike.width(D) == D
    coef, intercept = unlike.fold(np.ones((1, D)), np.zeros(1))
    assert coef.shape == (1, D) and not intercept.any()


def test_the_error_that_is_stated_is_that_of_the_noise():
    found = [fitted(LIKE, z=60.0, seed=seed) for seed in range(60)]
    spread = np.std([stage.kept_share for stage in found])
    stated = np.mean([stage.kept_share_error for stage in found])
    assert spread == pytest.approx(stated, rel=0.35)
    assert "±" in found[0].found()
    assert "a part that noise hides" in fitted(LIKE[:20], z=60.0).found()


def test_rows_that_keep_just_enough_are_hardly_ever_taken_for_strangers():
    # All doubt is noise: 3 deviations, one time in 740.
    just = np.zeros((200, D))
    stage = fitted(LIKE)
    share = stage.least * stage.expected_share_
    just[:, 0], just[:, -1] = math.sqrt(share) / 2, math.sqrt(1 - share) / 2
    stage = fitted(just)
    assert stage.kept_share == pytest.approx(share, abs=0.1)
    missed = [not fitted(just, z=30.0, seed=seed).alike_ for seed in range(300)]
    assert sum(missed) <= 4


def test_whoever_asks_for_a_warning_only_is_warned_and_given_components():
    with pytest.warns(UserWarning, match="unlike the private ones.*projected all the same"):
        stage = PrivateCheckedPCA(PUBLIC, 3, noise_multiplier=3.0, otherwise="warn")
        stage.fit(as_rows(UNLIKE, bound=1.0))
    assert stage.transform(UNLIKE).shape == (2000, 3)
    assert stage.widest(D) == 3
    with pytest.warns(UserWarning, match="no column was left out"):
        stage = PrivateCheckedPCA(PUBLIC, 3, noise_multiplier=3.0)
        stage.fit(as_rows(UNLIKE, bound=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stage.fit(as_rows(LIKE, bound=1.0))  # again, and nothing is left of the first time
    assert stage.transform(LIKE).shape == (2000, 3) and not stage.cautions()


def test_settings_that_mean_nothing_are_refused():
    for least in (0, -1.0, 1.1, True):
        with pytest.raises(InputError, match="least must lie in"):
            PrivateCheckedPCA(PUBLIC, 3, least=least)
    with pytest.raises(InputError, match="must be one of keep, warn"):
        PrivateCheckedPCA(PUBLIC, 3, otherwise="stop")


def test_rows_that_have_moved_are_refused_before_anything_is_drawn():
    stages = (ClipNorm(1.0), SoftPCA(0.1), PrivateCheckedPCA(PUBLIC, 3))
    plan = Plan(Budget(8.0, 1e-5), stages, DPGD(steps=2), get_loss("logistic"), "replace_one")
    with pytest.raises(InputError, match=r"cannot follow a noiseless stage.*check=0"):
        plan.calibrate(size=2000, columns=D, classes=2)
    with pytest.raises(InputError, match="cannot follow a noiseless stage"):
        PrivateCheckedPCA(PUBLIC, 3).drift(Drift(1.0, 0.5, 0.1, 20), 2000, D)


# In a plan


def plan_of(*stages, neighbors="replace_special"):
    plan = Plan(Budget(2.0, 1e-5), stages, DPGD(steps=3), get_loss("logistic"), neighbors)
    return plan.calibrate(size=2000, columns=D, classes=2)


def test_what_is_counted_does_not_depend_on_what_is_found():
    for rows in (LIKE, UNLIKE):
        model = DPLinearClassifier(
            2.0, 1e-5, stages=[ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3)], trainer=DPGD(steps=3)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            claim = model.fit(rows, LABELS).certificate_
        assert claim.verify().holds
        assert model.coef_.shape == (1, D)
        assert claim.plan["features"] == (3 if rows is LIKE else D)
        counted = [expense.event.to_dict() for expense in claim.events]
        assert counted == [e.to_dict() for _, e in plan_of(*model.stages).spent]
        assert bool(claim.warnings) == (rows is UNLIKE)
        assert "of the energy of the private rows" in claim.plan["stages"][1]["found"]
        assert "PrivateCheckedPCA: its public rows are public" in claim.assumptions


def test_noise_and_drift_are_counted_for_all_columns():
    plain = plan_of(ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3, otherwise="warn"))
    wide = plan_of(ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3))
    assert (plain.facts.features, wide.facts.features) == (3, 3)
    assert wide.draws - plain.draws == 3 * (D - 3)
    behind = SoftPCA(0.1)
    moved = plan_of(ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3), behind, neighbors="replace_one")
    assert moved.moves.features == D + 1


def test_a_plan_says_what_will_be_compared_and_when_noise_hides_it():
    calibrated = plan_of(ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3))
    assert "less than 75% of what they keep of public rows, all columns are kept" in (
        calibrated.explain()
    )
    assert not calibrated.shortage
    plan = Plan(
        Budget(0.01, 1e-5),
        (ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3)),
        DPGD(steps=2),
        get_loss("logistic"),
    )
    assert "noise hides whether" in plan.calibrate(size=300, columns=D, classes=2).shortage


@pytest.mark.parametrize("rows", [LIKE, UNLIKE], ids=["like", "unlike"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_keeps_what_was_found(tmp_path, rows):
    stages = [ClipNorm(1.0), PrivateCheckedPCA(PUBLIC, 3), Normalize()]  # nothing can be folded
    model = DPLinearClassifier(8.0, 1e-5, stages=stages, trainer=DPGD(steps=3)).fit(rows, LABELS)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert (again.decision_function(rows) == model.decision_function(rows)).all()
    assert again.stages_[1].found() == model.stages_[1].found() != ""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_searches_warm_starts_and_continued_fits_take_either_outcome():
    made = recipe("pillar", public=PUBLIC, n_components=3, steps=3)
    for rows, width in ((LIKE, 3), (UNLIKE, D)):
        public_model = DPLinearClassifier(2.0, 1e-5, **made).fit(rows, LABELS)
        warm = DPLinearClassifier(2.0, 1e-5, init=public_model, **made).fit(rows, LABELS)
        assert warm.coef_.shape == (1, D)
        search = DPSearch(
            DPLinearClassifier(8.0, 1e-5, **made), {"trainer__clip": [0.1, 0.3]}, trials=2
        )
        assert search.fit(rows, LABELS).best_estimator_.plan_.facts.features == width
        on = DPLinearClassifier(2.0, 1e-5, **made).partial_fit(rows, LABELS, classes=[0, 1])
        assert on.partial_fit(rows, LABELS).coef_.shape == (1, D)


def test_a_public_mean_in_front_is_subtracted_before():
    rows = LIKE + 0.3
    stage = PrivateCheckedPCA(PUBLIC + 0.3, 3)
    made = [ClipNorm(2.0), PublicCenter(PUBLIC + 0.3), stage]
    model = DPLinearClassifier(8.0, 1e-5, stages=made, trainer=DPGD(steps=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.fit(rows, LABELS).certificate_.plan["stages"][2]["found"]
    assert "± " in found
