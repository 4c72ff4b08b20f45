"""Entries as text, and the hash chain that runs through them.

The text of an entry is the entry: canonical JSON that holds its number, its data set, its id and
the hash of the entry before it. Its own hash is BLAKE2b-256 of that text. So a text that was
edited does not have its hash, and one that was removed, added or moved is missed by its
neighbour's ``previous``, or by the head, which the ledger keeps apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tacit.exceptions import LedgerError
from tacit.files import parse_json

FORMAT = "tacit-ledger/1"
KINDS = ("open", "amend", "join", "reserve", "commit")
LONGEST_ENTRY = 1 << 18  # characters of an entry


class Tampered(LedgerError):
    """Entries are not as they were written."""


class Row(NamedTuple):
    """An entry as it is stored; all columns but ``hash`` repeat what the text says."""

    number: int
    dataset: str
    id: str
    body: str
    hash: str


def digest(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=32).hexdigest()


#: What the first entry follows.
ORIGIN = digest(FORMAT)


def canonical(body: Mapping[str, Any]) -> str:
    """JSON with one spelling: sorted keys, no blanks, ASCII."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse(row: Row) -> dict[str, Any]:
    """What a stored entry says, if its columns and its hash agree with it."""
    if digest(row.body) != row.hash:
        raise Tampered(f"entry {row.number} was edited: its text does not have its hash")
    try:
        body = parse_json(row.body) if len(row.body) <= LONGEST_ENTRY else None
    except ValueError:
        raise Tampered(f"entry {row.number} is damaged: its text is not JSON") from None
    if not isinstance(body, dict) or body.get("kind") not in KINDS:
        raise Tampered(f"entry {row.number} is damaged: its text is not an entry")
    columns = body.get("number"), body.get("dataset"), body.get("id")
    if columns != (row.number, row.dataset, row.id):
        raise Tampered(
            f"entry {row.number} was edited: its number, data set and id are not what its text says"
        )
    return body


def follow(rows: Iterable[Row], number: int, hash: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Entries, with what they say, if each follows the one before it.

    ``number`` and ``hash`` are those of the entry in front of the first.
    """
    for row in rows:
        body = parse(row)
        if row.number != number + 1 or body.get("previous") != hash:
            raise Tampered(
                f"entry {row.number} does not follow the one before it: entries were edited, "
                "deleted, moved or added"
            )
        yield row, body
        number, hash = row.number, row.hash


def broken(rows: Iterable[Row], count: int, head: str) -> list[str]:
    """What is wrong with the chain, in words: nothing, if it is as it was written.

    ``count`` and ``head`` are what the ledger says of its last entry.
    """
    problems: list[str] = []
    number, hash = 0, ORIGIN
    for row in rows:
        if row.number > number + 1:
            gone = "entry" if row.number == number + 2 else f"entries {number + 1} to"
            problems.append(f"{gone} {row.number - 1} missing: deleted, or moved elsewhere")
        try:
            list(follow([row], row.number - 1 if row.number > number + 1 else number, hash))
        except Tampered as problem:
            problems.append(str(problem))
        number, hash = row.number, row.hash
    if number != count:
        problems.append(
            f"the ledger counts {count} entries, and the last one is {number}: entries at its end "
            "were deleted or added"
        )
    if hash != head:
        problems.append("the last entry is not the one that the ledger names as its head")
    return problems
