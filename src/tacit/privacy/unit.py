"""The unit of privacy: whose presence a guarantee hides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import InputError

MOST_ROWS = 10**6  # of one person
LONGEST_NAME = 200
BEGINS = "every person"  # how a certificate says what its unit is; `verify` reads it: frozen


@dataclass(frozen=True)
class Unit:
    """What an event counts as one: a row, or all rows of a person.

    An event's noise is in contributions of *one unit*: the norm that all of its rows together add
    to a sum at most, which whoever sums has enforced. Neighbouring tables differ in one unit, by
    the relations of `tacit.privacy.events.NEIGHBORS`: all rows of a person are blanked, added,
    removed, or replaced in their places by other rows. A person is drawn into a batch with all
    rows, or not at all. With that, all that is proved of rows holds of persons, and accountants
    need not know the unit. Accounts of different units say different things, and never mix.

    Attributes
    ----------
    kind : {"row", "person"}
        What is hidden.
    rows : int
        How many rows a person has at most; 1 for rows.
    identifier : str or None
        The column that tells persons apart, by name.

    Examples
    --------
    >>> Unit("person", 5, "patient").sentence
    "every person, by 'patient', has at most 5 rows, and epsilon is for all of them together"
    """

    kind: str = "row"
    rows: int = 1
    identifier: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("row", "person"):
            raise InputError(f"a unit of privacy is a 'row' or a 'person', not {self.kind!r:.80}")
        if type(self.rows) is not int or not 1 <= self.rows <= MOST_ROWS:
            raise InputError(
                f"a person has from 1 to {MOST_ROWS} rows at most, not {self.rows!r:.80}"
            )
        name = self.identifier
        if name is not None and not (
            isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
        ):
            raise InputError(f"identifier must be the name of a column, not {name!r:.80}")
        if self.kind == "row" and (self.rows, name) != (1, None):
            raise InputError("a row is one row, and nobody's: for persons pass kind='person'")

    @property
    def plural(self) -> str:
        """What several of them are called."""
        return "rows" if self.kind == "row" else "people"

    @property
    def described(self) -> str:
        """In a few words, for plans and pages.

        Examples
        --------
        >>> Unit("person", 5, "patient").described
        "person, by 'patient', at most 5 rows each"
        """
        if self.kind == "row":
            return "row"
        by = "" if self.identifier is None else f" by {self.identifier!r},"
        return f"person,{by} at most {self.rows} row{'s' * (self.rows > 1)} each"

    @property
    def sentence(self) -> str:
        """What a certificate says of it."""
        if self.kind == "row":
            return f"{BEGINS} is one row"
        by = "" if self.identifier is None else f", by {self.identifier!r},"
        many = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{BEGINS}{by} has at most {many}, and epsilon is for all of them together"

    def contradicted_by(self, assumptions: Sequence[str]) -> bool:
        """Whether these say that another unit was counted, or do not say that this person was.

        Parameters
        ----------
        assumptions : sequence of str
            Clauses of a certificate.

        Returns
        -------
        bool
            True if such a certificate is not about this unit.
        """
        stated = [text for text in assumptions if text.startswith(BEGINS)]
        if self.kind == "row":  # of which certificates say more in the same sentence
            return not all(text.startswith(self.sentence) for text in stated)
        return set(stated) != {self.sentence}

    def to_dict(self) -> dict[str, Any]:
        """The unit as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {"kind": self.kind, "rows": self.rows, "identifier": self.identifier}

    @staticmethod
    def from_dict(data: Any) -> Unit:
        """The unit of what `to_dict` gave; a row if there is nothing, as before there were units.

        Parameters
        ----------
        data : mapping or None
            What a file says of it.

        Returns
        -------
        Unit
            Checked as if it were made anew.

        Raises
        ------
        InputError
            If it is anything else, or has a field that this version does not know.
        """
        if data is None:
            return ROW
        if not isinstance(data, Mapping) or data.keys() != {"kind", "rows", "identifier"}:
            raise InputError(f"a unit has a kind, rows and an identifier, not {data!r:.80}")
        return Unit(**data)


ROW = Unit()
