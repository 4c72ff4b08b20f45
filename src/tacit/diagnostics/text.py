"""An inspection on one screen of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from shlex import quote
from textwrap import wrap

import numpy as np

from tacit.diagnostics.advice import Advice
from tacit.diagnostics.base import NOTICE
from tacit.diagnostics.inspection import Inspection
from tacit.diagnostics.private import PrivateInspection
from tacit.privacy.unit import Unit
from tacit.report.show import number, percent

Line = tuple[str, str]


def render_inspection(found: Inspection | PrivateInspection, *, width: int = 96) -> str:
    """Findings, then advice, for a terminal."""
    if isinstance(found, PrivateInspection):
        claim = found.certificate
        head = [
            f"Looked through noise: epsilon {claim.epsilon:g}, delta {claim.delta:g}, "
            f"{claim.neighbors}."
        ]
        head += [f"NOT FOR RELEASE: {reason}" for reason in claim.reasons]
        lines, more = private_findings(found), _flags_of(claim.unit)
    else:
        head, lines, more = [NOTICE], findings(found), ""
    body = [f"  {name:<32}{value}" for name, value in lines]
    return "\n".join([*head, "", *body, "", *_advice(found.advice, width, more)])


def _flags_of(unit: Unit) -> str:
    """What `tacit fit` is told of people."""
    if unit.identifier is None:
        return ""
    return f" --person {quote(unit.identifier)} --rows-per-person {unit.rows}"


def findings(found: Inspection) -> list[Line]:
    """What was found, line by line."""
    eigen, around, law = found.spectrum, found.concentration, found.coefficients.law
    norm = "scaled to norm 1" if found.unit else f"of norm up to {number(around.longest)}"
    lines = [("rows", f"{number(found.n)} of {number(found.d)} columns, {norm}")]
    lines.append(
        ("rank", f"{number(eigen.rank)}; effective {number(eigen.effective_rank, digits=3)}")
    )
    kept = [f"{k}: {percent(float(eigen.explained[k]))}" for k in _some(found.d)]
    lines.append(("squared norm in first k", ", ".join(kept)))
    lines.append(("first eigengaps", ", ".join(number(g, digits=2) for g in eigen.gaps[:5])))
    extent = number(around.diameter, digits=3)
    if not around.exact:
        extent += f" to {number(around.diameter_at_most, digits=3, up=True)}"
    lines.append(("diameter", extent))
    far = (around.max_distance, around.mean_distance)
    lines.append(
        ("distance to the mean", f"{number(far[1], digits=3)}, {number(far[0], digits=3)} at most")
    )
    if law is not None:
        fitted = f"k^-{law.decay:.2f} (R² {law.fit:.2f})"
        lines.append(("gradients outside k fall as", fitted))
    if (apart := found.separability) is not None:
        side = f"{percent(apart.separated)} of rows on the right side"
        lines.append(("margin", f"{number(apart.margin, digits=3)} at least; {side}"))
        lost = [f"{k}: {apart.xi[k]:.2f}" for k in _some(found.d)]
        lines.append(("separator lost beyond k (xi)", ", ".join(lost)))
    if (run := found.clipping) is not None:
        first, last = float(run.clipped[0]), float(run.clipped[-1])
        shares = f"{percent(first)} of rows at first, {percent(last)} at last"
        lines.append((f"clipped to {number(run.clip, digits=3)}", shares))
    if (moves := found.trajectory) is not None:
        lines += moves.findings()
    crowds = found.crowding
    copies = [
        f"{percent(part)} within {number(radius)} (crowd {number(crowd)})"
        for radius, crowd, part in zip(crowds.radii, crowds.crowd, crowds.copies, strict=True)
    ]
    lines.append(("copies of other rows", ", ".join(copies) or "not looked for"))
    return lines


def private_findings(found: PrivateInspection) -> list[Line]:
    """What was released, line by line."""
    shown = ", ".join(number(float(v), digits=3) for v in found.eigenvalues[:6])
    what = "rows" if found.people is None else "people"
    return [
        (what, f"{number(found.n)} of {number(found.d)} columns"),
        *_rows_of_people(found.people),
        ("first eigenvalues", shown),
        ("each known up to", f"{number(found.edge, digits=2, up=True)}, with probability 95%"),
        ("directions above the noise", number(found.above_noise)),
        ("norm of the mean", f"about {number(found.mean_norm, digits=3)}"),
        ("distance to the mean", f"about {number(found.rms_distance, digits=3)} (mean square)"),
    ]


def _rows_of_people(people: np.ndarray | None) -> list[Line]:
    """How many rows people have, and how many of all rows would count."""
    if people is None:
        return []
    counts = np.maximum(people, 0.0)
    many = np.arange(1, len(counts) + 1)
    whole = max(float(counts @ many), 1.0)
    shown = [f"{k}: {number(max(round(float(c)), 0))}" for k, c in zip(many, counts, strict=True)]
    kept = [float(np.minimum(many, k) @ counts) / whole for k in many]
    enough = next(int(k) for k, part in zip(many, kept, strict=True) if part >= 0.9)
    return [
        ("people by rows, about", f"{', '.join(shown)} or more"),
        ("rows that count, of those told", f"90% if {enough} of a person do"),
    ]


def _some(d: int) -> list[int]:
    return [k for k in (1, 5, 10, 40, 100, 400) if k <= d]


def _advice(advice: Advice, width: int, more: str) -> Sequence[str]:
    best = advice.best
    long = 2 + max(len("source"), *(len(option.risk.source) for option in advice.options))
    before = 24 + long
    lines = [
        f"Advice for training with epsilon {advice.epsilon:g}, delta {advice.delta:g}: "
        f"tacit fit {best.flags}{more}",
        "",
        f"  {'recipe':<10}{'bound':>10}  {'source':<{long}}why",
    ]
    for option in advice.options:
        value = (
            number(option.risk.value, digits=3, up=True)
            if math.isfinite(option.risk.value)
            else "–"
        )
        why = option.why + (f"; needs {option.needs}" if option.needs else "")
        first, *rest = wrap(why, max(20, width - before)) or [""]
        lines.append(f"  {option.recipe:<10}{value:>10}  {option.risk.source:<{long}}{first}")
        lines += [" " * before + line for line in rest]
    lines.append(
        "  Bounds are on excess risk, for best weights of norm one; they are no accuracies."
    )
    for remark in advice.remarks:
        lines += ["", *wrap(remark, width, initial_indent="  ", subsequent_indent="  ")]
    return lines
