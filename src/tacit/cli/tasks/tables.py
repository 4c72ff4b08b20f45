"""Tables as commands are given them: read or scanned, with the columns that a schema names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.cli.tasks import arrays
from tacit.cli.tasks.outputs import PathLike
from tacit.data.cells import as_number
from tacit.data.readers import read_table
from tacit.data.rows import Rows, as_rows
from tacit.data.scans import Scan, scan
from tacit.data.schema import Schema, declared_schema, did_you_mean
from tacit.data.tables import ABSENT, UNSEEN, Table
from tacit.exceptions import FileError, InputError, SchemaError, of_rows
from tacit.preprocessing import Encode, Normalize

LARGE_FILE = 1 << 28  # bytes from which on a table is not read into memory


def read(table: Table | PathLike, decimal: str | None = None) -> Table:
    """A table in memory."""
    if isinstance(table, Table):
        return table
    if not os.path.isdir(table):
        return read_table(table, decimal=decimal)
    whole = scan(table)
    return whole.read(whole.column_names or ())


def open_table(
    table: Table | PathLike, memory: float | None = None, decimal: str | None = None
) -> Table | Scan:
    """A table in memory, or a scan of one that is large."""
    if isinstance(table, Table):
        return table
    large = os.path.isdir(table) or memory is not None
    if large or (os.path.isfile(table) and os.path.getsize(table) > LARGE_FILE):
        found = scan(table, memory=memory, decimal=decimal)
        if found.column_names is None:
            raise FileError(f"{table} is an array; this needs a table with named columns")
        return found
    return read_table(table, decimal=decimal)


def require_other_file(table: Table | PathLike, public: Table | PathLike | None) -> None:
    """Refuse a table that is to be private and public at once; its values are not compared."""
    if public is None or isinstance(table, Table) or isinstance(public, Table):
        return
    try:
        same = os.path.samefile(table, public)
    except OSError:  # which of them cannot be read, reading will say
        return
    if same or Path(os.path.realpath(table)) in Path(os.path.realpath(public)).parents:
        raise InputError(
            f"{public} is the private table itself: public rows must be rows that everybody may "
            "see, in a file of their own"
        )


def with_target(schema: Schema, target: str | None) -> Schema:
    """The schema with its target, or with the one that is named."""
    if schema.target is None and target is None:
        raise InputError(
            "which column is to be predicted? Name it as target, here or in the schema"
        )
    if schema.target is None:
        return replace(schema, target=target)
    if target not in (None, schema.target):
        raise SchemaError(f"target {target!r}, but the schema's target is {schema.target!r}")
    return schema


def schema_of(
    table: Table | Scan, schema: Schema | PathLike | None, target: str | None, limits: str | None
) -> tuple[Schema, bool]:
    """What is public of a table and its target, and whether that is a number.

    What is not declared is private, and is found. ``limits`` are those of the target in words:
    ``0,100``, or ``private``.
    """
    known = with_target(declared_schema(table, schema=schema, target=target), target)
    if limits is None:
        return known, known.target_bounds is not None
    if known.classes or known.target_bounds:
        raise SchemaError("the schema says what the target is; leave out its limits here")
    return replace(known, target_bounds=limits_of(limits)), True


def limits_of(text: str) -> tuple[float, float] | None:
    """Limits of a target in words, such as ``0,100``; None if they are ``private``."""
    if text.strip() == "private":
        return None
    low, _, high = text.partition(",")
    ends = as_number(low.strip()), as_number(high.strip())
    if ends[0] is None or ends[1] is None:
        raise InputError(f"{text!r:.80} are no limits of a target: write 0,100 or private")
    return ends[0], ends[1]


def identifiers_of(table: Table | Scan, schema: Schema) -> np.ndarray:
    """The column that says whose rows are whose."""
    name = str(schema.identifier)
    names = table.column_names or ()
    if name not in names:
        raise SchemaError(f"the table lacks the identifier {name!r}{did_you_mean(name, names)}")
    return (table.read([name]) if isinstance(table, Scan) else table).identifiers(name)


def features_of(table: Any, schema: Schema) -> Any:
    """A table or scan without what is not learned from; a column unknown to the schema stays."""
    unused = {schema.target, *schema.ignore}
    return table.drop([name for name in table.column_names if name in unused])


def public_features(public: Table | PathLike | None, schema: Schema | None) -> Any:
    """Public rows as a stage takes them: by the schema, or numbers if there is none."""
    if public is None:
        return None
    if arrays.is_features(public):
        return arrays.public_rows(public, schema)
    table = read(public)
    if schema is not None:
        return features_of(table, schema)
    words = [name for name in table.column_names if table.kind(name) != "number"]
    if words:
        raise InputError(f"the public rows hold text in {words[0]!r}; give a schema")
    return np.column_stack([table.column(name) for name in table.column_names])


def unit_rows(table: Table, schema: Schema) -> Rows:
    """Rows as recipes have them: encoded, and scaled to norm one."""
    schema = schema.expanded(table.column_names)
    hidden = [name for name, column in schema.columns.items() if column.private]
    if hidden:
        raise SchemaError(
            f"what the schema says of column {hidden[0]!r} is private, and nothing finds it here; "
            "add its bounds, [low, high], or its categories, [one, another]"
        )
    features = features_of(table, schema)
    encode = Encode(schema).fit(features)
    return Normalize().through(encode.through(as_rows(features)))


def require_target(names: Sequence[str] | None, schema: Schema) -> str:
    """The name of the target, which must be among those of the columns."""
    name = str(schema.target)
    if name not in (names or ()):
        near = did_you_mean(name, names or ())
        raise SchemaError(f"the table lacks the target {name!r}{near}")
    return name


def labels_of(
    table: Table, schema: Schema, classes: Sequence[Any] | None, *, number: bool = False
) -> np.ndarray:
    """The target column; messages name the column, never a value, a row or a count."""
    name = require_target(table.column_names, schema)
    return column_labels(table, name, classes, number=number or schema.target_bounds is not None)


def column_labels(
    table: Table, name: str, classes: Sequence[Any] | None = None, *, number: bool = False
) -> np.ndarray:
    """The same of a column that is there."""

    def refusal(words: str) -> Exception:
        return of_rows(InputError(f"the target {name!r} {words}"))

    if (table.match(name, ()) == ABSENT).any():
        raise refusal("has a missing value; leave such rows out")
    if number:
        numbers = table.values(name)
        if np.isnan(numbers).any():
            raise refusal("is to be a number, but holds text")
        return numbers
    if classes:
        codes = table.match(name, classes)
        if (codes == UNSEEN).any():
            raise refusal("holds a label that is not among its classes")
        return np.asarray(classes)[codes]
    values = table.column(name)
    if table.kind(name) == "text":
        return values.astype(str)
    if not (np.isfinite(values) & (values == np.round(values))).all():
        raise refusal("holds fractions; the schema must say its target_bounds or classes")
    return values.astype(np.int64)
