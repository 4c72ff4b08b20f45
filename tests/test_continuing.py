"""Going on from a fitted model for a budget more, and beginning at a public one."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.seam import paid

from tacit import DPLinearClassifier, DPLinearRegressor, Ledger
from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.preprocessing import (
    ClipNorm,
    NoiselessPCA,
    Normalize,
    PrivateCenter,
    PrivateClip,
    PrivateScale,
    PublicPCA,
    PublicScale,
    RandomProjection,
    SoftPCA,
)
from tacit.privacy import Gaussian
from tacit.privacy.accounting.accountants import epsilon
from tacit.privacy.certificate import Certificate, Expense
from tacit.research.trainers import FlattestDPGD, LocalDPGD
from tacit.trainers import DPGD, DPSGD

RNG = np.random.default_rng(0)
N, D = 3000, 6
KIND = RNG.integers(0, 3, N)
X = 0.4 * RNG.normal(size=(N, D)) + np.eye(3, D)[KIND]
TWO = (KIND > 0).astype(int)
TARGET = np.clip(X @ [1.0, -0.5, 0.2, 0, 0, 0] / np.linalg.norm(X, axis=1), -1, 1)
FEW = DPGD(steps=3)


def fitted(y=KIND, **options):
    given = {"epsilon": 1.0, "delta": 1e-6, "trainer": FEW, **options}
    return DPLinearClassifier(**given).fit(X, y)


def test_an_anchor_holds_a_model_at_its_start_and_alpha_draws_it_to_zero():
    """The same strength, the same start: of no use to each other."""
    start = (np.full((1, X.shape[1]), 3.0), np.array([-1.0]))
    given = {"steps": 30, "learning_rate": 0.5, "momentum": 0.0, "clip": 1e-3}

    def apart(**pull):
        clf = DPLinearClassifier(
            8.0, 1e-5, stages=[ClipNorm(1.0)], trainer=DPGD(**given, **pull), init=start
        )
        return np.linalg.norm(clf.fit(X, KIND[0] == KIND).coef_ - start[0])

    assert apart(anchor=1.0) < 0.1 < apart(alpha=1.0) / 10
    assert apart(anchor=1.0, alpha=1.0) == pytest.approx(apart(alpha=1.0) / 2, rel=0.05)


# Certificates


def test_spending_more_is_composed_jointly_and_verifies():
    clf = fitted()
    first = clf.certificate_
    clf.partial_fit(X, KIND, epsilon=0.5, delta=1e-6)
    whole = clf.certificate_
    assert whole.delta == 2e-6
    assert 1.0 < whole.epsilon < 1.5  # jointly, not by addition
    assert len(whole.events) == 3  # mean, training, training: the mean is not paid for twice
    assert [e.stage for e in whole.events] == ["PrivateCenter", "DPGD", "DPGD"]
    assert whole.verify().holds
    assert whole.plan["continues"] == first.digest
    again = epsilon([e.event for e in whole.events], 2e-6, whole.neighbors)
    assert whole.epsilon >= again


def test_a_second_certificate_hides_nothing_of_the_first():
    one = Certificate(
        1.0, 1e-5, "replace_special", (Expense("A", Gaussian(30.0, 10)),), warnings=("x",)
    )
    two = Certificate(1.0, 1e-5, "replace_special", (Expense("B", Gaussian(40.0, 10)),))
    seeded = Certificate(
        1.0, 1e-5, "replace_special", two.events, releasable=False, reasons=("seeded",)
    )
    assert not one.then(seeded).releasable
    assert not seeded.then(one).releasable
    assert one.then(two).warnings == ("x",)
    events = [Gaussian(30.0, 10), Gaussian(40.0, 10)]
    for both in (one.then(two), two.then(one)):
        assert both.epsilon >= epsilon(events, 2e-5, "replace_special")
        assert both.verify().holds
    other = Certificate(1.0, 1e-5, "replace_one", two.events)
    with pytest.raises(InputError, match="do not add up"):
        one.then(other)


def test_a_private_test_does_not_add_up():
    # Its δ_t is in no event, and a maximum within one plan is a sum beside others.
    stages = [Normalize(), NoiselessPCA(3, gap=1e-4)]
    tested = DPLinearClassifier(5.0, 1e-4, stages=stages, trainer=FEW).fit(X, KIND).certificate_
    assert "Test" in [expense.stage for expense in tested.events]
    plain = Certificate(1.0, 1e-5, tested.neighbors, (Expense("A", Gaussian(30.0, 10)),))
    for one, other in ((tested, plain), (plain, tested), (tested, tested)):
        with pytest.raises(InputError, match=r"private test.*ledger"):
            one.then(other)


def test_sampled_steps_come_with_a_caution():
    clf = fitted(trainer=DPSGD(steps=5, batch_size=300))
    clf.partial_fit(X, KIND, epsilon=0.5, delta=1e-6)
    assert any("fixed before" in said for said in clf.certificate_.warnings)
    assert clf.certificate_.verify().holds


def test_a_plan_with_fitted_stages_says_where_those_are_counted():
    clf = fitted(stages=[ClipNorm(3.0), PrivateScale(), PrivateCenter()])
    said = "what PrivateScale and PrivateCenter released before is counted in the certificate"
    assert not any(said in text for text in clf.certificate_.assumptions)
    clf.partial_fit(X, KIND, epsilon=0.5, delta=1e-6)
    alone = clf.plan_  # which lists nothing but training
    assert [name for name, _ in alone.spent] == ["DPGD"]
    assert any(said in text for text in alone.assumptions())
    assert any(said in text for text in clf.certificate_.assumptions)
    free = fitted(stages=[ClipNorm(3.0)]).partial_fit(X, KIND, epsilon=0.5, delta=1e-6)
    assert not any("released before" in text for text in free.certificate_.assumptions)


# What happens


STAGES = {
    "centre": [Normalize(), PrivateCenter()],
    "clip": [ClipNorm(3.0), PrivateClip(0.3)],
    "scale": [ClipNorm(3.0), PrivateScale()],
    "components": [Normalize(), PublicPCA(X[:200].copy() + 0.01, 4), PrivateCenter()],
    "projection": [ClipNorm(3.0), RandomProjection(4), Normalize(), PrivateCenter()],
    "public scale": [PublicScale(X[:200].copy() + 0.01), ClipNorm(4.0), PrivateCenter()],
}


@pytest.mark.parametrize("stages", STAGES.values(), ids=list(STAGES))
def test_stages_stay_and_training_begins_where_it_was(stages):
    clf = fitted(stages=stages)
    coef, intercept = clf.coef_.copy(), clf.intercept_.copy()
    still = DPGD(steps=1, learning_rate=1e-12, clip=0.1)
    clf.set_params(trainer=still).partial_fit(X, KIND, epsilon=0.1, delta=1e-6)
    assert np.allclose(clf.coef_, coef, atol=1e-8)
    assert np.allclose(clf.intercept_, intercept, atol=1e-8)


def test_more_budget_makes_a_better_model():
    gains = []
    for seed in range(3):
        clf = DPLinearClassifier(0.02, 1e-6, random_state=seed).fit(X, KIND)
        before = clf.score(X, KIND)
        clf.set_params(random_state=100 + seed).partial_fit(X, KIND, epsilon=2.0, delta=1e-6)
        gains.append(clf.score(X, KIND) - before)
    assert min(gains) > 0.02


def test_a_first_call_is_a_fit():
    one = DPLinearClassifier(1.0, 1e-6, trainer=FEW, random_state=0).partial_fit(X, KIND, [0, 1, 2])
    two = DPLinearClassifier(1.0, 1e-6, trainer=FEW, random_state=0, classes=[0, 1, 2]).fit(X, KIND)
    assert (one.coef_ == two.coef_).all()
    assert one.certificate_.assumptions == two.certificate_.assumptions


def test_regressors_go_on_as_well_and_survive_pickling():
    model = DPLinearRegressor(1.0, 1e-6, target_bounds=(-2, 4)).fit(X, TARGET)
    model = pickle.loads(pickle.dumps(model))
    coef, intercept = model.coef_, model.intercept_
    still = DPGD(steps=1, learning_rate=1e-12, clip=0.1)
    model.set_params(trainer=still).partial_fit(X, TARGET, epsilon=0.1, delta=1e-6)
    assert np.allclose(model.coef_, coef, atol=1e-8)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-8)
    assert model.certificate_.verify().holds


class Counted:
    """Rows that count how often they are read."""

    shape = X.shape

    def __init__(self):
        self.reads = 0

    def __len__(self):
        return N

    def __array__(self, dtype=None, copy=None):
        self.reads += 1
        return X.astype(dtype or X.dtype)


@pytest.mark.parametrize("y", [KIND, TARGET], ids=["labels", "numbers"])
def test_going_on_reads_rows_no_more_often_than_a_fit(y):
    first, second = Counted(), Counted()
    model = DPLinearClassifier(1.0, 1e-6, trainer=FEW)
    if y is TARGET:
        model = DPLinearRegressor(1.0, 1e-6, target_bounds=(-1, 1), trainer=FEW)
    model.fit(first, y).partial_fit(second, y, epsilon=0.5, delta=1e-6)
    assert second.reads == first.reads > 0


def test_other_people_may_come_later():
    clf = fitted()
    clf.partial_fit(X[:1000], KIND[:1000], epsilon=0.5, delta=1e-6)
    assert clf.certificate_.verify().holds


def test_both_budgets_are_in_the_ledger(tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/l.db", dataset="d")
    ledger.create(epsilon=2.0, delta=1e-5)
    clf = fitted(ledger=ledger)
    once = ledger.remaining().spent
    clf.partial_fit(X, KIND, epsilon=0.3, delta=1e-6)
    assert ledger.remaining().spent > once
    first, second = ledger.charges()
    assert clf.certificate_.plan["ledger"]["id"] == second.id != first.id


# Public models


def test_training_begins_at_a_public_model():
    public = LogisticRegression().fit(Normalize().transform(X[:500]), KIND[:500])
    still = DPGD(steps=1, learning_rate=1e-12, clip=0.1)
    clf = fitted(init=public, trainer=still)
    assert np.allclose(clf.coef_, public.coef_, atol=1e-8)
    assert any("starts from is public" in said for said in clf.certificate_.assumptions)
    careful = DPGD(steps=20, learning_rate=0.1, clip=0.1)
    near = fitted(init=public, trainer=careful, epsilon=0.01, random_state=0)
    far = fitted(trainer="auto", epsilon=0.01, random_state=0)
    assert near.score(X, KIND) > far.score(X, KIND)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_two_classes_have_one_score_or_two(loss):
    public = LogisticRegression().fit(Normalize().transform(X[:500]), TWO[:500])
    still = DPGD(steps=1, learning_rate=1e-12, clip=0.1)
    clf = fitted(TWO, init=public, trainer=still, loss=loss)
    assert np.allclose(clf.coef_, public.coef_, atol=1e-8)
    assert np.allclose(clf.intercept_, public.intercept_, atol=1e-8)
    pair = fitted(TWO, init=(public.coef_, public.intercept_), trainer=still, loss=loss)
    assert np.allclose(pair.coef_, public.coef_, atol=1e-8)


def test_folding_and_unfolding_are_inverse():
    rows = Normalize().transform(X)
    coef, intercept = RNG.normal(size=(3, D)), RNG.normal(size=3)
    for stage in (PrivateCenter(), PrivateScale(), PublicScale(X[:100])):
        context = paid(N, z=5.0)
        stage.fit(as_rows(rows, bound=1.0), context)
        back = stage.fold(*stage.unfold(coef, intercept))
        assert np.allclose(back[0], coef)
        assert np.allclose(back[1], intercept)


# Bad input


def test_going_on_without_a_budget_spends_the_same_again_and_says_so():
    clf = fitted()
    with pytest.warns(UserWarning, match="another epsilon=1, delta=1e-06"):
        clf.partial_fit(X, KIND)
    assert clf.certificate_.delta == 2e-6
    assert clf.certificate_.verify().holds


def test_bad_budgets_rows_and_labels_spend_nothing():
    clf = fitted()
    with pytest.raises(InputError):
        clf.partial_fit(X, KIND, epsilon=-1.0, delta=1e-6)
    with pytest.raises(ValueError, match="features"):
        clf.partial_fit(X[:, :3], KIND, epsilon=1.0, delta=1e-6)
    with pytest.raises(InputError, match="label"):
        clf.partial_fit(X, KIND + 1, epsilon=1.0, delta=1e-6)
    assert len(clf.certificate_.events) == 2  # nothing was spent


def test_what_cannot_be_composed_spends_nothing(tmp_path):
    clf = fitted()
    before, coef = clf.certificate_, clf.coef_.copy()
    ledger = Ledger(tmp_path / "l.db")
    ledger = ledger.create("d", epsilon=9.0, delta=1e-5, neighbors="replace_one")
    clf.set_params(neighbors="replace_one", ledger=ledger)
    with pytest.raises(InputError, match="do not add up"):
        clf.partial_fit(X, KIND, epsilon=0.5, delta=1e-6)
    assert ledger.charges() == []
    assert clf.certificate_ is before
    assert (clf.coef_ == coef).all()


def test_noiseless_stages_cannot_go_on():
    clf = DPLinearClassifier(
        1.0, 1e-6, stages=[Normalize(), SoftPCA(strength=0.1)], trainer=FEW
    ).fit(X, KIND)
    with pytest.raises(InputError, match="noiseless stage"):
        clf.partial_fit(X, KIND, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("a model", "fitted linear model"),
        ((np.ones((2, D)), np.zeros(2)), "2 scores"),
        ((np.ones((3, D + 1)), np.zeros(3)), "shape"),
        ((np.full((3, D), np.nan), np.zeros(3)), "finite"),
        ((np.ones((3, D)), np.full(3, np.inf)), "finite"),
    ],
)
def test_models_that_do_not_fit_are_refused(start, said):
    with pytest.raises(InputError, match=said):
        fitted(init=start)


def test_other_classes_are_refused():
    public = LogisticRegression().fit(X, KIND + 7)
    with pytest.raises(InputError, match="other classes"):
        fitted(init=public)


def test_trainers_that_begin_at_zero_say_so():
    start = (np.zeros((3, D)), np.zeros(3))
    with pytest.raises(InputError, match="begins at zero"):
        fitted(init=start, trainer=FlattestDPGD(steps=3), loss="savage")
    assert fitted(init=start, trainer=LocalDPGD(steps=2), stages=[Normalize()]).coef_.shape == (
        3,
        D,
    )
