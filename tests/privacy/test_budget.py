"""A budget is two plain numbers in range, or an error that says which is not."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from tacit.exceptions import InputError
from tacit.privacy import Budget


@pytest.mark.parametrize("epsilon", [1, 1.0, np.float32(1), np.int64(1), Fraction(1)])
def test_numbers_of_any_real_type_become_floats(epsilon):
    budget = Budget(epsilon, np.float64(0.25))
    assert type(budget.epsilon) is float and type(budget.delta) is float
    assert budget == Budget(1.0, 0.25)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, -math.inf])
def test_epsilon_must_be_positive_and_finite(epsilon):
    with pytest.raises(InputError, match="epsilon must be positive and finite"):
        Budget(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, 0.0, 1, 1.5, -1e-9, math.nan, math.inf])
def test_delta_must_lie_strictly_between_zero_and_one(delta):
    with pytest.raises(InputError, match="delta must lie strictly between 0 and 1"):
        Budget(1.0, delta)


@pytest.mark.parametrize("value", [True, "1", None, 1j, [1.0], Decimal(1), np.array([1.0])])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_what_is_no_number_is_refused_by_name(name, value):
    with pytest.raises(InputError, match=f"{name} must be a number"):
        Budget(**{"epsilon": 1.0, "delta": 1e-5, name: value})


def test_numbers_beyond_floats_are_refused():
    with pytest.raises(InputError):
        Budget(10**400, 1e-5)


def test_the_smallest_numbers_are_allowed():
    assert Budget(5e-324, 5e-324).delta == 5e-324


def test_a_budget_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Budget(1.0, 1e-5).epsilon = 2.0
