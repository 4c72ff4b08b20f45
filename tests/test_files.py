"""Files appear whole or not at all, and what goes wrong is said in words."""

from __future__ import annotations

import itertools
import json
import os
import stat
import warnings
from hashlib import sha256

import pytest

from tacit import files
from tacit.exceptions import FileError
from tacit.files import (
    MANIFEST,
    find_output,
    first_bytes,
    new_file,
    new_output,
    read_text,
    require_writable,
    write_bytes,
)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


# One file


def test_a_file_is_written_and_overwritten(tmp_path):
    path = tmp_path / "file.txt"
    write_bytes(path, b"one")
    write_bytes(str(path), b"two")
    assert contents(tmp_path) == {"file.txt": b"two"}


def test_a_file_has_the_permissions_that_any_new_file_has(tmp_path):
    write_bytes(tmp_path / "ours", b"")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert len(modes) == 1


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    path = tmp_path / "file.txt"
    write_bytes(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, function, fail)
    with pytest.raises(FileError, match=r"cannot write .*file.txt: No space left on device"):
        write_bytes(path, b"new")
    assert contents(tmp_path) == {"file.txt": b"old"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "file.txt"
    write_bytes(path, b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(error):
        write_bytes(path, b"new")
    assert contents(tmp_path) == {"file.txt": b"old"}


@pytest.mark.parametrize("name", ["none/file", "file/below", "a" * 300, "folder", "a" * 250])
def test_what_cannot_be_written_is_a_file_error(tmp_path, name):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        write_bytes(tmp_path / name, b"new")
    assert contents(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("name", ["", "/", "nul\0byte"])
def test_names_that_are_none_are_file_errors(name):
    with pytest.raises(FileError):
        write_bytes(name, b"")


def test_a_link_to_a_file_is_replaced_not_followed(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert (tmp_path / "link").read_bytes() == b"new"


# Reading


def test_text_is_read_as_utf8(tmp_path):
    (tmp_path / "file").write_bytes("δ\n".encode())
    assert read_text(tmp_path / "file") == "δ\n"


def test_what_cannot_be_read_is_a_file_error(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff\xff")
    with pytest.raises(FileError, match="not a text file"):
        read_text(tmp_path / "file")
    for name in ("none", ".", "file/below", "a" * 300):
        with pytest.raises(FileError, match="cannot read"):
            read_text(tmp_path / name)
        with pytest.raises(FileError, match="cannot read"):
            first_bytes(tmp_path / name)


def test_files_larger_than_the_limit_are_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    assert len(read_text(path, limit=1 << 20)) == 1 << 20
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(FileError, match="larger than 1 MB"):
        read_text(path, limit=1 << 20)
    assert first_bytes(path, limit=3) == b"xxx"


# Directories


def test_a_directory_is_made_and_left_empty(tmp_path):
    made = require_writable(tmp_path / "a" / "b")
    assert made == tmp_path / "a" / "b"
    assert list(made.iterdir()) == []


def test_a_directory_that_cannot_be_is_a_file_error(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/below"):
        with pytest.raises(FileError, match="cannot write into"):
            require_writable(tmp_path / name)


def test_new_files_overwrite_nothing_unasked(tmp_path):
    path = tmp_path / "file.csv"
    assert new_file(path, force=False, suffixes=(".csv",)) == path
    path.touch()
    with pytest.raises(FileError, match="exists"):
        new_file(path, force=False)
    assert new_file(path, force=True) == path
    with pytest.raises(FileError, match=r"must end in \.csv or \.parquet"):
        new_file(tmp_path / "file.txt", force=True, suffixes=(".csv", ".parquet"))
    for name in (".", "none/file.csv"):
        with pytest.raises(FileError, match="is not the name of a file"):
            new_file(tmp_path / name, force=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileError, match="exists"):
        new_file(tmp_path / "dangling", force=False)


# Several files


OLD = {"one.txt": b"old 1", "two.txt": b"old 2", "gone.txt": b"old 3"}
NEW = {"one.txt": b"1", "two.txt": b"2", "three.txt": b"3"}


def write_output(folder, contents, **how):
    with new_output(folder, list(contents), force=True) as output:
        output.set_aside(dict.fromkeys(contents, how.get("room", 10_000)))
        output.commit(contents)


def read_output(folder):
    found, problems = find_output(folder)
    assert problems == []
    return {name: path.read_bytes() for name, path in found.items()}


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_new_directory_is_gone_again_if_something_fails(tmp_path):
    out = tmp_path / "a" / "b"
    with pytest.raises(RuntimeError), new_output(out, ["x.y"], force=False) as output:
        assert output.directory.is_dir() and not output.committed
        raise RuntimeError
    assert names(tmp_path) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(RuntimeError), new_output(out, ["x.y"], force=False):
        raise RuntimeError
    assert names(tmp_path) == ["a"]


def test_a_directory_with_such_files_needs_force(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileError, match="already holds x"), new_output(tmp_path, ["x"], False):
        pass
    with new_output(tmp_path, ["x"], True) as same:
        assert same.directory == tmp_path
    with new_output(tmp_path, ["y"], False):
        pass
    (tmp_path / "z").mkdir()
    with pytest.raises(FileError, match="already holds z"), new_output(tmp_path, ["z"], True):
        pass
    assert contents(tmp_path) == {"x": b"old"}
    (tmp_path / MANIFEST).write_text("somebody else's")
    with pytest.raises(FileError, match="already holds"), new_output(tmp_path, ["y"], False):
        pass


@pytest.mark.parametrize("old", [{}, {"two.txt": b"2"}, OLD])
def test_files_appear_together_and_nothing_else_is_touched(tmp_path, old):
    (tmp_path / "other.txt").write_bytes(b"stays")
    if old:
        write_output(tmp_path, old)
    write_output(tmp_path, NEW)
    assert read_output(tmp_path) == NEW
    assert contents(tmp_path).keys() == {*NEW, "other.txt", MANIFEST}  # not what only old ones had
    assert names(tmp_path) == sorted([*NEW, "other.txt", MANIFEST])


def test_files_may_be_larger_or_smaller_than_the_space_that_was_set_aside(tmp_path):
    for room in (0, 3, 10_000):
        large = {"one.txt": b"x" * 5000, "two.txt": b""}
        write_output(tmp_path, large, room=room)
        assert read_output(tmp_path) == large


CALLS = ("fsync", "replace", "unlink", "mkdir", "open")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [{}, OLD])
def test_a_failure_at_any_call_leaves_the_old_output_or_the_new_one(
    tmp_path, monkeypatch, old, error
):
    outcomes = []
    monkeypatch.setattr(files.os, "fsync", lambda _: None)  # there is no power to be lost here
    warnings.simplefilter("ignore")  # that files could not be moved, which is looked at below
    for name in CALLS:
        reached = True
        for at in itertools.count(1):
            if not reached:
                break
            out = tmp_path / f"{name}-{at}"
            if old:
                write_output(out, old)
            honest, calls = getattr(os, name), itertools.count(1)

            def call(*args, honest=honest, calls=calls, at=at, **how):
                if next(calls) == at:
                    raise error
                return honest(*args, **how)

            with monkeypatch.context() as patch:
                patch.setattr(files.os, name, call)
                try:
                    write_output(out, NEW)
                except (FileError, KeyboardInterrupt):
                    outcomes.append("refused")
                else:
                    outcomes.append("written")
            reached = next(calls) > at
            found = read_output(out) if (out / MANIFEST).exists() else {}
            assert found in (old, NEW)
            if outcomes[-1] == "written":
                assert found == NEW
            write_output(out, NEW)
            assert names(out) == sorted([*NEW, MANIFEST])  # nothing is left of it
    assert outcomes.count("refused") > 10 and outcomes.count("written") >= len(CALLS)


def test_space_that_is_not_there_is_missed_before_anything_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(FileError, match=r"cannot set aside 3 kB .* Nothing was spent"),
        new_output(tmp_path / "out", ["one.txt"], False) as output,
    ):
        monkeypatch.setattr(files.os, "fsync", full)
        output.set_aside({"one.txt": 3000})
    assert names(tmp_path) == []


def test_two_at_once_are_refused_and_do_no_harm(tmp_path):
    with new_output(tmp_path, list(NEW), force=True) as first:
        with (
            pytest.raises(FileError, match="another process is writing into"),
            new_output(tmp_path, list(NEW), force=True),
        ):
            pass
        first.commit(NEW)
    assert read_output(tmp_path) == NEW


def left_behind(folder, contents):
    """What a process leaves that is killed before its files are the output."""
    stage = folder / ".tacit-0123456789abcdef"
    stage.mkdir()
    for name, data in {**contents, MANIFEST: b"{}"}.items():
        (stage / name).write_bytes(data)
    return stage


def test_what_a_killed_process_left_is_never_output_and_is_removed(tmp_path):
    stage = left_behind(tmp_path, NEW)
    with pytest.raises(FileError, match="holds no complete output"):
        find_output(tmp_path)
    write_output(tmp_path, OLD)
    assert not stage.exists() and read_output(tmp_path) == OLD


def test_an_output_is_read_where_it_is_if_it_was_not_moved(tmp_path):
    write_output(tmp_path, OLD)
    digests = {name: sha256(data).hexdigest() for name, data in NEW.items()}
    stage = left_behind(tmp_path, NEW)
    said = {"format": "tacit-output/1", "files": digests, "stage": stage.name}
    (tmp_path / MANIFEST).write_text(json.dumps({**said, "replaced": ["gone.txt"]}))
    assert read_output(tmp_path) == NEW
    with pytest.raises(FileError, match="already holds"), new_output(tmp_path, list(NEW), False):
        pass
    assert read_output(tmp_path) == NEW  # by now in its place
    assert names(tmp_path) == sorted([*NEW, MANIFEST])


def test_a_changed_or_missing_file_of_an_output_is_a_problem(tmp_path):
    write_output(tmp_path, NEW)
    (tmp_path / "one.txt").write_bytes(b"!")
    (tmp_path / "two.txt").unlink()
    found, problems = find_output(tmp_path)
    assert list(found) == ["three.txt"]
    assert "is not the file that manifest.json names" in problems[0] and "missing" in problems[1]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "tacit-output/9"},
        {"files": {}},
        {"files": {"../one.txt": "0" * 64}},
        {"files": ["one.txt"]},
        {"files": {"manifest.json": "0" * 64}},
        {"stage": ".."},
        {"stage": ["x"]},
        {"replaced": ["/etc/passwd"]},
        {"replaced": None},
    ],
    ids=str,
)
def test_a_manifest_that_is_not_ours_counts_for_nothing(tmp_path, change):
    write_output(tmp_path, NEW)
    said = json.loads((tmp_path / MANIFEST).read_text())
    for text in (json.dumps({**said, **change}), "{", "[]", "1", "{}", "x" * 5000):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(FileError, match="holds no complete output"):
            find_output(tmp_path)
