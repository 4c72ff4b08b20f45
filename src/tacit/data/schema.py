"""The schema: what may be known about each column before a row is read.

Bounds and categories are public facts that a person writes down. They are never
read from the table: the largest income or a rare category can belong to one
person. With them, encoding a row needs nothing but that row, so it costs no
privacy. What is not known is *private* (`tacit.data.columns`): a private stage
finds it, through noise.

There is one exception to mind: the policy ``error`` stops the run because of one
value, and that tells whoever sees it stop something about that row. Use it only on
data you may look at. The message names the column and never the value.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from tacit.data.cells import plain
from tacit.data.cluster import is_dask
from tacit.data.columns import (
    CATEGORY_POLICIES,
    NUMBER_MISSING,
    NUMBER_SCALES,
    PRIVATE,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    UnknownColumn,
    blanks_of,
    clean_labels,
    default_column,
    did_you_mean,
    is_date_bound,
    known_keys,
    parse_column,
)
from tacit.data.draft import draft_text, read_yaml, write_yaml
from tacit.data.identifiers import likely_identifiers
from tacit.data.tables import ColumnType, PathLike, as_table
from tacit.exceptions import SchemaError, shown

__all__ = [
    "CATEGORY_POLICIES",
    "NUMBER_MISSING",
    "NUMBER_SCALES",
    "CategoryColumn",
    "Column",
    "DateColumn",
    "NumberColumn",
    "Schema",
    "UnknownColumn",
    "declared_schema",
    "did_you_mean",
]


@dataclass(frozen=True, eq=False)
class Schema:
    """Public facts about the columns of a table, and which facts are private.

    Parameters
    ----------
    columns : mapping of str to NumberColumn, DateColumn, CategoryColumn or UnknownColumn
        The features, in the order in which they are encoded. A name with ``*`` stands for
        all columns that fit it, once `expanded` is told which there are.
    target : str, optional
        The column to predict.
    classes : sequence of str or number, optional
        Public list of the values of a target that is a class.
    target_bounds : pair of float, optional
        Public bounds of a target that is a number.
    ignore : sequence of str
        Columns that may be in the table and are not used.
    identifier : str, optional
        The column that says whose row it is; it is not used either.
    typed : sequence of str
        Columns whose kind was taken from the types of the table (`declared_schema`).

    Examples
    --------
    >>> schema = Schema({"age": NumberColumn(0, 100)}, target="sick", classes=("no", "yes"))
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: Mapping[str, Column]
    target: str | None = None
    classes: tuple[str | float, ...] | None = None
    target_bounds: tuple[float, float] | None = None
    ignore: tuple[str, ...] = ()
    identifier: str | None = None
    typed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = {_name(name): column for name, column in dict(self.columns).items()}
        for name, column in columns.items():
            if not isinstance(column, NumberColumn | CategoryColumn | UnknownColumn):
                raise SchemaError(
                    f"column {name!r} must be a NumberColumn or a CategoryColumn, a DateColumn or "
                    "an UnknownColumn"
                )
        if not columns:
            raise SchemaError("columns: a schema needs at least one column to learn from")
        identifier = None if self.identifier is None else _name(self.identifier)
        ignore = _names("ignore", self.ignore)
        if identifier is not None and identifier not in ignore:
            ignore = (*ignore, identifier)
        typed = _names("typed", self.typed)
        target, classes, bounds = self.target, self.classes, self.target_bounds
        if target is not None:
            target = _name(target)
        elif classes is not None or bounds is not None:
            raise SchemaError("classes and target_bounds describe a target; name it in target")
        most, times = Counter([*columns, *ignore, target]).most_common(1)[0]
        if times > 1:
            raise SchemaError(
                f"column {most!r} is listed twice: keep it in one of columns, ignore and target"
            )
        with _at(f"target {target!r}"):
            if classes is not None and bounds is not None:
                raise SchemaError("give classes or target_bounds, not both")
            classes = None if classes is None else clean_labels("classes", classes)
            if classes is not None and len(classes) < 2:
                raise SchemaError("classes must list at least two values")
            if bounds is not None:
                if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
                    raise SchemaError("target_bounds must be a pair [low, high]")
                ends = NumberColumn(*bounds)
                if ends.low is None or ends.high is None:
                    raise SchemaError("target_bounds must be two numbers")
                bounds = (ends.low, ends.high)
        clean = (columns, target, classes, bounds, ignore, identifier, typed)
        for field, value in zip(fields(self), clean, strict=True):
            object.__setattr__(self, field.name, value)

    def _facts(self) -> tuple[Any, ...]:
        columns = tuple(self.columns.items())  # their order is the order of the features
        facts = (getattr(self, field.name) for field in fields(self) if field.name != "columns")
        return columns, *facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    @classmethod
    def of(cls, schema: Schema | Mapping[str, Any] | PathLike) -> Schema:
        """A schema from a schema, a dict, or the path of a YAML file.

        Parameters
        ----------
        schema : Schema, dict or path
            What describes the columns.

        Returns
        -------
        Schema
            The same object, if it was one.
        """
        if isinstance(schema, Schema):
            return schema
        return cls.from_dict(schema) if isinstance(schema, Mapping) else cls.load(schema)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`; also what the YAML file holds.

        Parameters
        ----------
        data : mapping
            Plain values: as `to_dict` gives them, or columns in short forms alone, such as
            ``{"age": [0, 120], "job": ["cook", "nurse"]}``.

        Returns
        -------
        Schema
            Checked.
        """
        data = _nested(data)
        known_keys(data, [field.name for field in fields(cls)], "the schema")
        columns = data.get("columns")
        if not isinstance(columns, Mapping):
            raise SchemaError("the schema needs a key 'columns' with a mapping of names to columns")
        facts = {key: data[key] for key in ("target", "classes", "target_bounds") if key in data}
        if isinstance(facts.get("target_bounds"), list | tuple) and None in facts["target_bounds"]:
            facts["target_bounds"] = None
        blanks = [f"{k} (fill it in or delete the line)" for k in facts if facts[k] in (None, [])]
        for name, entry in columns.items():
            blanks += [f"{key} of column {name!r}" for key in blanks_of(entry)]
        if blanks:
            raise SchemaError(
                "the schema has blanks that a person must fill in from public knowledge: "
                + "; ".join(blanks)
            )
        parsed: dict[str, Column] = {}
        for name, entry in columns.items():
            with _at(f"column {name!r}"):
                parsed[name] = parse_column(entry)
        more = {key: data[key] for key in ("ignore", "identifier", "typed") if data.get(key)}
        return cls(parsed, **facts, **more)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, text and numbers.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        data: dict[str, Any] = {
            "target": self.target,
            "classes": list(self.classes or ()),
            "target_bounds": [plain(bound) for bound in self.target_bounds or ()],
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
            "ignore": [name for name in self.ignore if name != self.identifier],
            "identifier": self.identifier,
            "typed": list(self.typed),
        }
        return {key: value for key, value in data.items() if value}

    @property
    def private(self) -> bool:
        """Whether anything must be found, through noise, before a row can be encoded."""
        return any(column.private for column in self.columns.values())

    def expanded(self, names: Iterable[str]) -> Schema:
        """The schema of a table with these columns: names with ``*`` stand for all that fit.

        A column that is described by its own name is not meant; of two patterns, the first is.

        Parameters
        ----------
        names : iterable of str
            Of all columns of the table.

        Returns
        -------
        Schema
            The same object, if there is nothing to expand.

        Examples
        --------
        >>> schema = Schema.from_dict({"columns": {"PAY*": [0, "1e6"]}, "ignore": ["*_id"]})
        >>> sorted(schema.expanded(["PAY1", "PAY2", "row_id"]).columns)
        ['PAY1', 'PAY2']
        """
        have = dict.fromkeys(names)
        mine = (*self.columns, *self.ignore)
        if not any("*" in name and name not in have for name in mine):
            return self
        meant = {*mine, self.target}
        spare = [name for name in have if name not in meant]
        ignore: list[str] = []
        for name in self.ignore:  # first: what is not used needs no description
            ignore += [name] if name in have or "*" not in name else _taken(name, spare)
        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            if name in have or "*" not in name:
                columns[name] = column
                continue
            found = _taken(name, spare)
            if not found:
                raise SchemaError(f"columns: {name!r} fits no column of the table")
            columns |= dict.fromkeys(found, column)
        return replace(self, columns=columns, ignore=tuple(ignore))

    def assumptions(self) -> tuple[str, ...]:
        """What a certificate should say that this schema rests on, beyond what was declared.

        Returns
        -------
        tuple of str
            Statements; empty if everything was declared.
        """
        if not self.typed:
            return ()
        some = ", ".join(f"{name:.40}" for name in self.typed[:5])
        some += ", ..." if len(self.typed) > 5 else ""
        return (
            f"the kinds of {len(self.typed)} of {len(self.columns)} columns ({some}) were taken "
            "from the types of the table, which are assumed not to depend on its rows",
        )

    def remarks(self) -> tuple[str, ...]:
        """What a person should look at before a fit, as far as names and types tell.

        Returns
        -------
        tuple of str
            Sentences; empty if there is nothing to say.
        """
        asked = (
            name
            for name, column in self.columns.items()
            if column.private and not isinstance(column, DateColumn)
        )
        found = likely_identifiers(asked)
        if not found:
            return ()
        some = ", ".join(map(repr, found[:5])) + (", ..." if len(found) > 5 else "")
        return (
            f"{some}: looks like an identifier by its name, which tells one row from another and "
            "nothing else; leave such columns out, in ignore of a schema, or say by them whose "
            "rows are whose, with groups= (--person)",
        )

    @classmethod
    def load(cls, path: PathLike) -> Schema:
        """Read a schema that a person filled in; all blanks are reported at once.

        Parameters
        ----------
        path : path
            A YAML file.

        Returns
        -------
        Schema
            Checked.
        """
        with _at(os.fspath(path)):
            return cls.from_dict(read_yaml(path))

    def save(self, path: PathLike) -> None:
        """Write the schema as YAML.

        Parameters
        ----------
        path : path
            The file to write.
        """
        write_yaml(path, self.to_dict())

    @staticmethod
    def draft(table: Any, target: str | None = None) -> str:
        """YAML text to fill in: one line for each column, with what its type says.

        No value is looked at. Columns that are likely to be identifiers, by their names, are put
        among those that are not used.

        Parameters
        ----------
        table : Table, Scan, mapping of str to ColumnType, or what `as_table` takes
            Of which names and types of the columns are looked at.
        target : str, optional
            The column to be predicted.

        Returns
        -------
        str
            YAML.
        """
        types = types_of(table)
        if target is not None and target not in types:
            near = did_you_mean(target, types)
            raise SchemaError(f"target {target!r} is not a column of the table{near}")
        return draft_text(types, target)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in front of the message of a `SchemaError`."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


def _nested(data: Any) -> Any:
    """A mapping that says nothing but what columns are, as a schema."""
    known = {field.name for field in fields(Schema)}
    flat = isinstance(data, Mapping) and data and not known.intersection(data)
    return {"columns": data} if flat else data


def _taken(pattern: str, spare: list[str]) -> list[str]:
    """The names that a pattern fits, which are spare no longer."""
    found = [name for name in spare if _fits(pattern, name)]
    gone = set(found)
    spare[:] = [name for name in spare if name not in gone]
    return found


def _fits(pattern: str, name: str) -> bool:
    """Whether a name is the pattern with any text for each star; in time linear in both."""
    first, *middle, last = pattern.split("*")
    if not (name.startswith(first) and name.endswith(last) and len(name) >= len(first + last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _names(key: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        raise SchemaError(f"{key} must be a list of column names")
    return tuple(dict.fromkeys(map(_name, names)))


def _name(name: Any) -> str:
    if isinstance(name, bool) or not isinstance(name, str | int | float) or not str(name).strip():
        raise SchemaError(f"{shown(name)} is not a column name; put it in quotes")
    return str(name).strip()


def declared_schema(
    table: Any,
    *,
    schema: Schema | Mapping[str, Any] | PathLike | None = None,
    bounds: Any = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    target: str | None = None,
) -> Schema:
    """The schema of a table from what is declared and, for the rest, from its types.

    No value is looked at. What is not declared is private: bounds, categories (those of a
    categorical, too, which are often read off the rows; an ``Enum`` of polars declares them), and
    in a text file even the kind.

    Parameters
    ----------
    table : Table, Scan, mapping of str to ColumnType, or what `as_table` takes
        Of which the names and types of columns are taken.
    schema : Schema, dict or path, optional
        Of some or all of the columns.
    bounds : mapping of str to pair, or pair, optional
        Public bounds by column, or of all numbers that have none of their own. A name with
        ``*`` stands for all that fit.
    categories : mapping of str to sequence, optional
        Public lists of categories, by column.
    target : str, optional
        A column that is not learned from, if the schema names none.

    Returns
    -------
    Schema
        With every column of the table but the target and those to be ignored.

    Examples
    --------
    >>> schema = declared_schema({"age": [31], "job": ["cook"]}, bounds={"age": (0, 120)})
    >>> schema.columns["age"].high, schema.columns["job"].private
    (120.0, True)
    """
    types = types_of(table)
    found, told = _declared({} if schema is None else schema, types, target)
    unused = {*found.ignore, found.target}
    declared = {name: column for name, column in told.items() if name not in unused}
    every = None if bounds is None or isinstance(bounds, Mapping) else _pair("bounds", bounds)
    for name, pair in _by_column("bounds", {} if every else bounds, types):
        low, high = _pair(f"bounds of column {name!r}", pair)
        is_date = types[name].kind == "date" or any(map(is_date_bound, (low, high)))
        kind = "date" if is_date else "number"
        declared[name] = _with(name, declared.get(name), kind, low=low, high=high)
    for name, listed in _by_column("categories", categories, types):
        words = hasattr(listed, "__iter__") and not isinstance(listed, str | Mapping)
        facts = {"categories": tuple(listed) if words else listed}
        declared[name] = _with(name, declared.get(name), "category", **facts)
    columns: dict[str, Column] = {}
    typed = []
    for name in dict.fromkeys((*told, *types)):  # a schema says in which order they are
        if name in unused:
            continue
        if name in declared:
            columns[name] = declared[name]
            continue
        stored, facts = types[name], {}
        if stored.kind == "number" and every is not None:
            facts = {"low": every[0], "high": every[1]}
        elif stored.categories is not None:
            facts = {"categories": stored.categories}
        with _at(f"column {name!r}"):
            columns[name] = default_column(stored.kind, **facts)
        if stored.kind != "private":
            typed.append(name)
    return replace(found, columns=columns, typed=tuple(typed))


def types_of(table: Any) -> Mapping[str, ColumnType]:
    """Names of the columns of a table, and what their types say."""
    is_types = isinstance(table, Mapping) and table
    if is_types and all(isinstance(says, ColumnType) for says in table.values()):
        return table
    if is_dask(table):
        table = getattr(table, "_meta", table)  # a frame of the same types, without rows
    return getattr(table, "types", None) or as_table(table).types


def _declared(
    schema: Schema | Mapping[str, Any] | PathLike, types: Mapping[str, Any], target: str | None
) -> tuple[Schema, Mapping[str, Column]]:
    """A schema as it is meant for a table, and the columns that it describes, perhaps none."""
    nothing = {"*": PRIVATE}
    if isinstance(schema, Schema):
        whole, columns = schema, True
    else:
        with _at("schema" if isinstance(schema, Mapping) else os.fspath(schema)):
            data = schema if isinstance(schema, Mapping) else read_yaml(schema)
            data = _nested(data)
            columns = bool(data.get("columns"))
            whole = Schema.from_dict({**data, "columns": data.get("columns") or nothing})
    if target is not None:
        if whole.target not in (None, target):
            raise SchemaError(f"target {target!r}, but the schema's target is {whole.target!r}")
        whole = replace(whole, target=target)
    if not columns:
        return replace(whole, ignore=whole.expanded([*types, "*"]).ignore), {}
    whole = whole.expanded(types)
    gone = [name for name in whole.columns if name not in types]
    if gone:
        near = did_you_mean(gone[0], types)
        raise SchemaError(f"the table lacks columns of the schema: {gone[0]!r}{near}")
    return whole, whole.columns


def _by_column(key: str, told: Any, types: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is told by column, for every column that is meant: first those meant by name."""
    if told is None:
        return
    if not isinstance(told, Mapping):
        raise SchemaError(f"{key} must be a mapping of names of columns")
    spare = [name for name in types if name not in told]
    for name, fact in told.items():
        found = [name] if name in types else _taken(str(name), spare) if "*" in str(name) else []
        if not found:
            near = did_you_mean(str(name), types)
            raise SchemaError(f"{key}: {shown(name)} is no column of the table{near}")
        for each in found:
            yield each, fact


def _with(name: str, column: Column | None, kind: str, **facts: Any) -> Column:
    """A column with further facts; what is declared otherwise already is a contradiction."""
    with _at(f"column {name!r}"):
        if column is None or isinstance(column, UnknownColumn):
            return default_column(kind, **facts)
        if column.kind != kind:
            raise SchemaError(f"the schema says {column.kind}, and other arguments {kind}")
        return replace(column, **facts)


def _pair(key: str, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str | Mapping) or not hasattr(pair, "__len__") or len(pair) != 2:
        raise SchemaError(f"{key} must be a pair (low, high)")
    low, high = pair
    return low, high
