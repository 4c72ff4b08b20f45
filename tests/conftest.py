"""What all tests share."""

from dataclasses import replace

import pytest

from tacit.engine.selftest import tested
from tacit.mechanisms.random_streams import Key

# The generator tests itself before the first key, the engine before the first sum. Tests that put
# something else in their place come later.
Key.fresh()
tested()


@pytest.fixture(scope="session")
def counted():
    """All of a plan but what is chosen once a mean was released, and rows are centred."""
    follows = {"clip": 1.0, "learning_rate": 1.0, "intercept_fraction": 0.1, "average": "last"}

    def of(plan):
        facts = replace(plan.facts, typical_norm=1.0, measured=False)
        return replace(plan, facts=facts, trainer=replace(plan.trainer, **follows))

    return of
