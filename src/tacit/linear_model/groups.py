"""Whose rows are whose, as an estimator is told: `groups` of a fit, or a column of the table.

Identifiers are taken out of what is learned from, and leave this module as numbers of people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

from tacit.data.cluster import Cluster, is_dask
from tacit.data.dask_rows import dask_owners
from tacit.data.memory import allowed_memory
from tacit.data.owners import Owners, require_same_order
from tacit.data.rows import Rows
from tacit.data.scans import Scan
from tacit.data.schema import Schema
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError, MissingBound, of_rows
from tacit.linear_model.inputs import has_columns
from tacit.privacy.unit import Unit


class Groups(NamedTuple):
    """Who rows belong to; ``owners`` is None if they are nobody's in particular."""

    owners: Owners | None = None

    @property
    def people(self) -> int | None:
        """How many there are, if rows are theirs."""
        return None if self.owners is None else self.owners.people

    def own(self, rows: Rows) -> Rows:
        """The rows, with their owners."""
        if self.owners is not None and len(self.owners.codes) != rows.n:
            raise of_rows(InputError("groups must hold one value for each row of X"))
        return replace(rows, owners=self.owners)


def take_groups(X: Any, groups: Any, schema: Any, most: Any) -> tuple[Any, Groups]:
    """X without its identifiers, and who its rows belong to.

    Parameters
    ----------
    X
        Whatever an estimator takes.
    groups : str or sequence of n, or None
        Name of the column that says whose a row is, or an identifier for each row.
    schema : Schema, mapping, path or None
        Whose identifier stands for groups that are not given.
    most : int or None
        How many rows of a person count.
    """
    named = identifier_of(schema)
    if most is None:
        if groups is None and named is None:
            return X, Groups()
        who = "groups=" if groups is not None else f"The schema's identifier {named!r}"
        raise MissingBound(
            f"{who} says whose rows are whose. How many of one person count is public and",
            "max_rows_per_group=5 (--rows-per-person 5), or as many as is right",
        )
    if isinstance(most, bool) or not (isinstance(most, Integral) and int(most) >= 1):
        raise InputError(f"max_rows_per_group={most!r:.80} must be an integer of at least 1")
    if groups is None:
        groups = named
    if groups is None:
        raise InputError(
            "max_rows_per_group= is for people with several rows: say whose rows are whose, with "
            "groups= or by an identifier in the schema"
        )
    if not isinstance(groups, str):
        keyed = is_dask(groups) and hasattr(groups, "rechunk")  # an array, by the name of its graph
        name = None if keyed else getattr(groups, "name", None)
        _require_apart(X, name)
        if not (hasattr(groups, "__len__") or is_dask(groups)):
            raise InputError(
                f"groups={groups!r:.80} must be an identifier for each row, or the name of a column"
            )
        if not is_dask(X):
            require_same_order(X, groups)
        label = name if isinstance(name, str) and name.isprintable() and name else named
        unit = Unit("person", int(most), label)
        if not is_dask(groups):
            return _in_memory(X), Groups(Owners.of(groups, unit))
        if not is_dask(X):
            raise InputError("groups= are on a cluster, and X is not: pass groups.compute()")
        X, groups = Cluster.current().held(X, groups)
        return X, Groups(dask_owners(groups, unit))
    unit = Unit("person", int(most), groups)
    if isinstance(X, Scan) and X.column_names is not None:
        identifiers = X.read([groups]).identifiers(groups)
        gone = [groups] if groups in X.column_names else []
        return _in_memory(X.drop(gone) if gone else X), Groups(Owners.of(identifiers, unit))
    if not has_columns(X):
        raise InputError(
            f"groups={groups!r:.80} names a column, and X has no named columns: pass an identifier "
            "for each row"
        )
    table: Any = X if isinstance(X, Table) or is_dask(X) else as_table(X)
    if groups not in list(table.columns if is_dask(X) else table.column_names):
        raise InputError(f"groups={groups!r:.80} is no column of X")
    if is_dask(X):
        (X,) = Cluster.current().held(X)
        return X.drop(columns=groups), Groups(dask_owners(X[groups], unit))
    return table.drop(groups), Groups(Owners.of(table.identifiers(groups), unit))


def identifier_of(schema: Any) -> str | None:
    """The identifier of a schema, which need not describe any column."""
    if isinstance(schema, Mapping):
        return schema.get("identifier")
    return None if schema is None else Schema.of(schema).identifier


def _in_memory(X: Any) -> Any:
    """A scan of named columns as a table in memory: rows of one person may lie anywhere in it."""
    if isinstance(X, Scan) and X.column_names is not None:
        allowed = allowed_memory(Rows(X.source, d=X.d))
        if 8 * X.n * X.d > allowed:  # how many rows people have is theirs to know
            raise of_rows(
                InputError(
                    "rows of people are read from files of named columns into memory, at 8 bytes "
                    f"a value, and these do not fit into {allowed / 2**30:.3g} GB: learn from "
                    "fewer columns, allow more with scan(path, memory=...), pass a memory map, or "
                    "take the rows to Dask"
                )
            )
        return X.read(list(X.column_names))
    return X


def _require_apart(X: Any, name: Any) -> None:
    """Refuse identifiers that are a column of what is learned from, by their name."""
    if not isinstance(name, str) or not (has_columns(X) or isinstance(X, Mapping)):
        return
    names = X.column_names if hasattr(X, "column_names") else getattr(X, "columns", X)
    if name in list(() if names is None else names):
        raise InputError(
            f"X has the column {name!r:.80} by which groups= tells people apart, and identifiers "
            f"are not learned from: leave it out of X, or pass groups={name!r:.80}"
        )
