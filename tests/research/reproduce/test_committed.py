"""Pages and pictures in ``docs/reproduction`` are what the records there are drawn as."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.diagnostics.picture import standing_alone
from tacit.files import parse_json, read_text
from tacit.research.reproduce import CLAIMS
from tacit.research.reproduce.page import draw, picture_names, render_html, render_markdown

FOLDER = Path(__file__).parents[3] / "docs" / "reproduction"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the documentation is not here")


RUN = [name for name in CLAIMS if (FOLDER / f"{name}.json").is_file()]


def rendered():
    """Files by name, from the records of all claims that were run in full."""
    records = [parse_json(read_text(FOLDER / f"{name}.json")) for name in RUN]
    files = {"reproduction.html": render_html(records), "REPRODUCTION.md": render_markdown(records)}
    for record in records:
        for name, figure in zip(picture_names(record), record["figures"], strict=True):
            files[name] = standing_alone(draw(figure))
    return files


def test_committed_pages_and_pictures_are_drawn_from_the_committed_records():
    files = rendered()
    assert {path.name for path in FOLDER.iterdir()} == {
        *files,
        *(f"{name}.json" for name in RUN),
    }
    wrong = [name for name, text in files.items() if (FOLDER / name).read_text("utf-8") != text]
    assert not wrong


@pytest.mark.parametrize(
    ("page", "start", "count"), [("baselines", "| `", 10), ("public-data", "| ", 8)]
)
def test_pages_have_the_numbers_of_the_records(page, start, count):
    records = [parse_json(read_text(FOLDER / f"pinto-{name}.json")) for name in ("methods", "raft")]
    rows = [row for record in records for table in record["tables"] for row in table["rows"]]
    known = {
        f"{cell['mean']:.1f} ± {cell['spread']:.1f}"
        for row in rows
        for cell in row
        if isinstance(cell, dict)
    }
    part = read_text(FOLDER.parent / f"{page}.md").split("pinto-methods`")[1].split("\n\n")[1]
    lines = [line.split(" | ") for line in part.splitlines()[2:] if line.startswith(start)]
    shown = [cell.strip(" |") for line in lines for cell in line if "±" in cell]
    assert len(lines) == count and len(shown) >= 2 * count and set(shown) <= known
