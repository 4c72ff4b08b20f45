"""An inspection as one page of HTML that needs nothing but itself; all text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from tacit.diagnostics.advice import Advice
from tacit.diagnostics.base import NOTICE
from tacit.diagnostics.inspection import Inspection
from tacit.diagnostics.picture import STYLE, draw_bars, draw_curves
from tacit.diagnostics.private import PrivateInspection
from tacit.diagnostics.text import findings, private_findings
from tacit.report.show import clean, number

__all__ = ["render_page"]

PAGE = """
body { background: var(--bg); color: var(--ink); max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left;
  vertical-align: top; }
.notice { border: 2px solid var(--bad); color: var(--bad); font-weight: 600; padding: .6rem 1rem; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; } code { white-space: nowrap; }
"""


def render_page(found: Inspection | PrivateInspection, *, title: str = "Inspection") -> str:
    """Findings, pictures and advice.

    Examples
    --------
    >>> from tacit.diagnostics import inspect
    >>> page = render_page(inspect(np.eye(4)), title="<mine>")
    >>> "NOT RELEASABLE" in page, "&lt;mine&gt;" in page
    (True, True)
    """
    if isinstance(found, PrivateInspection):
        claim = found.certificate
        head = (
            f"<p>Released through noise with ε = {number(claim.epsilon)}, δ = "
            f"{number(claim.delta)} ({escape(claim.neighbors)}).</p>"
        )
        head += "".join(_notice(f"NOT FOR RELEASE: {reason}") for reason in claim.reasons)
        lines, pictures = private_findings(found), _private_pictures(found)
    else:
        head, lines, pictures = _notice(NOTICE), findings(found), _pictures(found)
    cells = "".join(
        f"<tr><th scope='row'>{escape(clean(a))}</th><td>{escape(clean(b))}</td></tr>"
        for a, b in lines
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(clean(title))}</title>",
            f"<style>{STYLE}{PAGE}</style></head><body>",
            f"<h1>{escape(clean(title))}</h1>",
            head,
            f"<table><caption>Findings</caption>{cells}</table>",
            f'<div class="pictures">{"".join(pictures)}</div>',
            _advice(found.advice),
            "</body></html>\n",
        ]
    )


def _notice(text: str) -> str:
    return f'<p class="notice" role="note">{escape(clean(text))}</p>'


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


def _advice(advice: Advice) -> str:
    rows = []
    for option in advice.options:
        finite = math.isfinite(option.risk.value)
        value = number(option.risk.value, digits=3, up=True) if finite else "–"
        why = option.why + (f"; needs {option.needs}" if option.needs else "")
        cells = (option.recipe, value, option.risk.unit, option.risk.source, why)
        rows.append("<tr>" + "".join(f"<td>{escape(clean(cell))}</td>" for cell in cells) + "</tr>")
    head = "".join(
        f"<th scope='col'>{name}</th>" for name in ("recipe", "bound", "of", "source", "why")
    )
    said = "".join(f"<p>{escape(clean(remark))}</p>" for remark in advice.remarks)
    return (
        f"<h2>Advice</h2><p>For training with ε = {number(advice.epsilon)}, δ = "
        f"{number(advice.delta)}: <code>tacit fit {escape(clean(advice.best.flags))}</code></p>"
        f"<table><caption>Bounds on excess risk, for best weights of norm one; they are no "
        f"accuracies</caption><tr>{head}</tr>{''.join(rows)}</table>{said}"
    )
