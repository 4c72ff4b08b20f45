"""What every diagnosis has in common: it reads private rows, and says that it may not go out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.data.rows import Rows, as_rows
from tacit.exceptions import InputError
from tacit.registry import Registry

NOTICE = "NOT RELEASABLE: read off the private rows without noise. Keep it as private as they are."
MOST_COLUMNS = 8192  # whose second moment takes half a gigabyte


class NotReleasable:
    """Base class of results that were computed from private rows without noise.

    Dataclasses below it list what they found as fields; those marked ``hidden`` are for further
    computation only. Text and JSON carry the notice. No certificate or model file takes one.
    """

    releasable: ClassVar[Literal[False]] = False

    def facts(self) -> dict[str, Any]:
        """What was found, as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        shown = [item for item in fields(self) if not item.metadata.get("hidden")]  # type: ignore[arg-type]
        return {item.name: plain(getattr(self, item.name)) for item in shown}

    def to_dict(self) -> dict[str, Any]:
        """The facts, with the notice.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {"releasable": False, "notice": NOTICE, **self.facts()}

    def __str__(self) -> str:
        lines = [NOTICE]
        for name, value in self.facts().items():
            if isinstance(value, list) and len(value) > 8:
                value = [*value[:8], "…"]
            lines.append(f"  {name}: {value}")
        return "\n".join(lines)


class Diagnosis(NotReleasable):
    """A diagnosis that is made on demand, and knows how to show itself beside the others."""

    def findings(self) -> list[tuple[str, str]]:
        """What was found, line by line.

        Returns
        -------
        list of (str, str)
            What was looked at, and what it is, in words.
        """
        raise NotImplementedError

    def pictures(self) -> list[str]:
        """What was found, drawn.

        Returns
        -------
        list of str
            SVG, one text for each picture.
        """
        raise NotImplementedError


#: Functions of rows and labels, and of ``loss``, ``epsilon`` and ``delta``.
DIAGNOSES: Registry[Callable[..., Diagnosis]] = Registry("diagnosis", "trajectories")


def plain(value: Any) -> Any:
    """A value as JSON has it; what is not finite is None."""
    if isinstance(value, NotReleasable):
        return value.facts()
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def require_rows(data: Any) -> Rows:
    """Rows of numbers, at least one, of no more columns than a second moment has room for."""
    rows = as_rows(data)
    if rows.n < 1 or rows.d < 1:
        raise InputError("there are no rows, or no columns, to look at")
    if rows.d > MOST_COLUMNS:
        raise InputError(
            f"{rows.d} columns are more than {MOST_COLUMNS}; project them first, for instance with "
            "RandomProjection"
        )
    return rows


def require_positive(*, zero: bool = False, **values: float | None) -> None:
    """Refuse what is no positive number (or zero, if it may be); None is left out."""
    for name, value in values.items():
        if value is None:
            continue
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and (value >= 0 if zero else value > 0)):
            least = "zero or a positive number" if zero else "a positive number"
            raise InputError(f"{name}={value!r} must be {least}")


def require_fraction(**values: float) -> None:
    """Refuse what does not lie strictly between 0 and 1."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise InputError(f"{name}={value!r} must lie between 0 and 1")
