"""An inspection as one page of HTML that needs nothing but itself; all text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.diagnostics.advice import Option
from tacit.diagnostics.base import NOTICE
from tacit.diagnostics.inspection import Inspection
from tacit.diagnostics.picture import STYLE, draw_bars, draw_curves
from tacit.diagnostics.private import PrivateInspection
from tacit.diagnostics.text import findings, private_findings
from tacit.report.show import clean, number
from tacit.report.templates import render


def render_page(found: Inspection | PrivateInspection, *, title: str = "Inspection") -> str:
    """Findings, pictures and advice.

    Examples
    --------
    >>> from tacit.diagnostics import inspect
    >>> page = render_page(inspect(np.eye(4)), title="<mine>")
    >>> "NOT RELEASABLE" in page, "&lt;mine&gt;" in page
    (True, True)
    """
    claim = found.certificate if isinstance(found, PrivateInspection) else None
    if isinstance(found, PrivateInspection):
        notices = [f"NOT FOR RELEASE: {reason}" for reason in found.certificate.reasons]
        lines, pictures = private_findings(found), _private_pictures(found)
    else:
        notices, lines, pictures = [NOTICE], findings(found), _pictures(found)
    return render(
        Path(__file__).with_name("page.html"),
        title=clean(title),
        style=STYLE,
        claim=claim,
        notices=notices,
        findings=lines,
        pictures=pictures,
        advice=found.advice,
        options=[_cells(option) for option in found.advice.options],
        clean=clean,
        number=number,
    )


def _pictures(found: Inspection) -> Sequence[str]:
    eigen, coefficients = found.spectrum, found.coefficients
    k = np.arange(1, found.d + 1)
    drawn = [
        draw_curves(
            "Eigenvalues and gaps",
            {"eigenvalue": (k, eigen.eigenvalues), "gap behind k": (k, eigen.gaps)},
            across="k",
            log=True,
        )
    ]
    curves = {
        "mean gradient": (k[:-1], coefficients.mean_gradient[1:-1]),
        "longest row": (np.arange(1, len(coefficients.rows_max)), coefficients.rows_max[1:]),
    }
    if (law := coefficients.law) is not None:
        x = np.array([law.first, law.last])
        curves[f"k^-{law.decay:.2f}"] = (x, law.scale * x**-law.decay)
    drawn.append(draw_curves("Gradients outside k directions", curves, across="k", log=True))
    drawn.append(
        draw_bars("Distances to the mean", found.concentration.distances, across="distance")
    )
    if (apart := found.separability) is not None:
        every = np.arange(found.d + 1)
        lost = {"mean": (every, apart.xi), "largest": (every, apart.xi_most)}
        drawn.append(draw_curves("Separator lost outside k components, ξ", lost, across="k"))
    if (run := found.clipping) is not None:
        shares = {"rows clipped": (run.steps, run.clipped), "gradient kept": (run.steps, run.kept)}
        drawn.append(draw_curves("Clipping along a run", shares, across="step"))
    if (moves := found.trajectory) is not None:
        drawn += moves.pictures()
    return drawn


def _private_pictures(found: PrivateInspection) -> Sequence[str]:
    k = np.arange(1, found.d + 1)
    curves = {
        "noisy eigenvalue": (k, found.eigenvalues),
        "hidden by noise": (np.array([1, found.d]), np.full(2, found.edge)),
    }
    return [draw_curves("Eigenvalues through noise", curves, across="k", log=True)]


def _cells(option: Option) -> tuple[str, ...]:
    finite = math.isfinite(option.risk.value)
    value = number(option.risk.value, digits=3, up=True) if finite else "–"
    why = option.why + (f"; needs {option.needs}" if option.needs else "")
    return option.recipe, value, option.risk.unit, option.risk.source, why
