"""Claims at small size, each tested once for all that is asserted of it."""

from __future__ import annotations

import functools

import pytest

from tacit.research.reproduce import reproduce

#: Claims of which one run says as much as two, and takes seconds.
ONCE = {"hu-lowrank", "hu-clipping"}


@functools.cache
def outcome(name):
    (found,) = reproduce([name], quick=True, seeds=1 if name in ONCE else None)
    return found


@pytest.fixture
def quick():
    """Call with a claim's name: its record, as it would be written, with checks by their text."""

    def record(name):
        found = outcome(name)
        if found.finding is None:
            pytest.skip(f"{name} needs {found.missing}")
        return found.as_dict()

    return record
