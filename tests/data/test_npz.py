"""Arrays of an .npz: plain ones, of the size that their entry has, and no others."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from tacit.data.npz import npz_names, read_npz
from tacit.exceptions import FileError


def archive(path, **entries):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


def header(shape, dtype="<f8", version=(1, 0), order=False):
    text = repr({"descr": dtype, "fortran_order": order, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text


ARRAYS = {
    "numbers": np.arange(12.0).reshape(3, 4),
    "by columns": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    "words": np.array(["a", "Grün", ""]),
    "one": np.array("text"),
    "none": np.zeros((0, 3), np.float32),
    "other end": np.arange(3, dtype=">i4"),
    "bits": np.array([True, False]),
}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_numpy_reads(tmp_path, write):
    path = tmp_path / "a.npz"
    write(path, **ARRAYS)
    assert npz_names(path) == tuple(ARRAYS)
    found = read_npz(path)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
    assert list(read_npz(path, ["words"])) == ["words"]


def test_an_array_larger_than_its_entry_is_refused_before_memory_is_taken(tmp_path):
    for shape in ((10**15,), (10**9, 10**9, 10**9), (2**62, 4), (-1,), (3,)):
        path = archive(tmp_path / "a.npz", **{"x.npy": header(shape) + bytes(8)})
        with pytest.raises(FileError, match="shorter than it says"):
            read_npz(path)
    empty = archive(tmp_path / "a.npz", **{"x.npy": header((10**15,), "<U0")})
    with pytest.raises(FileError, match="shorter than it says"):
        read_npz(empty)


def test_arrays_that_unpack_to_more_than_the_limit_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros((1000, 100)), y=np.zeros(3))
    with pytest.raises(FileError, match="unpacks to more than 65,536 bytes"):
        read_npz(path, limit=1 << 16)
    assert list(read_npz(path, ["y"], limit=1 << 16)) == ["y"]  # what is not read does not count


def test_pickles_and_what_is_no_array_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(FileError, match="something else than plain arrays"):
        read_npz(path)
    np.savez(path, x=np.zeros(2, dtype=[("a", "f8")]))
    with pytest.raises(FileError, match="something else than plain arrays"):
        read_npz(path)
    for entries in ({"note.txt": b"words"}, {}):
        with pytest.raises(FileError, match="holds no arrays"):
            read_npz(archive(path, **entries))
    one = io.BytesIO()
    np.save(one, np.zeros(2))
    with zipfile.ZipFile(path, "w") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("x.npy", one.getvalue())
        file.writestr("x.npy", one.getvalue())
    with pytest.raises(FileError, match="two arrays of one name"):
        read_npz(path)
    whole = archive(path, **{"x.npy": one.getvalue()}).read_bytes()
    path.write_bytes(whole.replace(one.getvalue()[-8:], b"harmed!!"))
    with pytest.raises(FileError, match="damaged"):
        read_npz(path)
    for missing in (tmp_path, tmp_path / "none.npz"):
        with pytest.raises(FileError, match="no file of arrays"):
            read_npz(missing)
