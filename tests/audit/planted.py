"""A plugin that plants the bug named in TACIT_BUG in a run of pytest: -p tests.audit.planted."""

from __future__ import annotations

import os

import pytest
from tests.audit import bugs

from tacit.mechanisms.random_streams import Key

if "TACIT_BUG" in os.environ:
    Key.fresh()  # the generator tests itself before a bug is planted
    bugs.PLANT[os.environ["TACIT_BUG"]](pytest.MonkeyPatch())
