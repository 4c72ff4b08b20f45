"""Work on the workers of a Dask cluster: sent out, added up as a tree, and waited for.

What a task is given and what it returns stays on the workers, except for a sum that is asked for.
Should a worker be lost, Dask computes again what it held, from where that came from.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import count as count_from
from typing import Any

from tacit.exceptions import ClusterError, InputError, TacitError

FAN = 8  # values that one task adds up
TICK = 1.0  # seconds between two looks at the cluster
PATIENCE = 60.0  # seconds without any worker; dask.config "tacit.patience" says otherwise
NUMBERS = count_from(1)
SMALL = 1 << 22  # bytes that may travel with the tasks themselves


def is_dask(data: Any) -> bool:
    """Whether data is a collection of Dask, so that no other library should touch it."""
    return hasattr(data, "__dask_graph__") and hasattr(data, "to_delayed")


class Cluster:
    """A cluster that Dask's own client is connected to.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    @classmethod
    def current(cls) -> Cluster:
        """The cluster of the client that was made last in this process."""
        try:
            import dask.array
            import distributed
        except ImportError:
            raise InputError('rows on a cluster need Dask: pip install "tacit[dask]"') from None
        assert dask.array
        try:
            client = distributed.default_client()
        except ValueError:
            raise InputError(
                "rows of Dask are fitted where they lie, on the workers of a cluster: connect to "
                "one first, client = distributed.Client(...), or pass X.compute() and y.compute()"
            ) from None
        if client.asynchronous:
            raise InputError("the client of the cluster is asynchronous; make one that is not")
        return cls(client)

    @property
    def patience(self) -> float:
        """Seconds for which to wait for a cluster that has no workers left."""
        import dask

        return float(dask.config.get("tacit.patience", PATIENCE))

    @property
    def threads(self) -> int:
        """Threads of all workers together."""
        return max(1, sum(self.client.nthreads().values()))

    def read(self, function: Callable[..., Any], pieces: Sequence[Any], *others: Any) -> list[Any]:
        """``function(piece, *others)`` of every piece of a collection, which is read for it."""
        import dask

        task = dask.delayed(careful, pure=False)
        with _lost_is_an_error(), _no_word_of_sizes():
            return list(self.client.compute([task(function, piece, *others) for piece in pieces]))

    def held(self, *collections: Any) -> list[Any]:
        """The same collections, read together and kept by the workers while any of them lives.

        What is taken of one and of another is then of one reading: a source may give the same rows
        in another order when it is asked again, as a query without an order does.
        """
        with _lost_is_an_error(), _no_word_of_sizes(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Computing mixed collections")  # arrays and frames
            return list(self.client.persist(list(collections)))

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """``function`` of the first of all arguments, of the second, and so on; as futures."""
        count = len(arguments[0])
        name = getattr(function, "__name__", "task").strip("_")
        number = f"{self.client.id}-{next(NUMBERS)}"  # of these tasks, among all of the cluster
        keys = [f"tacit-{name}-{number}-{i}" for i in range(count)]
        with _lost_is_an_error(), _no_word_of_sizes():
            return list(
                self.client.map(careful, [function] * count, *arguments, key=keys, pure=False)
            )

    def parcel(self, *content: Any, copies: int = 1) -> Any:
        """What goes to many tasks: with each if it is small, or else once."""
        made = Parcel.of(content)
        if len(made.data) * copies <= SMALL:
            return made
        # Not scattered: what is scattered is lost with the worker that has it.
        (sent,) = self.each(_itself, [made])
        return sent

    def total(self, futures: Sequence[Any]) -> Any:
        """The sum of values on the workers, in their order: of a few each, there, and at last here.

        So a value passes through 7 additions at most on each level of the tree.
        """
        parts = list(futures)
        while len(parts) > FAN:
            parts = self.each(_add, [parts[i : i + FAN] for i in range(0, len(parts), FAN)])
        return _add(self.values(parts))

    def values(self, futures: Sequence[Any]) -> list[Any]:
        """What became of tasks: for sums, and for what is small and public.

        Raises
        ------
        ClusterError
            If the cluster has gone away, or lost what it cannot compute again.
        """
        alone, tick = None, TICK
        while True:
            try:
                with _lost_is_an_error():
                    found = self.client.sync(_gathered, self.client, futures, callback_timeout=tick)
            except TimeoutError:
                if any(future.status == "error" for future in futures):
                    raise
                alone = self._alone(alone)
                # What is large may take its time; what is gone, may not.
                tick = 2 * tick if alone is None else min(tick, self.patience)
            else:
                for value in found:
                    if isinstance(value, Failure):
                        raise value.error
                return list(found)

    def _alone(self, since: float | None) -> float | None:
        """Since when there has been no worker; for too long, that is the end of it."""
        client = self.client
        if client.status == "running" and client.scheduler_info(n_workers=-1)["workers"]:
            return None
        now = time.monotonic()
        since = now if since is None else since
        if now - since > self.patience:
            raise ClusterError(
                f"the cluster has had no worker for {math.ceil(now - since)} seconds. Nothing of "
                "this step was released; what was reserved in a ledger counts as spent. Start "
                "workers and fit again"
            )
        return since


async def _gathered(client: Any, futures: Sequence[Any]) -> Any:
    return await client.gather(list(futures), asynchronous=True)


@contextmanager
def _lost_is_an_error() -> Iterator[None]:
    """Say what became of the cluster; errors of whoever made the collection stay as they are."""
    try:
        yield
    except TimeoutError:
        raise
    except (Exception, CancelledError) as error:
        module = type(error).__module__
        if not module.startswith(("distributed", "concurrent", "asyncio", "tornado")):
            raise
        raise ClusterError(
            f"the cluster lost what it was computing ({type(error).__name__}). Rows that are kept "
            "in files or in the graph are read again when a worker is lost; rows that were "
            "scattered are not. What was reserved in a ledger counts as spent"
        ) from error


def read_together(*given: Any) -> list[Any]:
    """Whatever was given; several collections of Dask are read at once (`Cluster.held`).

    A row's target, or its owner, would be another row's if they were of two readings that differ
    in their order: somebody would then count twice.
    """
    found, there = list(given), [i for i, each in enumerate(given) if is_dask(each)]
    if len(there) > 1:
        for i, held in zip(there, Cluster.current().held(*(given[i] for i in there)), strict=True):
            found[i] = held
    return found


def _no_word_of_sizes() -> Any:
    """Keep Dask from warning of how much is sent: how many rows people have is private."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"})


class Parcel:
    """Objects on their way to workers. It says nothing of them, wherever it is printed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, content: tuple[Any, ...]) -> Parcel:
        import cloudpickle

        try:
            return cls(cloudpickle.dumps(content))
        except TacitError as error:  # noise never leaves this process
            raise error
        except Exception as error:
            raise InputError(
                f"a stage, or the loss, cannot be sent to the workers of a cluster ({error!s:.200})"
            ) from None

    def open(self) -> Any:
        return pickle.loads(self.data)

    def __repr__(self) -> str:
        return f"Parcel({len(self.data)} bytes)"


class Failure:
    """An error, as what became of a task.

    If the task failed instead, Dask would write the task's arguments to a log: private rows.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error


def careful(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function on a worker, whose errors are values."""
    for argument in arguments:
        for each in argument if isinstance(argument, list) else (argument,):
            if isinstance(each, Failure):
                return each
    try:
        return function(*arguments)
    except Exception as error:
        return Failure(_plain(error))


def _plain(error: Exception) -> Exception:
    """The same error without what led to it, in a form that can travel."""
    bare = error.with_traceback(None)
    bare.__cause__ = bare.__context__ = None
    try:
        if type(pickle.loads(pickle.dumps(bare))) is type(bare):
            return bare
    except Exception:
        pass
    return InputError(str(error)) if isinstance(error, TacitError) else RuntimeError(str(error))


def _itself(value: Any) -> Any:
    return value


def _add(values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
