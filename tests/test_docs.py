"""The documentation: its Python runs, its links lead somewhere, and it names what is public."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = [
    "README.md",
    "docs/accelerators.md",
    "docs/audit.md",
    "docs/cluster.md",
    "docs/datasets.md",
    "docs/diagnostics.md",
    "docs/exact-noise.md",
    "docs/large-data.md",
    "docs/ledger.md",
    "docs/plain-stages.md",
    "docs/price.md",
    "docs/private-statistics.md",
    "docs/privatize.md",
    "docs/public-rows.md",
    "docs/reproduction.md",
    "docs/rivals.md",
    "docs/theory.md",
    "docs/trainers.md",
    "docs/trajectory.md",
    "docs/tuning.md",
    "docs/tutorial.md",
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def what_readers_have() -> dict[str, object]:
    """The README speaks of rows that its reader has."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    rows = rng.normal(size=(800, 50))
    rows[:400, 0] += 3.0 * y
    return {"X": rows[:400], "y": y, "X_public": rows[400:]}


@pytest.mark.parametrize("name", RUNNABLE)
def test_python_blocks_run_in_order_as_one_script(name, tmp_path, monkeypatch):
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [match for match in FENCE.finditer(text) if match[1] == "python"]
    assert blocks
    monkeypatch.chdir(tmp_path)
    scope = what_readers_have() if name == "README.md" else {}
    for block in blocks:
        above = text.count("\n", 0, block.start(2))  # so that an error names the line of the page
        exec(compile("\n" * above + block[2], name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_point_to_files(page):
    text = SPAN.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = [target for target in LINK.findall(text) if "://" not in target]
    paths = [target.partition("#")[0] for target in targets]
    lost = [path for path in paths if path and not (page.parent / path).exists()]
    assert not lost


@pytest.mark.parametrize(
    "module",
    [
        "tacit",
        "tacit.stages",
        "tacit.trainers",
        "tacit.mechanisms",
        "tacit.losses",
        "tacit.theory",
        "tacit.instances",
        "tacit.diagnostics",
        "tacit.networks",
    ],
)
def test_public_names_are_documented(module):
    """In code, that is: "load" and "save" are ordinary words elsewhere."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.name != "CONTRIBUTING.md"]
    code = [block[2] for text in texts for block in FENCE.finditer(text)]
    code += [span for text in texts for span in SPAN.findall(FENCE.sub("", text))]
    words = {word for piece in code for word in re.findall(r"\w+", piece)}
    assert not set(import_module(module).__all__) - words
