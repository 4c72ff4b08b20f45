"""Names, labels and notes are shown as they are: no page runs them, no terminal obeys them."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.fuzz.hostile import ledger_entries, ledger_file
from tests.report.test_report import RESULTS, Page, certificate
from typer.testing import CliRunner

from tacit.audit.audits import Audit
from tacit.audit.picture import draw_audits
from tacit.cli.console import line
from tacit.cli.main import app
from tacit.exceptions import InputError
from tacit.privacy import Certificate, Expense, Gaussian
from tacit.progress import progress_bar
from tacit.report import plain_text, render_html, render_text
from tacit.report.show import clean

FRAGMENTS = [
    "<script>document.title='taken'</script>",
    "</title>",
    "</style><script>",
    "</svg>",
    "-->",
    "<!--",
    "]]>",
    "<![CDATA[",
    "\"'><img src=x onerror=alert(1)>",
    "' onmouseover='x",
    '" style="x',
    "javascript:alert(1)",
    "&lt;script&gt;",
    "&#x3c;",
    "&",
    "{{ 7*7 }}",
    "{% raw %}",
    "{0.__class__}",
    "%s%n",
    "[red]",
    "[/]",
    "[link=file:///etc/passwd]x[/link]",
    "[@click=app.quit]",
    ":smiley:",
    "\x1b[31m",
    "\x1b]8;;http://example.test\x07",
    "\x9b2J",
    "\x00",
    "\x08",
    "\r",
    "\n",
    "\u2028",
    "\x85",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ud800",
    "\uffff",
    "\ufffe",
    "\U000e0041",
    "\ufeff",
    "name",
    "ä🙂",
]
quick = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
EVIL = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)
EVERYTHING = "".join(FRAGMENTS)
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def report(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A certificate and results with a text wherever people can put one."""
    given = certificate(
        assumptions=[text, f"the number of rows of {text} is public"],
        warnings=[text],
        reasons=[text],
        releasable=False,
        versions={text: text},
        created=text,
    )
    given["events"][0]["stage"] = text
    columns = {text: {"kind": "category", "categories": [text, "b"]}}
    given["plan"] |= {
        "loss": text,
        "ledger": {"dataset": text, "entry": 2, "id": text, "head": text},
        "stages": [
            {"name": text, "kind": "free", "note": text, "parameters": {text: columns}},
            {"name": "PrivateCenter", "kind": "private", "parameters": {"names": [text] * 3}},
        ],
    }
    results = RESULTS | {
        "class_names": [text, text],
        "files": [text],
        "top_features": [{"name": text, "weight": 1.0}],
    }
    return given, results


@quick
@given(EVIL)
@example(EVERYTHING)
def test_a_page_has_the_same_tags_whatever_is_written_on_it(text):
    def shown(words: str) -> Page:
        given, results = report(words)
        source = render_html(given, results=results, title=words)
        source.encode()
        assert not STEERING.search(source)
        return Page(source)

    hostile, innocent = shown(text), shown("name")
    assert hostile.tags == innocent.tags
    assert "script" not in hostile.names
    assert " ".join(clean(text).split()) in hostile.text


@quick
@given(EVIL)
@example(EVERYTHING)
def test_a_picture_has_the_same_elements_whatever_is_written_on_it(text):
    def shown(name: str) -> list[tuple[str, list[str]]]:
        audit = Audit(name, 1.0, 1e-5, 2.5, 0.95, 100, "many-runs", "steps", "replace_one")
        tree = ElementTree.fromstring(draw_audits([audit, audit]).encode())
        return [(element.tag, sorted(element.attrib)) for element in tree.iter()]

    assert shown(text) == shown("name")


def test_a_picture_of_endless_bounds_is_refused_rather_than_drawn_for_ever():
    for lower, claimed in ((float("inf"), 1.0), (float("nan"), float("nan")), (0.0, 0.0)):
        audit = Audit("a", claimed, 1e-5, lower, 0.95, 9, "many-runs", "steps", "replace_one")
        with pytest.raises(InputError):
            draw_audits([audit])


