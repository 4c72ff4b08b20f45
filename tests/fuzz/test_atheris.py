"""A short run of every atheris target, where atheris is installed: they start and find nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.fuzz.hostile import EDITED, READERS, ROOT

pytest.importorskip("atheris", reason="atheris has no wheel for this Python or platform")
pytest.importorskip("pyarrow")


@pytest.mark.slow
def test_every_target_starts_and_finds_nothing(tmp_path):
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.atheris_targets", "all", "-runs=50", "-seed=1"],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    for target in [*READERS, *(f"{kind}-values" for kind in EDITED)]:
        assert f"{target}: nothing found" in done.stdout
