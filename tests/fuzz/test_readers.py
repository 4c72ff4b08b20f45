"""Whatever stands in a file, it is read or refused in words: nothing crashes and nothing runs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz import hostile
from tests.fuzz.hostile import EDITED, READERS, survives
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.exceptions import InputError
from tacit.files import parse_json

pytest.importorskip("pyarrow")

quick = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KINDS = pytest.mark.parametrize("kind", READERS)


@pytest.fixture(scope="module", autouse=True)
def nothing_runs_and_nothing_else_is_opened():
    hostile.watch()
    yield
    assert hostile.seen == []
    assert not hostile.TOUCHED.exists()
    hostile.BAIT.unlink()


@KINDS
def test_valid_files_are_read(kind, tmp_path):
    for data in hostile.seeds(kind):
        assert survives(kind, data, tmp_path)


@KINDS
@quick
@given(data=st.binary(max_size=200))
def test_any_bytes(kind, data, tmp_path):
    survives(kind, data, tmp_path)


@KINDS
@quick
@given(seed=st.integers(0, 2**32))
def test_valid_files_with_bytes_changed(kind, seed, tmp_path):
    chance = random.Random(seed)
    survives(kind, hostile.mutated(chance.choice(hostile.seeds(kind)), chance), tmp_path)


@pytest.mark.parametrize("kind", EDITED)
@quick
@given(data=st.data())
def test_valid_files_with_values_changed(kind, data, tmp_path):
    edited = EDITED[kind](lambda options: data.draw(st.sampled_from(options)))
    survives(kind, edited, tmp_path)


@pytest.mark.parametrize("damage", [(b"TABLE", b"TABL\xff"), (b"(id INTEGER", b"\xff" * 11)])
def test_a_ledger_whose_damage_sqlite_cannot_spell(damage, tmp_path):
    (whole,) = hostile.seeds("ledger")
    assert not survives("ledger", whole.replace(*damage), tmp_path)


TOKENS = [
    "ClipNorm",
    "Bound",
    "NoiselessPCA",
    "Encode",
    "Context",
    "Stage",
    "os",
    "__import__",
    "x",
]
TOKENS += ["(", ")", "[", "]", "{", "}", ",", "=", ":", ".", "*", "**", "-", "~", "lambda", "f''"]
TOKENS += ["1", "2.0", "1e999", "1" + "0" * 400, "9" * 5000, "0xff", "1j", "True", "None", "..."]
TOKENS += ["'a'", "b'a'", "'\\d'", "\n", "#", "\x00", "\ud800", "low", "high", "columns", "gap"]


@settings(quick, max_examples=150)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_stages_of_any_words(tmp_path, text):
    survives("stage", text.encode("utf-8", "surrogatepass"), tmp_path)


ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.sets(st.integers()),
    max_leaves=5,
)


@settings(quick, max_examples=150)
@given(
    st.sampled_from([text.partition("(")[0] for text in hostile.STAGES]),
    st.lists(ARGUMENTS | st.just(10**400), max_size=3),
)
def test_stages_of_any_values(tmp_path, name, values):
    survives("stage", f"{name}({', '.join(map(repr, values))})".encode(), tmp_path)


# --- what several programs would read differently --------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"b": {"a": 1, "a": 1}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
        "",
        "{",
        "'a'",
        "\ufeff{}",
    ],
    ids=range(13),
)
def test_json_that_does_not_mean_one_thing_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def test_json_that_does_is_read():
    assert parse_json('{"a": [1, -0.5, "\\u00e4", null, true, 1e308]}') == {
        "a": [1, -0.5, "ä", None, True, 1e308]
    }


def test_a_key_given_twice_is_named(tmp_path):
    text = hostile.certificate_file().decode()
    twice = text.replace('"epsilon":', '"epsilon": 0.01, "epsilon":', 1)
    assert not survives("certificate", twice.encode(), tmp_path)


# --- the commands ----------------------------------------------------------------------------


def command(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2, 3)
    return result


@settings(quick, max_examples=6)
@given(st.sampled_from(list(READERS)), st.integers(0, 2**32))
def test_commands_end_with_words_whatever_they_are_given(tmp_path, kind, seed):
    chance = random.Random(seed)
    path = tmp_path / READERS[kind][0]
    path.write_bytes(hostile.mutated(chance.choice(hostile.seeds(kind)), chance))
    (tmp_path / "rows.csv").write_text(hostile.CSV)
    for words in (
        ["schema", path],
        ["verify", path],
        ["ledger", "check", path],
        ["ledger", "show", path, "--dataset", "a"],
        ["ledger", "list", path, "--json"],
        ["predict", path, tmp_path / "rows.csv", "--out", tmp_path / "p.csv", "--force"],
        ["plan", "--schema", path, "--rows", 1000, "--epsilon", 1, "--delta", 1e-5],
    ):
        result = command(*words)
        assert not result.stderr or result.stderr.startswith(("error: ", "NOT FOR", "Usage"))


EXTREMES = ["0", "-1", "1e-320", "1e308", "inf", "nan", "9" * 400, "-" + "9" * 400, "0.5", "x"]


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("option", ["--epsilon", "--delta", "--rows", "--columns", "--steps"])
def test_plans_of_absurd_numbers(option, value):
    usual = {"--epsilon": "1", "--delta": "1e-5", "--rows": "1000", "--columns": "5"}
    command("plan", *(word for pair in (usual | {option: value}).items() for word in pair))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/proc/self/mem", "pipe", "."])
def test_files_without_an_end_are_not_read(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    if not Path(path).exists():
        pytest.skip(f"there is no {path} here")
    for kind, (_, read) in READERS.items():
        if kind not in ("stage", "ledger"):
            with pytest.raises(InputError):
                read(Path(path))
