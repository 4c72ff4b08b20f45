"""Processes that fit a model and are killed: run by `test_outputs`, in a process of its own.

Everything is imported once. A child is forked for each run, so that it begins at once, and goes
through the command line. What it is about to do it first says on standard output, one word a line.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tacit import Ledger, files
from tacit.cli.main import app
from tacit.cli.tasks.outputs import CERTIFICATE, FILES, MODEL
from tacit.cli.tasks.verify import verify
from tacit.exceptions import FileError
from tacit.ledger import DeferredLedger
from tacit.persistence import load
from tacit.privacy import Certificate

SCHEMA = """\
target: ill
classes: ["no", "yes"]
columns:
  age: {kind: number, low: 0, high: 100}
  dose: {kind: number, low: 0, high: 10}
"""
NAMES = (*FILES, files.MANIFEST)


def prepare(folder: Path) -> Ledger:
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 100, 300).round(1), rng.uniform(0, 10, 300).round(2)
    rows = [f"{a},{b},{'yes' if a > 10 * b else 'no'}" for a, b in zip(age, dose, strict=True)]
    (folder / "rows.csv").write_text("\n".join(["age,dose,ill", *rows]))
    (folder / "s.yaml").write_text(SCHEMA)
    return Ledger(folder / "ledger.db").create("people", epsilon=50.0, delta=1e-3)


def fit(folder: Path, out: Path, steps: int) -> None:
    """``tacit fit --force``, as the command line has it."""
    where = ["--schema", folder / "s.yaml", "--out", out, "--steps", steps, "--force", "--quiet"]
    spent = ["--epsilon", 0.05, "--delta", "1e-9", "--ledger", folder / "ledger.db"]
    call = ["fit", folder / "rows.csv", *where, *spent, "--dataset", "people", "--json"]
    assert not app([str(word) for word in call], standalone_mode=False)


def announce(mark: Callable[[str], object]) -> None:
    """Have every part of a run say that it is through."""
    reserve, record = DeferredLedger.reserve, DeferredLedger.record
    commit, replace, place = files.Output.commit, os.replace, files.place_output

    def reserved(self, *events, **facts):
        entry = reserve(self, *events, **facts)
        mark("reserved")
        return entry

    def committing(self, contents):
        mark("writing")
        commit(self, contents)

    def moving(source, target):
        replace(source, target)
        if Path(target).name == files.MANIFEST:
            mark("committed")

    def placed(directory):
        place(directory)
        mark("moved")

    def recorded(self):
        record(self)
        mark("recorded")

    DeferredLedger.reserve, DeferredLedger.record = reserved, recorded
    files.Output.commit, os.replace, files.place_output = committing, moving, placed


class Run:
    """A process that fits, and says which part of it begins: ``before`` is called in it first."""

    def __init__(
        self, folder: Path, out: Path, steps: int, before: Callable[[], None] | None = None
    ) -> None:
        self.marks = ["start"]
        read, write = os.pipe()
        self.process = os.fork()
        if self.process:
            os.close(write)
            self._pipe = os.fdopen(read, "rb", buffering=0)
            return
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            announce(lambda word: os.write(write, f"{word}\n".encode()))
            if before is not None:
                before()
            fit(folder, out, steps)
            code = 0
        finally:
            os._exit(code)

    def next(self) -> bool:
        """Wait until another part begins; not if the process ends before."""
        word = self._pipe.readline().decode().strip()
        self.marks += [word] if word else []
        return bool(word)

    def end(self) -> int:
        """Wait until it ends; how it did."""
        while self.next():
            pass
        self._pipe.close()
        return os.waitpid(self.process, 0)[1]


# System calls that change files: one process may be killed in front of each of them.
CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect")


def watch(folder: Path, act: Callable[[], None]) -> None:
    """Call ``act`` in front of every change to files of a folder, and of every sync."""
    sync, inside = os.fsync, str(folder)

    def see(event, arguments):
        reads = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (
            event in CHANGES
            and not reads
            and str(arguments[0]).removeprefix("file:").startswith(inside)
        ):
            act()

    def syncing(handle):
        act()
        sync(handle)

    os.fsync = syncing
    sys.addaudithook(see)


def examine(ledger: Ledger, entries: int, out: Path, before: Path | None) -> str:
    """What a killed run has left: nothing, the output before it, or its own; or an AssertionError.

    ``entries`` is how many plans were reserved before it, ``before`` a copy of the output.
    """
    charges = {charge.id: charge for charge in ledger.charges()}
    own = list(charges.values())[entries:]
    assert len(own) <= 1
    try:
        found, problems = files.find_output(out)
    except FileError:
        assert before is None, "an output was lost"
        assert not any((out / name).exists() for name in NAMES), "files stand there without a whole"
        found = {}
    mine = None
    if found:
        assert problems == [] and set(found) == set(FILES), "a part was accepted"
        certificate = Certificate.load(found[CERTIFICATE])
        assert load(found[MODEL]).certificate_ == certificate
        mine = certificate.plan["ledger"]["id"]
        assert mine in charges, "a model has no entry"
        # Nobody finds files of two outputs side by side who does not read the manifest.
        placed = {file == out / name for name, file in found.items() if (out / name).exists()}
        assert len(placed) <= 1, "files of two outputs"
    for charge in own:
        assert charge.outcome in ("not finished", "model")
        if charge.outcome == "model":
            assert mine == charge.id, "an entry says that there is a model, and there is none"
    if not found:
        return "nothing"
    if (
        before is not None
        and (before / files.MANIFEST).read_bytes() == (out / files.MANIFEST).read_bytes()
    ):
        for name, file in found.items():
            assert file.read_bytes() == (before / name).read_bytes(), "an output was changed"
        return "old"
    assert mine in [charge.id for charge in own]
    return "new"


def killer(at: int) -> Callable[[], None]:
    """Kill this process at the ``at``-th call."""
    left = iter(range(1, at))

    def act() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    return act


def tidied(folder: Path, ledger: Ledger, out: Path) -> None:
    """What a killed process has left is gone after the next run."""
    entries = len(ledger.charges())
    fit(folder, out, 2)
    assert sorted(os.listdir(out)) == sorted(NAMES), "something is left behind"
    assert examine(ledger, entries, out, None) == "new"
    assert verify(out).problems == ()


def each(folder: Path, stride: int) -> dict[str, int]:
    """Kill a process in front of changes to files, in an empty place and over an output."""
    ledger, seen = prepare(folder), dict[str, int]()
    fit(folder, folder / "before", 2)
    for before in (None, folder / "before"):
        for at in itertools.count(1, stride):
            out = folder / f"out-{at}"
            if before is not None:
                shutil.copytree(before, out)
            entries = len(ledger.charges())
            run = Run(folder, out, 2, lambda at=at: watch(folder, killer(at)))
            status = run.end()
            left = examine(ledger, entries, out, before)
            count(seen, run, left)
            if not os.WIFSIGNALED(status):
                assert (status, left) == (0, "new")
                break
            if at % 4 == 0 or run.marks[-1] == "committed":
                tidied(folder, ledger, out)
            shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(out)
    assert ledger.check() == []
    return seen


def at_random(folder: Path, times: int, seed: int) -> dict[str, int]:
    """Kill processes at random moments of random parts, every other one over an output."""
    ledger, seen, chance = prepare(folder), dict[str, int](), random.Random(seed)
    fit(folder, folder / "before", 100)
    run, moments = Run(folder, folder / "timed", 100), [time.monotonic()]
    while run.next():
        moments.append(time.monotonic())
    assert run.end() == 0
    lasts = [*np.diff(moments), 0.02]
    for i in range(times):
        out, before = folder / f"out-{i}", folder / "before" if i % 2 else None
        if before is not None:
            shutil.copytree(before, out)
        entries, part = len(ledger.charges()), chance.randrange(len(lasts))
        run = Run(folder, out, 100)
        while len(run.marks) <= part and run.next():
            pass
        time.sleep(chance.uniform(0, lasts[part]))
        os.kill(run.process, signal.SIGKILL)
        run.end()
        count(seen, run, examine(ledger, entries, out, before))
        if i % 10 == 0:
            tidied(folder, ledger, out)
        shutil.rmtree(out, ignore_errors=True)
    assert ledger.check() == []
    return seen


def count(seen: dict[str, int], run: Run, left: str) -> None:
    where = f"{run.marks[-1]}: {left}"
    seen[where] = seen.get(where, 0) + 1


if __name__ == "__main__":
    logging.disable()
    place, how, *numbers = sys.argv[1:]
    print(json.dumps({"each": each, "random": at_random}[how](Path(place), *map(int, numbers))))
