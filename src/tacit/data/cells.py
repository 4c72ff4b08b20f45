"""One value of a table, read by itself: missing or not, and which number, moment or word it is.

Nothing here raises because of a value: what cannot be read is missing.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any
from uuid import UUID

import numpy as np

MISSING_MARKERS = frozenset({"", "NA", "NaN", "null", "?"})
BOOLEAN = ("false", "true")
YEARS = (1000, 9999)  # integers in a column of dates that are years
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH = re.compile(r"\d{4}-\d{2}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)  # fromisoformat would take weeks and 8 digits
_KNOWN_BY_NAME = ("Interval", "Period")  # of pandas


def is_missing(text: str) -> bool:
    """Whether a stripped value stands for a missing value."""
    return text in MISSING_MARKERS or text.lstrip("+-").lower() == "nan"


def as_number(text: str) -> float | None:
    """The number that a value spells, or None if it spells none."""
    if "_" in text or not text.isascii():  # float() would take 1_000 and other digits
        return None
    try:
        return float(text)
    except ValueError:
        return None


def as_float(value: Any) -> float:
    """A number in double precision; beyond its range infinity, as if the value spelled it."""
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan  # a signalling one, too
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # an odd class of numbers
        return math.nan


def seconds_of(moment: date) -> float:
    """Seconds since 1970 of a date or a time; one without a time zone is in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) / timedelta(seconds=1)


def year_or_seconds(values: Any) -> Any:
    """Numbers of a column of dates as seconds: integers from 1000 to 9999 are years."""
    values = np.asarray(values, dtype=np.float64)
    years = (values >= YEARS[0]) & (values <= YEARS[1]) & (values == np.floor(values))
    if not years.any():
        return values
    starts = np.where(years, values, YEARS[0]).astype(np.int64) - 1970
    starts = starts.astype("datetime64[Y]").astype("datetime64[s]").astype(np.float64)
    return np.where(years, starts, values)


def is_date(text: str) -> bool:
    """Whether a text begins as a date does, 2010-12-31."""
    return _DATE.match(text) is not None


def as_seconds(text: str) -> float | None:
    """Seconds since 1970 of a date or time by ISO 8601, a year or a number of seconds.

    >>> as_seconds("1970-01-02"), as_seconds("1970-01-01T01:00+01:00"), as_seconds("cook")
    (86400.0, 0.0, None)
    """
    if is_date(text):
        try:
            return seconds_of(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            return None
    if _MONTH.fullmatch(text):
        return as_seconds(f"{text}-01")
    number = as_number(text)
    return None if number is None else float(year_or_seconds(number))


def plain(value: float) -> float | int:
    """A number as a person would write it: whole ones without a point."""
    return int(value) if float(value).is_integer() and abs(value) < 1e16 else float(value)


def match_key(value: str | float) -> str | float:
    """What two values must share to be the same category: 1, ``"1"``, ``"01"``, ``"1.0"`` do."""
    if not isinstance(value, str):
        return as_float(value)
    if value.lower() in ("true", "false"):
        return value.lower()
    number = as_number(value)
    return value if number is None else number


def is_absent(value: Any) -> bool:
    """Whether a Python value, rather than its text, stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and math.isnan(value)


def cell_text(value: Any) -> str:
    """The text of one value, whatever it is; "" if it is missing, or can be no word.

    >>> cell_text(2.0), cell_text(True), cell_text(date(2020, 1, 2)), cell_text({"a"})
    ('2', 'true', '2020-01-02', '')
    """
    if isinstance(value, str):
        return str(value)
    try:
        return "" if is_absent(value) else _known_text(value)
    except Exception:  # whatever an object in a cell does when it is looked at
        return ""


def _known_text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{value.dtype.kind}8[s]").item()
        return cell_text(value)
    if isinstance(value, Real | Decimal):
        return str(plain(as_float(value)))
    if isinstance(value, date):  # and datetime
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, timedelta):
        return str(plain(value.total_seconds()))
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, time | UUID) or type(value).__name__ in _KNOWN_BY_NAME:
        return str(value)
    return ""
