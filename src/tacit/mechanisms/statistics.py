"""Private statistics by themselves, each the mechanism of a stage.

Every function draws noise for ``noise_multiplier`` contributions of one row and is one event:
``Gaussian(noise_multiplier)``, or for ``method="exponential"`` a ``Selection`` that costs the same
(`tacit.mechanisms.quantile.event`). `tacit.privacy.accounting.calibrate` finds the noise for a
budget, and `tacit.privacy.accounting.accountants` says what several of them cost together.

``size`` is the number of rows, where that is public: this is the default. Under
``add_or_remove_one`` it is not; pass a public guess, and the number of rows is not made use of.
``key`` is a fresh one by default; one key serves one statistic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.exceptions import InputError, of_rows
from tacit.mechanisms.additive import Chunk, noisy_sum
from tacit.mechanisms.bounds import noisy_bounds
from tacit.mechanisms.covariance import noisy_second_moment
from tacit.mechanisms.extent import noisy_radius
from tacit.mechanisms.mean import instance_optimal_mean
from tacit.mechanisms.moments import noisy_moments
from tacit.mechanisms.quantile import METHODS, Floats, Grid, Linear, Method, Targets, event, search
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases, Token
from tacit.privacy.events import Event, Gaussian

MEANS = ("instance-optimal", "gaussian")
BLOCK = 1 << 22  # cells looked at together


def private_mean(
    rows: Any,
    bound: float,
    noise_multiplier: float,
    *,
    method: str = "instance-optimal",
    size: int | None = None,
    key: Key | None = None,
) -> np.ndarray:
    """Mean of rows of norm at most ``bound``; longer ones count as shortened to it.

    ``"gaussian"`` has noise of standard deviation ``noise_multiplier``·``bound``/n in every column.
    ``"instance-optimal"`` finds out first where the rows are and how far they reach from there: its
    error grows with the diameter of the rows, whatever the bound
    (`tacit.mechanisms.mean.instance_optimal_mean` states it).

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Private rows.
    bound : float
        A public bound on the norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, in contributions of one row.
    method : {"instance-optimal", "gaussian"}
        What is described above.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    ndarray of shape (d,)
        The mean, through noise.

    Examples
    --------
    >>> rows = np.array([[1e6, 1.0], [1e6, -1.0]] * 5000)
    >>> found = private_mean(rows, 1e9, 3.0, key=Key.from_seed(0))
    >>> float(np.linalg.norm(found - [1e6, 0.0])) < 0.01
    True
    """
    _one_of("method", method, MEANS)
    table, count = _prepared(rows, size)
    run, token = _paid("mean", Gaussian(noise_multiplier), key)
    d = table.shape[1]
    if method == "gaussian":
        return noisy_sum(_chunks(table), d, bound, token) / count
    return instance_optimal_mean(
        lambda: _chunks(table),
        d,
        bound,
        token,
        signs=run.public.signs("rotation", 0, d),
        size=count,
        counted=size is None,
    ).mean


def private_quantile(
    values: Any,
    fraction: float,
    noise_multiplier: float,
    *,
    low: float | None = None,
    high: float | None = None,
    bits: int = 24,
    method: Method = "exponential",
    size: int | None = None,
    key: Key | None = None,
) -> float:
    """A number below which about ``fraction`` of the values lie.

    Parameters
    ----------
    values : array-like of shape (n,)
        One number a row.
    fraction : float
        From 0 to 1.
    noise_multiplier : float
        In contributions of one row.
    low, high : float, optional
        Public bounds between which the quantile is looked for, on 2^``bits`` cells of one width;
        without them it is anywhere, a float of six binary digits.
    bits : int
        At most 48.
    method : {"exponential", "gaussian"}
        Selection, or noisy search. Away from the ends selection has the smaller error in rank.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    float
        The middle of a cell. Both methods state their error in rank:
        `tacit.mechanisms.quantile.exponential_search`, `tacit.mechanisms.quantile.noisy_search`.

    Examples
    --------
    >>> incomes = np.exp(np.random.default_rng(0).normal(10, 1, size=10_000))
    >>> found = private_quantile(incomes, 0.5, 4.0, low=0, high=1e6, key=Key.from_seed(0))
    >>> bool(0.49 < np.mean(incomes < found) < 0.51)
    True
    """
    _one_of("method", method, METHODS)
    if (low is None) != (high is None):
        raise InputError("pass both low and high, or neither")
    grid: Grid = Floats(digits=6) if low is None or high is None else Linear(low, high, bits)
    column = _numbers(values).reshape(-1, 1)
    table, count = _prepared(column, size)
    targets = Targets((fraction,), size=count if size is None else None)
    (cell,) = search(
        lambda: (grid.cells(chunk) for chunk in _chunks(table)),
        grid.bits,
        targets,
        _paid("quantile", event(method, noise_multiplier), key)[1],
    )
    return grid.edge(int(cell)) / 2 + grid.edge(int(cell) + 1) / 2


def private_radius(
    rows: Any,
    bound: float,
    noise_multiplier: float,
    *,
    method: Method = "gaussian",
    size: int | None = None,
    key: Key | None = None,
) -> float:
    """A radius around the origin beyond which only a few rows lie; at most ``bound``.

    `tacit.mechanisms.extent.noisy_radius` says how few.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Private rows.
    bound : float
        A public bound on the norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, in contributions of one row.
    method : {"gaussian", "exponential"}
        Noisy search, or selection.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    float
        The radius.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(5000, 3))
    >>> 3.0 < private_radius(rows, 1e9, 3.0, key=Key.from_seed(0)) < 4.5
    True
    """
    _one_of("method", method, METHODS)
    table, count = _prepared(rows, size)
    _, token = _paid("radius", event(method, noise_multiplier), key)
    return noisy_radius(lambda: _chunks(table), bound, token, size=count, counted=size is None)


def private_bounds(
    rows: Any,
    noise_multiplier: float,
    *,
    method: Method = "gaussian",
    size: int | None = None,
    key: Key | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of columns of which nothing is known, beyond which only a few rows lie.

    `tacit.mechanisms.bounds.noisy_bounds` says how few.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Private rows.
    noise_multiplier : float
        Standard deviation of the noise, in contributions of one row.
    method : {"gaussian", "exponential"}
        Noisy search, or selection.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    low, high : ndarray of shape (d,)
        Bounds of every column.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(5000, 2)) * [1e6, 1e-6]
    >>> low, high = private_bounds(rows, 2.0, key=Key.from_seed(0))
    >>> bool((low < [-1e6, -1e-6]).all() and (high > [1e6, 1e-6]).all())
    True
    """
    _one_of("method", method, METHODS)
    table, count = _prepared(rows, size)
    _, token = _paid("bounds", event(method, noise_multiplier), key)
    return noisy_bounds(
        lambda: _chunks(table), table.shape[1], token, size=count, counted=size is None
    )


