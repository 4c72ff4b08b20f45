"""Records, the memory of experiments, pages, and the command."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.exceptions import FileError, InputError
from tacit.research.reproduce import (
    CLAIMS,
    Check,
    Claim,
    Figure,
    Finding,
    Measured,
    Table,
    Work,
    reproduce,
)
from tacit.research.reproduce import run as runs
from tacit.research.reproduce.page import render_html, render_markdown

CALLS: list[float] = []


def doubled(number, seed=0):
    CALLS.append(number)
    if number == 13:
        raise RuntimeError("unlucky")
    return {"twice": 2 * number}


def toy(work):
    found = work.map(doubled, work.over_seeds([{"number": 1}, {"number": 2}]))
    return Finding(
        tables=[Table(("row", "paper", "ours"), [("a|b", 2.0, Measured.of([1.0, 3.0]))], "T_1")],
        checks=[
            Check("twice is more", np.bool_(found[0]["twice"] > 1), "2 > 1"),
            Check("<b>ours</b>", False, "no", paper=False),
        ],
        figures=[Figure("curve <x>", "k", {"one": ([1, 2], [3.0, math.inf])})],
    )


TOY = Claim("toy", "paper 9, Table 9", "A toy", "That 2 > 1.", toy, notes=("a note",))


@pytest.fixture
def claims(monkeypatch):
    monkeypatch.setitem(CLAIMS, "toy", TOY)
    monkeypatch.setitem(
        CLAIMS, "absent", Claim("absent", "nowhere", "Absent", "Nothing.", toy, data=("no_such",))
    )
    monkeypatch.setattr(runs, "find", lambda name: {"a file": None})
    CALLS.clear()


# the memory


def test_an_experiment_is_made_once(tmp_path):
    CALLS.clear()
    settings = [{"number": 1}, {"number": 2}]
    for _ in range(2):
        with Work(tmp_path) as work:
            assert work.map(doubled, settings) == [{"twice": 2}, {"twice": 4}]
    assert CALLS == [1, 2]
    assert work.seconds > 0  # what they took when they were made
    with Work(tmp_path, fresh=True) as work:
        work.map(doubled, settings[:1])
    assert CALLS == [1, 2, 1]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    CALLS.clear()
    with Work(tmp_path) as work, pytest.raises(RuntimeError, match="unlucky"):
        work.map(doubled, [{"number": 1}, {"number": 13}, {"number": 2}])
    with Work(tmp_path) as work:
        assert work.map(doubled, [{"number": 1}, {"number": 2}]) == [{"twice": 2}, {"twice": 4}]
    assert CALLS == [1, 13, 2]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"result": 1}', b"\xff\xfe"])
def test_a_damaged_memory_is_computed_again(tmp_path, damage):
    CALLS.clear()
    with Work(tmp_path) as work:
        work.map(doubled, [{"number": 3}])
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage)
    with Work(tmp_path) as work:
        assert work.map(doubled, [{"number": 3}]) == [{"twice": 6}]
    assert CALLS == [3, 3]


def test_the_memory_knows_the_experiment_s_own_code(tmp_path, monkeypatch):
    CALLS.clear()
    from tacit.research.reproduce import work as module

    with Work(tmp_path) as work:
        work.map(doubled, [{"number": 4}])
        monkeypatch.setattr(module, "source_of", lambda name: "another text")
        work.map(doubled, [{"number": 4}])
    assert CALLS == [4, 4]


@pytest.mark.slow
def test_processes_give_what_one_gives(tmp_path):
    from tacit.research.reproduce.song import asymmetry

    settings = [{"classes": k, "per_class": False, "trials": 30, "seed": 0} for k in (3, 4)]
    with Work(tmp_path / "many", jobs=2) as work:
        many = work.map(asymmetry, settings)
    with Work() as work:
        assert work.map(asymmetry, settings) == many


# records and pages


def test_a_record_holds_what_was_found_and_why(tmp_path, claims):
    shown = []
    (outcome,) = reproduce(["toy"], out=tmp_path, quick=True, tell=shown.append)
    assert shown == [outcome]
    record = json.loads((tmp_path / "toy.json").read_text("utf-8"))
    assert record == outcome.as_dict()
    assert record["verdict"] == "holds"  # what is not the paper's does not count
    assert record["seeds"] == 2 and record["quick"]
    assert (tmp_path / "toy.svg").read_text("utf-8").startswith("<svg")
    page = (tmp_path / "reproduction.html").read_text("utf-8")
    assert "&lt;b&gt;ours" in page and "<b>ours" not in page
    text = (tmp_path / "REPRODUCTION.md").read_text("utf-8")
    assert "| a\\|b | 2 | 2.0 ± 1.4 |" in text
    assert "![toy](toy.svg)" in text


def test_the_page_keeps_claims_of_earlier_runs(tmp_path, claims):
    reproduce(["toy"], out=tmp_path, quick=True)
    reproduce(["absent"], out=tmp_path, quick=True)
    text = (tmp_path / "REPRODUCTION.md").read_text("utf-8")
    assert "## toy" in text and "## absent" in text
    assert "**not tested**. It needs data: no\\_such" in text


def test_what_cannot_be_tested_says_so(claims):
    (outcome,) = reproduce(["absent"])
    assert outcome.verdict == "not tested"
    assert "no_such" in outcome.missing


def test_a_finding_without_the_paper_s_word_has_no_verdict():
    with pytest.raises(ValueError, match="what the paper says"):
        _ = Finding([], [Check("ours", True, "", paper=False)]).verdict


def test_bad_requests(tmp_path, claims):
    with pytest.raises(InputError, match="no claim is called 'nothing'; there are"):
        reproduce(["nothing"])
    with pytest.raises(InputError, match="at least 1"):
        reproduce(["toy"], seeds=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write into"):
        reproduce(["toy"], out=tmp_path / "file")


def test_pages_of_nothing_are_pages():
    assert "<html" in render_html([]) and render_markdown([]).startswith("# Reproduction")


# the command


def test_the_command_lists_and_tests(tmp_path, claims):
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce", "--list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in CLAIMS)
    starts = [line.index(CLAIMS[line.split()[0]].title) for line in listed.output.splitlines()]
    assert len(set(starts)) == 1  # titles stand below each other, however long a source is
    as_json = json.loads(runner.invoke(app, ["reproduce", "--list", "--json"]).output)
    assert [claim["name"] for claim in as_json["claims"]] == list(CLAIMS)
    call = ["reproduce", "toy", "--quick", "--out", str(tmp_path / "o"), "--jobs", "1", "--json"]
    done = runner.invoke(app, call)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["claims"][0]["verdict"] == "holds"
    wrong = runner.invoke(app, ["reproduce", "nothing", "--out", str(tmp_path / "o")])
    assert wrong.exit_code == 2 and "no claim is called" in wrong.output
    nobody = runner.invoke(app, ["reproduce", "toy", "--jobs", "0", "--out", str(tmp_path / "o")])
    assert nobody.exit_code == 2 and "jobs must be at least 1" in nobody.output


def test_an_interrupted_command_says_what_is_kept(tmp_path, claims, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "test_claim", stop)
    done = CliRunner().invoke(app, ["reproduce", "toy", "--out", str(tmp_path), "--quiet"])
    assert done.exit_code == 130
    assert "the next run goes on" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_whoever_is_stopped_leaves_nobody_at_work(how):
    """Processes that have minutes to go end with the one that started them."""
    busy = "import time; print('busy', flush=True); time.sleep(60)"
    script = f"""if True:
        from timeit import timeit
        from tacit.research.reproduce import Work
        if __name__ == "__main__":
            with Work(jobs=2) as work:
                work.map(timeit, [{{"stmt": {busy!r}, "number": 1, "globals": {{}}}}] * 3)
        """
    call = [sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(call, **pipes) as process:
        assert [process.stdout.readline() for _ in range(2)] == ["busy\n"] * 2
        process.send_signal(how)
        assert not process.communicate(timeout=30)[0]  # nobody holds the pipe any more
    assert process.returncode != 0


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    """A real process, killed in the middle: what it had computed is not computed again."""
    call = [sys.executable, "-m", "tacit.cli", "reproduce", "song-clipping", "--quick", "--quiet"]
    call += ["--jobs", "1", "--out", str(tmp_path)]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("cache/*.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cache/*.json")}
    assert kept and not (tmp_path / "song-clipping.json").exists()
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
    assert json.loads((tmp_path / "song-clipping.json").read_text("utf-8"))["checks"]
