"""The sentences of a report that are the same for many certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RelationPhrases:
    """One neighbouring relation, in words that fit the sentences of a report."""

    short: str
    otherwise: str  # "... what it would have been ..."
    question: str  # "... tries to tell ..."


RELATIONS = {
    "replace_special": RelationPhrases(
        "one row blanked out",
        "had that row been blanked out",
        "whether that row was used or blanked out",
    ),
    "add_or_remove_one": RelationPhrases(
        "one row added or removed",
        "had that row not been in the table",
        "whether that row was in the table or not",
    ),
    "replace_one": RelationPhrases(
        "one row swapped for any other",
        "had that row been swapped for any other",
        "which of two possible rows was in the table",
    ),
}

RELATIONS_OF_PEOPLE = {
    "replace_special": RelationPhrases(
        "all rows of one person blanked out",
        "had all rows of that person been blanked out",
        "whether that person’s rows were used or blanked out",
    ),
    "add_or_remove_one": RelationPhrases(
        "one person added or removed, with all rows",
        "had that person not been in the table",
        "whether that person was in the table or not",
    ),
    "replace_one": RelationPhrases(
        "all rows of one person swapped for any others",
        "had all rows of that person been swapped for any others",
        "which of two possible people was in the table",
    ),
}


@dataclass(frozen=True)
class UnitPhrases:
    """Whose presence is hidden, in words that fit the sentences of a report."""

    one: str
    anyone: str  # "Take ... and any conclusion"
    others: str  # "somebody who knows ..."
    guess: str  # "two guesses at what ..."
    limit: tuple[str, str]
    relations: Mapping[str, RelationPhrases]


ROWS = UnitPhrases(
    "row",
    "anyone whose row is in the table",
    "every other row",
    "the row says takes two such steps, the one row out",
    (
        "It is about rows, not people.",
        "Somebody with several rows is protected less, and ε at the same δ grows faster than the "
        "number of rows.",
    ),
    RELATIONS,
)
PEOPLE = UnitPhrases(
    "person",
    "anyone who has rows in the table, all of them together",
    "the rows of everybody else",
    "a person’s rows say takes two such steps, the one person out",
    (
        "It is about people as their identifiers tell them apart.",
        "Somebody with two identifiers counts as two people, and is protected less.",
    ),
    RELATIONS_OF_PEOPLE,
)

HOW_IT_PAYS = {
    "free": (
        "Works row by row with public settings. It learns nothing from the table and costs nothing."
    ),
    "public": "Learnt from separate public data. It costs nothing.",
    "private": "Learnt from the private rows through noise.",
    "noiseless": (
        "Learnt from the private rows exactly and never published. It makes every later step "
        "more sensitive, and those steps add more noise to make up for it."
    ),
}

ACCOUNTANTS = {
    "gaussian-dp": "exact Gaussian differential privacy",
    "pld": "privacy loss distributions, rounded to the safe side",
    "rdp": "Rényi divergences, rounded to the safe side",
    "profile": "the privacy profile of one trial, at a share of δ, and what choosing the best adds",
}

ARITHMETIC = {
    "exact": "exact: sums are computed without rounding and the noise is exact on the same grid",
    "strict": (
        "strict: exact, and every sum was checked on the machine before noise was added to it"
    ),
    "rounded": (
        "rounded: sums are in float64, within a proven distance of the exact ones that counts as "
        "sensitivity, and the noise is exact on the grid they are rounded to"
    ),
    "fast": "fast: floating point, assumed to behave like ideal arithmetic",
}

#: What certificates of earlier versions say and is not so, and what holds instead.
CORRECTED = {
    "every person is one row; somebody with k rows has a k-fold weaker guarantee": (
        "every person is one row; this certificate does not say what somebody with several rows "
        "is promised (its words, “k-fold weaker”, are true of Gaussian μ, not of ε)"
    ),
}

#: What no certificate promises, whatever its unit; `UnitPhrases.limit` stands before it.
LIMITS = {
    "It does not hide facts about people in general.": (
        "The model is there to find such facts, and they may tell something about you "
        "whether or not you were in the table."
    ),
    "It covers this plan and nothing else.": (
        "Looking at the rows, choosing settings by trying them out on the rows, scores that "
        "were computed without noise, and other models fitted to the same rows are not covered. "
        "The costs of several certificates for the same rows add up."
    ),
    "It rests on AES.": (
        "The noise is drawn with this cipher, so the promise holds against anybody who cannot "
        "break it. It covers what is released; it does not guard the computer on which the "
        "model was trained."
    ),
}
