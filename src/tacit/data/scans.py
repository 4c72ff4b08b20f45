"""Tables and arrays that stay in their files: opened now, read when they are needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.mapped import Mapped, open_array
from tacit.data.parquet import ParquetFiles, open_parquet
from tacit.data.readers import (
    kind_of,
    require_decimal,
    require_limit,
    too_large_for_memory,
)
from tacit.data.rows import Rows
from tacit.data.stamps import Stamp
from tacit.data.tables import ABSENT, UNSEEN, ColumnType, PathLike, Table, joined
from tacit.data.text_files import TextFile, open_text
from tacit.exceptions import FileError, InputError, of_rows

BLOCK = 1 << 20  # labels that are matched together
LONGEST_LABELS = 1 << 23  # characters of all classes, each as long as the longest


@dataclass(frozen=True, eq=False)
class Scan:
    """A table or an array in files, as made by `scan`; use it as ``X``.

    Attributes
    ----------
    source : ParquetFiles, TextFile or Mapped
        What is learned from.
    target : str or None
        The column to be predicted, which is not in ``source``.
    path : Path
    """

    source: ParquetFiles | TextFile | Mapped
    target: str | None
    path: Path
    _whole: ParquetFiles | TextFile | Mapped

    def __repr__(self) -> str:
        aim = "" if self.target is None else f", target {self.target!r}"
        return f"Scan({str(self.path)!r}: {self.n} rows of {self.d} columns{aim})"

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.source.n)

    @property
    def d(self) -> int:
        """Number of columns that are learned from."""
        return int(self.source.d)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns that are learned from."""
        return self.n, self.d

    ndim = 2

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns without the target; None for an array."""
        return None if isinstance(self.source, Mapped) else tuple(self.source.kinds)

    @property
    def types(self) -> dict[str, ColumnType]:
        """What the types of the columns say; nothing, in a text file; empty for an array."""
        return {} if isinstance(self.source, Mapped) else self.source.types

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        """What tells whether the files have changed since they were opened."""
        return self.source.stamps

    def as_rows(self, *, gaps: bool = False) -> Rows:
        """Rows of numbers; a column of text is an error.

        Parameters
        ----------
        gaps : bool
            Whether NaN stands for a missing value.

        Returns
        -------
        Rows
            Read from the files, pass by pass.
        """
        if isinstance(self.source, Mapped):
            return Rows(replace(self.source, gaps=gaps), d=self.d)
        words = [name for name, kind in self.source.kinds.items() if kind == "text"]
        if words:
            raise of_rows(
                InputError(
                    f"column {words[0]!r} of {self.path} holds text; describe the table in a "
                    "schema and start the stages with Encode(schema), or leave the column out with "
                    "drop="
                )
            )
        return Rows(replace(self.source, numbers=True, gaps=gaps), d=self.d)

    def as_table_rows(self) -> Rows:
        """Rows of a table, for `tacit.preprocessing.Encode`.

        Returns
        -------
        Rows
            Of a table, read from the files.
        """
        if isinstance(self.source, Mapped):
            raise InputError(f"{self.path} is an array; Encode needs a table with named columns")
        return Rows(self.source, d=self.d)

    def aim(self, target: str) -> Scan:
        """The same scan, with another column to be predicted.

        Parameters
        ----------
        target : str
            Name of the column.

        Returns
        -------
        Scan
            Of the same files.
        """
        _require_column(self._whole, target, self.path)
        kept = [name for name in self.column_names or () if name != target]
        return replace(self.select(kept), target=target)

    def select(self, names: Iterable[str]) -> Scan:
        """The same files, with these columns to learn from, in this order.

        Parameters
        ----------
        names : iterable of str
            Columns.

        Returns
        -------
        Scan
            Of the same files.
        """
        return replace(self, source=_only(self._whole, names, self.path))

    def drop(self, names: str | Sequence[str]) -> Scan:
        """The scan without some of its columns.

        Parameters
        ----------
        names : str or sequence of str
            Columns to be left out.

        Returns
        -------
        Scan
            Of the same files.
        """
        gone = {names} if isinstance(names, str) else set(names)
        kept = [name for name in self.column_names or () if name not in gone]
        missing = sorted(gone - set(self.column_names or ()) - {self.target})
        if missing:
            raise InputError(f"no column {missing[0]!r} in {self.path}")
        return self.select(kept)

    def read(self, names: Sequence[str]) -> Table:
        """Some columns, in memory.

        Parameters
        ----------
        names : sequence of str
            Columns.

        Returns
        -------
        Table
            All rows of them.
        """
        rows = Rows(_only(self._whole, names, self.path), d=len(names))
        with _room(self.path):
            return joined((chunk for _, chunk in rows.chunks(1 << 16)), rows.n)

    def targets(self) -> Table:
        """The target, as a table of one column.

        Returns
        -------
        Table
            With n rows.
        """
        if self.target is None:
            raise InputError(
                f"y is missing: give it, or name its column, scan({str(self.path)!r}, target=...)"
            )
        return self.read([self.target])

    def labels(self, classes: Sequence[Any] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Classes, sorted, and which of them every row has; read from the target if not given.

        Numbers and their text are one label, as in a schema. Errors name the column and nothing
        in it.

        Parameters
        ----------
        classes : sequence, optional
            The labels that may occur.

        Returns
        -------
        classes : ndarray of shape (classes,)
            Labels, sorted.
        index : ndarray of int, of shape (n,)
            The place of every row's label among them.
        """
        table = self.targets()
        name = str(self.target)
        parts = [table.slice(at, at + BLOCK) for at in range(0, table.n, BLOCK)]
        if any((part.match(name, ()) == ABSENT).any() for part in parts):
            raise of_rows(
                InputError(f"the target {name!r} has a missing value; leave such rows out")
            )
        found = _distinct(parts) if classes is None else np.unique(np.asarray(classes))
        with _room(self.path):
            index = np.empty(table.n, np.int64)
        for at, part in zip(range(0, table.n, BLOCK), parts, strict=True):
            index[at : at + BLOCK] = part.match(name, found.tolist())
        if index.min() == UNSEEN:
            raise of_rows(
                InputError(f"the target {name!r} holds a label that is not among its classes")
            )
        return found, index

    def numbers(self) -> np.ndarray:
        """The target as numbers.

        Returns
        -------
        ndarray of shape (n,)
            float64.
        """
        table = self.targets()
        name = str(self.target)
        if table.kind(name) == "text":
            raise of_rows(InputError(f"the target {name!r} holds text; the target must be numbers"))
        return table.column(name)


