"""Public rows: seen as the stages in front leave them, found fit or refused, and named.

Nothing here is shown a private row.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tacit.data.rows import Rows, as_rows
from tacit.data.tables import Table
from tacit.exceptions import InputError
from tacit.preprocessing.base import LARGEST_SETTING, Context, Kind, Stage, densify

PART = 0.5  # of the public rows that may lie beyond a bound without a word
TINY = 0.01  # of the bound: rows shorter than that drown in noise made for the bound


@dataclass
class PublicStage(Stage):
    """A stage that learns from public rows alone.

    Parameters
    ----------
    public : array or sparse matrix of shape (m, d), or table
        Unlabelled public rows with the columns of the private ones.
    fingerprint : str, optional
        Of the public rows, for the certificate: filled in by `fit`.
    """

    public: Any = None
    fingerprint: str | None = field(default=None, kw_only=True)
    kind: ClassVar[Kind] = "public"
    affine: ClassVar[bool] = True
    unsaved: ClassVar[tuple[str, ...]] = ("public",)

    def cautions(self) -> tuple[str, ...]:
        return getattr(self, "_cautions", ())

    def _given(self) -> Rows:
        if self.public is None:
            raise InputError(f"{self.name} needs public=: rows that are not private")
        given = as_rows(self.public)
        if given.n == 0:
            raise InputError(f"{self.name}: there are no public rows")
        return given

    def _see(self, rows: Rows, context: Context | None) -> Rows:
        """The public rows as the stage sees them, once they are found fit for it."""
        given = self._given()
        first = rows.source.d
        if given.d != first:
            raise InputError(
                f"{self.name}: public rows have {given.d} columns, private ones {first}"
            )
        look = Look.at(given, context.before if context else ())
        look.require_variety(self)
        self._cautions = look.cautions()
        for text in self._cautions:
            warnings.warn(text, stacklevel=4)
        self.fingerprint = fingerprint_of(self.public)
        return look.rows


@dataclass(frozen=True)
class Look:
    """What public rows look like in front of a stage.

    Attributes
    ----------
    rows : Rows
        The public rows, behind the stages in front.
    beyond : tuple of (Stage, float)
        Stages in front, and the part of the rows that lies beyond what they were told to expect.
    length : float
        Root mean square of their norms.
    varied : bool
        Whether two of them differ.
    """

    rows: Rows
    beyond: tuple[tuple[Stage, float], ...]
    length: float
    varied: bool

    @classmethod
    def at(cls, given: Rows, before: Sequence[Stage]) -> Look:
        beyond = [0] * len(before)
        square, first, varied = 0.0, None, False
        for _, chunk in given.chunks():
            for i, stage in enumerate(before):
                beyond[i] += int(np.count_nonzero(stage.beyond(chunk)))
                chunk = stage.apply(chunk)
            dense = densify(chunk)
            first = dense[0].copy() if first is None else first
            with np.errstate(over="ignore"):
                square += float((dense**2).sum())
            varied = varied or bool((dense != first).any())
        rows = given
        for stage in before:
            rows = stage.through(rows)
        parts = [(stage, count / given.n) for stage, count in zip(before, beyond, strict=True)]
        return cls(rows, tuple(parts), (square / given.n) ** 0.5, varied)

    def require_variety(self, stage: Stage) -> None:
        """Refuse rows from which nothing can be learned."""
        if not self.length <= LARGEST_SETTING:
            raise InputError(
                f"{stage.name}: the public rows have norms beyond {LARGEST_SETTING:g} when they "
                "reach it, too large to compute with; put ClipNorm(radius) or Normalize() in front"
            )
        if not self.length > 0:
            raise InputError(f"{stage.name}: the public rows are all zero")
        if not self.varied:
            also = "".join(f". {text}" for text in self.cautions())
            raise InputError(
                f"{stage.name}: all public rows are the same when they reach it; it takes "
                f"different ones to see what varies{also}"
            )

    def cautions(self) -> tuple[str, ...]:
        """What makes the public rows look unlike those that the bounds were declared for."""
        cautions = [
            f"{part:.0%} of the public rows lie beyond what {stage.name} was told to expect, and "
            "are cut there: they are unlike the private rows, or that is too narrow for both"
            for stage, part in self.beyond
            if part > PART
        ]
        if self.rows.bound is not None and self.length < TINY * self.rows.bound:
            cautions.append(
                f"the public rows have a norm of {self.length:.2g} where the bound is "
                f"{self.rows.bound:.2g}: noise is made for the bound, so rows like these drown in "
                "it; declare narrower bounds, or check the units of the public rows"
            )
        return tuple(cautions)


def fingerprint_of(public: Any) -> str:
    """A digest of the public rows as they were given."""
    digest = hashlib.blake2b(digest_size=16)
    rows = as_rows(public)
    if isinstance(rows.source, Table):
        for name in rows.source.column_names:
            column = rows.source.column(name)
            cells = column.tobytes() if column.dtype.kind == "f" else "\0".join(map(str, column))
            digest.update(name.encode() + b"\0")
            digest.update(cells if isinstance(cells, bytes) else cells.encode())
    else:
        for _, chunk in rows.chunks():
            digest.update(np.ascontiguousarray(densify(chunk)).tobytes())
    return digest.hexdigest()
