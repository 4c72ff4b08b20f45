"""Columns that look as if they said who somebody is: by name and type, never by values.

A suggestion and no more: nothing is left out because of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_LAST = re.compile(
    "ids?|uuid|guid|key|ssn|email|mail|phone|telephone|mobile|iban|passport|url|ip|address|street|"
    "surname|firstname|lastname|fullname|username|forename|index|rowid|rownum"
)
#: What stands in front of "name" or "number" if it is that of a person or a thing.
_OWNERS = re.compile(
    "first|last|full|middle|sur|fore|family|given|maiden|user|customer|patient|person|client|"
    "employee|student|account|card|phone|serial|policy|insurance|security|contract|member"
)
#: What stands in front of "id" if that is a code for one of a few things.
_CODES = re.compile(
    "type|source|status|category|class|code|group|kind|disposition|state|region|level"
)


def likely_identifiers(names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns that are likely to tell one person, or one row, from another.

    Parameters
    ----------
    names : iterable of str
        Of columns that are neither dates nor booleans.

    Returns
    -------
    tuple of str
        Those that look like it.

    Examples
    --------
    >>> likely_identifiers(["age", "patientId", "E-Mail", "first_name", "admission_type_id"])
    ('patientId', 'E-Mail', 'first_name')
    >>> likely_identifiers(["Unnamed: 0", "__index_level_0__"])
    ('Unnamed: 0', '__index_level_0__')
    """
    return tuple(name for name in names if _is_likely(name))


def _is_likely(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if name.lower().startswith(("unnamed:", "__index_level_")) or words == ["name"]:
        return True  # a row index that pandas wrote, into text or Parquet
    if last in ("name", "number", "no", "nbr", "nr"):
        return _OWNERS.fullmatch(before) is not None
    is_code = last in ("id", "key") and _CODES.fullmatch(before)
    return _LAST.fullmatch(last) is not None and not is_code
