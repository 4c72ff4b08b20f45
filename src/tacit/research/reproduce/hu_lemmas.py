"""Hu et al. 2024, Theorems 10 to 13 and lemmas on divergences, on instances drawn at random.

Divergences are sums over outcomes, or integrals on a grid, and know nothing of the formulas that
they are compared with. What a formula has to hold for is drawn; what comes nearest is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit.privacy.accounting.accountants import gaussian_epsilon
from tacit.research.reproduce.claim import Check, Finding, Table
from tacit.research.reproduce.work import Work

Array = np.ndarray
GRID = np.linspace(-60, 60, 60_001)  # in deviations of the noise
ROUNDING = 1e-6


def divergence(alpha: float, logp: Array, logq: Array) -> float:
    """D_α(p‖q) of probabilities by their logarithms."""
    weighed = alpha * logp + (1 - alpha) * logq
    most = float(weighed.max())
    return (most + math.log(np.exp(weighed - most).sum())) / (alpha - 1)


def _on_grid(density: Callable[[Array], Array], shift: float) -> tuple[Array, Array]:
    """Two densities, ``shift`` apart, as probabilities of the cells of a grid."""
    pair = [density(GRID - at) for at in (-shift / 2, shift / 2)]
    one, other = (p - math.log(np.exp(p).sum()) for p in pair)
    return one, other


def _normal(x: Array) -> Array:
    return -(x**2) / 2


def _laplace(x: Array) -> Array:
    return -np.abs(x)


def mechanisms(draws: int, seed: int, louder: float = 1.0) -> dict[str, float]:
    """Largest divergence, as a part of what Theorems 10 to 13 and Table 1 allow for it.

    ``louder`` is how many times as much noise there is as they ask for.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for _ in range(draws):
        alpha, epsilon = 1 + float(rng.exponential(4)), float(rng.uniform(0.05, 1))
        wide, lipschitz, tau = (float(np.exp(rng.uniform(-1, 1))) for _ in range(3))
        moved = lipschitz * tau / wide  # in sensitivities
        parts: dict[str, float] = {}
        for name, density, curve in (
            ("Gaussian", _normal, lambda s, a=alpha: a * s**2 / 2),
            ("Laplace", _laplace, lambda s: s),
        ):
            for what, times in (("neighbours", 1.0), ("τ apart", moved)):
                pair = _on_grid(density, times * epsilon / louder)
                value = divergence(alpha, *pair)
                parts[f"{name}, {what}"] = value / curve(times * epsilon)
                if (name, what) == ("Gaussian", "τ apart"):
                    printed = curve(lipschitz * tau * epsilon)
                    parts["Gaussian, τ apart, without Δ"] = value / printed
        for what, times in (("neighbours", 1.0), ("τ apart", moved)):
            scores = rng.normal(size=6)
            other = scores + times * rng.choice([-1.0, 1.0], 6)
            both = [epsilon * each / (2 * louder) for each in (scores, other)]
            one, two = (each - math.log(np.exp(each).sum()) for each in both)
            parts[f"exponential, {what}"] = divergence(alpha, one, two) / (times * epsilon)
        n, steps = int(rng.integers(10, 100)), int(rng.integers(1, 50))
        noise = louder * lipschitz * math.sqrt(steps) / (epsilon * n)
        # The sum of all noisy mean gradients, which the last iterate is; one gradient turns round.
        for what, apart, allowed in (
            ("neighbours", 2 * lipschitz, 2 * epsilon**2),
            ("τ apart", wide * tau, (wide * tau * epsilon / lipschitz) ** 2 / 2),
        ):
            shift = steps * apart / n / (noise * math.sqrt(steps))
            value = divergence(alpha, *_on_grid(_normal, shift))
            parts[f"descent, {what}"] = value / (alpha * allowed)
            if what == "neighbours":
                parts["descent, neighbours, Theorem 13"] = value / (alpha * epsilon**2 / 2)
        for name, part in parts.items():
            found.setdefault(name, []).append(part)
    return {name: max(each) for name, each in found.items()}


