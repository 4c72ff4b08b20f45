"""What a run makes of rows: rows behind their stages, and then a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.data.rows import Rows
from tacit.plan.targets import TargetFacts
from tacit.preprocessing.base import Stage
from tacit.privacy.certificate import Certificate

if TYPE_CHECKING:
    from tacit.plan.run import CalibratedPlan


@dataclass(frozen=True)
class Prepared:
    """Rows behind their stages, as the trainer sees them.

    ``fitted`` maps rows at prediction; ``public_stages`` is what a certificate may describe;
    ``shift`` is a public vector that the engine subtracts, so that sparse rows stay sparse.
    """

    rows: Rows
    fitted: tuple[Stage, ...]
    public_stages: tuple[Stage, ...]
    shift: np.ndarray | None


@dataclass(frozen=True)
class Fit:
    """A model: scores of a row are coef · stages(row) + intercept.

    ``stages`` holds what cannot be folded into the coefficients (scaling a row
    to a norm, encoding a table); all of it is free or public.

    Attributes
    ----------
    coef : ndarray of shape (K, d)
        Coefficients.
    intercept : ndarray of shape (K,)
        Intercepts.
    stages : tuple of Stage
        What rows go through first.
    certificate : Certificate
        Of everything that was spent.
    plan : CalibratedPlan or None
        What was run.
    public_stages : tuple of Stage
        All stages as fitted, noiseless ones excepted, for a model that goes on from here.
    target : TargetFacts or None
        What was found out about the targets: ``classes``, or ``bounds`` that scores are in.
    """

    coef: np.ndarray
    intercept: np.ndarray
    stages: tuple[Stage, ...]
    certificate: Certificate
    plan: CalibratedPlan | None = None
    public_stages: tuple[Stage, ...] = ()  # all stages as they were fitted, noiseless ones excepted
    target: TargetFacts | None = None


def apply_stages(rows: Rows, stages: Sequence[Stage]) -> Rows:
    """``rows`` seen through all of these stages."""
    for stage in stages:
        rows = stage.through(rows)
    return rows
