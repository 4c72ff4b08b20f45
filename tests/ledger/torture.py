"""Many processes at one ledger, some of them killed: run by test_torture.py.

usage: torture.py URL DATASET FOLDER PROCESSES RESERVATIONS KILLED SEED

Process i appends to FOLDER/i.log, before and after whatever it does: "try", then the id of a
reservation, or "refused", or an error; "done" and an id once that is committed. The last line on
standard output names the processes that were killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tacit.exceptions import BudgetError, LedgerError
from tacit.ledger import Ledger, store  # noqa: F401  what is imported here is not by each child
from tacit.privacy import Gaussian

NOISE = 20.0


def work(ledger: Ledger, log: Path, reservations: int) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(*words: str) -> None:
        os.write(file, (" ".join(words) + "\n").encode())

    for k in range(reservations):
        write("try")
        try:
            held = ledger.reserve([("step", Gaussian(NOISE))], neighbors="replace_special")
            write("got", held.id)
            if k % 3 == 0:
                held.commit("model", "0" * 64)
                write("done", held.id)
        except BudgetError:
            write("refused")
        except LedgerError as error:
            write("error", str(error))


def lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def main(url: str, dataset: str, folder: str, *numbers: str) -> None:
    processes, reservations, killed, seed = map(int, numbers)
    ledger, logs = Ledger(url, dataset, timeout=60), Path(folder)
    chance = random.Random(seed)
    children = {}
    for i in range(processes):
        child = os.fork()
        if child == 0:
            try:
                work(ledger, logs / f"{i}.log", reservations)
            finally:
                os._exit(0)
        children[i] = child
    # Each victim is killed somewhere in the middle of something.
    victims = {i: chance.randint(1, reservations) for i in chance.sample(range(processes), killed)}
    waiting, fell = dict(victims), []
    while waiting:
        for i, enough in list(waiting.items()):
            gone, _ = os.waitpid(children[i], os.WNOHANG)
            if gone:
                del waiting[i], children[i]
            elif lines(logs / f"{i}.log") >= enough:
                time.sleep(chance.uniform(0, 0.02))
                os.kill(children[i], signal.SIGKILL)
                del waiting[i]
                fell.append(i)
        time.sleep(0.002)
    for child in children.values():
        os.waitpid(child, 0)
    print(json.dumps(fell))


if __name__ == "__main__":
    main(*sys.argv[1:])