def scan(
    path: PathLike,
    *,
    target: str | None = None,
    drop: str | Sequence[str] = (),
    memory: float | None = None,
    limit: float | None = None,
    decimal: str | None = None,
) -> Scan:
    """Open a table or an array that may be larger than memory; it is read when it is needed.

    Parameters
    ----------
    path : path
        A Parquet file; a folder of Parquet files with the same columns, taken in the order of
        their names; a file of text (``.csv``, ``.tsv``, compressed or not), which is read once now
        to count its rows; or an ``.npy`` file, which is mapped into memory.
    target : str, optional
        The column to be predicted. Then ``fit`` needs no ``y``.
    drop : str or sequence of str
        Columns that are not learned from.
    memory : float, optional
        Bytes that training may take for rows. A table that is larger, once its numbers are
        rounded to 16 bits, is read again on every pass. A quarter of the machine's unless given.
    limit : float, optional
        Bytes that the files may unpack to, as text or at 8 bytes a value of Parquet: small files
        can be made to unpack to more than any machine has. Unless given, 1 GB of text, and for
        small files less, or a hundred times the file; and 2^27 rows of Parquet, or eight for
        every byte of all files together.
    decimal : {".", ","}, optional
        Whether 1,5 is a number in a file of text; it is unless given if semicolons separate its
        fields.

    Returns
    -------
    Scan
        To be passed as ``X``.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "rows.csv")
    >>> _ = file.write_text("age,city,label\\n31,Bern,yes\\n47,Graz,no\\n")
    >>> rows = scan(file, target="label")
    >>> rows.n, rows.column_names
    (2, ('age', 'city'))
    >>> folder.cleanup()
    """
    path = Path(path)
    if memory is not None and not memory > 0:
        raise InputError(f"memory={memory!r} must be a positive number of bytes")
    room = None if memory is None else int(min(memory, 2**62))
    require_limit(limit)
    require_decimal(decimal)
    most = None if limit is None else int(min(limit, 2**62))
    if path.suffix.lower() == ".npy" and not path.is_dir():
        if target is not None or drop:
            raise InputError(f"{path} is an array, without names of columns; give y to fit")
        array = open_array(path, memory=room)
        return Scan(array, None, path, array)
    if path.is_dir():
        whole: ParquetFiles | TextFile = open_parquet(_inside(path), most)
    else:
        Stamp.of(path)  # says why it cannot be read, whatever its kind
        _, kind = kind_of(path)
        is_parquet = kind == ".parquet"
        whole = open_parquet([path], most) if is_parquet else open_text(path, most, decimal)
    whole = replace(whole, memory=room)
    gone = {drop} if isinstance(drop, str) else set(drop)
    for name in (*gone, *([] if target is None else [target])):
        _require_column(whole, name, path)
    kept = [name for name in whole.kinds if name != target and name not in gone]
    if not kept:
        raise InputError(f"{path} has no column left to learn from")
    return Scan(_only(whole, kept, path), target, path, whole)


