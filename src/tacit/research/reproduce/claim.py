"""A claim of a paper: what it says, how to test it, and what was found.

Verdicts are never written down: they follow from checks, and checks from measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tacit.research.reproduce.work import Work

M = TypeVar("M")


@dataclass(frozen=True)
class Measured:
    """A mean over runs that differ in their seed, and their standard deviation.

    Attributes
    ----------
    mean, spread : float
        Mean and standard deviation.
    runs : int
        How many.
    digits : int
        Behind the point, when shown.

    Examples
    --------
    >>> str(Measured.of([91.2, 91.4, 91.6], digits=1))
    '91.4 ± 0.2'
    >>> str(Measured.of([0.00041], digits=2))
    '0.00'
    """

    mean: float
    spread: float
    runs: int
    digits: int = 1

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray, digits: int = 1) -> Measured:
        """From the runs' results; ``digits`` behind the point are shown.

        Parameters
        ----------
        values : sequence of float
            The runs' results.
        digits : int
            Behind the point, when shown.

        Returns
        -------
        Measured
            Their mean and spread.
        """
        found = np.asarray(values, dtype=float)
        spread = float(found.std(ddof=1)) if len(found) > 1 else 0.0
        return cls(float(found.mean()), spread, len(found), digits)

    def error_beside(self, other: Measured) -> float:
        """Standard error of the difference to another mean.

        Parameters
        ----------
        other : Measured
            Of other runs.

        Returns
        -------
        float
            Not negative.
        """
        return float((self.spread**2 / self.runs + other.spread**2 / other.runs) ** 0.5)

    def __str__(self) -> str:
        shown = f"{self.mean:.{self.digits}f}"
        return f"{shown} ± {self.spread:.{self.digits}f}" if self.runs > 1 else shown


#: Of a table: words, a number, what was measured, or nothing.
Cell: TypeAlias = str | float | Measured | None


@dataclass(frozen=True)
class Table:
    """Paper and ours side by side; the first column names the row.

    Attributes
    ----------
    columns : sequence of str
        Their heads.
    rows : sequence of sequences
        Cells.
    title : str
        What is shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """Named curves (x, y) in one frame; with ``log``, both axes in powers of ten.

    Attributes
    ----------
    title, across : str
        What is shown, and what the horizontal axis is.
    curves : mapping of str to (sequence, sequence)
        x and y by name.
    log : bool
        Whether axes are logarithmic.
    """

    title: str
    across: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log: bool = False


@dataclass(frozen=True)
class Null:
    """A check's rule where there is nothing to find: it must fail there.

    Attributes
    ----------
    what : str
        What was taken away: "labels permuted", "an untrained model", "both arms the same".
    holds : bool
        Whether the statement held all the same, so that it says nothing.
    found : str
        The numbers.
    """

    what: str
    holds: bool
    found: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", bool(self.holds))


@dataclass(frozen=True)
class Check:
    """One statement, whether it holds here, and the numbers that say so.

    Most are made by `judge`, which puts one rule to what was measured and to a null.

    Attributes
    ----------
    text : str
        The statement, as one would read it: "DPSGD-F is ahead on every set".
    holds : bool
        Computed from measurements.
    found : str
        The numbers: "+4.6, +6.8 and +1.0 points".
    paper : bool
        Whether the paper claims it. The verdict follows from these alone; others
        are what is shown beside, such as corrected values.
    null : Null or None
        The same rule where there is no effect.
    changed : str
        If the rule was moved, loosened or renamed after its outcome was seen: the date, and
        what was changed: "2026-11-18: from five points to three".
    """

    text: str
    holds: bool
    found: str
    paper: bool = True
    null: Null | None = None
    changed: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", bool(self.holds))  # NumPy's own is not JSON

    @classmethod
    def judge(
        cls,
        text: str,
        rule: Callable[[M], tuple[bool, str]],
        measured: M,
        *,
        null: M,
        without: str,
        paper: bool = True,
        changed: str = "",
    ) -> Self:
        """Put one rule to what was measured, and to what is measured where there is no effect.

        Parameters
        ----------
        text : str
            The statement.
        rule : callable
            Takes measurements; returns whether the statement holds of them, and the numbers.
        measured, null : object
            What was measured; the same of a run without the effect.
        without : str
            What was taken away for the null.
        paper : bool
            Whether the paper claims it.
        changed : str
            When and how the rule was changed after its outcome was seen.

        Returns
        -------
        Check
            With its null.

        Examples
        --------
        >>> ahead = lambda lead: (lead > 0.5, f"{lead:+.1f} points")
        >>> check = Check.judge("it leads", ahead, 4.6, null=-0.1, without="labels permuted")
        >>> check.holds, check.null.holds, check.null.found
        (True, False, '-0.1 points')
        """
        holds, found = rule(measured)
        nothing, shown = rule(null)
        return cls(text, holds, found, paper, Null(without, nothing, shown), changed)


@dataclass(frozen=True)
class Finding:
    """What testing a claim gave.

    Attributes
    ----------
    tables : sequence of Table
        Numbers, ours beside the paper's.
    checks : sequence of Check
        What the claim comes down to.
    figures : sequence of Figure
        Pictures.
    runs : int or None
        Runs with different noise.
    """

    tables: Sequence[Table]
    checks: Sequence[Check]
    figures: Sequence[Figure] = ()
    runs: int | None = None  # where not as many as asked for

    @property
    def verdict(self) -> str:
        """Of the paper's statements: ``holds``, ``holds in part`` or ``does not hold``.

        Examples
        --------
        >>> Finding([], [Check("a", True, "1 < 2"), Check("b", False, "3 < 2")]).verdict
        'holds in part'
        """
        held = [check.holds for check in self.checks if check.paper]
        if not held:
            raise ValueError("a finding needs a check of what the paper says")
        return "holds" if all(held) else "holds in part" if any(held) else "does not hold"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; numbers that are not finite become words.

        Returns
        -------
        dict
            Attributes by name.
        """
        plain: dict[str, Any] = _plain(asdict(self))
        del plain["runs"]
        return {"verdict": self.verdict, **plain}


@dataclass(frozen=True)
class Claim:
    """A table, figure or theorem of a paper, and the experiment that tests it.

    Attributes
    ----------
    name : str
        What ``tacit reproduce NAME`` takes.
    source : str
        "Sun et al. 2024, Table 1".
    title, says : str
        What it is about, and what the paper says, in our words and with its numbers.
    test : callable
        Takes a `Work`, which runs and remembers experiments, and returns a `Finding`.
    data : tuple of str
        Data sets it cannot do without.
    modules : tuple of str
        Python packages of an extra that it cannot do without.
    differs : str
        Where our data, features or formulas are not the paper's.
    notes : tuple of str
        What readers should know.
    """

    name: str
    source: str
    title: str
    says: str
    test: Callable[[Work], Finding] = field(repr=False)
    data: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    differs: str = ""
    notes: tuple[str, ...] = ()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
