"""Tables as they were published: raw columns, gaps, dates, names; each with a careful schema.

What would give the answer away, because it is known only afterwards or was computed from
it, is taken out, and so is a row without an answer: rules that look at one row. All else
stays, names and numbers of rows, too; the schema says what a careful person would use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tacit.data.readers import parse_table
from tacit.data.schema import Schema
from tacit.data.tables import Table, Text
from tacit.datasets.store import read_files
from tacit.datasets.tables import header_of, schema_of, with_columns
from tacit.exceptions import InputError


@dataclass(frozen=True)
class _Form:
    """How a file becomes a table: columns to take out, and a column to add."""

    answers: tuple[str, ...] = ()
    renamed: bool = False  # its header is replaced by the one beside the schema
    derive: Callable[[Table], Table] = field(default=lambda table: table)


def _late(table: Table) -> Table:
    """Whether a flight arrived 15 minutes late or more; those that never did have no answer."""
    delay = table.column("arr_delay").astype(np.float64)
    codes = np.where(np.isnan(delay), -1, delay >= 15).astype(np.int32)
    return with_columns(table, {"late": Text(codes, ["no", "yes"])})


_SPENT = "outpdol drugdol suppdol mentdol inpdol meddol totadm inpmis mentvis notmdvis lnmeddol"
_AGAIN = """
    decile_score score_text v_decile_score v_score_text is_recid r_case_number
    r_charge_degree r_days_from_arrest r_offense_date r_charge_desc r_jail_in r_jail_out
    violent_recid is_violent_recid vr_case_number vr_charge_degree vr_offense_date vr_charge_desc
    type_of_assessment decile_score_again screening_date v_type_of_assessment v_screening_date
    in_custody out_custody priors_count_again start end event
"""
_FORMS = {
    "randhie": _Form((*_SPENT.split(), "binexp")),
    "diamonds": _Form(),
    "bike": _Form(("casual", "registered")),
    "compas": _Form(tuple(_AGAIN.split()), renamed=True),
    "flchain": _Form(("futime", "chapter")),
    "benefits": _Form(),
    "caravan": _Form(),
    "flights": _Form(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), derive=_late),
    "mortgages": _Form(),
    "happiness": _Form(("vhappy",)),
    "slid": _Form(),
    "wage": _Form(("logwage",)),
    "hours": _Form(("whi", "wght")),
    "census2000": _Form(("expersq",)),
    "movies": _Form(tuple(f"r{i}" for i in range(1, 11))),
}


def load_table(name: str, *, download: bool = True) -> tuple[Table, Schema]:
    """A published table by its name, with raw columns and a careful schema.

    Parameters
    ----------
    name : str
        For development ``"randhie"``, ``"diamonds"`` and ``"bike"``; held out for tests
        ``"compas"``, ``"flchain"``, ``"benefits"``, ``"caravan"``, ``"flights"``,
        ``"mortgages"``, ``"happiness"``, ``"slid"``, ``"wage"``, ``"hours"``,
        ``"census2000"`` and ``"movies"``.
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    table : Table
        All rows that have a target.
    schema : Schema
        Its target, with ``classes`` of a classification or ``target_bounds`` of a
        regression, and public bounds and categories of what a careful person would use.

    Examples
    --------
    >>> table, schema = load_table("flchain")  # doctest: +SKIP
    """
    if name not in _FORMS:
        raise InputError(f"no table {name!r}; there are {', '.join(_FORMS)}")
    form, schema = _FORMS[name], schema_of(name)
    ((file, data),) = read_files(name, download=download).items()
    table = form.derive(parse_table(file, _named(name, data, form.renamed)))
    return _answered(table.drop(form.answers), schema), schema


def _named(name: str, data: bytes, renamed: bool) -> bytes:
    """The text with a header that names every column, each once."""
    data = data.replace(b"\r\n", b"\n")
    header, _, rows = data.partition(b"\n")
    if renamed:
        return header_of(name).encode() + b"\n" + rows
    return b'"row"' + data[2:] if header.startswith(b'"",') else data


def _answered(table: Table, schema: Schema) -> Table:
    """The rows whose target is one of the classes, or a number."""
    assert schema.target is not None
    if schema.classes is not None:
        return table.take(table.match(schema.target, schema.classes) >= 0)
    return table.take(~np.isnan(table.column(schema.target).astype(np.float64)))
