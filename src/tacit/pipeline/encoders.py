"""Counterparts of OneHotEncoder and OrdinalEncoder, whose categories are public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tacit.data.cells import match_key
from tacit.exceptions import InputError
from tacit.pipeline.parts import Given, refusal
from tacit.preprocessing.column_maps import Codes, Levels, Load

Category = str | float
STAND_IN = ("c0",)


def encoder(
    title: str, step: Any, before: Sequence[Any], columns: list[str], given: Given
) -> tuple[Load, list[str]]:
    """The counterpart of an encoder behind imputers, and remarks.

    Where categories are declared nowhere, one stands in for those that are to be found.
    """
    for name in ("min_frequency", "max_categories"):
        if getattr(step, name, None) is not None:
            raise refusal(
                title,
                f"{name}={getattr(step, name)!r}",
                f"counts of categories are read from the rows; leave {name} out",
            )
    levels = _categories(title, step, columns, given)
    missing, notes = _missing(title, before, levels)
    marked = [any(is_missing(c) for c in own) for own in levels]
    clean = tuple(tuple(_plain(c) for c in own if not is_missing(c)) for own in levels)
    for name, own in zip(columns, clean, strict=True):
        if not own or len({match_key(c) for c in own}) < len(own):
            raise InputError(f"{title}: categories of {name!r} must be one or more, each once")
    if isinstance(step, OrdinalEncoder):
        return _codes(title, step, columns, clean), notes
    if step.handle_unknown == "error":
        notes.append("a value that is none of the categories becomes zeros, and stops nothing")
    places = tuple(
        len(own) if mark and place is None else place
        for own, mark, place in zip(clean, marked, missing, strict=True)
    )
    return Levels(tuple(columns), clean, places, _dropped(title, step, clean)), notes


def _codes(
    title: str, step: OrdinalEncoder, columns: list[str], levels: tuple[tuple[Category, ...], ...]
) -> Codes:
    unseen = step.unknown_value if step.handle_unknown == "use_encoded_value" else None
    others = [step.encoded_missing_value, unseen]
    codes = [None if c is None or is_missing(c) else float(c) for c in others]
    return Codes(tuple(columns), levels, codes[0], codes[1])


def _categories(title: str, step: Any, columns: list[str], given: Given) -> list[list[Any]]:
    """Public categories of every column: those of the step, or those declared."""
    if not isinstance(step.categories, str):
        listed = [list(own) for own in step.categories]
        if len(listed) != len(columns):
            raise InputError(
                f"{title} lists categories of {len(listed)} columns, and has {len(columns)}"
            )
        return listed
    declared: Mapping[str, Any] = given.categories or {}
    lost = [name for name in columns if name not in declared]
    if lost and (isinstance(step, OrdinalEncoder) or step.drop not in (None, "first")):
        what = "their order" if isinstance(step, OrdinalEncoder) else f"drop={step.drop!r}"
        raise refusal(
            title,
            "categories='auto'",
            f"{what} takes categories that are public; list them, "
            f"{type(step).__name__}(categories=[[...], ...]), or privatize(..., "
            f"categories={{{lost[0]!r}: [...]}})",
        )
    return [list(declared.get(name, STAND_IN)) for name in columns]


def _missing(
    title: str, before: Sequence[Any], levels: Sequence[Sequence[Any]]
) -> tuple[list[int | None], list[str]]:
    """Where missing values go, by the imputers in front."""
    places: list[int | None] = [None] * len(levels)
    notes = []
    for step in before:
        if not isinstance(step, SimpleImputer) or step.strategy not in (
            "constant",
            "most_frequent",
        ):
            raise refusal(
                title,
                f"{type(step).__name__} in front of it",
                "use SimpleImputer(strategy='constant', fill_value='missing') there",
            )
        if step.strategy == "most_frequent":
            places = [len(_known(own)) for own in levels]
            notes.append("missing values have a column of their own, since no count is read")
            continue
        fill = "missing_value" if step.fill_value is None else step.fill_value
        for i, own in enumerate(levels):
            keys = [match_key(c) for c in _known(own)]
            key = match_key(fill)
            places[i] = keys.index(key) if key in keys else len(keys)
    return places, notes


def _dropped(
    title: str, step: OneHotEncoder, levels: tuple[tuple[Category, ...], ...]
) -> tuple[int | None, ...]:
    if step.drop is None:
        return (None,) * len(levels)
    if isinstance(step.drop, str):
        binary = step.drop == "if_binary"
        return tuple(0 if not binary or len(own) == 2 else None for own in levels)
    found: list[int | None] = []
    for own, drop in zip(levels, step.drop, strict=True):
        keys = [match_key(c) for c in own]
        if drop is not None and match_key(_plain(drop)) not in keys:
            raise InputError(f"{title} drops {drop!r}, which is none of the categories")
        found.append(None if drop is None else keys.index(match_key(_plain(drop))))
    return tuple(found)


def _known(own: Sequence[Any]) -> list[Category]:
    return [_plain(c) for c in own if not is_missing(c)]


def is_missing(value: Any) -> bool:
    """Whether it stands for a missing value, as scikit-learn has it."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _plain(value: Any) -> Category:
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return value.item() if isinstance(value, np.generic) else value
