"""Write files of this version, for later versions to read: ``python -m tests.old.write``.

Run once for each version that changes a format, and never for files that are there already.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

import tacit
from tacit import DPLinearClassifier, Ledger
from tacit.persistence import save
from tacit.preprocessing import ClipNorm, PrivateCenter
from tacit.privacy import (
    Certificate,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
    Unit,
)
from tacit.privacy.accounting.accountants import epsilon
from tacit.trainers import DPGD

HERE = Path(__file__).parent
PERSON = Unit("person", 5, "patient")
#: One of every kind, some within others; gamma noise is counted beside Gaussian noise only.
EVENTS = {
    "Mean": Gaussian(20.0, 2),
    "Keys": Failure(1e-7, count=2),
    "Radius": Selection(60.0),
    "Training": PoissonGaussian(4.0, 9, 0.1, drift=((0.25, 0.1), (0.75, 0.02)), failure=1e-8),
    "Pass": Iterated(30.0, steps=20),
    "Search": Repeated(trial=[[Gaussian(90.0, 3)], [Selection(200.0)]], rate=0.25),
    "Parts": Parallel([[Gaussian(25.0), Failure(1e-8)], [PoissonGaussian(6.0, 5, 0.2)]], count=2),
}
GAMMA = {"Mean": Gaussian(20.0), "Steps": Gamma(30.0, 5, sampling_probability=0.5)}


def certificate(events: dict, neighbors: str, **fields) -> Certificate:
    cost = epsilon(list(events.values()), 9e-6, neighbors)
    return Certificate.issue(
        epsilon=cost * 1.001,
        delta=1e-5,
        neighbors=neighbors,
        spent=list(events.items()),
        assumptions=["the number of rows, 1000, is public"],
        numerical_delta=1e-6,
        plan={"stages": [], "rows": 1000},
        versions={"tacit": tacit.__version__},
        created="2026-11-18T00:00:00+00:00",
        **fields,
    )


def model() -> DPLinearClassifier:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.array(["no", "yes"])[rng.integers(0, 2, 200)]
    stages = [ClipNorm(2.0), PrivateCenter()]
    how = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0}
    return DPLinearClassifier(stages=stages, trainer=DPGD(steps=3), **how).fit(X, y)


def ledger(path: Path) -> None:
    book = Ledger(path)
    rows = book.create("rows", epsilon=4.0, delta=1e-5, neighbors="replace_one")
    people = book.create("people", epsilon=2.0, delta=1e-5, unit=PERSON)
    first = rows.reserve(
        list(EVENTS.items()), neighbors="replace_one", draws=100, failure=1e-8, plan={"steps": []}
    )
    first.commit("model", "0" * 64)
    rows.amend(epsilon=5.0, reason="board, 12 May")
    rows.reserve([("Mean", Gaussian(50.0))], neighbors="replace_one")
    people.reserve([("Mean", Gaussian(9.0))], neighbors="replace_special", unit=PERSON).commit()
    with sqlite3.connect(path) as file:  # large, and composed anew where it is missing
        file.execute("delete from tacit_composed")
    file.execute("vacuum")
    file.close()


def main() -> None:
    name = tacit.__version__
    certificate(EVENTS, "replace_one").save(HERE / f"every-event-{name}.json")
    certificate(GAMMA, "replace_special", unit=PERSON).save(HERE / f"person-{name}.json")
    save(model(), HERE / f"model-{name}.safetensors")
    ledger(HERE / f"ledger-{name}.db")


if __name__ == "__main__":
    main()
