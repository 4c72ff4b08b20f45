"""Columns of a schema: what may be known of each before a row is read, and what may not.

A bound or a list of categories that is not known is *private*: it is `None` here and
``private`` in a file, and a private stage must find it, through noise.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tacit.data.cells import (
    BOOLEAN,
    YEARS,
    as_number,
    as_seconds,
    is_date,
    is_missing,
    match_key,
    plain,
    seconds_of,
    year_or_seconds,
)
from tacit.exceptions import SchemaError, shown

__all__ = [
    "BOOLEAN",
    "CategoryColumn",
    "Column",
    "DateColumn",
    "NumberColumn",
    "UnknownColumn",
    "default_column",
    "parse_column",
]

PRIVATE = "private"  # in files and dicts, for what is not known
NONE = "none"  # for a list of categories of which noise has left none
NUMBER_MISSING = ("middle", "low", "high", "indicator", "gap", "error")
NUMBER_SCALES = ("linear", "log")
NUMBER_SHAPES = ("auto", "straight", "hat")
MONOTONE = ("increasing", "decreasing")
CATEGORY_POLICIES = ("zeros", "level", "error")  # for missing and for unseen

DEFAULT_KNOTS = 12  # of a hat shape that does not say
MOST_KNOTS = 1000
LONGEST_HINT = 100  # letters of a name


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers between bounds; values outside are clamped.

    Parameters
    ----------
    low, high : float or None
        Public bounds, finite, low < high; None for one that is private.
    missing : {"middle", "low", "high", "indicator", "gap", "error"}
        What a missing value becomes: the middle or an end of the encoded range;
        0 with a further 0/1 column that marks it; a gap, which a later stage must
        fill; or a refusal, which reveals that there is one.
    scale : {"linear", "log"}
        ``linear`` maps [low, high] to [-1, 1]. ``log`` maps it to [0, 1] by
        log1p(value - low) / log1p(high - low), for amounts of which most are
        near low and a few are large.
    shape : {"auto", "straight", "hat"}
        One number, or a line and a curve: weights of the two ends, of the two knots that a
        value lies between, and of a missing value.
    knots : int or sequence of float, optional
        Of a hat shape: how many, or where they are.
    monotone : {"increasing", "decreasing"}, optional
        Which way a model may go along this column.

    Examples
    --------
    >>> NumberColumn(0, 120).feature_names("age")
    ['age']
    >>> NumberColumn(0).private
    True
    """

    kind: ClassVar[str] = "number"
    low: float | None = None
    high: float | None = None
    missing: str = "middle"
    scale: str = "linear"
    shape: str = "auto"
    knots: int | tuple[float, ...] | None = None
    monotone: str | None = None

    def __post_init__(self) -> None:
        low, high = (self._bound(key, getattr(self, key)) for key in ("low", "high"))
        if low is not None and high is not None and not _apart(low, high):
            raise SchemaError(
                "low must be less than high, a finite way apart and no less than "
                f"{sys.float_info.min:.3g}; they are {plain(low)} and {plain(high)}"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        _one_of("missing", self.missing, NUMBER_MISSING)
        _one_of("scale", self.scale, NUMBER_SCALES)
        _one_of("shape", self.shape, NUMBER_SHAPES)
        if self.monotone is not None:
            _one_of("monotone", self.monotone, MONOTONE)
        object.__setattr__(self, "knots", self._knots())

    def _bound(self, key: str, value: Any) -> float | None:
        return None if _is_private(value) else _finite(key, value)

    def _knots(self) -> int | tuple[float, ...] | None:
        knots = self.knots
        if knots is None:
            return None
        if isinstance(knots, int) and not isinstance(knots, bool):
            if not 2 <= knots <= MOST_KNOTS:
                raise SchemaError(f"knots must be from 2 to {MOST_KNOTS}")
            return knots
        if isinstance(knots, str | Mapping) or not isinstance(knots, Sequence | np.ndarray):
            raise SchemaError("knots must be how many there are, or a list of where they are")
        if not 2 <= len(knots) <= MOST_KNOTS:
            raise SchemaError(f"knots must be from 2 to {MOST_KNOTS}")
        places = tuple(_finite("knots", self._bound("knots", knot)) for knot in knots)
        if any(not _apart(*pair) for pair in pairwise(places)):
            raise SchemaError("knots must grow from one to the next")
        return places

    @property
    def private(self) -> bool:
        """Whether a bound must be found before a value can be encoded."""
        return self.low is None or self.high is None

    @property
    def ends(self) -> tuple[float, float]:
        """Both bounds, which must not be private."""
        if self.low is None or self.high is None:
            raise SchemaError("its bounds are private: they must be found, or given, first")
        return self.low, self.high

    @property
    def width(self) -> int:
        """Columns after encoding."""
        if self.shape == "hat":
            return self.knot_count + 3
        return 2 if self.missing == "indicator" else 1

    @property
    def knot_count(self) -> int:
        """Knots of a hat shape."""
        if self.knots is None:
            return DEFAULT_KNOTS
        return self.knots if isinstance(self.knots, int) else len(self.knots)

    def feature_names(self, name: str) -> list[str]:
        """Names of the encoded columns.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        list of str
            Its own, or one for each knot, and that of the mark of missing values if there is one.
        """
        if self.shape == "hat":
            knots = [f"{name}[{i}]" for i in range(self.knot_count)]
            return [f"{name}[low]", f"{name}[high]", *knots, f"{name}=<missing>"]
        return [name, f"{name}=<missing>"][: self.width]

    def to_dict(self) -> dict[str, Any]:
        """The column as plain JSON values.

        Returns
        -------
        dict
            As in the YAML file.
        """
        facts = {"kind": self.kind, **asdict(self)}
        for key in ("low", "high"):
            facts[key] = PRIVATE if facts[key] is None else self._written(facts[key])
        if isinstance(self.knots, tuple):
            facts["knots"] = [self._written(knot) for knot in self.knots]
        news = {"shape": "auto", "knots": None, "monotone": None}
        return {key: v for key, v in facts.items() if key not in news or v != news[key]}

    def _written(self, value: float) -> Any:
        return plain(value)


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A column of dates or times, encoded as the number of seconds since 1970 is.

    A time without a zone is in UTC. A value that is a number is a year if it is an integer from
    1000 to 9999, and a number of seconds otherwise.

    Parameters
    ----------
    low, high : date, datetime, str, int or float
        Bounds, as text by ISO 8601, as a year (int), or in seconds since 1970 (float), as they
        are kept; None for one that is private.
    missing, scale, shape, knots, monotone
        As those of `NumberColumn`; a missing value is marked unless it says otherwise.

    Examples
    --------
    >>> born = DateColumn("1900-01-01", "2010-12-31")
    >>> born.low, born.to_dict()["high"]
    (-2208988800.0, '2010-12-31')
    """

    kind: ClassVar[str] = "date"
    missing: str = "indicator"

    def _bound(self, key: str, value: Any) -> float | None:
        if _is_private(value):
            return None
        if isinstance(value, str):
            value = as_seconds(value.strip())
        elif isinstance(value, date):  # and datetime
            value = seconds_of(value)
        elif isinstance(value, int) and not isinstance(value, bool) and _is_year(value):
            value = float(year_or_seconds(value))
        number = _float(value)
        if not math.isfinite(number):
            raise SchemaError(f"{key} must be a date, such as 2010-12-31")
        return number

    def _written(self, value: float) -> Any:
        """As a date if that is exact; a bound that was found through noise may not be one."""
        try:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
        except OverflowError:
            return float(value)
        if moment.year < YEARS[0] or seconds_of(moment) != value or moment.microsecond:
            return float(value)
        return moment.replace(tzinfo=None).isoformat().removesuffix("T00:00:00")


@dataclass(frozen=True)
class CategoryColumn:
    """A column with a list of categories, encoded as one 0/1 column each.

    Parameters
    ----------
    categories : sequence of str or None
        The public list; None if it is private. Numbers count as their text. 1, "1" and
        "1.0" are the same category.
    missing : {"zeros", "level", "error"}
        What a missing value becomes: zeros, a column of its own, or a refusal.
    unseen : {"zeros", "level", "error"}
        The same for a value that is not among the categories.

    Examples
    --------
    >>> CategoryColumn(["cook", "nurse"]).feature_names("job")
    ['job=cook', 'job=nurse']
    """

    kind: ClassVar[str] = "category"
    categories: tuple[str, ...] | None = None
    missing: str = "zeros"
    unseen: str = "zeros"

    def __post_init__(self) -> None:
        if isinstance(self.categories, str) and self.categories == PRIVATE:
            object.__setattr__(self, "categories", None)
        if isinstance(self.categories, str) and self.categories == NONE:
            object.__setattr__(self, "categories", ())
        if self.categories is not None and self.categories != ():  # noise may have left none
            labels = clean_labels("categories", self.categories)
            texts = tuple(c if isinstance(c, str) else str(plain(c)) for c in labels)
            object.__setattr__(self, "categories", texts)
        _one_of("missing", self.missing, CATEGORY_POLICIES)
        _one_of("unseen", self.unseen, CATEGORY_POLICIES)

    @property
    def private(self) -> bool:
        """Whether the categories must be found before a value can be encoded."""
        return self.categories is None

    @property
    def known(self) -> tuple[str, ...]:
        """The categories, which must not be private."""
        if self.categories is None:
            raise SchemaError("its categories are private: they must be found, or listed, first")
        return self.categories

    @property
    def width(self) -> int:
        """Columns after encoding."""
        return len(self.known) + (self.missing == "level") + (self.unseen == "level")

    def feature_names(self, name: str) -> list[str]:
        """Names of the encoded columns.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        list of str
            One for each category, and for missing or unseen values if those have a column.
        """
        levels = [f"<{what}>" for what in ("missing", "unseen") if getattr(self, what) == "level"]
        return [f"{name}={level}" for level in (*self.known, *levels)]

    def to_dict(self) -> dict[str, Any]:
        """The column as plain JSON values.

        Returns
        -------
        dict
            As in the YAML file.
        """
        listed = PRIVATE if self.categories is None else list(self.categories) or NONE
        return {"kind": self.kind, **asdict(self), "categories": listed}


@dataclass(frozen=True)
class UnknownColumn:
    """A column of a text file of which not even the kind is known: a count, paid for, decides.

    Examples
    --------
    >>> UnknownColumn().to_dict(), UnknownColumn().private
    ({'kind': 'private'}, True)
    """

    kind: ClassVar[str] = PRIVATE
    missing: ClassVar[str] = "indicator"
    private: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """Columns after encoding: known once its kind is."""
        raise SchemaError("its kind is private: it must be found, or declared, first")

    def feature_names(self, name: str) -> list[str]:
        """Names of the encoded columns: known once its kind is.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        list of str
            Never: this raises `SchemaError`.
        """
        raise SchemaError(f"the kind of column {name!r} is private: it must be found first")

    def to_dict(self) -> dict[str, Any]:
        """The column as plain JSON values.

        Returns
        -------
        dict
            As in the YAML file.
        """
        return {"kind": self.kind}


Column: TypeAlias = NumberColumn | DateColumn | CategoryColumn | UnknownColumn
KINDS: dict[str, type[Column]] = {
    made.kind: made for made in (NumberColumn, CategoryColumn, DateColumn, UnknownColumn)
}
_WORDS = (*KINDS, "boolean")


def default_column(kind: str, **facts: Any) -> Column:
    """A column of a kind in which gaps have a place of their own; private but for the facts.

    Parameters
    ----------
    kind : {"number", "date", "category", "boolean", "private"}
        What its values are.
    **facts
        Settings of the column.

    Returns
    -------
    Column
        Of that kind.

    Examples
    --------
    >>> default_column("number", low=0, high=120).missing
    'indicator'
    """
    if kind == "boolean":
        return default_column("category", categories=BOOLEAN, **facts)
    if kind == "category":
        facts = {"missing": "level", "unseen": "level", **facts}
    elif kind in ("number", "date"):
        facts = {"missing": "indicator", **facts}
    return KINDS[kind](**facts)


def parse_column(entry: Any) -> Column:
    """A column from what a schema says of it: a word, a list, or a mapping with its kind.

    Parameters
    ----------
    entry : str, list or mapping
        ``[0, 120]`` are bounds, of numbers or dates; any other list is one of categories;
        ``number``, ``category``, ``date`` and ``boolean`` say the kind alone, ``private``
        not even that. In these short forms gaps have a place of their own.

    Returns
    -------
    Column
        Checked.

    Examples
    --------
    >>> parse_column([0, "1e6"]).high, parse_column(["cook", "nurse"]).categories
    (1000000.0, ('cook', 'nurse'))
    """
    if isinstance(entry, str):
        _one_of("kind", entry, _WORDS)
        return default_column(entry)
    if isinstance(entry, Sequence) and not isinstance(entry, bytes):
        return _from_list(list(entry))
    if not isinstance(entry, Mapping) or "kind" not in entry:
        raise SchemaError(
            "must be a list, [low, high] or [category, ...]; a kind, number, category, date, "
            "boolean or private; or a mapping with the key 'kind'"
        )
    kind = entry["kind"]
    _one_of("kind", kind, _WORDS)
    facts = {key: value for key, value in entry.items() if key != "kind"}
    made = CategoryColumn if kind == "boolean" else KINDS[kind]
    allowed = [field.name for field in fields(made)]
    if kind == "boolean":
        allowed.remove("categories")
    known_keys(entry, ["kind", *allowed], f"a {kind} column")
    return CategoryColumn(BOOLEAN, **facts) if kind == "boolean" else made(**facts)


def blanks_of(entry: Any) -> list[str]:
    """Facts of a column that were left blank, as in a draft of an earlier version."""
    if not isinstance(entry, Mapping):
        return []
    return [k for k in ("low", "high", "categories") if k in entry and entry[k] in (None, [], ())]


def is_date_bound(value: Any) -> bool:
    """Whether a bound is written as a date."""
    return isinstance(value, date) or (isinstance(value, str) and is_date(value.strip()))


def _from_list(entry: list[Any]) -> Column:
    if len(entry) == 2 and entry != [PRIVATE] * 2:
        if all(e == PRIVATE or is_date_bound(e) for e in entry):
            return default_column("date", low=entry[0], high=entry[1])
        if all(e == PRIVATE or _is_number(e) for e in entry):
            return default_column("number", low=entry[0], high=entry[1])
    return default_column("category", categories=entry)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):  # YAML reads 1e6 as text
        return "e" in value.lower() and as_number(value.strip()) is not None
    return isinstance(value, Real) and not isinstance(value, bool)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A hint for a message, empty if nothing is near."""
    if len(word) > LONGEST_HINT:  # comparing takes the product of both lengths
        return ""
    near = difflib.get_close_matches(word, [o for o in options if len(o) <= LONGEST_HINT], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def known_keys(data: Any, allowed: Sequence[str], where: str) -> None:
    """Refuse what is no mapping, or has a key that is not among those allowed."""
    if not isinstance(data, Mapping):
        raise SchemaError(f"{where} must be a mapping with the keys {', '.join(allowed)}")
    for key in data:
        if key not in allowed:
            near = did_you_mean(key, allowed) if isinstance(key, str) else ""
            raise SchemaError(
                f"unknown key {shown(key)} in {where}{near}; it may have {', '.join(allowed)}"
            )


def clean_labels(key: str, labels: Any) -> tuple[str | float, ...]:
    """Categories or classes: text or numbers, no two of them the same, none missing."""
    if isinstance(labels, str) or not isinstance(labels, Sequence) or not len(labels):
        raise SchemaError(f"{key} must be a list of at least one value")
    clean: dict[str | float, str | float] = {}
    for label in labels:
        number = isinstance(label, Real) and not isinstance(label, bool)
        if not isinstance(label, str) and not (number and abs(_float(label)) != math.inf):
            raise SchemaError(
                f"{key}: put {shown(label)} in quotes, as the text of the value (YAML reads words "
                "such as yes, no, true, null and dates as something else)"
            )
        value = label.strip() if isinstance(label, str) else plain(_float(label))
        if is_missing(str(value)):
            raise SchemaError(
                f"{key}: {shown(label)} marks a missing value and cannot be one of them; policy "
                "'missing' says what becomes of such values"
            )
        if match_key(value) in clean:
            twins = f"{shown(clean[match_key(value)])} and {shown(value)}"
            raise SchemaError(f"{key}: {twins} are the same")
        clean[match_key(value)] = value
    return tuple(clean.values())


def _is_private(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == PRIVATE)


def _apart(low: float, high: float) -> bool:
    return low < high and sys.float_info.min <= high - low < math.inf


def _is_year(value: int) -> bool:
    return YEARS[0] <= value <= YEARS[1]


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        near = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise SchemaError(f"{key} may be {', '.join(allowed)}, not {shown(value)}{near}")


def _finite(key: str, value: Any) -> float:
    if isinstance(value, str):  # YAML reads 1e5 as text
        value = as_number(value.strip())
    number = _float(value)
    if not math.isfinite(number):
        raise SchemaError(f"{key} must be a finite number")
    return number


def _float(value: Any) -> float:
    """A number as a float, infinite if it is larger than any; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
