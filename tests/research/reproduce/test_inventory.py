"""The list of what the papers hold, beside the claims that test it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tacit.files import parse_json, read_text
from tacit.research.reproduce import CLAIMS
from tacit.research.reproduce.inventory import INVENTORY, PAPERS, read_items

FOLDER = Path(__file__).parents[3] / "docs" / "reproduction"


def test_every_claim_is_of_an_item_and_every_tested_item_has_its_claims():
    named = {name for item in INVENTORY for name in item.claims}
    assert named == set(CLAIMS)
    foreign = [
        (item.paper, name)
        for item in INVENTORY
        for name in item.claims
        if not name.startswith(f"{item.paper}-")
    ]
    assert not foreign


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_s_items_are_listed_once(paper):
    names = [item.item for item in INVENTORY if item.paper == paper]
    assert names and len(names) == len(set(names))


def test_what_is_implemented_is_there():
    for item in INVENTORY:
        for name in re.findall(r"[a-z_]+(?:\.[A-Za-z_]+)+", item.where):
            found = _resolve(f"tacit.{name.removeprefix('tacit.')}")
            assert found, f"{item.paper}, {item.item}: no {name}"


def _resolve(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.json")])
def test_every_committed_check_of_a_paper_has_a_null_on_which_it_fails(name):
    record = parse_json(read_text(FOLDER / f"{name}.json"))
    assert not record["quick"] and record["first_seed"] > 0
    for check in record["checks"]:
        if check["paper"]:
            assert check["null"] and not check["null"]["holds"], check["text"]


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ({"nobody": []}, "no paper is called 'nobody'"),
        ({"sun": [{"item": "Table 1", "state": "tested"}]}, "by it, tested: claim"),
        ({"sun": [{"item": "Table 1", "state": "done", "claim": "x"}]}, "an item has a name"),
        ({"sun": [{"item": "Table 1", "state": "tested", "claim": []}]}, "claim is empty"),
        ({"sun": [{"item": "T", "state": "tested", "claim": "x", "why": "y"}]}, "has a name"),
    ],
)
def test_a_list_that_says_too_little_is_refused(listed, words):
    with pytest.raises(ValueError, match=words):
        read_items(listed)
