"""Files: written whole or not at all, and read with a limit.

An *output* is several files that belong together, in a directory. They are written into a hidden
folder of it, and become the output by one rename, that of a manifest with their digests. Only then
are they moved to their places, where readers look first. So a process that is killed, wherever it
is, leaves the output that was there before, or the new one: never a part, never parts of both.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from tacit.exceptions import FileError

try:
    import fcntl
except ImportError:  # not on Windows, where a file in use cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
FORMAT = "tacit-output/1"
STAGE = re.compile(r"\.tacit-[0-9a-f]{16}")  # the hidden folder of a run
NAME = re.compile(r"[a-z]+\.[a-z]+")  # of a file in an output
ROOM = "room"  # in that folder: bytes for what a file system needs besides the files
SPARE = 1 << 15
PAGE = 1 << 12
PIECE = 1 << 20


def cache_folder(what: str) -> Path:
    """Where a user's caches of something are kept; a `RuntimeError` if nobody has a home."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tacit" / what


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file or none of it: a temporary neighbour, then one rename."""
    write_file(path, lambda file: file.write(data))


def write_file(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """The same for what ``write`` puts into a file."""
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    try:
        if not target.name:
            raise FileError(f"{str(path)!r} is not the name of a file")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync(target.parent)
    except BaseException as error:
        with suppress(OSError, ValueError):
            temporary.unlink()
        if isinstance(error, OSError | ValueError) and not isinstance(error, FileError):
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"cannot write {target}: {reason}") from error
        raise


def require_writable(directory: str | os.PathLike[str]) -> Path:
    """Make sure, before any budget is spent, that results can be written there."""
    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target, prefix=".tacit-") as probe:
            probe.write(b"0" * 4096)
            probe.flush()
    except OSError as error:
        raise FileError(f"cannot write into {target}: {error.strerror or error}") from error
    return target


def read_text(path: str | os.PathLike[str], *, limit: int = 64 << 20) -> str:
    """A text file of at most ``limit`` bytes, or a `FileError` that says why not."""
    data = first_bytes(path, limit + 1)
    if len(data) > limit:
        raise FileError(f"{path} is larger than {limit >> 20} MB, the most that is read here")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} is not a text file") from None


def first_bytes(path: str | os.PathLike[str], limit: int = 64 << 20) -> bytes:
    """The beginning of a file, or a `FileError` that says why not."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for, a device endless
            raise ValueError("it is not a regular file")
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read {path}: {reason}") from None


def parse_json(text: str) -> Any:
    """What JSON says to every reader alike: or a `ValueError`.

    Keys that are given twice and numbers that are not finite mean different things to
    different programs.
    """
    strict: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite}
    try:
        return json.loads(text, object_pairs_hook=_once, **strict)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r:.80} is given twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.80} is not a finite number")
    return value


def new_file(path: Path, force: bool, suffixes: Sequence[str] = ()) -> Path:
    """The path of a file that may be written; nothing is overwritten unasked."""
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise FileError(f"{path} is not the name of a file in a directory that exists")
    if suffixes and path.suffix.lower() not in suffixes:
        raise FileError(f"{path}: the name must end in {' or '.join(suffixes)}")
    if os.path.lexists(path) and not force:
        raise FileError(f"{path} exists; choose another name, or overwrite it with --force")
    return path


def svg_file(path: str | os.PathLike[str], what: str) -> Path:
    """The path of a picture of ``what``, which is drawn as SVG."""
    target = Path(path)
    if target.suffix.lower() != ".svg":
        raise FileError(f"{target}: {what} is drawn as SVG; the name must end in .svg")
    return target


# --- outputs: several files that appear together --------------------------------------------------


class Manifest(NamedTuple):
    """Which files an output has: digests by name, and the folder that they were written into.

    ``replaced`` are those of the output before it that it has no files for.
    """

    files: dict[str, str]
    stage: str
    replaced: list[str]


