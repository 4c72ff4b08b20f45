"""All diagnoses of a table at once, and the advice that follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.diagnostics.advice import TRAIN_DELTA, TRAIN_EPSILON, Advice, RowFacts, advise
from tacit.diagnostics.base import DIAGNOSES, Diagnosis, NotReleasable, require_rows
from tacit.diagnostics.clipping import Clipping, clipping
from tacit.diagnostics.concentration import WORK, Concentration, concentration
from tacit.diagnostics.crowding import Crowding, crowding
from tacit.diagnostics.lipschitz import Coefficients, restricted_lipschitz
from tacit.diagnostics.moments import Moments
from tacit.diagnostics.separability import Separability, separability
from tacit.diagnostics.spectrum import Spectrum, spectrum
from tacit.exceptions import InputError
from tacit.preprocessing import Normalize
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.progress import Progress, silent

PARTS = 6
LEAST_ROWS = 10  # of which a run holds some out


@dataclass(frozen=True, eq=False)
class Inspection(NotReleasable):
    """What was found in rows, and advice.

    Attributes
    ----------
    n, d : int
    unit : bool
        Whether rows were scaled to norm one first.
    spectrum : Spectrum
        Of XᵀX/n.
    concentration : Concentration
    coefficients : Coefficients
    separability : Separability or None
        None without classes.
    clipping : Clipping or None
        None without labels.
    crowding : Crowding
    advice : Advice
    trajectory : Diagnosis or None
        None unless asked for; else a `tacit.research.trajectories.Trajectory`.
    """

    n: int
    d: int
    unit: bool
    spectrum: Spectrum
    concentration: Concentration
    coefficients: Coefficients
    separability: Separability | None
    clipping: Clipping | None
    crowding: Crowding
    advice: Advice
    trajectory: Diagnosis | None = None


def inspect(
    data: Any,
    labels: Any = None,
    *,
    regression: bool = False,
    unit: bool = True,
    epsilon: float = TRAIN_EPSILON,
    delta: float = TRAIN_DELTA,
    radii: Sequence[float] = (0.0,),
    work: float = WORK,
    trajectory: bool = False,
    progress: Progress = silent,
) -> Inspection:
    """Look at private rows in every way, for the eyes of those who may.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Array, sparse matrix or `tacit.data.Rows`.
    labels : sequence, optional
        Classes, or numbers with ``regression``.
    regression : bool
        Whether labels are numbers, in [-1, 1].
    unit : bool
        Scale rows to norm one first, as the recipes do.
    epsilon, delta : float
        Budget of the training that advice is wanted for.
    radii : sequence of float
        At which crowds are looked for; 0 finds equal rows.
    work : float
        Multiplications to spend on the diameter.
    trajectory : bool
        Follow a run as well, and find the directions of its gradients.
    progress : callable
        Told how far it is.

    Returns
    -------
    Inspection
        Not releasable.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = inspect(rng.normal(size=(200, 5)), rng.integers(0, 2, 200))
    >>> found.releasable, found.spectrum.rank, found.concentration.exact
    (False, 5, True)
    """
    Budget(epsilon, delta)
    rows = require_rows(data)
    if rows.n < 2:
        raise InputError("two rows or more are needed to say anything about them")
    if unit:
        rows = Normalize().through(rows)
    if trajectory and (labels is None or rows.n < LEAST_ROWS):
        raise InputError(f"a run needs labels, and {LEAST_ROWS} rows or more")
    progress("spectrum", 0, PARTS)
    moments = Moments.of(rows)
    eigen = spectrum(moments)
    progress("coefficients", 1, PARTS)
    coefficients = restricted_lipschitz(rows, known=(moments, eigen))
    progress("distances", 2, PARTS)
    around = concentration(rows, moments=moments, work=work)
    progress("copies", 3, PARTS)
    crowds = crowding(rows, radii)
    progress("separators", 4, PARTS)
    apart = run = moves = None
    if labels is not None:
        if not regression:
            apart = separability(rows, labels, found=eigen)
        progress("clipping", 5, PARTS)
        loss = "squared" if regression else None
        run = clipping(rows, labels, loss=loss, mu=gaussian_mu(epsilon, delta))
        if trajectory:
            follow = DIAGNOSES["trajectory"]
            moves = follow(rows, labels, loss=loss, epsilon=epsilon, delta=delta)
    progress("advice", PARTS, PARTS)
    law = coefficients.law
    facts = RowFacts(
        n=rows.n,
        d=rows.d,
        rank=eigen.rank,
        tails=eigen.tails,
        eigenvalues=eigen.eigenvalues,
        lost=np.sqrt(np.append(eigen.eigenvalues, 0.0)) if apart is None else apart.lost,
        gaps=eigen.gaps,
        longest=moments.longest,
        typical=around.rms_distance,
        copies=crowds.copies[0] if crowds.copies else math.nan,
        decay=math.nan if law is None else law.decay,
        coefficients=coefficients.mean_gradient,
        margin=math.nan if apart is None else apart.margin,
        xi=None if apart is None else apart.xi_most,
    )
    advice = advise(facts, epsilon=epsilon, delta=delta)
    return Inspection(
        rows.n, rows.d, unit, eigen, around, coefficients, apart, run, crowds, advice, moves
    )
