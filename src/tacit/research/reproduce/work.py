"""Experiments, each made once: an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from tacit import __version__
from tacit.exceptions import FileError
from tacit.files import parse_json, read_text, write_bytes
from tacit.progress import Progress, silent

K = TypeVar("K")
SEARCHES = 1_000_000  # seeds from here on are those of searches
_HELD: list[threadpool_limits] = []  # in a worker: limits last as long as somebody holds them


@dataclass
class Work:
    """What a claim's test is given: how much to do, and a memory.

    Attributes
    ----------
    folder : Path or None
        Where results are kept; nowhere if None.
    quick : bool
        Whether seconds must do: small data, few settings.
    seeds : int
        Runs with different noise, where a result is a mean.
    first_seed : int
        Of these runs. Searches for settings have seeds of their own (`search_seeds`).
    jobs : int
        Experiments at a time, each in a process with one thread; 1: in this process.
    fresh : bool
        Whether what is remembered is computed anew.
    progress : callable
        Shown while experiments run.
    label : str
        What progress is told to be of.
    seconds : float
        Time that experiments took.

    Examples
    --------
    >>> with Work(quick=True, seeds=2) as work:
    ...     work.map(round, [{"number": 1.26, "ndigits": 1}])
    [1.3]
    """

    folder: Path | None = None
    quick: bool = False
    seeds: int = 5
    jobs: int = 1
    fresh: bool = False
    progress: Progress = silent
    label: str = "experiments"
    seconds: float = 0.0  # of processor time that the results took, whenever that was
    first_seed: int = 0
    _pool: ProcessPoolExecutor | None = field(default=None, repr=False)
    _alive: Connection | None = field(default=None, repr=False)

    def __enter__(self) -> Work:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            if self._alive is not None and kind is not None:
                self._alive.close()  # nobody waits for what is being computed
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
            self._pool = self._alive = None

    def over_seeds(self, settings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Every setting once for each seed; the seeds of a setting stand together.

        Parameters
        ----------
        settings : iterable of mappings
            Settings of an experiment.

        Returns
        -------
        list of dict
            Each with a ``seed``.
        """
        return [{**setting, "seed": seed} for setting in settings for seed in self.run_seeds()]

    def run_seeds(self, count: int | None = None) -> range:
        """Seeds of the runs that are reported.

        Parameters
        ----------
        count : int, optional
            How many; as many as asked for if not given.

        Returns
        -------
        range
            From ``first_seed`` on.

        Examples
        --------
        >>> list(Work(seeds=2, first_seed=40).run_seeds())
        [40, 41]
        """
        return range(self.first_seed, self.first_seed + (count or self.seeds))

    def search_seeds(self, count: int) -> range:
        """Seeds of searches for settings, none of which is a seed of a reported run.

        Parameters
        ----------
        count : int
            How many.

        Returns
        -------
        range
            The same ones whatever ``first_seed`` is.

        Examples
        --------
        >>> list(Work().search_seeds(2))
        [1000000, 1000001]
        """
        return range(SEARCHES, SEARCHES + count)

    def each(
        self, experiment: Callable[..., Any], settings: Mapping[K, Mapping[str, Any]]
    ) -> dict[K, Any]:
        """Results of `map` under the keys of their settings.

        Parameters
        ----------
        experiment : callable
            What is done.
        settings : mapping of mappings
            What it is called with, by whatever names a setting.

        Returns
        -------
        dict
            Results by the same keys.
        """
        return dict(zip(settings, self.map(experiment, list(settings.values())), strict=True))

    def map(
        self, experiment: Callable[..., Any], settings: Sequence[Mapping[str, Any]]
    ) -> list[Any]:
        """``experiment(**setting)`` for every setting, in their order.

        The experiment must be a function of a module, and its settings and result
        such as JSON can hold. A result is remembered under the contents of that
        module, the version of Tacit, and the settings.

        Parameters
        ----------
        experiment : callable
            What is done.
        settings : sequence of mappings
            What it is called with.

        Returns
        -------
        list
            Results.
        """
        places = [self._place(experiment, setting) for setting in settings]
        found = [None if self.fresh else self._remembered(place) for place in places]
        left = [i for i, known in enumerate(found) if known is None]
        done = len(settings) - len(left)
        self.progress(self.label, done, len(settings))
        for i, result in self._compute(experiment, settings, left):
            found[i] = result
            self._remember(places[i], experiment, settings[i], result)
            done += 1
            self.progress(self.label, done, len(settings))
        results = [known for known in found if known is not None]
        self.seconds += sum(known["seconds"] for known in results)
        return [known["result"] for known in results]

    def _compute(
        self,
        experiment: Callable[..., Any],
        settings: Sequence[Mapping[str, Any]],
        left: Sequence[int],
    ) -> Iterable[tuple[int, dict[str, Any]]]:
        if self.jobs == 1 or len(left) < 2:
            for i in left:
                yield i, _timed(experiment, dict(settings[i]))
            return
        if self._pool is None:
            # Spawned: a forked copy of a process with threads may stand still for ever.
            spawned = get_context("spawn")
            watched, self._alive = spawned.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(
                self.jobs, mp_context=spawned, initializer=_start, initargs=(watched,)
            )
        pending = {self._pool.submit(_timed, experiment, dict(settings[i])): i for i in left}
        for future in as_completed(pending):
            yield pending[future], future.result()

    def _place(self, experiment: Callable[..., Any], setting: Mapping[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        name = f"{experiment.__module__}.{experiment.__qualname__}"
        content = [name, source_of(experiment.__module__), __version__, setting]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.json"

    def _remembered(self, place: Path | None) -> dict[str, Any] | None:
        if place is None or not place.is_file():
            return None
        try:
            known = parse_json(read_text(place))
            return known if {"seconds", "result"} <= set(known) else None
        except (FileError, ValueError, TypeError):
            return None  # damaged: computed again

    def _remember(
        self,
        place: Path | None,
        experiment: Callable[..., Any],
        setting: Mapping[str, Any],
        result: Mapping[str, Any],
    ) -> None:
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            kept = {"experiment": experiment.__qualname__, "setting": dict(setting), **result}
            write_bytes(place, json.dumps(kept, allow_nan=False).encode())


def _timed(experiment: Callable[..., Any], setting: dict[str, Any]) -> dict[str, Any]:
    start = time.process_time()  # of all threads: the same on a busy machine
    result = experiment(**setting)
    return {"seconds": time.process_time() - start, "result": result}


@cache
def source_of(module: str) -> str:
    try:
        return inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return ""  # built in: its version is that of Python


def _start(watched: Connection) -> None:
    """A worker: one thread, and no longer there than whoever started it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    _HELD.append(threadpool_limits(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it is told as well
    Thread(target=_end_with, args=(watched,), daemon=True).start()


def _end_with(watched: Connection) -> None:
    """End this process once nobody has the other end: it was closed, or its process was killed."""
    with suppress(EOFError, OSError):
        watched.recv()
    os._exit(1)
