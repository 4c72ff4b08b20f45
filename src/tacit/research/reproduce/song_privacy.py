"""Song et al. 2021, Theorem 2.6: the noise of Algorithm 1, and what it is enough for, exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tacit.privacy.accounting.accountants import gaussian_epsilon
from tacit.research.reproduce.claim import Check, Figure, Finding, Table
from tacit.research.reproduce.work import Work

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
DELTAS = (1e-3, 1e-5, 1e-8)
REPLACED, BLANKED = 2.0, 1.0  # how far two sums of gradients lie apart, in L


def spent(epsilon: float, delta: float, apart: float, louder: float = 1.0) -> float:
    """What T steps spend at δ, with noise of variance 2L²T·log(1/δ)/(nε)² on mean gradients."""
    mu = apart * epsilon / (louder * math.sqrt(2 * math.log(1 / delta)))  # of all T together
    return gaussian_epsilon(mu, delta)


def noise(work: Work) -> Finding:
    """Theorem 2.6."""
    pairs = [{"epsilon": at, "delta": delta} for delta in DELTAS for at in EPSILONS]
    ways: Mapping[str, Mapping[str, float]] = {
        "replaced": {"apart": REPLACED},
        "blanked": {"apart": BLANKED},
        "blanked, half": {"apart": BLANKED, "louder": 0.5},
        "replaced, half": {"apart": REPLACED, "louder": 0.5},
        "replaced, twice": {"apart": REPLACED, "louder": 2.0},
    }
    found = {
        name: work.map(spent, [{**pair, **way} for pair in pairs]) for name, way in ways.items()
    }

    def enough(values: Sequence[float]) -> tuple[bool, str]:
        parts = [value / pair["epsilon"] for pair, value in zip(pairs, values, strict=True)]
        worst = pairs[parts.index(max(parts))]
        shown = f"{max(parts):.2f}·ε at most, at ε = {worst['epsilon']:g}, δ = {worst['delta']:g}"
        return max(parts) <= 1, shown

    rows = [
        (
            f"ε = {pair['epsilon']:g}, δ = {pair['delta']:g}",
            found["replaced"][i],
            found["blanked"][i],
        )
        for i, pair in enumerate(pairs)
    ]
    half = "half of the noise"
    return Finding(
        tables=[
            Table(
                ("meant for", "a row is replaced", "a row is blanked out"),
                rows,
                "ε that Algorithm 1 spends with the noise of Theorem 2.6, at the same δ",
            )
        ],
        checks=[
            Check.judge(
                "Theorem 2.6: variance 2L²T·log(1/δ)/(nε)² makes it (ε, δ)-private, where any row "
                "may replace any other (Definition 2.5)",
                enough,
                found["replaced"],
                null=found["replaced, half"],
                without=half,
            ),
            Check.judge(
                "the same where a row is blanked out",
                enough,
                found["blanked"],
                null=found["blanked, half"],
                without=half,
                paper=False,
            ),
            Check.judge(
                "four times that variance is enough where rows are replaced",
                enough,
                found["replaced, twice"],
                null=found["replaced"],
                without="the variance as printed",
                paper=False,
            ),
        ],
        figures=[
            Figure(
                "ε spent with the noise of Theorem 2.6, δ = 1e-5",
                "ε that it is meant for",
                {
                    f"a row is {way}": (
                        EPSILONS,
                        [
                            value
                            for pair, value in zip(pairs, found[name], strict=True)
                            if pair["delta"] == 1e-5
                        ],
                    )
                    for name, way in (("replaced", "replaced"), ("blanked", "blanked out"))
                },
                log=True,
            )
        ],
        runs=1,
    )
