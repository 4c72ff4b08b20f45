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
