"""Data sets that are tables, each with the schema that its published description gives.

The schemas are YAML files beside this module: categories are those of the code books,
bounds are theirs or round numbers from general knowledge. The data are public: rows of
your own need bounds from their own code book.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tacit.data.readers import parse_table, read_table
from tacit.data.schema import Schema
from tacit.data.tables import ABSENT, Coder, Stored, Table, Text
from tacit.datasets.store import read_files

_CENSUS = Path(__file__).parents[1] / "data" / "census"
_SCHEMAS = Path(__file__).parent / "schemas"

# Groups of ICD-9 codes (three digits, letters apart), as in Strack et al. (2014), Table 2.
_DIAGNOSES = (
    ("circulatory", (390, 459), (785, 785)),
    ("respiratory", (460, 519), (786, 786)),
    ("digestive", (520, 579), (787, 787)),
    ("diabetes", (250, 250)),
    ("injury", (800, 999)),
    ("musculoskeletal", (710, 739)),
    ("genitourinary", (580, 629), (788, 788)),
    ("neoplasms", (140, 239)),
)


def load_adult() -> tuple[Table, Table, Schema]:
    """The census table: does a person earn more than 50,000 dollars a year?

    Returns
    -------
    train, test : Table
        32,561 and 16,281 rows, split as published; the column ``income`` is
        ``<=50K`` or ``>50K``.
    schema : Schema
        Public bounds and categories from the published description.

    Examples
    --------
    >>> train, test, schema = load_adult()
    >>> train.n, test.n, schema.target
    (32561, 16281, 'income')
    """
    table = read_table(_CENSUS / "adult.csv.xz")
    train = table.match("split", ["test", "train"]).astype(bool)
    rows = table.drop("split")
    return rows.take(train), rows.take(~train), Schema.load(_CENSUS / "schema.yaml")


def load_census_kdd(*, download: bool = True) -> tuple[Table, Table, Schema]:
    """A larger census table, of 1994 and 1995: is a person's income above 50,000 dollars?

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    train, test : Table
        199,523 and 99,762 rows, split as published, without the sampling weight; the
        column ``income`` is ``- 50000`` or ``50000+``.
    schema : Schema
        Public bounds and categories from the published description.

    Examples
    --------
    >>> train, test, schema = load_census_kdd()  # doctest: +SKIP
    """
    halves = [
        parse_table(name, data.replace(b".\n", b"\n"), header=header_of("census_kdd")).drop(
            "instance weight"
        )
        for name, data in read_files("census_kdd", download=download).items()
    ]
    return halves[0], halves[1], schema_of("census_kdd")


def load_bank(*, download: bool = True) -> tuple[Table, Schema]:
    """Calls of a Portuguese bank: did the client subscribe (``y``)?

    A client may have been called in several rows, which nothing in the table tells.
    ``duration`` is left out: it is known only after the call.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    table : Table
        41,188 rows, in the order of time.
    schema : Schema

    Examples
    --------
    >>> table, schema = load_bank()  # doctest: +SKIP
    """
    ((name, data),) = read_files("bank", download=download).items()
    return parse_table(name, data, separator=";").drop("duration"), schema_of("bank")


def load_diabetes130(
    *, one_per_patient: bool = False, download: bool = True
) -> tuple[Table, Schema]:
    """Stays of diabetics in hospitals: were they readmitted, after how many days?

    To the published columns, which hold ICD-9 codes of diagnoses, the columns
    ``diag_1_group`` to ``diag_3_group`` are added, by a rule that looks at one code.

    Parameters
    ----------
    one_per_patient : bool
        Keep the stay of each patient that has the smallest number. A row is then a person,
        and a guarantee for a row one for a person; with all rows it is for a stay.
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    table : Table
        101,766 rows, or 71,518; the column ``readmitted`` is ``NO``, ``>30`` or ``<30``.
    schema : Schema

    Examples
    --------
    >>> table, schema = load_diabetes130(one_per_patient=True)  # doctest: +SKIP
    """
    ((name, data),) = read_files("diabetes130", download=download).items()
    table = parse_table(name, data)
    if one_per_patient:
        order = np.argsort(table.column("encounter_id"), kind="stable")
        _, first = np.unique(table.column("patient_nbr")[order], return_index=True)
        table = table.take(np.sort(order[first]))
    groups = {f"{at}_group": _groups(table, at) for at in ("diag_1", "diag_2", "diag_3")}
    return with_columns(table, groups), schema_of("diabetes130")


def load_kdd99(*, download: bool = True) -> tuple[Table, Schema]:
    """Connections of a network, normal or an attack; seven in ten rows are copies of others.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    table : Table
        494,021 rows; the column ``label`` is ``normal`` or ``attack``, and ``attack`` holds
        the name of the attack, or ``normal``.
    schema : Schema
        Predicts ``label`` and ignores ``attack``.

    Examples
    --------
    >>> table, schema = load_kdd99()  # doctest: +SKIP
    """
    ((name, data),) = read_files("kdd99", download=download).items()
    table = parse_table(name, data.replace(b".\n", b"\n"), header=header_of("kdd99"))
    attacked = (table.match("attack", ["normal"]) != 0).astype(np.int32)
    return with_columns(table, {"label": Text(attacked, ["normal", "attack"])}), schema_of("kdd99")


def schema_of(name: str) -> Schema:
    return Schema.load(_SCHEMAS / f"{name}.yaml")


def header_of(name: str) -> str:
    """The columns in the order of a file without a header, as its description lists them."""
    return (_SCHEMAS / f"{name}.header").read_text(encoding="utf-8").rstrip("\n")


def with_columns(table: Table, columns: Mapping[str, Stored]) -> Table:
    """A table with further columns."""
    types = {name: says for name, says in table.types.items() if name not in columns}
    return Table({**table._columns, **columns}, table.n, types)


def _groups(table: Table, name: str) -> Text:
    """The group of every diagnosis of a column."""
    cells = table.column(name)
    codes, coder = np.full(len(cells), ABSENT, np.int32), Coder()
    words, places = np.unique(cells[cells != None].astype(str), return_inverse=True)  # noqa: E711
    codes[cells != None] = coder.encode([diagnosis(word) for word in words])[places]  # noqa: E711
    return Text(codes, coder.words)


def diagnosis(code: str) -> str:
    """The group that an ICD-9 code belongs to.

    >>> diagnosis("250.83"), diagnosis("428"), diagnosis("V57")
    ('diabetes', 'circulatory', 'other')
    """
    whole = code.partition(".")[0]
    number = int(whole) if whole.isascii() and whole.isdigit() else 0  # letters: other
    for group, *spans in _DIAGNOSES:
        if any(low <= number <= high for low, high in spans):
            return group
    return "other"
