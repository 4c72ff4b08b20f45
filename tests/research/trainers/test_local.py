"""Local privacy: every report is private by itself, whatever is done with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, norm
from tests.seam import token

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms import release
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Stream
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Budget, Gaussian
from tacit.research.trainers import LocalDPGD
from tacit.trainers.settings import PublicFacts

FACTS = PublicFacts(60, 3, 1, 1.0, 0.5)
LOSS = get_loss("logistic")


def plan(trainer, stages=None, neighbors="replace_one", **more):
    stages = (ClipNorm(1.0),) if stages is None else stages
    return Plan(Budget(1.0, 1e-5), stages, trainer, LOSS, neighbors, **more)


@pytest.mark.parametrize(
    ("steps", "reports"), [(10, 1), (10, 10), (10, 3), (7, 2), (60, 1), (1, 5)]
)
def test_no_row_takes_part_more_often_than_is_counted(steps, reports):
    trainer = LocalDPGD(steps=steps, reports=reports).resolve(FACTS)
    event = trainer.event(2.0, FACTS)
    times = np.zeros(60, dtype=int)
    for step in range(steps):
        members = trainer.members(step, 60)
        assert members is None or members.size > 0
        times[slice(None) if members is None else members] += 1
    assert times.max() == event.count <= reports
    assert times.min() >= 1 or steps < trainer.groups or reports == 1


def test_the_certificate_agrees_with_the_gaussian_mechanism_of_one_report():
    """Two values of a row are 2C apart: Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) = δ, μ = 2√reports/z."""
    found = {}
    for reports in (1, 4):
        trainer = LocalDPGD(steps=20, reports=reports, clip=0.5)
        calibrated = plan(trainer).calibrate(size=60, columns=3, classes=2)
        z = calibrated.noise_multiplier
        ((_, event),) = calibrated.spent
        assert event == Gaussian(z, reports)

        mu = 2 * math.sqrt(reports) / z

        def excess(epsilon, mu=mu):
            tail = norm.cdf(-epsilon / mu + mu / 2)
            return tail - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2) - 1e-5

        assert brentq(excess, 0.5, 2.0) == pytest.approx(1.0, rel=1e-4)
        found[reports] = z
    assert found[4] == pytest.approx(2 * found[1], rel=1e-6)


def test_the_certificate_says_that_nobody_is_trusted():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    labels = (rows[:, 0] > 0).astype(int)
    model = DPLinearClassifier(trainer=LocalDPGD(steps=5)).fit(rows, labels)  # auto: no centring
    certificate = model.certificate_
    assert certificate.neighbors == "replace_one"
    assert certificate.verify().holds
    assert any("no curator is trusted" in text for text in certificate.assumptions)
    assert [stage["name"] for stage in certificate.plan["stages"]] == ["Normalize"]


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one"])
def test_other_relations_are_refused(neighbors):
    with pytest.raises(InputError, match="analysed for neighbors='replace_one'"):
        plan(LocalDPGD(), neighbors=neighbors)


def test_stages_that_need_a_curator_are_refused():
    with pytest.raises(InputError, match="PrivateCenter needs somebody who sees all rows"):
        plan(LocalDPGD(), (Normalize(), PrivateCenter()))
    with pytest.raises(InputError, match="a noiseless stage, here SoftPCA"):
        plan(LocalDPGD(), (Normalize(), SoftPCA(0.1)))


def test_more_steps_than_reports_are_refused():
    with pytest.raises(InputError, match="take fewer steps or more reports"):
        LocalDPGD(steps=61).resolve(FACTS)
    assert LocalDPGD(steps=61, reports=2).resolve(FACTS).groups == 31


def sums(rows, arithmetic="exact"):
    targets = LOSS.targets(np.zeros(len(rows), dtype=int), 1)
    engine = Engine(as_rows(rows, bound=1.0), targets, LOSS, arithmetic=arithmetic)
    return engine.gradient_sum(np.zeros((1, rows.shape[1], 1)), 0.5)


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_every_row_draws_noise_of_its_own(monkeypatch, block):
    """As many draws as rows times coordinates, each with the deviation of the account."""
    monkeypatch.setattr(release, "BLOCK", block * 3)
    asked = []
    real = Stream.discrete_gaussian

    def draw(self, sigma, count):
        asked.append((sigma, count))
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", draw)
    total = sums(np.full((20, 3), 0.5))
    out = token(3.0).reports(total.bounded(0, 0.5), 20, 0)
    assert sum(count for _, count in asked) == 60
    assert all(accounted_sigma(sigma) * total.lattice[0] >= 1.5 for sigma, _ in asked)
    monkeypatch.undo()  # the order of draws does not depend on the block
    again = token(3.0).reports(total.bounded(0, 0.5), 20, 0)
    np.testing.assert_array_equal(out, again)


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_sums_of_reports_have_the_variance_of_all_of_them(arithmetic):
    rows = np.zeros((30, 400))
    total = sums(rows, arithmetic)
    noise = token(4.0, 1).reports(total.bounded(0, 0.5), 30, 0)[:, 0]
    square = float((noise**2).sum() / (30 * 4.0))
    assert chi2.cdf(square, 400) == pytest.approx(0.5, abs=0.5 - 1e-7)


def test_one_report_is_not_told_apart_better_than_claimed():
    """The likelihood attack on a row's own reports, in the two values that are farthest apart."""
    trials, epsilon, delta = 1500, 1.0, 1e-5
    z = (
        plan(LocalDPGD(steps=2, reports=2, clip=0.5))
        .calibrate(size=60, columns=2, classes=2)
        .noise_multiplier
    )
    told = []
    for sign in (1.0, -1.0):
        total = sums(np.array([[sign, 0.0]])).bounded(0, 0.5)
        paid = [token(Gaussian(z, count=2), 2 * i + (sign > 0)) for i in range(trials)]
        reports = [[one.at("noise", s).reports(total, 1, s) for s in (0, 1)] for one in paid]
        told.append(np.array(reports)[:, :, 0, 0].sum(axis=1))
    farthest = abs(sums(np.array([[1.0, 0.0]])).float()[0, 0, 0])
    assert farthest == pytest.approx(0.5, rel=1e-4)  # all of the clip is used
    best = 0.0
    for cut in np.linspace(-8, 8, 33):
        one, other = ((values > cut).mean() for values in told)
        for p, q in ((one, other), (other, one), (1 - one, 1 - other), (1 - other, 1 - one)):
            # Five standard errors: false alarms below one in a million over all cuts.
            low = p - 5 * math.sqrt(p * (1 - p) / trials) - 25 / trials
            high = q + 5 * math.sqrt(q * (1 - q) / trials) + 25 / trials
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    assert best <= epsilon


def test_one_pass_has_the_noise_of_many():
    """Reports cost in proportion: noise on the mean gradient, over the run, is the same."""
    found = {}
    for reports in (1, 10):
        trainer = LocalDPGD(steps=10, reports=reports, clip=0.5)
        calibrated = plan(trainer).calibrate(size=1000, columns=3, classes=2)
        rows = 1000 / calibrated.trainer.groups
        found[reports] = calibrated.noise_multiplier / math.sqrt(rows)
    assert found[10] == pytest.approx(found[1], rel=1e-6)


def test_it_learns_from_many_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40_000, 3))
    labels = (rows[:, 0] > 0).astype(int)
    model = DPLinearClassifier(epsilon=2.0, trainer=LocalDPGD(), random_state=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.9
