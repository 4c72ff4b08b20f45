"""The report as one self-contained page: no script, nothing fetched."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.privacy.accounting.accountants import FINE_GRID, selection_mu
from tacit.privacy.events import Selection, sensitivity
from tacit.report.show import clean, exact, factor
from tacit.report.templates import render
from tacit.report.tested import read_evaluation
from tacit.report.view import View, read

_GAUSSIAN = "dpa.GaussianDpEvent({noise_multiplier!r})"
AS_SOURCE = {
    "gaussian": _GAUSSIAN,
    "selection": _GAUSSIAN,
    "poisson-gaussian": "dpa.PoissonSampledDpEvent({sampling_probability!r}, " + _GAUSSIAN + ")",
}
NO_SOURCE = {"gamma", "iterated", "repeated", "parallel", "failure"}
_RECOMPUTE = Path(__file__).with_name("recompute.txt").read_text(encoding="utf-8")


def render_html(
    certificate: Mapping[str, Any],
    *,
    results: Mapping[str, Any] | None = None,
    title: str | None = None,
    curves: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
) -> str:
    """The report as one HTML page that needs nothing but itself; all text is escaped.

    Parameters
    ----------
    certificate : mapping
        A certificate, as read from ``certificate.json``.
    results : mapping, optional
        What is known of the model's quality. Every key is optional and unknown
        ones are ignored: ``test_accuracy``, ``nonprivate_accuracy``,
        ``majority_accuracy``, ``test_r2``, ``test_rmse``, ``test_rows``,
        ``class_names``, ``confusion`` (a row for each true class), ``top_features``
        (``name`` and ``weight``) and ``files``.
    title : str, optional
        The heading of the page.
    curves : str, optional
        A picture of what each column adds to the score, as SVG: ``model.shape_curves().svg()``.
    evaluation : mapping, optional
        A test that the certificate covers: ``Evaluation.to_dict()``, with ``pictures`` as SVG.

    Returns
    -------
    str
        HTML.

    Raises
    ------
    CertificateError
        The certificate lacks a key, which is named, or a value makes no sense.
    InputError
        An accuracy does not lie between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit import DPLinearClassifier
    >>> certificate = DPLinearClassifier().fit(np.eye(100), [0, 1] * 50).certificate_
    >>> render_html(certificate.to_dict()).startswith("<!DOCTYPE html>")
    True
    """
    view = read(certificate, results)
    return render(
        Path(__file__).with_name("template.html"),
        title=clean(title or "Privacy report"),
        view=view,
        epsilon=exact(view.epsilon),
        delta=exact(view.delta),
        factor=factor(view.epsilon),
        segments=_segments(view),
        recompute=_recompute(view),
        curves=None if curves is None else b64encode(curves.encode()).decode(),
        tested=None if evaluation is None else read_evaluation(evaluation),
    )


def _segments(view: View) -> list[dict[str, Any]]:
    """The stacked bar: where each event begins and how wide it is, in percent."""
    whole = sum(item.share for item in view.spent)
    segments = []
    start = 0.0
    for item in view.spent:
        width = 100 * item.share / whole
        segments.append(
            {
                "start": f"{start:.3f}",
                "width": f"{width:.3f}",
                "middle": f"{start + width / 2:.3f}",
                "colour": (item.position - 1) % 8,
                "fits": width >= 16,
                "item": item,
            }
        )
        start += width
    return segments


def _recompute(view: View) -> str:
    """Python that works out ε from the certificate's numbers, with dp-accounting alone.

    Only numbers and the name of the relation go into it, never text from the
    certificate. Where all noise is Gaussian the grid follows ε: it costs nothing
    there, and a fixed one would round a very small ε up past the claim.
    """
    if any(
        getattr(item.event, "drift", ())
        or getattr(item.event, "rows", 1) > 1
        or item.kind in NO_SOURCE
        for item in view.spent
    ):
        return ""  # that library knows no sums whose other rows move as well, nor such steps
    gaussian = all(item.event.gaussian for item in view.spent)
    events = []
    for item in view.spent:
        numbers = {k: v for k, v in vars(item.event).items() if k != "drift"}
        values = {name: float(value) for name, value in numbers.items()}
        if isinstance(item.event, Selection):  # the Gaussian noise that is as hard to see through
            unit = sensitivity(view.neighbors)
            values["noise_multiplier"] = unit / selection_mu(unit / values["noise_multiplier"])
        events.append(f"    ({AS_SOURCE[item.kind].format(**values)}, {int(item.event.count)}),")
    return _RECOMPUTE.format(
        claim=view.epsilon,
        delta=view.delta,
        numerical_delta=view.numerical_delta,
        events="\n".join(events),
        relation=view.neighbors.upper(),
        grid=min(FINE_GRID, FINE_GRID * view.epsilon) if gaussian else FINE_GRID,
    )
