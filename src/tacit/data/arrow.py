"""Tables from pyarrow, array by array, so that text is never spread out row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.data.tables import (
    ABSENT,
    Coder,
    ColumnType,
    Moments,
    Stored,
    Table,
    Text,
    stored_array,
    unique_names,
)
from tacit.exceptions import InputError


def load_pyarrow(what: str, error: type[InputError] = InputError) -> Any:
    """The package, Parquet included, or an error that says what needs it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise error(f'{what} needs pyarrow: pip install "tacit[tables]"') from None
    return pyarrow


def from_arrow(arrow: Any) -> Table:
    """A table from a pyarrow one."""
    names = unique_names(arrow.column_names)
    columns: dict[str, Stored] = {}
    types: dict[str, ColumnType] = {}
    for name, column in zip(names, arrow.columns, strict=True):
        made = ArrowColumn(name, column.type)
        for chunk in column.chunks:
            made.add(chunk)
        columns[name], types[name] = made.stored(), made.type
    return Table(columns, arrow.num_rows, types)


def is_text(stored: Any) -> bool:
    """Whether a type of arrow holds words."""
    return "string" in str(stored) and not _is(stored, "dictionary", "nested")


class ArrowColumn:
    """A column, from arrays of a type: numbers, moments, or codes of words."""

    def __init__(self, name: str, stored: Any) -> None:
        self.name = name
        self._coder = Coder()
        self._parts: list[np.ndarray] = []
        inner = stored.value_type if _is(stored, "dictionary") else stored
        self._moments = _is(inner, "date", "timestamp")
        self._numbers = _is(inner, "null", "integer", "floating", "decimal", "duration", "time")
        self._numbers = self._numbers and not self._moments
        self._truths = _is(inner, "boolean")
        if _is(inner, "decimal") and abs(inner.scale) > 300:  # 0 would become NaN, so missing
            raise InputError(
                f"column {name!r} holds {inner}, in units that double precision cannot hold; cast "
                "it to float64, or to text"
            )
        if not (self._numbers or self._moments or self._truths or is_text(inner)):
            raise InputError(
                f"column {name!r} holds {inner!s:.80}; Tacit reads numbers, dates and text: drop it"
            )

    @property
    def type(self) -> ColumnType:
        """What its type says of its values."""
        kinds = {"number": self._numbers, "date": self._moments, "boolean": self._truths}
        return ColumnType(next((kind for kind, it_is in kinds.items() if it_is), "category"))

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return self._coder.size + sum(part.nbytes for part in self._parts)

    def add(self, array: Any) -> None:
        import pyarrow as pa

        try:
            read = self._floats if self._numbers or self._moments else self._codes
            self._parts.append(read(array))
        except pa.ArrowMemoryError:
            raise MemoryError from None
        except (pa.ArrowException, UnicodeDecodeError):
            raise self._damaged() from None

    def _damaged(self) -> InputError:
        return InputError(
            f"column {self.name!r} is damaged: its words, or codes that stand for them, are not "
            "valid; write the table again"
        )

    def _floats(self, array: Any) -> np.ndarray:
        import pyarrow as pa

        if _is(array.type, "dictionary"):
            self._indices(array)
            array = array.dictionary_decode()
        if _is(array.type, "time"):  # of day
            array = array.cast(pa.int64()).cast(pa.duration(array.type.unit))
        if self._moments or _is(array.type, "duration"):
            stored, _ = stored_array(self.name, array.to_numpy(zero_copy_only=False))
            return stored.seconds if isinstance(stored, Moments) else np.asarray(stored)
        found: np.ndarray = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return found

    def _codes(self, array: Any) -> np.ndarray:
        import pyarrow as pa

        if not _is(array.type, "dictionary"):
            array = array.dictionary_encode()
        indices, words = self._indices(array), array.dictionary
        if len(words) > len(indices):  # a slice: most of them may stand elsewhere
            used, indices = np.unique(indices, return_inverse=True)
            words = words.take(pa.array(used[used >= 0]))
            indices -= int(used[0] < 0)
        codes = np.append(self._coder.encode(self._texts(words)), np.int32(ABSENT))
        found: np.ndarray = codes[indices]
        return found

    def _indices(self, array: Any) -> np.ndarray:
        """Places of values in their dictionary, `ABSENT` for missing ones; arrow checks none."""
        import pyarrow as pa

        places = array.indices.cast(pa.int64())
        found: np.ndarray = places.drop_null().to_numpy(zero_copy_only=False)
        if found.size and not 0 <= found.min() <= found.max() < len(array.dictionary):
            raise self._damaged()
        filled: np.ndarray = places.fill_null(ABSENT).to_numpy(zero_copy_only=False)
        return filled

    def _texts(self, words: Any) -> list[str]:
        import pyarrow as pa

        return [word or "" for word in words.cast(pa.large_string()).to_pylist()]

    def stored(self) -> Stored:
        if self._numbers:
            return np.concatenate([np.empty(0), *self._parts])
        if self._moments:
            return Moments(np.concatenate([np.empty(0), *self._parts]))
        return Text(np.concatenate([np.empty(0, np.int32), *self._parts]), self._coder.words)


def _is(stored: Any, *kinds: str) -> bool:
    import pyarrow as pa

    return any(getattr(pa.types, f"is_{kind}")(stored) for kind in kinds)