def _inside(folder: Path) -> list[Path]:
    """The Parquet files of a folder, and of folders in it, in the order of their names."""
    found: list[Path] = []

    def unreadable(error: OSError) -> None:
        raise FileError(f"cannot read {error.filename}: {error.strerror}")

    for where, inside, names in os.walk(folder, onerror=unreadable):
        inside[:] = [name for name in inside if not name.startswith((".", "_"))]
        for name in inside:
            if "=" in name:
                raise FileError(
                    f"{Path(where, name)} keeps a column in the name of a folder, which is not "
                    "read; write the table without partitions"
                )
        found += [Path(where, name) for name in names if _is_part(name)]
    if not found:
        raise FileError(
            f"{folder} is a directory without .parquet files; name a table, or a folder of it"
        )
    return sorted(found)


def _is_part(name: str) -> bool:
    return name.lower().endswith(".parquet") and not name.startswith((".", "_"))


def _only(whole: Any, names: Iterable[str], path: Path) -> Any:
    """A source of some columns."""
    kept = list(names)
    for name in kept:
        _require_column(whole, name, path)
    kinds = {name: whole.kinds[name] for name in kept}
    if isinstance(whole, ParquetFiles):
        return replace(whole, kinds=kinds, stored={name: whole.stored[name] for name in kept})
    return replace(whole, kinds=kinds)


def _require_column(whole: Any, name: str, path: Path) -> None:
    if isinstance(whole, Mapped):
        raise InputError(f"{path} is an array, without names of columns")
    if name not in whole.kinds:
        have = ", ".join(list(whole.kinds)[:20]) + ", ..." * (len(whole.kinds) > 20)
        raise InputError(f"no column {name!r} in {path}; it has {have}")


def _distinct(parts: Sequence[Table]) -> np.ndarray:
    """The labels that occur in tables of one column, sorted."""
    (name,) = parts[0].column_names
    if parts[0].kind(name) == "text":
        words = sorted(set().union(*(part.column(name).tolist() for part in parts)))
        if len(words) * max(map(len, words)) > LONGEST_LABELS:  # each takes as much as the longest
            raise of_rows(
                InputError(f"the target {name!r} holds too many or too long labels; pass classes=")
            )
        return np.array(words)
    found = np.unique(np.concatenate([np.unique(part.column(name)) for part in parts]))
    if not (np.isfinite(found) & (found == np.round(found))).all():
        raise of_rows(InputError(f"the target {name!r} holds fractions; pass classes="))
    if np.abs(found).max() > 2.0**53:
        raise of_rows(
            InputError(f"the target {name!r} holds numbers too large for labels; pass classes=")
        )
    return found.astype(np.int64)


@contextmanager
def _room(path: Path) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise too_large_for_memory(path) from None
