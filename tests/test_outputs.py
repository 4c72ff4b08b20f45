"""What a fit leaves behind: whole outputs, and a ledger that agrees with them, whatever happens."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import killing

from tacit import Ledger, files
from tacit.cli.settings import Settings
from tacit.cli.tasks.fit import fit as fit_table
from tacit.cli.tasks.inspect import inspect_privately
from tacit.cli.tasks.outputs import FILES, REPORT
from tacit.cli.tasks.predict import predict
from tacit.cli.tasks.verify import verify
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import FileError, PrivateTestError
from tacit.ledger import DeferredLedger
from tacit.research.tasks.median import median

CLASSES = {
    "target": "ill",
    "classes": ["no", "yes"],
    "columns": {f"c{i}": {"kind": "number", "low": -1, "high": 1} for i in range(5)},
}
QUICK = Settings(2.0, 1e-4, steps=5)


def rows(n=300, columns=5, classes=("no", "yes"), prefix="c"):
    rng = np.random.default_rng(0)
    cells = {f"{prefix}{i}": rng.uniform(-1, 1, n).tolist() for i in range(columns)}
    return Table.from_columns({**cells, "ill": rng.choice(list(classes), n).tolist()})


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db").create("people", epsilon=20.0, delta=1e-3)


def fit(out, settings=QUICK, **how):
    return fit_table(rows(), settings, schema=Schema.from_dict(CLASSES), out=out, **how)


# --- killed ------------------------------------------------------------------------------------


def killed(folder: Path, *how: object) -> dict[str, int]:
    """Where processes were that were killed, and what they left."""
    command = [sys.executable, killing.__file__, str(folder), *map(str, how)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads do not survive a fork
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_old_output_or_the_new_one(tmp_path):
    seen = killed(tmp_path, "each", 5)
    assert sum(seen.values()) >= 12
    parts = {where.split(":")[0] for where in seen}
    assert {"start", "writing", "committed", "moved"} <= parts
    # What counts is one rename: before it nothing has changed, behind it nothing is missing.
    for where in seen:
        part, left = where.split(": ")
        assert (left == "new") == (part in ("committed", "moved", "recorded")), seen


@pytest.mark.long
def test_a_process_may_be_killed_in_front_of_every_change_to_a_file(tmp_path):
    seen = killed(tmp_path, "each", 1)
    print(seen)
    assert sum(seen.values()) >= 60


@pytest.mark.long
def test_two_hundred_processes_are_killed_at_random_moments(tmp_path):
    seen = killed(tmp_path, "random", 200, 0)
    print(seen)
    assert sum(seen.values()) == 200


# --- the order of things -----------------------------------------------------------------------


def test_an_entry_says_model_only_when_the_files_are_there(tmp_path, monkeypatch, ledger):
    steps = []
    commit, record = files.Output.commit, DeferredLedger.record

    def committing(self, contents):
        (charge,) = ledger.charges()  # it is reserved, and nobody says yet what came of it
        steps.append(charge.outcome)
        commit(self, contents)
        steps.append(ledger.charges()[0].outcome)

    def recording(self):
        assert verify(tmp_path / "m").problems == ()
        record(self)
        steps.append(ledger.charges()[0].outcome)

    monkeypatch.setattr(files.Output, "commit", committing)
    monkeypatch.setattr(DeferredLedger, "record", recording)
    made = fit(tmp_path / "m", ledger=ledger)
    assert steps == ["not finished", "not finished", "model"]
    (charge,) = ledger.charges()
    assert charge.certificate == made.estimator.certificate_.digest
    assert made.to_dict()["ledger"]["entry"] == charge.number


@pytest.mark.parametrize("what", ["median", "inspect"])
def test_summaries_are_recorded_when_their_files_are_there(tmp_path, monkeypatch, ledger, what):
    schema = Schema.from_dict({"columns": CLASSES["columns"], "ignore": ["ill"]})
    budget = {"epsilon": 1.0, "delta": 1e-4, "ledger": ledger}
    run = {"median": median, "inspect": inspect_privately}[what]
    with monkeypatch.context() as patch:
        patch.setattr(files.Output, "commit", _full)
        with pytest.raises(FileError, match="No space left") as refused:
            run(rows(), schema, out=tmp_path / "m", **budget)
    assert "The budget of epsilon=1, delta=0.0001 was spent" in refused.value.__notes__[0]
    assert not (tmp_path / "m").exists()
    run(rows(), schema, out=tmp_path / "m", **budget)
    assert [charge.outcome for charge in ledger.charges()] == ["not finished", "summary"]
    assert verify(tmp_path / "m").problems == ()
    run(rows(), schema, out=tmp_path / "m", force=True, epsilon=1.0, delta=1e-4)


def test_a_test_that_fails_is_recorded_with_its_certificate(tmp_path, ledger):
    account = ledger.create("swapped", epsilon=20.0, delta=1e-3, neighbors="replace_one")
    settings = Settings(2.0, 1e-4, "ptr-pca", components=1, gap=0.9, steps=5)
    fit(tmp_path / "m")
    with pytest.raises(PrivateTestError):
        fit(tmp_path / "m", settings, ledger=account, force=True)
    (charge,) = account.charges()
    verdict = verify(tmp_path / "m")
    assert verdict.problems == () and verdict.certificate is not None
    assert (charge.outcome, charge.certificate) == ("test failed", verdict.certificate.digest)
    # The model that was there is none of this output, and gone.
    assert sorted(os.listdir(tmp_path / "m")) == ["certificate.json", "manifest.json"]
    with pytest.raises(FileError, match=r"holds no model\.safetensors"):
        predict(tmp_path / "m", tmp_path / "x.csv", tmp_path / "p.csv")


def _full(*_args, **_options):
    raise FileError("cannot write: No space left on device")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_a_fit_that_breaks_off_says_what_it_cost(tmp_path, monkeypatch, ledger, error):
    def stop(*_args, **_options):
        raise error

    for place in ("tacit.plan.run.Engine", "tacit.cli.tasks.fit.dumps"):
        with monkeypatch.context() as patch:
            patch.setattr(place, stop)
            with pytest.raises(error) as raised:
                fit(tmp_path / "m", ledger=ledger)
        (note,) = raised.value.__notes__
        assert note.startswith("The budget of epsilon=2, delta=0.0001 was spent and nothing was")
        assert not (tmp_path / "m").exists()
    assert [charge.outcome for charge in ledger.charges()] == ["not finished"] * 2
    with monkeypatch.context() as patch:  # before the reservation, there is nothing to say
        patch.setattr("tacit.plan.CalibratedPlan.reserve", stop)
        with pytest.raises(error) as raised:
            fit(tmp_path / "m", ledger=ledger)
    assert not hasattr(raised.value, "__notes__")


def test_an_interruption_behind_the_commit_is_no_loss(tmp_path, monkeypatch, ledger):
    place = files.place_output

    def stop(directory):
        monkeypatch.setattr(files, "place_output", place)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "place_output", stop)
    with pytest.raises(KeyboardInterrupt) as raised:
        fit(tmp_path / "m", ledger=ledger)
    assert raised.value.__notes__ == [f"Files were written to {tmp_path / 'm'}"]
    assert verify(tmp_path / "m").problems == ()
    assert sorted(os.listdir(tmp_path / "m")) == sorted([*FILES, files.MANIFEST])
    assert [charge.outcome for charge in ledger.charges()] == ["model"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_model_is_not_lost_with_its_report(tmp_path, monkeypatch, ledger, error):
    def stop(*_args, **_options):
        raise error

    monkeypatch.setattr("tacit.cli.tasks.fit.render_html", stop)
    with pytest.raises(error) as raised:
        fit(tmp_path / "m", ledger=ledger)
    assert raised.value.__notes__ == [f"Files were written to {tmp_path / 'm'}"]
    assert verify(tmp_path / "m").problems == ()
    assert not (tmp_path / "m" / REPORT).exists()
    assert [charge.outcome for charge in ledger.charges()] == ["model"]


# --- a disk that is full ------------------------------------------------------------------------


def on_the_command_line(folder: Path, out: Path, limit: int | None = None) -> tuple[int, str]:
    """Exit code and message of a fit in a process whose files may have so many bytes."""
    run = "import sys; from tests.killing import app; app(sys.argv[1:])"
    call = ["fit", "rows.csv", "--schema", "s.yaml", "--epsilon", "1", "--delta", "1e-6"]
    call += ["--out", out, "--ledger", "ledger.db", "--dataset", "people", "--quiet", "--steps", 5]
    done = subprocess.run(
        [sys.executable, "-c", run, *map(str, call)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_disk_without_room_for_the_files_is_refused_before_anything_is_spent(tmp_path):
    ledger = killing.prepare(tmp_path)
    limit = (tmp_path / "ledger.db").stat().st_size + (1 << 14)
    code, message = on_the_command_line(tmp_path, tmp_path / "m", limit)
    assert code == 2 and message.count("\n") == 1
    assert message.startswith("error: cannot set aside") and "Nothing was spent" in message
    assert ledger.charges() == []
    assert not (tmp_path / "m").exists()


def test_a_file_system_of_any_size_gives_a_model_or_costs_nothing(tmp_path, ledger):
    disk = tmp_path / "disk"
    disk.mkdir()
    outcomes = []
    for kilobytes in (4, 16, 64, 200, 1000):
        how = f"size={kilobytes}k"
        mount = ["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(disk)]
        if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
            pytest.skip("a small file system can only be made by root")
        try:
            entries = len(ledger.charges())
            try:
                fit(disk, ledger=ledger)  # a mount point, which cannot be renamed
                assert verify(disk).problems == ()
                outcomes.append(1)
            except FileError as refused:
                assert "cannot set aside" in str(refused) and os.listdir(disk) == []
                outcomes.append(0)
            assert len(ledger.charges()) - entries == outcomes[-1]
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    assert outcomes[0] == 0 and outcomes[-1] == 1


def many_settings():
    yield CLASSES, QUICK, {}
    yield CLASSES, Settings(2.0, 1e-4, "jl", components=3, steps=5), {}
    yield CLASSES, Settings(2.0, 1e-4, "dp-pca", components=3, steps=5), {}
    yield CLASSES, Settings(2.0, 1e-4, "pillar", components="auto", steps=5), {"public": rows(20)}
    yield CLASSES, Settings(2.0, 1e-4, steps=5, tune=("clip=0.1,1", "learning_rate=1,2,3")), {}
    yield CLASSES, QUICK, {"test": rows(50)}
    names = [f'é\u4e2d"{i}' * 5 for i in range(100)]
    wide = {name: {"kind": "number", "low": -1, "high": 1} for name in names}
    yield {**CLASSES, "columns": {**CLASSES["columns"], **wide}}, QUICK, {"names": names}
    kinds = {f"kind {i}": {"kind": "category", "categories": list("abcdefghij")} for i in range(30)}
    yield {**CLASSES, "columns": {**CLASSES["columns"], **kinds}}, QUICK, {"kinds": list(kinds)}
    labels = [f"label {i}" for i in range(60)]
    yield {**CLASSES, "classes": labels}, QUICK, {"labels": labels, "test": None}


@pytest.mark.parametrize(("schema", "settings", "how"), [*many_settings()], ids=range(9))
def test_files_are_no_larger_than_the_space_that_is_set_aside(
    tmp_path, monkeypatch, schema, settings, how
):
    rooms = []
    aside = files.Output.set_aside
    monkeypatch.setattr(files.Output, "set_aside", lambda o, r: rooms.append(r) or aside(o, r))
    labels = how.pop("labels", ("no", "yes"))
    table = {name: rows(classes=labels).column(name) for name in (*CLASSES["columns"], "ill")}
    table |= {name: np.zeros(300) for name in how.pop("names", ())}
    table |= {name: ["a"] * 300 for name in how.pop("kinds", ())}
    if "test" in how:
        how["test"] = rows(50, classes=labels)
    given = Table.from_columns({name: list(values) for name, values in table.items()})
    fit_table(given, settings, schema=Schema.from_dict(schema), out=tmp_path / "m", **how)
    ((room,),) = [rooms]
    for name in FILES:
        size = (tmp_path / "m" / name).stat().st_size
        assert size <= room[name] <= 50 * size + (1 << 17), name


# --- places ------------------------------------------------------------------------------------


def test_any_directory_will_do(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("empty", "full", "new/deep", "link", "."):
        folder = tmp_path / "here" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        if name != "new/deep":
            folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder if name == "." else folder.parent)
        out = "." if name == "." else folder
        fit(out)
        assert verify(out).problems == ()
        with pytest.raises(FileError, match="already holds"):
            fit(out)
        fit(out, force=True)
        assert verify(out).problems == ()
    fit(tmp_path / "full")
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path / "full")) == sorted([*FILES, files.MANIFEST, "notes.txt"])


@pytest.mark.parametrize("name", [*FILES, files.MANIFEST])
def test_an_output_that_lacks_a_file_is_accepted_by_nothing(tmp_path, name):
    fit(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    if name == files.MANIFEST:
        with pytest.raises(FileError, match="holds no complete output"):
            verify(tmp_path / "m")
    else:
        assert f"{name} is missing" in verify(tmp_path / "m").problems[0]
    with pytest.raises(FileError):
        predict(tmp_path / "m", tmp_path / "x.csv", tmp_path / "p.csv")


def test_a_report_of_another_run_is_found_out(tmp_path):
    fit(tmp_path / "m")
    fit(tmp_path / "other")
    os.replace(tmp_path / "other" / "report.html", tmp_path / "m" / "report.html")
    assert "report.html is not the file" in verify(tmp_path / "m").problems[0]
