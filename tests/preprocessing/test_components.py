"""How many components are kept: by public facts, with no more than the public rows can tell."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tacit.data.rows import as_rows
from tacit.preprocessing.public_components import NOISE, POWER, Spectrum, rank

FACTS = {"size": 10_000, "outputs": 10, "mu": 0.1}


def rows_of(scales, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(len(scales), len(scales))))
    return rng.normal(size=(n, len(scales))) * np.sqrt(scales) @ turn


def test_energy_is_that_of_the_other_half():
    rows = rows_of([5.0, 2.0, 1.0, 0.5], n=60)
    found = Spectrum.of(as_rows(rows))
    kept = []
    for own, other in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        _, _, right = np.linalg.svd(own, full_matrices=False)
        kept.append(np.cumsum(((other @ right.T) ** 2).sum(axis=0)) / (other**2).sum())
    assert found.kept == pytest.approx(np.mean(kept, axis=0))
    assert found.most == 4


def test_it_does_not_matter_how_rows_are_stored_or_cut():
    rows = rows_of(np.ones(5), n=5001)  # more than a chunk
    dense, sparse = Spectrum.of(as_rows(rows)), Spectrum.of(as_rows(sp.csr_array(rows)))
    assert dense.kept == pytest.approx(sparse.kept, rel=1e-12)


def test_few_rows_keep_less_of_others_than_of_themselves():
    rows = rows_of(np.arange(1, 41) ** -1.0, n=60)
    _, singular, _ = np.linalg.svd(rows, full_matrices=False)
    own = np.cumsum(singular**2) / (singular**2).sum()
    kept = Spectrum.of(as_rows(rows)).kept
    assert len(kept) == 30
    assert (kept[5:] < own[5:30] - 0.05).all()


def test_a_component_is_kept_if_its_share_is_worth_its_noise():
    worth = NOISE * (np.sqrt(10) / (10_000 * 0.1)) ** POWER
    shares = np.array([4.0, 3.0, 2.0, 1.3, 0.7, 0.5]) * worth
    kept = np.cumsum(shares)
    assert Spectrum(kept, 6).choose(**FACTS) == 4


def test_more_rows_budget_or_fewer_classes_keep_more():
    spectrum = Spectrum(np.cumsum(np.arange(1, 200) ** -1.5) / 2.5, 400)
    base = spectrum.choose(**FACTS)
    assert 10 < base < 198
    assert spectrum.choose(**{**FACTS, "size": 30_000}) > base
    assert spectrum.choose(**{**FACTS, "mu": 0.3}) > base
    assert spectrum.choose(**{**FACTS, "outputs": 100}) < base
    # They matter through √K/(n·μ) alone.
    assert spectrum.choose(size=20_000, outputs=10, mu=0.05) == base
    assert spectrum.choose(size=20_000, outputs=40, mu=0.1) == base


def test_all_that_the_rows_have_are_kept_if_noise_outweighs_none():
    rows = rows_of(np.ones(40), n=30)  # 15 in a half, 30 in all
    found = Spectrum.of(as_rows(rows))
    assert (len(found.kept), found.most) == (15, 30)
    assert found.choose(size=10**7, outputs=2, mu=1.0) == 30
    flat = Spectrum.of(as_rows(rows_of([1.0, 1.0, 0.0, 0.0])))
    assert flat.choose(size=10**7, outputs=2, mu=1.0) == 2


def test_one_component_is_left_however_much_noise_there_is():
    spectrum = Spectrum.of(as_rows(rows_of(np.ones(6))))
    assert spectrum.choose(size=2, outputs=100, mu=1e-3) == 1
    assert Spectrum(np.empty(0), 1).choose(**FACTS) == 1


def test_the_unit_of_the_rows_does_not_matter():
    rows = rows_of(np.arange(1, 31) ** -1.2)
    choices = {Spectrum.of(as_rows(rows * c)).choose(**FACTS) for c in (1e-6, 1.0, 1e6)}
    assert len(choices) == 1


def test_what_is_rounding_is_no_component():
    assert rank(np.array([-1e-20, 1e-15, 0.5, 1.0])) == 2
    assert rank(np.zeros(3)) == 0
