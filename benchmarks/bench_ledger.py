"""Time of a reservation, and of what is left, beside many kinds of sampled plans in a ledger.

Processor time. "First" is what composes plans of which nothing was kept, as an older program left
them; "new process" opens a ledger with what was kept, imports not counted; "again" is the same
process once more. The last column is the size of the file, with what is kept in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit import Ledger
from tacit.ledger import store
from tacit.ledger.ledger import BOOKS
from tacit.ledger.spending import Spending
from tacit.ledger.store import Store
from tacit.privacy import Gaussian, PoissonGaussian
from tacit.privacy.accounting.accountants import epsilon

KINDS = (10, 80, 300, 1000)
GAUSSIAN = (1_000, 100_000)  # plans of full batches, whose account is a closed form
LIMITS = {"reserve": 0.2, "remaining": 0.5}  # seconds, at 1,000 kinds
RELATION = "replace_special"


def sampled(k: int) -> Spending:
    event = PoissonGaussian(3.0 + 0.005 * k, 20 + k % 37, 0.005 + 1e-6 * k)
    return Spending((("DPSGD", event),), draws=1000)


def gaussian(k: int) -> Spending:
    return Spending((("DPGD", Gaussian(1e5 + k)),), draws=1000)


def fill(ledger: Ledger, plans: int, plan: Callable[[int], Spending]) -> None:
    def work(journal: store.Journal) -> None:
        for k in range(plans):
            facts = plan(k).to_dict() | {"budget": [0.1, 1e-6], "plan": {}, "together": 0.1}
            at = "2026-01-01T00:00:00+00:00"
            journal.append("census", k + 2, f"{k:032x}", kind="reserve", at=at, **facts)

    Store(ledger.address).write(work)
    BOOKS.clear()


def seconds(work: Callable[..., Any], *arguments: Any) -> float:
    start = time.process_time()
    work(*arguments)
    return time.process_time() - start


def reserve(ledger: Ledger, noise: float) -> None:
    ledger.reserve([("DPSGD", PoissonGaussian(noise, 100, 0.01))], neighbors=RELATION)


def child(path: str, what: str) -> None:
    """One measurement in a process of its own, twice."""
    epsilon([PoissonGaussian(9.0, 2, 0.1)], 1e-6, RELATION)  # what is imported on first use
    other = Ledger(f"{path}.other").create("census", epsilon=2.0, delta=1e-6)
    reserve(other, 40.0)
    other.remaining()
    ledger = Ledger(path, "census")
    found = []
    for k in range(2):
        if what == "reserve":
            found.append(seconds(reserve, ledger, 30.0 + k))
        else:
            found.append(seconds(ledger.remaining))
    Path(f"{path}.other").unlink()
    print(json.dumps(found))


def measured(path: str, what: str) -> list[float]:
    command = [sys.executable, __file__, "--child", path, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", type=int, nargs="*", default=KINDS)
    parser.add_argument("--gaussian", type=int, nargs="*", default=GAUSSIAN)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    results = []
    cases = [("sampled", n, sampled) for n in options.kinds]
    cases += [("gaussian", n, gaussian) for n in options.gaussian]
    for name, plans, plan in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "ledger.db")
            ledger = Ledger(path).create("census", epsilon=2.0, delta=1e-6)
            fill(ledger, plans, plan)
            r: dict[str, Any] = {"plans": name, "number": plans}
            r["first"] = seconds(reserve, ledger, 25.0)
            for what in ("reserve", "remaining"):
                r[what], r[f"{what} again"] = measured(path, what)
            r["megabytes"] = os.path.getsize(path) / 1e6
            results.append(r)
            if not options.json:
                print(*(f"{k} {v:.4g}" if isinstance(v, float) else v for k, v in r.items()))
    if options.json:
        print(json.dumps({"limits": LIMITS, "results": results}, indent=2))


if __name__ == "__main__":
    main()
