"""The schema: what may be known about each column before a row is read.

Bounds and categories are public facts that a person writes down. They are never
read from the table: the largest income or a rare category can belong to one
person. With them, encoding a row needs nothing but that row, so it costs no
privacy.

There are two exceptions to mind: the policy ``error``, and text in a column that
the schema declares a number. Either stops the run because of one value, and that
tells whoever sees it stop something about that row. Use ``error`` only on data you
may look at, and clean number columns of text beforehand, by a rule that looks at one
value at a time. The message names the column and never the value.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from numbers import Real
from typing import Any, TypeAlias

from tacit.data.draft import draft_text, read_yaml, write_yaml
from tacit.data.tables import PathLike, as_number, as_table, is_missing, match_key, plain
from tacit.exceptions import SchemaError, shown

__all__ = ["CategoryColumn", "Column", "NumberColumn", "Schema"]

NUMBER_MISSING = ("middle", "low", "high", "indicator", "gap", "error")
NUMBER_SCALES = ("linear", "log")
CATEGORY_POLICIES = ("zeros", "level", "error")  # for missing and for unseen
LONGEST_HINT = 100  # letters of a name


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers between public bounds; values outside are clamped.

    A value of text that is not a missing one stops the run, whatever the policies say,
    and so reveals that there is one, as ``missing="error"`` does for a missing value.

    Parameters
    ----------
    low, high : float
        Public bounds, finite, low < high.
    missing : {"middle", "low", "high", "indicator", "gap", "error"}
        What a missing value becomes: the middle or an end of the encoded range;
        0 with a further 0/1 column that marks it; a gap, which a later stage must
        fill; or a refusal.
    scale : {"linear", "log"}
        ``linear`` maps [low, high] to [-1, 1]. ``log`` maps it to [0, 1] by
        log1p(value - low) / log1p(high - low), for amounts of which most are
        near low and a few are large.

    Examples
    --------
    >>> NumberColumn(0, 120).feature_names("age")
    ['age']
    """

    low: float
    high: float
    missing: str = "middle"
    scale: str = "linear"

    def __post_init__(self) -> None:
        low, high = _finite("low", self.low), _finite("high", self.high)
        if not low < high or not sys.float_info.min <= high - low < math.inf:
            raise SchemaError(
                "low must be less than high, a finite way apart and no less than "
                f"{sys.float_info.min:.3g}; they are {plain(low)} and {plain(high)}"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        _one_of("missing", self.missing, NUMBER_MISSING)
        _one_of("scale", self.scale, NUMBER_SCALES)

    @property
    def width(self) -> int:
        """Columns after encoding."""
        return 2 if self.missing == "indicator" else 1

    def feature_names(self, name: str) -> list[str]:
        """Names of the encoded columns.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        list of str
            Its own, and that of the mark of missing values if there is one.
        """
        return [name, f"{name}=<missing>"][: self.width]

    def to_dict(self) -> dict[str, Any]:
        """The column as plain JSON values.

        Returns
        -------
        dict
            As in the YAML file.
        """
        bounds = {"low": plain(self.low), "high": plain(self.high)}
        return {"kind": "number", **asdict(self), **bounds}


@dataclass(frozen=True)
class CategoryColumn:
    """A column with a public list of categories, encoded as one 0/1 column each.

    Parameters
    ----------
    categories : sequence of str
        Numbers count as their text. 1, "1" and "1.0" are the same category.
    missing : {"zeros", "level", "error"}
        What a missing value becomes: zeros, a column of its own, or a refusal.
    unseen : {"zeros", "level", "error"}
        The same for a value that is not among the categories.

    Examples
    --------
    >>> CategoryColumn(["cook", "nurse"]).feature_names("job")
    ['job=cook', 'job=nurse']
    """

    categories: tuple[str, ...]
    missing: str = "zeros"
    unseen: str = "zeros"

    def __post_init__(self) -> None:
        labels = _labels("categories", self.categories)
        texts = tuple(c if isinstance(c, str) else str(plain(c)) for c in labels)
        object.__setattr__(self, "categories", texts)
        _one_of("missing", self.missing, CATEGORY_POLICIES)
        _one_of("unseen", self.unseen, CATEGORY_POLICIES)

    @property
    def width(self) -> int:
        """Columns after encoding."""
        return len(self.categories) + (self.missing == "level") + (self.unseen == "level")

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
        return [f"{name}={level}" for level in (*self.categories, *levels)]

    def to_dict(self) -> dict[str, Any]:
        """The column as plain JSON values.

        Returns
        -------
        dict
            As in the YAML file.
        """
        return {"kind": "category", **asdict(self), "categories": list(self.categories)}


Column: TypeAlias = NumberColumn | CategoryColumn
_KINDS: dict[str, type[Column]] = {"number": NumberColumn, "category": CategoryColumn}


@dataclass(frozen=True, eq=False)
class Schema:
    """Public facts about the columns of a table.

    Parameters
    ----------
    columns : mapping of str to NumberColumn or CategoryColumn
        The features, in the order in which they are encoded.
    target : str, optional
        The column to predict.
    classes : sequence of str or number, optional
        Public list of the values of a target that is a class.
    target_bounds : pair of float, optional
        Public bounds of a target that is a number.
    ignore : sequence of str
        Columns that may be in the table and are not used.

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

    def __post_init__(self) -> None:
        columns = {_name(name): column for name, column in dict(self.columns).items()}
        for name, column in columns.items():
            if not isinstance(column, NumberColumn | CategoryColumn):
                raise SchemaError(f"column {name!r} must be a NumberColumn or a CategoryColumn")
        if not columns:
            raise SchemaError("columns: a schema needs at least one column to learn from")
        if isinstance(self.ignore, str | Mapping) or not isinstance(self.ignore, Iterable):
            raise SchemaError("ignore must be a list of column names")
        ignore = tuple(dict.fromkeys(map(_name, self.ignore)))
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
            classes = None if classes is None else _labels("classes", classes)
            if classes is not None and len(classes) < 2:
                raise SchemaError("classes must list at least two values")
            if bounds is not None:
                if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
                    raise SchemaError("target_bounds must be a pair [low, high]")
                ends = NumberColumn(*bounds)
                bounds = (ends.low, ends.high)
        clean = (columns, target, classes, bounds, ignore)
        for field, value in zip(fields(self), clean, strict=True):
            object.__setattr__(self, field.name, value)

    def _facts(self) -> tuple[Any, ...]:
        columns = tuple(self.columns.items())  # their order is the order of the features
        return columns, self.target, self.classes, self.target_bounds, self.ignore

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
            Plain values.

        Returns
        -------
        Schema
            Checked.
        """
        _known_keys(data, [field.name for field in fields(cls)], "the schema")
        columns = data.get("columns")
        if not isinstance(columns, Mapping):
            raise SchemaError("the schema needs a key 'columns' with a mapping of names to columns")
        facts = {key: data[key] for key in ("target", "classes", "target_bounds") if key in data}
        if isinstance(facts.get("target_bounds"), list | tuple) and None in facts["target_bounds"]:
            facts["target_bounds"] = None
        blanks = [f"{k} (fill it in or delete the line)" for k in facts if facts[k] in (None, [])]
        for name, entry in columns.items():
            with _at(f"column {name!r}"):
                blanks += [f"{key} of column {name!r}" for key in _blanks(entry)]
        if blanks:
            raise SchemaError(
                "the schema has blanks that a person must fill in from public knowledge: "
                + "; ".join(blanks)
            )
        parsed: dict[str, Column] = {}
        for name, entry in columns.items():
            with _at(f"column {name!r}"):
                settings = {key: value for key, value in entry.items() if key != "kind"}
                parsed[name] = _KINDS[entry["kind"]](**settings)
        return cls(parsed, **facts, ignore=data.get("ignore") or ())

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
            "ignore": list(self.ignore),
        }
        return {key: value for key, value in data.items() if value}

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
        """YAML text to fill in: names and kinds of the columns, everything else blank.

        The kind is how the table stores a column, so a value of text among numbers shows.

        Parameters
        ----------
        table : Table, or what `as_table` takes
            Of which names and kinds of the columns are looked at.
        target : str, optional
            The column to be predicted.

        Returns
        -------
        str
            YAML.
        """
        table = as_table(table)
        if target is not None and target not in table.column_names:
            near = did_you_mean(target, table.column_names)
            raise SchemaError(f"target {target!r} is not a column of the table{near}")
        return draft_text({name: table.kind(name) for name in table.column_names}, target)


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A hint for a message, empty if nothing is near."""
    if len(word) > LONGEST_HINT:  # comparing takes the product of both lengths
        return ""
    near = difflib.get_close_matches(word, [o for o in options if len(o) <= LONGEST_HINT], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in front of the message of a `SchemaError`."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


def _known_keys(data: Any, allowed: Sequence[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise SchemaError(f"{where} must be a mapping with the keys {', '.join(allowed)}")
    for key in data:
        if key not in allowed:
            near = did_you_mean(key, allowed) if isinstance(key, str) else ""
            raise SchemaError(
                f"unknown key {shown(key)} in {where}{near}; it may have {', '.join(allowed)}"
            )


def _blanks(entry: Any) -> list[str]:
    """Which facts of a column are left blank; also checks its kind and keys."""
    if not isinstance(entry, Mapping) or "kind" not in entry:
        raise SchemaError("must be a mapping with the key 'kind': number or category")
    _one_of("kind", entry["kind"], tuple(_KINDS))
    needs = {field.name: field.default is MISSING for field in fields(_KINDS[entry["kind"]])}
    _known_keys(entry, ["kind", *needs], f"a {entry['kind']} column")
    return [key for key in needs if needs[key] and entry.get(key) in (None, [], ())]


def _name(name: Any) -> str:
    if isinstance(name, bool) or not isinstance(name, str | int | float) or not str(name).strip():
        raise SchemaError(f"{shown(name)} is not a column name; put it in quotes")
    return str(name).strip()


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


def _labels(key: str, labels: Any) -> tuple[str | float, ...]:
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
