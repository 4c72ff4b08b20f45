"""Files appear whole or not at all, and what goes wrong is said in words."""

from __future__ import annotations

import os
import stat

import pytest

from tacit import files
from tacit.exceptions import FileError
from tacit.files import (
    first_bytes,
    new_directory,
    new_file,
    read_text,
    require_writable,
    write_bytes,
    write_together,
)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def failing(error, at):
    """A stand-in for os.replace and the like that fails at its ``at``-th call."""
    calls = []

    def call(honest, *args):
        calls.append(args)
        if len(calls) == at:
            raise error
        return honest(*args)

    return call


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


def test_a_new_directory_is_gone_again_if_something_fails(tmp_path):
    out = tmp_path / "a" / "b"
    with pytest.raises(RuntimeError), new_directory(out, ["x"], force=False) as made:
        assert made.is_dir()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(RuntimeError), new_directory(out, ["x"], force=False):
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_directory_with_such_files_needs_force(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileError, match="already holds x"), new_directory(tmp_path, ["x"], False):
        pass
    with new_directory(tmp_path, ["x"], True) as same:
        assert same == tmp_path
    with new_directory(tmp_path, ["y"], False):
        pass
    (tmp_path / "z").mkdir()
    with pytest.raises(FileError, match="already holds z"), new_directory(tmp_path, ["z"], True):
        pass
    assert contents(tmp_path) == {"x": b"old"}


# Several files


NEW = {"one": b"1", "two": b"2", "three": b"3"}


def writers():
    return {name: lambda path, data=data: path.write_bytes(data) for name, data in NEW.items()}


@pytest.mark.parametrize("old", [{}, {"two": b"old"}, {name: b"old" for name in NEW}])
def test_files_are_written_together(tmp_path, old):
    for name, data in {**old, "other": b"stays"}.items():
        (tmp_path / name).write_bytes(data)
    write_together(tmp_path, writers())
    assert contents(tmp_path) == {**NEW, "other": b"stays"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [{}, {"two": b"old"}, {name: b"old" for name in NEW}])
def test_a_failure_at_any_move_leaves_what_was_there(tmp_path, monkeypatch, old, error):
    for name, data in {**old, "other": b"stays"}.items():
        (tmp_path / name).write_bytes(data)
    honest = os.replace
    moves = len(NEW) + len(old)
    for at in range(1, moves + 1):
        call = failing(error, at)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "replace", lambda *a, call=call: call(honest, *a))
            with pytest.raises(FileError if isinstance(error, OSError) else KeyboardInterrupt):
                write_together(tmp_path, writers())
        assert contents(tmp_path) == {**old, "other": b"stays"}
    write_together(tmp_path, writers())
    assert contents(tmp_path) == {**NEW, "other": b"stays"}


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "one").write_bytes(b"old")

    def fail(path):
        path.write_bytes(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_together(tmp_path, {**writers(), "four": fail})
    assert contents(tmp_path) == {"one": b"old"}
