"""The neighbouring relation: which two tables a guarantee does not let anybody tell apart."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias


class Relation(StrEnum):
    """What it means for two tables to differ in one row; by dp-accounting's names.

    Users, certificates and ledgers write the value, and a member is equal to it.

    Examples
    --------
    >>> Relation("replace_one") is Relation.REPLACE_ONE == "replace_one"
    True
    """

    REPLACE_SPECIAL = "replace_special"  # a row swapped for a null row that contributes nothing
    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"  # any row for any other

    def __repr__(self) -> str:
        return repr(self.value)


#: A relation, or its value as people write it.
Neighbors: TypeAlias = Relation | str
