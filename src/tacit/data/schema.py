"""The schema: what may be known about each column before a row is read.

Bounds and categories are public facts that a person writes down. They are never
read from the table: the largest income or a rare category can belong to one
person. With them, encoding a row needs nothing but that row, so it costs no
privacy.

The policy ``error`` is the exception to mind: a run that stops because of one
cell tells whoever sees it stop something about that row. Use it on data you may
look at. The message names the column and never the value.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tacit.data.tables import (
    PathLike,
    as_number,
    as_table,
    is_missing,
    match_key,
    number_text,
)
from tacit.exceptions import FileError, SchemaError
from tacit.files import write_bytes

__all__ = ["CategoryColumn", "Column", "NumberColumn", "Schema"]

NUMBER_MISSING = ("middle", "low", "high", "indicator", "error")
NUMBER_SCALES = ("linear", "log")
CATEGORY_MISSING = ("zeros", "level", "error")
CATEGORY_UNSEEN = ("zeros", "level", "error")


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers between public bounds; values outside are clamped.

    Parameters
    ----------
    low, high : float
        Public bounds, finite, low < high.
    missing : {"middle", "low", "high", "indicator", "error"}
        What a missing cell becomes: the middle or an end of the encoded range;
        0 with a further 0/1 column that marks it; or a refusal.
    scale : {"linear", "log"}
        ``linear`` maps [low, high] to [-1, 1]. ``log`` maps it to [0, 1] by
        log1p(value - low) / log1p(high - low), for amounts of which most are
        near low and a few are large.
    """

    low: float
    high: float
    missing: str = "middle"
    scale: str = "linear"

    def __post_init__(self) -> None:
        low, high = _finite("low", self.low), _finite("high", self.high)
        if not low < high or not math.isfinite(high - low):
            raise SchemaError(
                f"low must be less than high, a finite way apart; they are {number_text(low)} "
                f"and {number_text(high)}"
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
        return [name, f"{name}=<missing>"][: self.width]

    def to_dict(self) -> dict[str, Any]:
        bounds = {"low": _plain(self.low), "high": _plain(self.high)}
        return {"kind": "number", **bounds, "missing": self.missing, "scale": self.scale}


@dataclass(frozen=True)
class CategoryColumn:
    """A column with a public list of categories, encoded as one 0/1 column each.

    Parameters
    ----------
    categories : sequence of str
        Numbers count as their text. 1, "1" and "1.0" are the same category.
    missing : {"zeros", "level", "error"}
        What a missing cell becomes: zeros, a column of its own, or a refusal.
    unseen : {"zeros", "level", "error"}
        The same for a value that is not among the categories.
    """

    categories: tuple[str, ...]
    missing: str = "zeros"
    unseen: str = "zeros"

    def __post_init__(self) -> None:
        labels = _labels("categories", self.categories)
        texts = tuple(c if isinstance(c, str) else number_text(c) for c in labels)
        object.__setattr__(self, "categories", texts)
        _one_of("missing", self.missing, CATEGORY_MISSING)
        _one_of("unseen", self.unseen, CATEGORY_UNSEEN)

    @property
    def width(self) -> int:
        """Columns after encoding."""
        return len(self.categories) + (self.missing == "level") + (self.unseen == "level")

    def feature_names(self, name: str) -> list[str]:
        levels = [f"<{what}>" for what in ("missing", "unseen") if getattr(self, what) == "level"]
        return [f"{name}={level}" for level in (*self.categories, *levels)]

    def to_dict(self) -> dict[str, Any]:
        own = {"missing": self.missing, "unseen": self.unseen}
        return {"kind": "category", "categories": list(self.categories), **own}


Column: TypeAlias = NumberColumn | CategoryColumn
_KINDS: dict[str, tuple[type[Any], tuple[str, ...], tuple[str, ...]]] = {  # class, keys, blanks
    "number": (NumberColumn, ("low", "high", "missing", "scale"), ("low", "high")),
    "category": (CategoryColumn, ("categories", "missing", "unseen"), ("categories",)),
}
_KEYS = ("target", "classes", "target_bounds", "columns", "ignore")


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
        if isinstance(self.ignore, str):
            raise SchemaError("ignore must be a list of column names")
        ignore = tuple(dict.fromkeys(_name(name) for name in self.ignore))
        target = None if self.target is None else _name(self.target)
        twice = [name for name in ignore if name in columns or name == target]
        if twice or target in columns:
            raise SchemaError(
                f"column {[*twice, target][0]!r} is listed twice: keep it in one of columns, "
                "ignore and target"
            )
        if target is None and (self.classes is not None or self.target_bounds is not None):
            raise SchemaError("classes and target_bounds describe a target; name it in target")
        if self.classes is not None and self.target_bounds is not None:
            raise SchemaError(f"target {target!r}: give classes or target_bounds, not both")
        with _at(f"target {target!r}"):
            classes = None if self.classes is None else _labels("classes", self.classes)
            if classes is not None and len(classes) < 2:
                raise SchemaError("classes must list at least two values")
            bounds = None if self.target_bounds is None else _bounds(self.target_bounds)
        for key, value in {
            "columns": columns,
            "ignore": ignore,
            "target": target,
            "classes": classes,
            "target_bounds": bounds,
        }.items():
            object.__setattr__(self, key, value)

    def _facts(self) -> tuple[Any, ...]:
        columns = tuple(self.columns.items())  # their order is the order of the features
        return columns, self.target, self.classes, self.target_bounds, self.ignore

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    @classmethod
    def of(cls, schema: Schema | Mapping[str, Any] | PathLike) -> Schema:
        """A schema from a schema, a dict, or the path of a YAML file."""
        if isinstance(schema, Schema):
            return schema
        return cls.from_dict(schema) if isinstance(schema, Mapping) else cls.load(schema)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`; also what the YAML file holds."""
        _known_keys(data, _KEYS, "the schema")
        columns = data.get("columns")
        if not isinstance(columns, Mapping):
            raise SchemaError("the schema needs a key 'columns' with a mapping of names to columns")
        ignore = data.get("ignore") or ()
        if isinstance(ignore, str) or not isinstance(ignore, Sequence):
            raise SchemaError("ignore must be a list of column names")
        blanks: list[str] = []
        for key in ("target", "classes", "target_bounds"):
            value = data.get(key, 0)
            if value is None or value == [] or (key == "target_bounds" and _has_blank(value)):
                blanks.append(f"{key} (fill it in or delete the line)")
        for name, fields in columns.items():
            with _at(f"column {name!r}"):
                _name(name)
                blanks += [f"{key} of column {name!r}" for key in _blanks(fields)]
        if blanks:
            raise SchemaError(
                "the schema has blanks that a person must fill in from public knowledge: "
                + "; ".join(blanks)
            )
        parsed: dict[str, Column] = {}
        for name, fields in columns.items():
            with _at(f"column {name!r}"):
                settings = {key: value for key, value in fields.items() if key != "kind"}
                parsed[_name(name)] = _KINDS[fields["kind"]][0](**settings)
        target, classes = data.get("target"), data.get("classes")
        return cls(parsed, target, classes, data.get("target_bounds"), tuple(ignore))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, dicts, text and numbers."""
        data: dict[str, Any] = {}
        if self.target is not None:
            data["target"] = self.target
        if self.classes is not None:
            data["classes"] = list(self.classes)
        if self.target_bounds is not None:
            data["target_bounds"] = [_plain(bound) for bound in self.target_bounds]
        data["columns"] = {name: column.to_dict() for name, column in self.columns.items()}
        if self.ignore:
            data["ignore"] = list(self.ignore)
        return data

    @classmethod
    def load(cls, path: PathLike) -> Schema:
        """Read a schema that a person filled in; all blanks are reported at once."""
        path = Path(path)
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise FileError(f"cannot read the schema {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FileError(f"the schema {path} is not text in UTF-8") from None
        with _at(str(path)):
            return cls.from_dict(_parse_yaml(text))

    def save(self, path: PathLike) -> None:
        """Write the schema as YAML."""
        data = self.to_dict()
        text = _dump(data, allow_unicode=True)
        if yaml.safe_load(text) != data:  # some line separators need to be escaped
            text = _dump(data, allow_unicode=False)
        write_bytes(path, text.encode())

    @staticmethod
    def draft(table: Any, target: str | None = None) -> str:
        """YAML text to fill in: names and kinds of the columns, everything else blank.

        Parameters
        ----------
        table : Table or what `as_table` takes
            Only its column names and how they are stored are used.
        target : str, optional
            The column to predict.
        """
        table = as_table(table)
        if target is not None and target not in table.column_names:
            near = did_you_mean(target, table.column_names)
            raise SchemaError(f"target {target!r} is not a column of the table{near}")
        kinds = {name: table.kind(name) for name in table.column_names}
        lines = [_DRAFT_TOP]
        if target is None:
            lines.append("# target: NAME   # the column to predict; take it out of columns below\n")
        else:
            lines.append(f"target: {_quoted(target)}\n{_DRAFT_TARGET[kinds.pop(target)]}")
        lines.append("columns:\n")
        lines += [f"  {_quoted(name)}:\n{_DRAFT_COLUMN[kind]}" for name, kind in kinds.items()]
        return "".join([*lines, _DRAFT_END])


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A hint for a message, empty if nothing is near."""
    near = difflib.get_close_matches(word, list(options), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in front of the message of a `SchemaError`."""
    try:
        yield
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


def _parse_yaml(text: str) -> Mapping[str, Any]:
    try:
        _refuse_duplicates(yaml.compose(text, Loader=yaml.SafeLoader), set())
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise SchemaError(f"not well-formed YAML{line}; put odd names in quotes") from None
    if not isinstance(data, Mapping):
        raise SchemaError("a schema is a YAML mapping with the key 'columns'")
    return data


def _dump(data: Any, *, allow_unicode: bool) -> str:
    return str(
        yaml.safe_dump(
            data, allow_unicode=allow_unicode, sort_keys=False, default_flow_style=None, width=100
        )
    )


def _refuse_duplicates(node: Any, seen: set[int]) -> None:
    """YAML keeps the last of two equal keys in silence; a person would not know which."""
    if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    else:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise SchemaError(f"{', '.join(map(repr, twice))} is given more than once")
        children = [value for _, value in node.value]
    for child in children:
        _refuse_duplicates(child, seen)


def _known_keys(data: Any, allowed: Sequence[str], where: str) -> None:
    if not isinstance(data, Mapping):
        raise SchemaError(f"{where} must be a mapping with the keys {', '.join(allowed)}")
    for key in data:
        if key not in allowed:
            near = did_you_mean(str(key), allowed)
            raise SchemaError(
                f"unknown key {key!r} in {where}{near}; it may have {', '.join(allowed)}"
            )


def _blanks(fields: Any) -> list[str]:
    """Which facts of a column are left blank; also checks its kind and keys."""
    if not isinstance(fields, Mapping) or "kind" not in fields:
        raise SchemaError("must be a mapping with the key 'kind': number or category")
    _one_of("kind", fields["kind"], tuple(_KINDS))
    _, keys, needed = _KINDS[fields["kind"]]
    _known_keys(fields, ("kind", *keys), f"a {fields['kind']} column")
    return [key for key in needed if fields.get(key) is None or fields[key] in ([], ())]


def _has_blank(value: Any) -> bool:
    return isinstance(value, Sequence) and any(bound is None for bound in value)


def _name(name: Any) -> str:
    if isinstance(name, bool) or not isinstance(name, str | int | float) or not str(name).strip():
        raise SchemaError(f"{name!r} is not a column name; put it in quotes")
    return str(name).strip()


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        near = did_you_mean(str(value), allowed)
        raise SchemaError(f"{key} may be {', '.join(allowed)}, not {value!r}{near}")


def _finite(key: str, value: Any) -> float:
    if isinstance(value, str):  # YAML reads 1e5 as text
        value = as_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise SchemaError(f"{key} must be a finite number")
    return float(value)


def _bounds(pair: Any) -> tuple[float, float]:
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise SchemaError("target_bounds must be a pair [low, high]")
    column = NumberColumn(*pair)
    return column.low, column.high


def _labels(key: str, labels: Any) -> tuple[str | float, ...]:
    """Categories or classes: text or numbers, no two of them the same, none missing."""
    if isinstance(labels, str) or not isinstance(labels, Sequence) or not len(labels):
        raise SchemaError(f"{key} must be a list of at least one value")
    clean: dict[str | float, str | float] = {}
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | Real):
            raise SchemaError(
                f"{key}: put {label!r} in quotes, as the text of the cell (YAML reads words such "
                "as yes, no, true, null and dates as something else)"
            )
        value = label.strip() if isinstance(label, str) else _plain(float(label))
        if is_missing(str(value)):
            raise SchemaError(
                f"{key}: {label!r} marks a missing cell and cannot be one of them; the policy "
                "'missing' says what becomes of such cells"
            )
        if match_key(value) in clean:
            raise SchemaError(f"{key}: {clean[match_key(value)]!r} and {value!r} are the same")
        clean[match_key(value)] = value
    return tuple(clean.values())


def _plain(value: float) -> float | int:
    """Whole numbers as int, to be read easily in a file."""
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(value)


def _quoted(name: str) -> str:
    """A name as YAML, in quotes only where it needs them."""
    with suppress(yaml.YAMLError, ValueError):
        if name.replace("-", "").replace("_", "").isalnum() and yaml.safe_load(name) == name:
            return name
    dumped = yaml.safe_dump(name, default_style='"', allow_unicode=True, width=math.inf)
    return str(dumped).strip()


_DRAFT_TOP = """\
# What Tacit may know about this table before it reads a row.
#
# Fill in every blank from public knowledge: a code book, a form, the law, common sense.
# Do not look the answers up in the table. The largest income or a rare category can belong
# to one person, and a model fitted with it would give that person away.
# Generous round bounds are fine: values outside them are moved to the nearest bound.
#
# number    low, high   public bounds
#           scale       linear (default), or log for amounts, mostly small and a few large
#           missing     what an empty cell becomes: middle (default), low, high,
#                       indicator (a further 0/1 column marks it), error
# category  categories  public list, e.g. [cook, nurse, "yes", "no"]
#           missing     zeros (default), level (a column of its own), error
#           unseen      the same, for a value that is not on the list
#
# error stops the run. That alone tells whoever sees it something about one row, so use it
# only where the rows may be looked at.

"""
_DRAFT_TARGET = {
    "text": "classes: []   # every value it may have; read from the rows they would leak\n\n",
    "number": """\
# Keep one of the next two lines: bounds for a number, classes for a label such as 0 and 1.
target_bounds: [~, ~]   # public bounds; the target is moved into them
# classes: []           # every value it may have; read from the rows they would leak

""",
}
_DRAFT_COLUMN = {
    "number": "    kind: number   # or category, with categories\n    low: ~\n    high: ~\n",
    "text": "    kind: category\n    categories: []\n",
}
_DRAFT_END = """\

# Columns that are not to be used, such as names and numbers of persons: move them here.
ignore: []
"""
