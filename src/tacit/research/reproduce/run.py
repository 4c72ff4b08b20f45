"""Claims tested one after the other, and what was found written down."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import __version__
from tacit.datasets import find
from tacit.diagnostics.picture import standing_alone
from tacit.exceptions import InputError
from tacit.files import parse_json, read_text, require_writable, write_bytes
from tacit.progress import Progress, silent
from tacit.research.reproduce.claim import Claim, Finding
from tacit.research.reproduce.claims import CLAIMS
from tacit.research.reproduce.page import draw, picture_names, render_html, render_markdown
from tacit.research.reproduce.work import SEARCHES, Work

CACHE, PAGE, MARKDOWN = "cache", "reproduction.html", "REPRODUCTION.md"
SEEDS, QUICK_SEEDS = 5, 2
NOTHING: dict[str, Any] = {"tables": [], "checks": [], "figures": []}


@dataclass(frozen=True)
class Outcome:
    """A claim and what was found, or why it was not tested.

    Attributes
    ----------
    claim : Claim
        What a paper says.
    finding : Finding or None
        What was found.
    missing : str
        What was not at hand to test it.
    seconds : float
        How long it took.
    seeds : int
        Runs of each experiment.
    quick : bool
        Whether sizes were small.
    first_seed : int
        Of the runs.
    """

    claim: Claim
    finding: Finding | None
    missing: str = ""
    seconds: float = 0.0
    seeds: int = SEEDS
    quick: bool = False
    first_seed: int = 0

    @property
    def verdict(self) -> str:
        """Of the finding, or that there is none."""
        return "not tested" if self.finding is None else self.finding.verdict

    def as_dict(self) -> dict[str, Any]:
        """What the claim's JSON file holds.

        Returns
        -------
        dict
            Plain JSON values.
        """
        claim = self.claim
        return {
            "claim": claim.name,
            "source": claim.source,
            "title": claim.title,
            "says": claim.says,
            "differs": claim.differs,
            "tacit": __version__,
            "quick": self.quick,
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "seconds": round(self.seconds, 1),
            "missing": self.missing,
            **(self.finding.as_dict() if self.finding else {"verdict": self.verdict, **NOTHING}),
            "notes": list(claim.notes if self.finding else ()),
        }


def reproduce(
    names: Iterable[str] = (),
    *,
    out: Path | None = None,
    quick: bool = False,
    seeds: int | None = None,
    first_seed: int = 0,
    jobs: int = 1,
    fresh: bool = False,
    progress: Progress = silent,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Test claims, all of them unless named.

    Parameters
    ----------
    names : iterable of str
        Of `CLAIMS`.
    out : Path, optional
        Directory for a JSON file per claim, pictures, and the page of all; results
        of experiments are kept in its ``cache``, for a run that is interrupted.
    quick : bool
        Small sizes, to see that everything runs and which way effects go.
    seeds : int, optional
        Runs of each experiment with noise: 5, or 2 if quick.
    first_seed : int
        Of these runs; searches for settings have seeds of their own.
    jobs : int
        Experiments at a time.
    fresh : bool
        Compute anew what the cache holds.
    progress, tell : callable
        Shown while experiments run; called with each outcome.

    Returns
    -------
    list of Outcome
        In the order of `CLAIMS`.

    Examples
    --------
    >>> outcomes = reproduce(["song-bias"], quick=True)  # doctest: +SKIP
    """
    chosen = [_find(name) for name in names] or list(CLAIMS.values())
    seeds = (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds
    if seeds < 1 or jobs < 1:
        raise InputError(f"seeds and jobs must be at least 1, not {seeds} and {jobs}")
    if not 0 <= first_seed <= SEARCHES - seeds:
        raise InputError(
            f"first_seed must be from 0 to {SEARCHES - seeds}, not {first_seed}: seeds from "
            f"{SEARCHES} on are those of searches"
        )
    folder = None if out is None else require_writable(out)
    outcomes = []
    work = Work(
        folder and folder / CACHE, quick, seeds, jobs, fresh, progress, first_seed=first_seed
    )
    with work:
        for claim in chosen:
            outcome = test_claim(claim, work)
            outcomes.append(outcome)
            if folder is not None:
                _write(folder, outcome.as_dict())
            tell(outcome)
    return outcomes


def _find(name: str) -> Claim:
    if name not in CLAIMS:
        raise InputError(f"no claim is called {name!r}; there are {', '.join(CLAIMS)}")
    return CLAIMS[name]


def test_claim(claim: Claim, work: Work) -> Outcome:
    missing = _missing(claim)
    asked: dict[str, Any] = {"quick": work.quick, "first_seed": work.first_seed}
    if missing:
        return Outcome(claim, None, missing, seeds=work.seeds, **asked)
    work.label, work.seconds = claim.name, 0.0
    finding = claim.test(work)
    seeds = work.seeds if finding.runs is None else finding.runs
    return Outcome(claim, finding, seconds=work.seconds, seeds=seeds, **asked)


def _missing(claim: Claim) -> str:
    absent = [name for name in claim.data if not all(find(name).values())]
    packages = [name for name in claim.modules if importlib.util.find_spec(name) is None]
    words = []
    if absent:
        words.append(f"data: {', '.join(absent)} (see tacit data list)")
    if packages:
        words.append(f"packages: {', '.join(packages)}")
    return "; ".join(words)


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    """The record, its pictures, and the page of all records that are there."""
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(folder / f"{record['claim']}.json", f"{text}\n".encode())
    for name, figure in zip(picture_names(record), record["figures"], strict=True):
        write_bytes(folder / name, standing_alone(draw(figure)).encode())
    paths = [folder / f"{name}.json" for name in CLAIMS]
    records = [parse_json(read_text(path)) for path in paths if path.is_file()]
    write_bytes(folder / PAGE, render_html(records).encode())
    write_bytes(folder / MARKDOWN, render_markdown(records).encode())