class Output:
    """Files that are to appear together in a directory; made by `new_output`."""

    def __init__(self, directory: Path, stage: Path) -> None:
        self.directory = directory
        self._stage = stage

    def set_aside(self, room: Mapping[str, int]) -> None:
        """Take the space on disk that files of these sizes will need, by name."""
        total = sum(room.values())
        try:
            for name, size in {**room, MANIFEST: PAGE, ROOM: SPARE}.items():
                with open(self._stage / name, "wb") as file:
                    for start in range(0, size, PIECE):  # no zeros: some disks keep none of them
                        file.write(b"tacit..\n" * (min(size - start, PIECE) // 8 + 1))
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise FileError(
                f"cannot set aside {total / 1000:.0f} kB for files in {self.directory}: "
                f"{error.strerror or error}. Nothing was spent; make room, or choose another "
                "directory"
            ) from error

    def commit(self, files: Mapping[str, bytes]) -> None:
        """Write files, and make them the output of the directory: all of them, or none.

        When it returns they are on disk. What was there before of an output is gone.
        """
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        before = _manifest(self.directory)
        replaced = [] if before is None else [name for name in before.files if name not in files]
        facts = Manifest(digests, self._stage.name, replaced)._asdict()
        manifest = json.dumps({"format": FORMAT, **facts}, indent=2).encode() + b"\n"
        try:
            (self._stage / ROOM).unlink(missing_ok=True)
            for name, data in {**files, MANIFEST: manifest}.items():
                _overwrite(self._stage / name, data)
            _sync(self._stage)
            os.replace(self._stage / MANIFEST, self.directory / MANIFEST)  # from here on it counts
            _sync(self.directory)
        except OSError as error:
            reason = error.strerror or error
            raise FileError(f"cannot write into {self.directory}: {reason}") from error
        place_output(self.directory)

    @property
    def committed(self) -> bool:
        """Whether its files are the output of the directory."""
        found = _manifest(self.directory)
        return found is not None and found.stage == self._stage.name


@contextmanager
def new_output(path: Path, names: Sequence[str], force: bool) -> Iterator[Output]:
    """An output of files of these names in a directory; nothing is overwritten unasked.

    If what follows fails before it commits, all is as if it had never been. What processes that
    were killed have left in the directory is removed; of two at once, the second is refused.
    """
    if os.path.isdir(path):
        _tidy(path)
    taken = [name for name in (*names, MANIFEST) if os.path.lexists(path / name)]
    if any(os.path.isdir(path / name) for name in taken) or (taken and not force):
        raise FileError(
            f"{path} already holds {', '.join(taken)}; choose another directory, or overwrite "
            "with --force"
        )
    made = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    try:
        with _staged(require_writable(path)) as stage:
            yield Output(path, stage)
    except BaseException:
        for folder in made:  # the deepest first
            with suppress(OSError):
                folder.rmdir()
        raise


def find_output(directory: Path) -> tuple[dict[str, Path], list[str]]:
    """Files of the output in a directory, by name, and what is wrong with it.

    Raises a `FileError` if there is none, or if it was never complete.
    """
    manifest = _manifest(directory)
    if manifest is None:
        raise FileError(
            f"{directory} holds no complete output: its {MANIFEST} is missing or damaged. If a run "
            "was killed, run it again; a single file can be given by its name"
        )
    found, problems = {}, []
    for name, digest in manifest.files.items():
        # Last where a process was killed that had not yet moved its files.
        places = [directory / name, directory / manifest.stage / name]
        known = {place: _digest_of(place) for place in places}
        right = [place for place, what in known.items() if what == digest]
        if right:
            found[name] = right[0]
        elif any(known.values()):
            problems.append(f"{directory / name} is not the file that {MANIFEST} names")
        else:
            problems.append(f"{directory / name} is missing")
    return found, problems


@contextmanager
def _staged(directory: Path) -> Iterator[Path]:
    """A hidden folder that nobody else writes into, gone afterwards."""
    stage = directory / f".tacit-{secrets.token_hex(8)}"
    try:
        stage.mkdir()
    except OSError as error:
        raise FileError(f"cannot write into {directory}: {error.strerror}") from error
    try:
        with _lock(stage) as free:
            if not (free and stage.is_dir()):
                raise FileError(_busy(directory))
            try:
                yield stage
            finally:
                _finish(directory, stage)
    finally:
        with suppress(OSError):
            stage.rmdir()


def _tidy(directory: Path) -> None:
    """Finish or remove what processes have left that were killed; refuse beside one that runs."""
    try:
        names = [name for name in os.listdir(directory) if STAGE.fullmatch(name)]
    except OSError as error:
        raise FileError(f"cannot read {directory}: {error.strerror or error}") from error
    for stage in map(directory.joinpath, names):
        if stage.is_symlink() or not stage.is_dir():
            continue
        with _lock(stage) as free:
            if not free:
                raise FileError(_busy(directory))
            _finish(directory, stage)


def _finish(directory: Path, stage: Path) -> None:
    """Move files to their places if they count, and remove what does not."""
    manifest = _manifest(directory)
    if manifest is not None and manifest.stage == stage.name:
        place_output(directory)
        if any(os.path.lexists(stage / name) for name in manifest.files):
            return  # it could not be moved, and is read where it is
    shutil.rmtree(stage, ignore_errors=True)


def place_output(directory: Path) -> None:
    """Move the files of the output to their places, where older ones make way first.

    So files of two outputs never stand side by side. If it fails, they are read where they are.
    """
    manifest = _manifest(directory)
    assert manifest is not None
    stage = directory / manifest.stage
    waiting = [name for name in manifest.files if os.path.lexists(stage / name)]
    try:
        for name in (*manifest.replaced, *waiting):
            (directory / name).unlink(missing_ok=True)
        for name in waiting:
            os.replace(stage / name, directory / name)
        _sync(directory)
    except OSError as error:
        warnings.warn(
            f"files could not be moved from {stage} to {directory}: {error.strerror or error}. "
            "They are complete, and found there",
            stacklevel=3,
        )


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Whether nobody else held a folder; while this lasts, nobody else will."""
    if fcntl is None:
        yield True
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # somebody has removed it
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except OSError as error:  # some file systems have no locks
            free = error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
        yield free
    finally:
        os.close(handle)


def _busy(directory: Path) -> str:
    return f"another process is writing into {directory}; wait for it, or choose another directory"


def _manifest(directory: Path) -> Manifest | None:
    """What the directory says that it holds; None if nothing, or nothing that can be read."""
    try:
        facts = parse_json(read_text(directory / MANIFEST, limit=PAGE))
        found = Manifest(dict(facts["files"]), facts["stage"], list(facts["replaced"]))
        names = [*found.files, *found.replaced]
        ours = all(NAME.fullmatch(name) for name in names) and MANIFEST not in names
        right = facts["format"] == FORMAT and found.files and STAGE.fullmatch(found.stage)
        return found if ours and right else None
    except (FileError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _overwrite(path: Path, data: bytes) -> None:
    """Write a file, into the space that it may already have."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    """Have the names in a directory on disk, where the system can do that."""
    if os.name == "nt":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not on every file system
            raise
    finally:
        os.close(handle)


def _digest_of(path: Path) -> str | None:
    """The digest of a file, if it is one and can be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
