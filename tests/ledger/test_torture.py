"""Twenty processes at one ledger, a third of them killed: nothing is lost, nothing passes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ledger import torture
from tests.ledger.server import Server

from tacit import Ledger
from tacit.exceptions import BudgetError
from tacit.privacy import Gaussian
from tacit.privacy.accounting.accountants import gaussian_epsilon

PROCESSES, RESERVATIONS, KILLED = 20, 50, 7
FIT = 620  # of 1000: fewer than the survivors alone ask for, so that the limit is reached
DELTA = 1e-6


def limit(steps: float) -> float:
    return gaussian_epsilon(math.sqrt(steps) / torture.NOISE, DELTA)


def begin(url: str, folder: Path, seed: int) -> subprocess.Popen[str]:
    numbers = (PROCESSES, RESERVATIONS, KILLED, seed)
    command = [sys.executable, torture.__file__, url, "census", str(folder), *map(str, numbers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def told(folder: Path) -> dict[int, list[list[str]]]:
    logs = {int(log.stem): log.read_text() for log in folder.glob("*.log")}
    # A line is written by one call, so it is there whole or not at all.
    return {i: [line.split(" ", 1) for line in text.splitlines()] for i, text in logs.items()}


def verify(ledger: Ledger, logs: dict[int, list[list[str]]], killed: list[int]) -> None:
    assert ledger.check() == []
    assert not [line for lines in logs.values() for line in lines if line[0] == "error"]
    charges = {charge.id: charge for charge in ledger.charges()}
    got = [line[1] for lines in logs.values() for line in lines if line[0] == "got"]
    done = [line[1] for lines in logs.values() for line in lines if line[0] == "done"]
    # No reservation that anybody was given is lost, or was given to two.
    assert len(set(got)) == len(got)
    assert set(got) <= charges.keys()
    assert all(charges[id].outcome == "model" for id in done)
    # What nobody has told of was reserved by somebody who was killed before they could.
    assert len(charges.keys() - set(got)) <= len(killed)
    # Exactly as many as fit were reserved: the limit was reached, and not passed.
    assert len(charges) == FIT
    assert ledger.remaining().spent <= ledger.limits().epsilon
    with pytest.raises(BudgetError):
        ledger.reserve([("step", Gaussian(torture.NOISE))], neighbors="replace_special")
    # Whoever was not killed was answered every time.
    for i, lines in logs.items():
        answers = sum(line[0] in ("got", "refused") for line in lines)
        assert i in killed or answers == RESERVATIONS
    assert len(logs) == PROCESSES


@pytest.mark.slow
def test_processes_killed_at_a_file(tmp_path):
    # In memory, where there is no disk to wait for: a killed process has no other chances there.
    shared = Path("/dev/shm") / f"tacit-torture-{os.getpid()}.db"
    path = shared if os.access(shared.parent, os.W_OK) else tmp_path / "ledger.db"
    try:
        ledger = Ledger(path).create("census", epsilon=limit(FIT + 0.5), delta=DELTA)
        process = begin(str(path), tmp_path, seed=0)
        output, _ = process.communicate(timeout=300)
        killed = json.loads(output)
        assert len(killed) >= KILLED - 1  # one may be through before its turn
        verify(ledger, told(tmp_path), killed)
    finally:
        for end in ("", "-journal"):
            Path(f"{path}{end}").unlink(missing_ok=True)


@pytest.mark.slow
def test_processes_killed_at_a_server_that_is_restarted(server: Server, tmp_path):
    url = server.place()
    ledger = Ledger(url, timeout=60).create("census", epsilon=limit(FIT + 0.5), delta=DELTA)
    process = begin(url, tmp_path, seed=1)
    restarts, marks = 0, [300, 700]
    while process.poll() is None:
        lines = sum(len(log) for log in told(tmp_path).values())
        if marks and lines >= marks[0]:
            server.restart("immediate" if restarts == 0 else "fast")
            restarts, marks = restarts + 1, marks[1:]
        time.sleep(0.05)
    output, _ = process.communicate(timeout=300)
    assert restarts == 2
    verify(ledger, told(tmp_path), json.loads(output))
