"""A model that several files of tests look at."""

from __future__ import annotations

import pytest
from tests.tasks.people import CLASSES, QUICK, table

from tacit.cli.tasks.fit import fit
from tacit.data.schema import Schema


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "model"
    test = table(200, seed=1)
    return fit(table(), QUICK, schema=Schema.from_dict(CLASSES), out=out, test=test)