def private_scale(
    rows: Any,
    bound: float,
    noise_multiplier: float,
    *,
    size: int | None = None,
    key: Key | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, for rows of norm at most ``bound``.

    `tacit.mechanisms.moments.noisy_moments` states the noise of mean and mean square. A variance
    that noise has made negative is zero.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Private rows.
    bound : float
        A public bound on the norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, in contributions of one row.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    mean, deviation : ndarray of shape (d,)
        Of every column.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal([0.1, 0.2], [0.2, 0.1], size=(20_000, 2))
    >>> mean, deviation = private_scale(rows, 2.0, 3.0, key=Key.from_seed(0))
    >>> deviation.round(1)
    array([0.2, 0.1])
    """
    table, count = _prepared(rows, size)
    _, token = _paid("scale", Gaussian(noise_multiplier), key)
    found = noisy_moments(_chunks(table), table.shape[1], bound, token, size=count)
    return found.mean, np.sqrt(found.variance)


def private_second_moment(
    rows: Any,
    bound: float,
    noise_multiplier: float,
    *,
    size: int | None = None,
    key: Key | None = None,
) -> np.ndarray:
    """(1/n)·Σxxᵀ of rows of norm at most ``bound``, with symmetric Gaussian noise.

    `tacit.mechanisms.covariance.noisy_second_moment` states the noise of the sum.

    Parameters
    ----------
    rows : array-like of shape (n, d)
        Private rows.
    bound : float
        A public bound on the norm of a row.
    noise_multiplier : float
        Standard deviation of the noise, in contributions of one row.
    size : int, optional
        A public guess of the number of rows, where that is private; else it is their number.
    key : Key, optional
        Where randomness comes from; a fresh one unless given.

    Returns
    -------
    ndarray of shape (d, d)
        Symmetric.

    Examples
    --------
    >>> rows = np.array([[0.6, 0.8], [1.0, 0.0]] * 5000)
    >>> private_second_moment(rows, 1.0, 3.0, key=Key.from_seed(0)).round(1)
    array([[0.7, 0.2],
           [0.2, 0.3]])
    """
    table, count = _prepared(rows, size)
    _, token = _paid("moment", Gaussian(noise_multiplier), key)
    return noisy_second_moment(_chunks(table), table.shape[1], bound, token, size=count) / count


def _paid(name: str, cost: Event, key: Key | None) -> tuple[Releases, Token]:
    """A run of one event, and its token."""
    run = Releases(key or Key.fresh(), [(name, cost)])
    return run, run.token(name).at(name)


def _prepared(rows: Any, size: int | None) -> tuple[Any, int]:
    """A table of finite numbers, and what stands for its number of rows."""
    if sp.issparse(rows):
        if rows.dtype.kind not in "fiub":
            raise of_rows(InputError("rows must hold real numbers"))
        table: Any = sp.csr_array(rows).astype(np.float64)
        table.sum_duplicates()  # entries stored twice would make a row look shorter
    else:
        table = _numbers(rows)
    if table.ndim != 2:
        raise InputError(f"rows must be a table of two dimensions, not {table.ndim}")
    if not np.isfinite(table.data if sp.issparse(table) else table).all():
        raise of_rows(InputError("rows contain NaN or infinity"))
    count = table.shape[0] if size is None else size
    if count < 1:
        raise InputError("there are no rows; under add_or_remove_one, pass a public size= from 1")
    return table, count


def _numbers(values: Any) -> np.ndarray:
    """Values as float64; NumPy's own refusal would quote one of them."""
    with suppress(ValueError, TypeError, OverflowError), np.errstate(over="ignore"):
        given = np.asarray(values)
        if given.dtype.kind in "fiubO":
            return given.astype(np.float64)
    raise of_rows(InputError("rows must hold real numbers, in rows that are equally long"))


def _chunks(table: Any) -> Iterator[Chunk]:
    step = max(1, BLOCK // (4 * table.shape[1]))
    for start in range(0, table.shape[0], step):
        yield table[start : start + step]


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name}={value!r} must be {' or '.join(allowed)}")
