"""A schema as YAML: the draft that a person fills in, and what comes back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tacit.data.cells import BOOLEAN
from tacit.data.identifiers import likely_identifiers
from tacit.data.tables import ColumnType, PathLike
from tacit.exceptions import InputError, SchemaError, shown
from tacit.files import read_text, write_bytes

LARGEST_FILE = 4 << 20  # bytes of a file, and of what its aliases stand for

NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
ALIGNED = 30  # characters of a name beyond which lines are not aligned with it
LONGEST_NUMBER = 1000  # digits; Python will not even print one of a few thousand

_TARGET = """\
# Say what it is, if that is public: labels, such as [0, 1], or a number and its bounds.
# classes: [0, 1]
# target_bounds: [0, 100]

"""
_NO_TARGET = "# target: {}   # the column to predict; take it out of columns below\n\n"
_USUAL_TARGETS = ("target", "label", "y", "class", "outcome", "response")
_SUGGESTED = """ These look as if they told one person, or one row,
# from another: by their names alone, so move back what does not. If people have several
# rows, name the one that says whose a row is: epsilon is then for all of a person's rows.
# identifier: {}"""
_UNSUGGESTED = " Move names and numbers of persons here."


def draft_text(types: Mapping[str, ColumnType], target: str | None) -> str:
    """A schema as YAML text, from the names and types of the columns alone."""
    features = {name: says for name, says in types.items() if name != target}
    likely = likely_identifiers(
        name for name, says in features.items() if says.kind not in ("date", "boolean")
    )
    kept = {name: says for name, says in features.items() if name not in likely}
    if not kept:  # a schema needs a column
        likely, kept = (), features
    lengths = map(len, map(_quoted, kept))
    width = max((length for length in lengths if length <= ALIGNED), default=0)
    lines = [f"  {_quoted(name) + ':':{width + 1}} {_line(says)}\n" for name, says in kept.items()]
    draft = Path(__file__).with_name("draft.yaml").read_text(encoding="utf-8")
    return draft.format(
        target=_about(types, target),
        columns="".join(lines),
        about=_SUGGESTED.format(_quoted(likely[0])) if likely else _UNSUGGESTED,
        ignore=f"[{', '.join(map(_quoted, likely))}]",
    )


def _line(says: ColumnType) -> str:
    if says.categories is None:
        return says.kind
    return f"[{', '.join(map(_quoted, says.categories))}]"


def _about(types: Mapping[str, ColumnType], target: str | None) -> str:
    """What is known of the target, or what to write if it is not."""
    if target is None:
        usual = {name.lower(): name for name in types}
        found = next((usual[name] for name in _USUAL_TARGETS if name in usual), "NAME")
        return _NO_TARGET.format(_quoted(found))
    says, head = types[target], f"target: {_quoted(target)}\n"
    classes = BOOLEAN if says.kind == "boolean" else says.categories
    if classes is None or len(classes) < 2:
        return head + _TARGET
    return f"{head}classes: [{', '.join(map(_quoted, classes))}]\n\n"


def _quoted(name: str) -> str:
    """A name as YAML, in quotes only where it needs them, without characters that steer."""
    with suppress(yaml.YAMLError, ValueError):
        if name.replace("-", "").replace("_", "").isalnum() and yaml.safe_load(name) == name:
            return name
    style: dict[str, Any] = {"default_style": '"', "width": math.inf}
    return str(yaml.safe_dump(name, allow_unicode=name.isprintable(), **style)).strip()


class _Loader(yaml.SafeLoader):
    """YAML without its traps.

    It keeps the last of two equal keys in silence; a person would not know which. And a few
    aliases of aliases stand for billions of values: they count as what they stand for.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._size = 0  # characters of all values so far
        self._sizes: dict[yaml.Node, int] = {}  # of each that is complete

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        before, is_alias = self._size, self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if node is None:
            return None
        if is_alias and node not in self._sizes:
            raise SchemaError("an alias stands inside of what it stands for")
        self._size += self._sizes.get(node, 0)
        if not is_alias:
            self._size += 1 + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            self._sizes[node] = self._size - before
            if node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
                raise SchemaError(f"a number has {len(node.value)} digits")
        if self._size > LARGEST_FILE:
            raise SchemaError(
                f"its aliases stand for more than {LARGEST_FILE >> 20} MB; write less"
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        twice = sorted(key for key, times in keys.items() if times > 1)
        if twice:
            raise SchemaError(f"{', '.join(map(shown, twice[:5]))} is given more than once")
        return node


def read_yaml(path: PathLike) -> Mapping[str, Any]:
    """The mapping that a file holds."""
    try:
        data = yaml.load(read_text(path, limit=LARGEST_FILE), Loader=_Loader)
    except InputError:
        raise
    except Exception as error:  # of YAML, or of what its tags make of strange values
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise SchemaError(f"not well-formed YAML{line}; put odd names in quotes") from None
    if not isinstance(data, Mapping):
        raise SchemaError("a schema is a YAML mapping with the key 'columns'")
    return data


def write_yaml(path: PathLike, data: Mapping[str, Any]) -> None:
    """Write what `read_yaml` reads back."""
    style: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 100}
    text = yaml.safe_dump(data, allow_unicode=True, **style)
    if yaml.safe_load(text) != data:  # some line separators need to be escaped
        text = yaml.safe_dump(data, **style)
    write_bytes(path, text.encode())
