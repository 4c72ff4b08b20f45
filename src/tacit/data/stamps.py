"""What tells that a file is still the one that was looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.exceptions import FileError


@dataclass(frozen=True)
class Stamp:
    """A file, its size, and when it was last written and last changed in any way.

    Sums over several passes are private only if all passes see the same rows, so a
    file that changes in between is an error. The time of writing can be put back by
    whoever may write; the time of change cannot. It also moves when the file gets another
    name, owner or mode, which cannot be told from an edit, so that counts as a change, too.
    (On Windows it is the time of creation, and says nothing more.)
    """

    path: Path
    facts: tuple[int, ...]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Stamp:
        return cls(Path(path), _facts(Path(path)))

    @property
    def identity(self) -> tuple[int, int]:
        """The same for two names of one file."""
        return self.facts[0], self.facts[1]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.facts[2]

    def check(self) -> None:
        """Raise a `FileError` if the file is not as it was."""
        if _facts(self.path) != self.facts:
            raise FileError(
                f"{self.path} has changed since it was opened; nothing may write to it, or give it "
                "another name or mode, while it is read. Open it again and fit anew"
            )

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """The file is as it was, before and after; what fails in between may be due to that."""
        self.check()
        try:
            yield
        except FileError:
            self.check()
            raise
        self.check()


def _facts(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise FileError(f"no such file: {path}; check the spelling and the folder") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{path} is not a regular file; write the table to one first")
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_dev, found.st_ino, found.st_size, *times
