"""Planted bugs, each caught: by the audit, or by a test that was there before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from tests.audit import bugs

from tacit.audit import audit, prepare
from tacit.audit.neighbouring_tables import targets
from tacit.audit.recorder import Recorder
from tacit.data.rows import as_rows
from tacit.exceptions import ReleaseError
from tacit.preprocessing import Normalize, PrivateCenter

ROOT = Path(__file__).resolve().parents[2]
DELTA = 1e-5

#: What the audit is given. Without the bug it refutes none of these.
AUDITED = {
    "less_noise": ("dp-gd", {"epsilon": 8.0}, 600),
    "parts_counted_once": ("gep", {"epsilon": 8.0, "clip": 0.1}, 600),
    "half_sensitivity": ("dp-gd", {"epsilon": 8.0, "neighbors": "replace_one"}, 200),
    "noise_divided": ("dpsgd-f", {"epsilon": 4.0, "size": 64}, 200),
    "forgotten_event": ([Normalize(), PrivateCenter(share=0.9)], {"epsilon": 8.0}, 1200),
    "unclipped_rows": ("dp-gd", {"epsilon": 4.0, "clip": 0.1}, 200),
    "reused_noise": ("dp-gd", {"epsilon": 4.0, "clip": 0.5, "learning_rate": 10.0}, 200),
    "shuffled_batches": ("dpsgd", {"epsilon": 30.0, "batch_size": 4.0, "steps": 4}, 400),
}
#: Which test of the suite fails.
TESTED = {
    "sum_not_divided": "tests/preprocessing/test_private.py::test_without_noise_it_is_the_mean",
    "batch_normaliser": "tests/trainers/test_gradient.py"
    "::test_sampled_descent_without_noise_is_the_naive_one_on_the_same_batches",
    "unprojected_weights": "tests/soundness/test_trainers.py"
    "::test_the_noise_of_every_step_follows_the_weights",
}
VERIFIED = ["forgotten_event", "wrong_delta"]
#: What is refused instead of drawn, and of which plan.
STOPPED = {
    "small_reach": ("dpsgd-f", "does not cover a bound"),
    "unlisted_event": ("dpsgd-f", "PrivateCenter asks for a release that was not counted"),
    "noise_of_its_own": ("dp-gd", "DPGD was counted and not drawn"),
    "another_step": ("dp-gd", "DPGD asks for a release that was not counted: [0-9]+ of"),
    "whole_parts": ("gep", "GEP asks for a release that was not counted"),
}


@lru_cache(maxsize=1)
def sampled_plan():
    """Calibrated once, since that takes seconds; its bug is not in the calibration."""
    what, settings, _ = AUDITED["shuffled_batches"]
    return prepare(what, delta=DELTA, **settings)[1]


def outcome(name):
    what, settings, runs = AUDITED[name]
    if name == "shuffled_batches":
        return audit(sampled_plan(), runs=runs, seed=0)
    return audit(what, delta=DELTA, runs=runs, seed=0, **settings)


@pytest.mark.parametrize("name", AUDITED)
def test_the_audit_catches(name, monkeypatch):
    bugs.PLANT[name](monkeypatch)
    found = outcome(name)
    assert found.lower > found.claimed


@pytest.mark.parametrize("name", AUDITED)
def test_without_the_bug_the_same_audit_finds_nothing(name):
    assert outcome(name).holds


def test_noise_used_twice_is_seen_by_what_repeats_itself(monkeypatch):
    bugs.reused_noise(monkeypatch)
    assert outcome("reused_noise").details["test"] == "repeated noise"


@pytest.mark.parametrize("name", VERIFIED)
def test_the_certificate_does_not_verify(name, monkeypatch):
    def verdict():
        _, plan = prepare([Normalize(), PrivateCenter(share=0.5)], epsilon=1.0, delta=DELTA)
        return plan.certify(False, plan.plan.stages).verify()

    assert verdict().holds
    bugs.PLANT[name](monkeypatch)
    assert not verdict().holds


@pytest.mark.parametrize("name", STOPPED)
def test_the_run_is_stopped(name, monkeypatch):
    what, words = STOPPED[name]
    rows = as_rows(np.eye(16, 2))
    recorder = Recorder()

    def run():
        _, plan = prepare(what, epsilon=1.0, delta=DELTA)
        wanted = targets(plan.plan, np.ones(16, int), plan.classes)
        return plan.run(rows, wanted, draws=recorder)

    assert run().certificate.verify().holds
    drawn = len(recorder.tape)
    bugs.PLANT[name](monkeypatch)
    with pytest.raises(ReleaseError, match=words):
        run()
    assert len(recorder.tape) < 2 * drawn  # the account ends before the run does


@pytest.mark.parametrize("name", TESTED)
def test_a_test_of_the_suite_fails(name):
    environment = {**os.environ, "TACIT_BUG": name, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/src"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.audit.planted"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:xdist", TESTED[name]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout


def test_every_bug_is_caught_and_listed():
    assert {*AUDITED, *TESTED, *VERIFIED, *STOPPED} == set(bugs.PLANT)
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    page = page.partition("## Planted bugs")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == set(bugs.PLANT)
    for test in TESTED.values():
        assert test.split("::")[1] in page
