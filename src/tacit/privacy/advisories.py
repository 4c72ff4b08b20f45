"""Which versions and plans were found to be false after their certificates were issued.

A certificate cannot be called back, and its events still cost what they say: what was wrong is
what they stood for. The list is a file of this package, ``advisories.json``. An entry applies to
certificates of the versions that it names whose plan matches: *stages* are patterns that must be
found in this order, others possibly between them; whatever else it names must be so in the plan.
What a certificate does not tell counts as a match.

Nothing is fetched: a version knows the advisories that were known when it was released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from tacit.exceptions import FileError
from tacit.files import parse_json, read_text

FORMAT = "tacit-advisories/1"
PATH = Path(__file__).with_name("advisories.json")
PACKAGE = "tacit"
_RELEASE = re.compile(r"(\d{1,9}(?:\.\d{1,9}){0,5})(.*)", re.DOTALL)


#: Kinds of stages by the names that certificates below 0.2.0 have for them.
FORMER_KINDS = {"plain": "noiseless"}


@dataclass(frozen=True)
class Advisory:
    """An error of ours that makes certificates false.

    Attributes
    ----------
    id : str
    date : str
        When it was published, as in ISO 8601.
    summary : str
        What was false.
    below : str
        Versions below this one are affected.
    fixed_in : str
        The first version without the error.
    match : mapping
        Which plans are affected.
    """

    id: str
    date: str
    summary: str
    below: str
    fixed_in: str
    match: Mapping[str, Any]

    def __str__(self) -> str:
        return (
            f"revoked: {self.id} of {self.date}: {self.summary} Versions below {self.below} are "
            f"affected; fit again with {self.fixed_in} or later."
        )

    def applies(self, plan: Mapping[str, Any], versions: Mapping[str, Any]) -> bool:
        """Whether a certificate of this plan, issued by these versions, is affected."""
        if not _may_be_below(versions.get(PACKAGE), self.below):
            return False
        others = {key: value for key, value in self.match.items() if key != "stages"}
        stages = [_in_words_of_now(stage) for stage in plan.get("stages", ())]
        return _agrees(others, plan) and _in_order(self.match.get("stages", ()), stages)


def _in_words_of_now(stage: Any) -> Any:
    """A stage of a certificate, its kind by the name that it has today."""
    if not isinstance(stage, Mapping) or stage.get("kind") not in FORMER_KINDS:
        return stage
    return {**stage, "kind": FORMER_KINDS[stage["kind"]]}


def matching(plan: Mapping[str, Any], versions: Mapping[str, Any]) -> tuple[Advisory, ...]:
    """The advisories that a certificate falls under.

    Parameters
    ----------
    plan, versions : mapping
        As in the certificate.

    Examples
    --------
    >>> stages = [{"name": "Dedup", "kind": "plain"}, {"name": "SoftPCA", "kind": "plain"}]
    >>> plan = {"stages": stages, "intercept": True}
    >>> [advisory.id for advisory in matching(plan, {"tacit": "0.1.0"})]
    ['TACIT-2026-001']
    >>> matching(plan, {"tacit": "0.2.0"})
    ()
    """
    return tuple(item for item in advisories(PATH) if item.applies(plan, versions))


@cache
def advisories(path: Path) -> tuple[Advisory, ...]:
    """All advisories that this version knows; a `FileError` if they cannot be read whole."""
    try:
        data = parse_json(read_text(path, limit=1 << 20))
        if set(data) != {"format", "advisories"} or data["format"] != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        listed = tuple(_read(entry) for entry in data["advisories"])
        if not listed:
            raise ValueError("it lists nothing")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise FileError(
            f"{path.name}, which says what certificates were revoked, is damaged or missing, so "
            f"none can be checked: {error!s:.200}. Reinstall {PACKAGE}."
        ) from error
    return listed


def _read(entry: Mapping[str, Any]) -> Advisory:
    """An entry of the file; what is not understood must not be passed over."""
    if set(entry) != {"id", "date", "summary", "affected", "fixed_in", "match"}:
        raise ValueError(f"an entry has {', '.join(sorted(map(str, entry)))}")
    if set(entry["affected"]) != {"below"}:
        raise ValueError("it must say below which version")
    below, match = entry["affected"]["below"], entry["match"]
    texts = (entry["id"], entry["date"], entry["summary"], below, entry["fixed_in"])
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError("an entry must consist of texts")
    date.fromisoformat(entry["date"])
    for version in (below, entry["fixed_in"]):
        if _release(version) is None or _release(version)[1]:  # type: ignore[index]
            raise ValueError(f"{version!r} is not the number of a release")
    if not isinstance(match, Mapping) or not match:
        raise ValueError("an entry must say which plans it is about")
    stages = match.get("stages", [])
    patterns = isinstance(stages, list) and all(isinstance(x, Mapping) and x for x in stages)
    others = [value for key, value in match.items() if key != "stages"]
    if not patterns or not all(isinstance(x, bool | str) for x in others):
        raise ValueError("it is not clear which plans an entry is about")
    return Advisory(*texts, match)


def _release(version: Any) -> tuple[tuple[int, ...], str] | None:
    """Numbers of a release without zeros at the end, and what follows them."""
    matched = _RELEASE.fullmatch(version) if isinstance(version, str) else None
    if matched is None:
        return None
    numbers = [int(part) for part in matched[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), matched[2]


def _may_be_below(version: Any, limit: str) -> bool:
    """Whether a version is below a release, or may be: what comes before it, or is unknown."""
    own, other = _release(version), _release(limit)
    assert other is not None
    if own is None or own[0] < other[0]:
        return True
    return own[0] == other[0] and bool(own[1]) and not own[1].startswith((".post", "+"))


def _agrees(pattern: Mapping[str, Any], given: Any) -> bool:
    """Whether nothing that is given says otherwise."""
    if not isinstance(given, Mapping):
        return True
    return all(
        key not in given or type(given[key]) is not type(value) or given[key] == value
        for key, value in pattern.items()
    )


def _in_order(patterns: Sequence[Mapping[str, Any]], stages: Any) -> bool:
    """Whether each pattern has a stage, one behind the other."""
    left = iter(stages if isinstance(stages, list | tuple) else ())
    return all(any(_agrees(pattern, stage) for stage in left) for pattern in patterns)