def lemmas(draws: int, seed: int) -> dict[str, list[float]]:
    """The same of lemmas, with their condition and without it, or what they add."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[list[float]]] = {}
    for _ in range(draws):
        alpha = 1 + float(rng.exponential(4))
        parts = {
            "sums": _sums(rng, alpha),
            "mixtures": _mixtures(rng, alpha),
            "triangle": _triangle(rng, alpha),
            "turned": _turned(rng),
            "to (ε, δ)": _converted(rng, alpha),
        }
        for name, pair in parts.items():
            found.setdefault(name, []).append(list(pair))
    return {name: np.max(each, axis=0).tolist() for name, each in found.items()}


def _drawn(rng: np.random.Generator, spread: float, near: Array | None = None) -> Array:
    """Logarithms of five probabilities, or of five that differ from others by ``spread``."""
    made = spread * rng.normal(size=5) + (0.0 if near is None else near)
    return np.asarray(made - math.log(np.exp(made).sum()))


def _sums(rng: np.random.Generator, alpha: float) -> tuple[float, float]:
    """Two releases together; and one of them seen twice, which is no second one."""
    (p, q), (r, s) = ((_drawn(rng, 1.0), _drawn(rng, 1.0)) for _ in range(2))
    both = [np.add.outer(a, b).ravel() for a, b in ((p, r), (q, s))]
    one, two = divergence(alpha, p, q), divergence(alpha, r, s)
    off = abs(divergence(alpha, *both) / (one + two) - 1)
    return 1 + off, 1 + abs(one / (2 * one) - 1)


def _mixtures(rng: np.random.Generator, alpha: float) -> tuple[float, float]:
    """A mixture of pairs whose divergence is 1/(α − 1) at most; and of one beyond, and none."""

    def part(firsts: list[Array], seconds: list[Array]) -> float:
        apart = [divergence(alpha, a, b) for a, b in zip(firsts, seconds, strict=True)]
        c = (alpha - 1) * max(apart)
        beta = float(rng.uniform(0.01, 0.5))
        mixed = [
            np.logaddexp(math.log(beta) + a, math.log1p(-beta) + b) for a, b in (firsts, seconds)
        ]
        mean = beta * apart[0] + (1 - beta) * apart[1]
        return divergence(alpha, *mixed) / ((1 + min(c, 1.0)) * mean)

    while True:  # until the condition holds
        near = [_drawn(rng, 1.0) for _ in range(2)]
        others = [_drawn(rng, 0.5 / alpha, each) for each in near]
        pairs = zip(near, others, strict=True)
        if max(divergence(alpha, a, b) for a, b in pairs) <= 1 / (alpha - 1):
            break
    far = [_drawn(rng, 20.0) for _ in range(3)]
    return part(near, others), part(far[:2], [far[2], far[1]])


def _triangle(rng: np.random.Generator, alpha: float) -> tuple[float, float]:
    """By way of a third distribution; and as if orders and factors were none."""
    first, third, second = (_drawn(rng, 1.0) for _ in range(3))
    p = 1 + float(rng.exponential(1))
    q = p / (p - 1)
    whole = divergence(alpha, first, second)
    there = (alpha - 1 / p) / (alpha - 1) * divergence(p * alpha, first, third)
    back = divergence(q * (alpha - 1 / p), third, second)
    plain = divergence(alpha, first, third) + divergence(alpha, third, second)
    return whole / (there + back), whole / plain


def _turned(rng: np.random.Generator) -> tuple[float, float]:
    """First components of a matrix and of one near it; and with λ₁ in the place of the gap."""
    made = rng.normal(size=(6, 6))
    before = made @ made.T
    noise = rng.normal(size=(6, 6)) * float(np.exp(rng.uniform(-5, -1)))
    change = noise @ noise.T
    values, axes = np.linalg.eigh(before)
    k = int(rng.integers(1, 4))
    there = np.linalg.eigh(before + change)[1][:, -k:]
    here = axes[:, -k:]
    sines = np.sqrt(np.maximum(0, 1 - np.linalg.svd(here.T @ there)[1] ** 2))
    projected = np.linalg.norm(here @ here.T - there @ there.T, 2)
    gap = float(values[-k] - values[-k - 1])
    least = min(gap, float(values[-1] - values[-2]))
    parts = []
    for kahan, zwald in ((least, gap), (values[-1], values[-1])):
        sin = np.linalg.norm(sines) / (2 * np.linalg.norm(change) / kahan)
        parts.append(max(float(sin), float(projected / (2 * np.linalg.norm(change, 2) / zwald))))
    return parts[0], parts[1]


def _converted(rng: np.random.Generator, alpha: float) -> tuple[float, float]:
    """ε of Gaussian noise at δ by its Rényi curve; and by the curve alone."""
    mu, delta = float(rng.uniform(0.05, 2)), float(10 ** rng.uniform(-9, -2))
    curve, exact = alpha * mu**2 / 2, gaussian_epsilon(mu, delta)
    return exact / (curve - math.log(delta) / (alpha - 1)), exact / curve


def _within(part: float) -> tuple[bool, str]:
    return part <= 1 + ROUNDING, f"at most {part:.4g} of what is allowed"


def formulas(work: Work) -> Finding:
    """Theorems 10 to 13; Lemmas 1, 2, A to C, F, J to M."""
    draws, (seed,) = 20 if work.quick else 200, work.run_seeds(1)
    given: dict[str, Any] = {"draws": draws, "seed": seed}
    told, quiet = work.map(mechanisms, [given, {**given, "louder": 0.5}])
    (by_lemma,) = work.map(lemmas, [given])
    named: Mapping[str, str] = {
        "Gaussian, neighbours": "Theorem 10, Lemma C: Gaussian noise is (α, αε²/2)-RDP",
        "Gaussian, τ apart": "Table 1: and of tables τ apart (α, αL²τ²ε²/(2Δ²))-SRDP",
        "Gaussian, τ apart, without Δ": "Theorem 10 has αL²τ²ε²/2 there, for every Δ",
        "Laplace, neighbours": "Theorem 11: Laplace noise is (α, ε)-RDP",
        "Laplace, τ apart": "and (α, Lτε/Δ)-SRDP",
        "exponential, neighbours": "Theorem 12: the exponential mechanism is (α, ε)-RDP",
        "exponential, τ apart": "and (α, Lτε/Δ)-SRDP",
        "descent, neighbours": "Table 1: noisy descent is (α, 2αε²)-RDP",
        "descent, neighbours, Theorem 13": "Theorem 13 has αε²/2 there",
        "descent, τ apart": "Theorem 13: and (α, αμ²τ²ε²/(2L²))-SRDP",
    }
    of_lemmas: Mapping[str, tuple[str, str]] = {
        "sums": (
            "Lemmas 1, 2, A and F: divergences of releases add up",
            "one release, seen twice",
        ),
        "mixtures": (
            "Lemma B: a mixture is 1 + c times as far apart as its parts on average, at most",
            "divergences beyond 1/(α − 1): one of two, the other none",
        ),
        "triangle": (
            "Lemma J: the triangle inequality, with its orders and its factor",
            "one order and no factor",
        ),
        "turned": (
            "Lemmas K and L: components turn by what a gap allows at most",
            "the largest eigenvalue in the place of the gap",
        ),
        "to (ε, δ)": (
            "Lemma M: ε + log(1/δ)/(α − 1) is enough at δ",
            "ε alone",
        ),
    }
    checks = [
        Check.judge(text, _within, told[name], null=quiet[name], without="half of the noise")
        for name, text in named.items()
    ]
    checks += [
        Check.judge(text, _within, by_lemma[name][0], null=by_lemma[name][1], without=without)
        for name, (text, without) in of_lemmas.items()
    ]
    rows = [(text, told[name], quiet[name]) for name, text in named.items()]
    rows += [(text, *by_lemma[name]) for name, (text, _) in of_lemmas.items()]
    title = f"Largest part of what is allowed, of {draws} instances drawn at random"
    return Finding([Table(("statement", "as said", "null"), rows, title)], checks, runs=1)