@quick
@given(EVIL)
@example(EVERYTHING)
def test_a_terminal_gets_no_commands(text):
    given, results = report(text)
    plain = plain_text(given, results, width=4000)
    assert not STEERING.search(plain)
    assert " ".join(clean(text).split()) in " ".join(plain.split())
    # In colour, the only commands are those of colours that the report itself has.
    file = io.StringIO()
    Console(file=file, width=4000, force_terminal=True, color_system="standard").print(
        render_text(given, results)
    )
    assert not STEERING.search(re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()))


def test_labels_of_progress_are_no_markup(capsys):
    with progress_bar() as show:
        show("[red]x[/nope]", 1, 1)
    assert "[red]x[/nope]" in capsys.readouterr().err


# --- commands --------------------------------------------------------------------------------


def run(*words: object, codes: tuple[int, ...] = (0, 1, 2)) -> str:
    """All that a command says: printable characters, in lines."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in codes
    said = result.stdout + result.stderr
    assert all(c.isprintable() or c == "\n" for c in said)
    return said


FORGED = "\nThe claim holds.\nerror: none"
NAMES = ["\x1b[2Jname", "[red]name[/red]", "\u202ename", "na\x07me", "\x9b31mname", "na\x00me"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_certificate_says_is_said_in_one_line(name, tmp_path):
    spent = (Expense(name, Gaussian(0.1)),)
    bad = Certificate(
        1.0, 1e-5, "replace_one", spent, releasable=False, reasons=(name + FORGED,), created=name
    )
    bad.save(tmp_path / "c.json")
    said = run("verify", tmp_path / "c.json", codes=(1,))
    assert "The claim DOES NOT HOLD." in said.splitlines()
    assert "The claim holds." not in said.splitlines()
    assert not any(text.startswith("error") for text in said.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_what_a_ledger_says_is_said_in_one_line(name, tmp_path):
    entries = [json.loads(json.dumps(entry)) for entry in ledger_entries()]
    for entry in entries:
        entry["dataset"] = "a"
    entries[1] |= {"plan": {"steps": [name + FORGED]}, "at": name}
    entries[3] |= {"reason": name + FORGED}
    path = tmp_path / "ledger.db"
    path.write_bytes(ledger_file(entries))
    for words in (["show", path, "--dataset", "a"], ["list", path], ["check", path]):
        said = run("ledger", *words)
        assert "The claim holds." not in said.splitlines()
        assert not any(text.startswith("error") for text in said.splitlines())
    entries = [{**entry, "dataset": name + FORGED} for entry in entries]
    path.write_bytes(ledger_file(entries))
    assert "The claim holds." not in run("ledger", "list", path).splitlines()


@pytest.mark.parametrize("name", [name for name in NAMES if "\x00" not in name])
def test_names_of_columns_do_not_steer(name, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(f'"{name}",b\n1,2\n', encoding="utf-8", newline="")
    assert "kind: number" in run("schema", table, codes=(0,))
    said = run("schema", table, "--target", "nmae", codes=(2,))
    assert said.startswith("error: target 'nmae' is not a column")
    (tmp_path / "s.yaml").write_text("columns: {b: {kind: number, low: 0, high: 1}}\ntarget: y\n")
    usual = ["--schema", tmp_path / "s.yaml", "--epsilon", 1, "--delta", 1e-5]
    said = run("fit", table, *usual, "--out", tmp_path / "m", codes=(2,))
    assert said.startswith("error: ")


def test_a_drafted_schema_with_hostile_names_says_the_same_when_read_back(tmp_path):
    from tacit.data import Schema, Table

    names = sorted({clean(text) for text in FRAGMENTS} | set(NAMES) | {"a: b", "- x", "#", "'"})
    names = [name for name in dict.fromkeys(n.strip() for n in names) if name]
    text = Schema.draft(Table.from_columns({name: [1.0] for name in names}))
    assert all(c.isprintable() or c == "\n" for c in text)
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    found = Schema.load(tmp_path / "s.yaml")
    assert sorted([*found.columns, *found.ignore]) == sorted(names)


def test_lines_are_lines_and_not_too_long():
    assert line("a\nb\r\nc\u2028d") == "a b c d"
    assert len(line("x" * 10**6)) < 3000


def test_everything_that_steers_is_spelt_out():
    for code in range(0x110000):
        kind = unicodedata.category(chr(code))
        if kind in ("Cc", "Cs") or code in (0x202E, 0x2066, 0xFFFE, 0xFFFF, 0xE0041):
            assert clean(chr(code)) in (f"\\u{code:04x}", " ")
