"""Certificates of plans that were found to be false are revoked, others are not."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.exceptions import FileError
from tacit.linear_model import DPLinearClassifier
from tacit.preprocessing import Dedup, Normalize, SoftPCA
from tacit.privacy import Certificate, advisories

OLD = Path(__file__).parent / "old"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1000, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def revoked():
    """A real one, issued by 0.1.0."""
    return Certificate.load(OLD / "dedup-soft-pca-0.1.0.json")


def changed(certificate, versions=None, **plan):
    versions = certificate.versions if versions is None else versions
    kept = {key: value for key, value in {**certificate.plan, **plan}.items() if value is not None}
    return replace(certificate, versions=versions, plan=kept)


def holds(certificate):
    check = certificate.verify()
    assert check.holds == (not check.problems)
    assert set(check.revoked) <= set(check.problems)
    return not check.revoked


# The first entry


def test_a_certificate_of_a_false_plan_is_revoked_although_its_events_are_right(revoked):
    check = revoked.verify()
    assert not check.holds and check.problems == check.revoked
    (said,) = check.revoked
    assert said.startswith("revoked: TACIT-2026-001 of 2026-11-17: Dedup")
    assert "below 0.2.0" in said and "with 0.2.0 or later" in said
    assert max(check.recomputed.values()) <= revoked.epsilon  # nothing else is wrong with it
    assert check.to_dict()["revoked"] == [said]


def test_the_same_plan_of_this_version_is_not_revoked():
    stages = [Normalize(), Dedup(crowd=60, share=0.5), SoftPCA(0.5)]
    model = DPLinearClassifier(epsilon=8.0, stages=stages).fit(X, Y)
    certificate = model.certificate_
    assert certificate.versions["tacit"] == tacit.__version__
    assert certificate.verify().holds
    assert not holds(changed(certificate, {"tacit": "0.1.0"}))


@pytest.mark.parametrize(
    "version",
    ["0.1.0", "0.0.9", "0.1.99", "0.2.0.dev1", "0.2.0rc1", "0.2rc1", "0", "", "new", None, 2],
)
def test_versions_that_are_or_may_be_below_are_affected(revoked, version):
    assert not holds(changed(revoked, {} if version is None else {"tacit": version}))


@pytest.mark.parametrize("version", ["0.2.0", "0.2", "0.2.0.post1", "0.2.0+ours", "0.10.0", "1.0"])
def test_versions_from_the_fixed_one_on_are_not_affected(revoked, version):
    assert holds(changed(revoked, {"tacit": version}))


def stage(name, kind="plain"):
    return {"name": name, "kind": kind, "parameters": {}, "note": ""}


@pytest.mark.parametrize("later", ["SoftPCA", "PlainPCA", "PlainScale", "PlainImpute"])
def test_any_plain_stage_behind_dedup_is_affected_wherever_it_is(revoked, later):
    between = [stage("Normalize", "free"), stage("RandomProjection", "free")]
    stages = [stage("ClipNorm", "free"), stage("Dedup"), *between, stage(later), *between]
    assert not holds(changed(revoked, stages=stages))


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [stage("Dedup")],
        [stage("SoftPCA"), stage("PlainScale")],
        [stage("Quantize"), stage("SoftPCA")],
        [stage("SoftPCA"), stage("Dedup")],
        # The same map for both neighbours: a row is zero behind it in both of them or in none.
        [stage("Dedup"), stage("RandomProjection", "free"), stage("Normalize", "free")],
        [stage("Dedup"), stage("PublicPCA", "public"), stage("PrivateScale", "private")],
    ],
)
def test_other_plans_are_not_affected(revoked, stages):
    assert holds(changed(revoked, stages=stages))


def test_without_an_intercept_there_is_no_constant_to_drop(revoked):
    assert holds(changed(revoked, intercept=False))
    assert not holds(changed(revoked, intercept=None))  # not said: it may have had one
    assert not holds(changed(revoked, intercept="no"))


def test_certificates_without_stages_are_not_affected(revoked):
    assert holds(changed(revoked, {"tacit": "0.1.0"}, stages=None))


# The file


ENTRY = {
    "id": "X-1",
    "date": "2026-11-17",
    "summary": "It was false.",
    "affected": {"below": "0.2.0"},
    "fixed_in": "0.2.0",
    "match": {"stages": [{"name": "Dedup"}]},
}


def listed(*entries, **more):
    return json.dumps({"format": advisories.FORMAT, "advisories": list(entries), **more})


def test_the_file_is_part_of_the_package():
    root = Path(tacit.__file__).parent
    project = root.parents[1] / "pyproject.toml"
    if not project.exists():
        pytest.skip("installed, not in its repository")
    patterns = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["tacit"]
    assert any(advisories.PATH in root.glob(pattern) for pattern in patterns)


def test_the_file_of_the_package_is_read_whole():
    known = advisories.advisories(advisories.PATH)
    assert len({item.id for item in known}) == len(known) >= 1
    assert (known[0].id, known[0].date) == ("TACIT-2026-001", "2026-11-17")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        listed(),
        listed(ENTRY, more=1),
        listed(ENTRY).replace("advisories/1", "advisories/2"),
        listed({**ENTRY, "unless": "it rains"}),
        listed({key: value for key, value in ENTRY.items() if key != "match"}),
        listed({**ENTRY, "match": {}}),
        listed({**ENTRY, "match": {"stages": ["Dedup"]}}),
        listed({**ENTRY, "match": {"stages": [{}]}}),
        listed({**ENTRY, "match": {"rows": [1]}}),
        listed({**ENTRY, "affected": {"above": "0.2.0"}}),
        listed({**ENTRY, "affected": {"below": "0.2.0", "except": "0.1.7"}}),
        listed({**ENTRY, "affected": {"below": "soon"}}),
        listed({**ENTRY, "affected": {"below": "0.2.0rc1"}}),
        listed({**ENTRY, "date": "yesterday"}),
        listed({**ENTRY, "summary": ""}),
        listed(ENTRY, "and others"),
        listed(ENTRY)[:-40],
    ],
)
def test_a_damaged_file_is_an_error_and_never_silence(text, tmp_path, monkeypatch):
    path = tmp_path / "advisories.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(advisories, "PATH", path)
    with pytest.raises(FileError, match=r"advisories\.json.*damaged or missing.*Reinstall"):
        Certificate.load(OLD / "normalize-0.1.0.json").verify()


def test_a_file_with_another_entry_revokes_by_it(tmp_path, monkeypatch, revoked):
    path = tmp_path / "advisories.json"
    path.write_text(listed(ENTRY, {**ENTRY, "id": "X-2", "match": {"loss": "hinge"}}))
    monkeypatch.setattr(advisories, "PATH", path)
    (said,) = revoked.verify().revoked
    assert said.startswith("revoked: X-1 of 2026-11-17: It was false.")
