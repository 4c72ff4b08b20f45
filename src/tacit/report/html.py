"""The report as one self-contained page: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from tacit.privacy.events import Event
from tacit.report.text import LIMITS, Story, clean, exact, factor, one_in, read

__all__ = ["render_html"]

GRID = 1e-4  # dp-accounting's own, on which certificates are confirmed


def render_html(
    certificate: Mapping[str, Any],
    *,
    results: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """The report as one HTML page that needs nothing but itself.

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

    Returns
    -------
    str
        HTML. All that comes from the arguments is escaped.

    Raises
    ------
    CertificateError
        A key of the certificate is missing or cannot be read; it is named.
    InputError
        A result that was given cannot be shown.

    Examples
    --------
    >>> page = render_html(model.certificate_.to_dict())  # doctest: +SKIP
    """
    story = read(certificate, results)
    return _template().render(
        title=clean(title) if title else "Privacy report",
        story=story,
        epsilon=exact(story.epsilon),
        delta=exact(story.delta),
        factor=factor(story.epsilon),
        one_in=one_in(story.delta),
        limits=LIMITS,
        segments=_segments(story),
        recompute=_recompute(story),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    source = files("tacit.report").joinpath("template.html").read_text(encoding="utf-8")
    return environment.from_string(source)


def _segments(story: Story) -> list[dict[str, Any]]:
    """The stacked bar: where each event begins and how wide it is, in percent."""
    whole = sum(item.share for item in story.spent) or 1.0
    segments = []
    start = 0.0
    for item in story.spent:
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


def _recompute(story: Story) -> str:
    """Python that works out ε from the certificate's numbers, with dp-accounting alone.

    Only numbers and the name of the relation go into it, never text from the
    certificate. Where all noise is Gaussian the grid follows ε: it costs nothing
    there, and a fixed one would round a very small ε up past the claim.
    """
    gaussian = all(item.kind == "gaussian" for item in story.spent)
    grid = min(GRID, GRID * story.epsilon) if gaussian else GRID
    lines = [
        "import dp_accounting as dpa",
        "from dp_accounting import pld",
        "",
        f"claim = {story.epsilon!r}",
        f"delta = {story.delta!r} - {story.numerical_delta!r}  # less the numerical error",
        "events = [  # the noise, and how many times it was added",
        *(
            f"    ({_AS_SOURCE[item.kind](item.event)}, {item.event.count}),"
            for item in story.spent
        ),
        "]",
        "accountant = pld.PLDAccountant(",
        f"    dpa.NeighboringRelation.{story.neighbors.upper()},",
        f"    value_discretization_interval={grid!r},",
        ")",
        "for event, count in events:",
        "    accountant.compose(event, count)",
        "epsilon = accountant.get_epsilon(delta)",
        'verdict = "the claim holds" if epsilon <= claim else "THE CLAIM DOES NOT HOLD"',
        'print(f"epsilon {epsilon!r}, claimed {claim!r}: {verdict}")',
    ]
    return "\n".join(lines) + "\n"


def _gaussian(event: Event) -> str:
    return f"dpa.GaussianDpEvent({float(event.noise_multiplier)!r})"


def _poisson_gaussian(event: Any) -> str:
    return f"dpa.PoissonSampledDpEvent({float(event.sampling_probability)!r}, {_gaussian(event)})"


_AS_SOURCE = {"gaussian": _gaussian, "poisson-gaussian": _poisson_gaussian}
