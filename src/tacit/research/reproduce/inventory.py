"""What the five papers hold, item by item, and what became of each: ``inventory.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Papers by the first word of their claims' names, in their order.
PAPERS: Mapping[str, str] = {
    "sun": "Sun, Suresh & Menon 2024",
    "song": "Song, Steinke, Thakkar & Thakurta 2021",
    "li": "Li et al. 2022",
    "pinto": "Pinto, Hu, Yang & Sanyal 2024",
    "hu": "Hu, Sanyal & Schölkopf 2024",
}
#: What may have become of an item, with the key that says more.
STATES: Mapping[str, str] = {"tested": "claim", "implemented": "where", "not possible": "why"}


@dataclass(frozen=True)
class Item:
    """A table, figure, theorem or algorithm of a paper.

    Attributes
    ----------
    paper : str
        A key of `PAPERS`.
    item : str
        "Theorem 3.1".
    state : {"tested", "implemented", "not possible"}
        What became of it.
    claims : tuple of str
        Of claims that test it.
    where, why : str
        Which module has it; what is not at hand, or wrong with it.
    """

    paper: str
    item: str
    state: str
    claims: tuple[str, ...] = ()
    where: str = ""
    why: str = ""


def read_items(listed: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Item]:
    """Items of a parsed list, in the order of the papers.

    Parameters
    ----------
    listed : mapping of sequences
        Tables of ``inventory.toml`` by paper.

    Returns
    -------
    list of Item
        All of them.

    Raises
    ------
    ValueError
        If a paper, a state or a key is not known, or what the state needs is missing.

    Examples
    --------
    >>> read_items({"sun": [{"item": "Table 9", "state": "not possible", "why": "no data"}]})[0].why
    'no data'
    """
    unknown = sorted(listed.keys() - PAPERS)
    if unknown:
        raise ValueError(f"no paper is called {unknown[0]!r}; there are {', '.join(PAPERS)}")
    return [_item(paper, facts) for paper in PAPERS for facts in listed.get(paper, ())]


def _item(paper: str, facts: Mapping[str, Any]) -> Item:
    name, state = str(facts.get("item")), str(facts.get("state"))
    if state not in STATES or set(facts) != {"item", "state", STATES[state]}:
        wanted = "; ".join(f"{state}: {key}" for state, key in STATES.items())
        raise ValueError(f"{paper}, {name!r}: an item has a name, a state and, by it, {wanted}")
    more = facts[STATES[state]]
    if not more:
        raise ValueError(f"{paper}, {name!r}: {STATES[state]} is empty")
    if state == "tested":
        return Item(paper, name, state, tuple([more] if isinstance(more, str) else more))
    if state == "implemented":
        return Item(paper, name, state, where=str(more))
    return Item(paper, name, state, why=str(more))


#: Every table, figure, theorem and algorithm of the five papers.
INVENTORY: Sequence[Item] = read_items(
    tomllib.loads(Path(__file__).with_name("inventory.toml").read_text(encoding="utf-8"))
)
