"""Files of earlier versions, read as they were meant.

They were written by the version in their name (``tests/old/write.py``), and are never written anew:
what events, certificates, models and ledgers may change is in ``docs/decisions/0045``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.old.write import EVENTS, GAMMA, PERSON

from tacit import Ledger
from tacit.persistence import load
from tacit.privacy import Certificate, Gaussian, Unit
from tacit.privacy.events import EVENTS as KINDS
from tacit.privacy.unit import ROW

OLD = Path(__file__).parent / "old"
CERTIFICATES = sorted([*OLD.glob("*.json"), *(OLD.parent / "privacy" / "old").glob("*.json")])


def test_there_are_files_of_every_kind():
    assert {path.suffix for path in OLD.iterdir()} >= {".json", ".safetensors", ".db"}
    assert len(CERTIFICATES) == 4
    text = "".join(path.read_text("utf-8") for path in CERTIFICATES)
    assert all(f'"kind": "{kind}"' in text for kind in KINDS)


@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: path.stem)
def test_a_certificate_is_written_again_as_it_was(path):
    data = json.loads(path.read_text("utf-8"))
    found = Certificate.load(path)
    assert found.to_dict() == data and found.digest == data["digest"]
    assert found.unit == (PERSON if path.stem.startswith("person") else ROW)


@pytest.mark.parametrize(
    "name, events", [("every-event-0.2.0", EVENTS), ("person-0.2.0", GAMMA)], ids=["all", "gamma"]
)
def test_events_mean_what_they_meant_and_cost_no_more(name, events):
    found = Certificate.load(OLD / f"{name}.json")
    assert {item.stage: item.event for item in found.events} == events
    assert found.verify().holds


def test_a_model_predicts_as_it_did():
    found = load(OLD / "model-0.2.0.safetensors")
    rows = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5], [-3.0, 1.0, 2.0]])
    scores = [0.15925162646871865, -0.3904726131179607, -0.8585599593166857]
    assert found.decision_function(rows).tolist() == pytest.approx(scores, rel=1e-12)
    assert list(found.classes_) == ["no", "yes"]
    assert found.certificate_.verify().holds and found.certificate_.unit == ROW
    assert not found.certificate_.releasable  # it was seeded


def test_a_ledger_goes_on_where_it_was(tmp_path):
    path = tmp_path / "ledger.db"
    shutil.copy(OLD / "ledger-0.2.0.db", path)
    book = Ledger(path)
    assert book.datasets() == ["people", "rows"]
    limits = [book.limits(name) for name in book.datasets()]
    assert [(one.epsilon, one.delta, one.neighbors, one.unit) for one in limits] == [
        (2.0, 1e-5, "replace_special", PERSON),
        (5.0, 1e-5, "replace_one", ROW),
    ]
    charges = book.charges("rows")
    assert dict(charges[0].spending.events) == EVENTS
    assert [one.outcome for one in charges] == ["model", "not finished"]
    spent = book.remaining("rows").spent
    assert spent == pytest.approx(1.3731, rel=0.01)
    assert book.check() == []
    book.at("rows").reserve([("Mean", Gaussian(60.0))], neighbors="replace_one").commit()
    assert book.remaining("rows").spent > spent
    people = book.at("people")
    people.reserve([("Mean", Gaussian(60.0))], neighbors="replace_special", unit=PERSON)
    assert book.check() == [] and Unit.from_dict(book.entries("people")[0].facts["unit"]) == PERSON
