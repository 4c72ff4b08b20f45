"""Dominating pairs on the line, and what many of them lose together, between rigorous bounds.

A step is a pair P = Σ pᵢ N(sᵢ, 1) against Q = Σ qⱼ N(tⱼ, 1) with every sᵢ ≥ every tⱼ, so that the
privacy loss ln dP/dQ increases. With Y the sum of the losses of all steps under P,
δ(ε) = E(1 − e^(ε−Y))₊ (Gopi, Lee & Wutschitz 2021, who compose by FFT). Which pair applies may
depend on a public draw, fresh in each step: then Y is a mixture of losses, and what is said of its
errors below holds given the draw, hence at all.

*From above.* Each loss Y is moved to Y′, one of the two multiples of h around it, such that
E e^(Y−Y′) = 1: "connect the dots" (Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022), a pair
that dominates. Its error is of second order in h.

*From below.* Given Y, the error Y′ − Y lies in an interval of length h and E e^(−(Y′−Y)) = 1. By
Hoeffding's lemma its mean is at most h²/8, and by his inequality T independent errors exceed
r = T·h²/8 + h·√(T·ln(1/η)/2) together with probability at most η. Hence δ(ε) ≥ δ′(ε+r) − η.

*The sum* is taken by FFT of the law tilted by e^(λy), λ near the saddle point of the ε in question.
Rounding and wrap-around are then small against the Chernoff bound e^(K(λ)−λε). Without the tilt
they are small against 1 only, about 1e-16·T, which drowns a δ of 1e-12. They are bounded, not
guessed, and part of the result, as are truncated tails and the rounding of every mass. Taken on
trust: that SciPy's exp, log and Φ are good to a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import minimize_scalar
from scipy.special import erfcx, ndtr, ndtri

from tacit.exceptions import InputError

Array = NDArray[np.float64]
Mixture = tuple[tuple[float, float], ...]  # (weight, mean) of each N(mean, 1)
Pair = tuple[Mixture, Mixture]
Parts = tuple[tuple[float, Pair], ...]  # (weight, pair), weights summing to one

UNIT = 2.0**-53
WIDEST = 600.0  # exponents that neither overflow nor vanish
_TOLERANCE = 1e-3  # wanted distance between the bounds, relative to ε
_MOST_POINTS = 2**21  # cells of one step, and points of the sum: about a second
_STRAY = math.log(1e-10)  # of the tilted mass that may leave the window, at either end


class Blend(NamedTuple):
    """A step whose pair is drawn in public."""

    parts: Parts


Loss = Pair | Blend


def _parts(step: Loss) -> Parts:
    return step.parts if isinstance(step, Blend) else ((1.0, step),)


@dataclass(frozen=True)
class Recheck:
    """An estimate, and rigorous bounds around it.

    Attributes
    ----------
    epsilon : float
        The best estimate: of ε, or of δ.
    upper, lower : float
        Between these the true value lies.
    """

    epsilon: float
    upper: float
    lower: float


def gaussian_mu(step: Loss) -> float | None:
    """μ, if the step is one Gaussian against another."""
    if isinstance(step, Blend) or not len(step[0]) == len(step[1]) == 1:
        return None
    return step[0][0][1] - step[1][0][1]


def _only_gaussian(pairs: Mapping[Loss, int]) -> float | None:
    """μ, if there is one Gaussian pair and nothing else."""
    (step, count), *others = pairs.items()
    return gaussian_mu(step) if count == 1 and not others else None


# --- Gaussian steps alone: closed form -------------------------------------------------------


def _gaussian_delta(mu: float, epsilon: float) -> tuple[float, float]:
    """δ(ε) = Φ(a) − e^ε·Φ(b), a, b = −ε/μ ± μ/2 (Balle & Wang 2018, Thm 8), and its rounding.

    As ε − b²/2 = −a²/2, it is ½e^(−a²/2)·(erfcx(−a/√2) − erfcx(−b/√2)), for any a ≤ 0.
    """
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    weight = math.exp(-a * a / 2) / 2
    one = weight * float(erfcx(-a / math.sqrt(2))) if a <= 0 else float(ndtr(a))
    two = weight * float(erfcx(-b / math.sqrt(2)))
    rounding = 8 * UNIT * (1 + a * a + epsilon + mu * mu) * (one + two)
    return one - two, rounding + 1e-300


def gaussian_epsilon(mu: float, delta: float, slip: float = 0.0) -> Recheck:
    def root(sign: int) -> float:
        """Where δ(ε), moved by ``sign`` roundings, falls below δ; rounded that way."""

        def exceeds(at: float) -> bool:
            value, error = _gaussian_delta(mu, at)
            return value + sign * (error + slip) > delta

        low, high = 0.0, 1.0
        if not exceeds(low):
            return 0.0
        while exceeds(high):
            low, high = high, 2 * high
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if exceeds(middle) else (low, middle)
        return high if sign > 0 else low

    return Recheck(root(0), root(1), root(-1))


# --- one step on the grid --------------------------------------------------------------------


def _loss(pair: Pair, x: Array) -> tuple[Array, Array]:
    """ln dP/dQ at ``x``, and its slope."""
    value, slope = np.zeros_like(x), np.zeros_like(x)
    for sign, mixture in zip((1, -1), pair, strict=True):
        terms = [math.log(w) + s * x - s * s / 2 for w, s in mixture]
        top = np.maximum.reduce(terms)
        parts = [np.exp(term - top) for term in terms]
        total = np.add.reduce(parts)
        value += sign * (top + np.log(total))
        slope += sign * sum(s * part for (_, s), part in zip(mixture, parts, strict=True)) / total
    return value, slope


def _masses(mixture: Mixture, edges: Array) -> Array:
    """Mass between consecutive edges, to a *relative* error of 4e-14·(1 + x²).

    Narrow cells by three-point Gauss–Legendre, whose error 5e-7·Δ⁷·φ⁽⁶⁾ is below 6e-15 of the
    mass since |φ⁽⁶⁾| ≤ 15(1+|x|)⁶φ; wide ones by Φ(b) − Φ(a), reflected into the lower tail.
    """
    width = np.diff(edges)
    total = np.zeros_like(width)
    for weight, s in mixture:
        a, b = edges[:-1] - s, edges[1:] - s
        mass = np.zeros_like(width)
        for node, c in ((0.5 - math.sqrt(0.15), 5), (0.5, 8), (0.5 + math.sqrt(0.15), 5)):
            mass += c * np.exp(-0.5 * (a + node * width) ** 2)
        mass *= width / (18 * math.sqrt(2 * math.pi))
        wide = width * (1 + np.maximum(np.abs(a), np.abs(b))) > 0.03
        a, b = a[wide], b[wide]
        mass[wide] = np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))
        total += weight * mass
    return total


class _Step(NamedTuple):
    """A step's loss: log-masses at h·first, h·(first+1), …, rounded up, and what is left out."""

    first: int
    log_mass: Array
    above: float  # mass of larger losses: infinite for the upper bound, nothing for the lower
    below: float  # mass of smaller losses: moved up into the grid
    edge: float  # ζ, how far a cell's edge may lie from its multiple of h
    kappa: float  # κ, relative error of a mass
    extra: float  # largest part of a cell that rounding, not connecting dots, has moved up

    def cumulant(self, h: float, tilt: float) -> float:
        """K(λ) = ln E e^(λY′)."""
        return _log_sum(tilt * h * (self.first + np.arange(len(self.log_mass))) + self.log_mass)


def _log_sum(terms: Array) -> float:
    top = float(terms.max())
    return top + math.log(float(np.exp(terms - top).sum()))


def _ends(pair: Pair, reach: float) -> tuple[float, float]:
    means = [s for _, s in pair[0]]
    return min(means) - reach, max(means) + reach


def discretise(pair: Pair, h: float, reach: float, size: int = 2**15) -> _Step:
    """Connect the dots cell by cell, in the x for which the loss crosses a multiple of h."""
    low, high = _ends(pair, reach)
    table = np.linspace(low, high, size)
    losses = np.maximum.accumulate(_loss(pair, table)[0])
    if not np.max(np.abs(losses)) <= WIDEST:
        raise InputError("privacy losses beyond 600: far too little noise for a recheck")
    first = math.floor(losses[0] / h)
    last = max(math.ceil(losses[-1] / h), first + 1)
    inner = h * np.arange(first + 1, last)
    x = np.interp(inner, losses, table)
    value, slope = _loss(pair, x)
    step = table[1] - table[0]
    with np.errstate(divide="ignore", invalid="ignore"):  # Newton, one step, where it is sane
        x += np.nan_to_num(np.clip((inner - value) / slope, -step, step))
    x = np.clip(np.maximum.accumulate(x), low, high)
    mean = max(abs(s) for mixture in pair for _, s in mixture)
    weight = min(w for mixture in pair for w, _ in mixture)
    far = max(abs(low), abs(high)) + mean
    edge = float(np.max(np.abs(_loss(pair, x)[0] - inner), initial=0.0))
    edge += 8 * UNIT * (1 + mean * far - math.log(weight))  # rounding of the loss itself
    kappa = 4e-14 * (1 + far**2)
    edges = np.concatenate([[low], x, [high]])
    p, q = _masses(pair[0], edges), _masses(pair[1], edges)
    # The masses P′ at both ends of a cell satisfy Σ P′ = p and Σ P′e^(−Y′) = q.
    with np.errstate(invalid="ignore"):  # empty cells
        kept = np.exp(h * np.arange(first, last)) * q / p * (1 - 3 * kappa - edge)
    up = np.clip(np.nan_to_num((1 - kept) / -math.expm1(-h), nan=1.0), 0.0, 1.0)
    below = sum(w * float(ndtr(low - s)) for w, s in pair[0])
    above = sum(w * float(ndtr(s - high)) for w, s in pair[0])
    mass = np.append(p * (1 - up), 0.0)
    mass[1:] += p * up
    mass[1] += below
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + kappa
    extra = min(1.0, 2 * (3 * kappa + edge) / -math.expm1(-h))
    return _Step(first, log_mass, above, below, edge, kappa, extra)


def _blended(parts: Parts, h: float, reach: float) -> _Step:
    """A step whose pair is drawn: each connected by itself, on the same multiples of h."""
    if len(parts) == 1:
        return discretise(parts[0][1], h, reach)
    size = max(2**15 // len(parts), 2**11)
    steps = [(weight, discretise(pair, h, reach, size)) for weight, pair in parts]
    first = min(step.first for _, step in steps)
    mass = np.zeros(max(step.first + len(step.log_mass) for _, step in steps) - first)
    for weight, step in steps:
        mass[step.first - first :][: len(step.log_mass)] += weight * np.exp(step.log_mass)
    astray = abs(math.fsum(weight for weight, _ in steps) - 1)  # of the weights
    rounding = 8 * UNIT * (len(steps) + WIDEST) + astray
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + rounding
    return _Step(
        first,
        log_mass,
        above=math.fsum(weight * step.above for weight, step in steps),
        below=math.fsum(weight * step.below for weight, step in steps),
        edge=max(step.edge for _, step in steps),
        kappa=max(step.kappa for _, step in steps) + rounding,
        extra=max(step.extra for _, step in steps),
    )


# --- planning: tilt, window and grid, from a rough cumulant ----------------------------------


class _Plan(NamedTuple):
    reach: float  # where tails are cut, in standard deviations from the means
    tilt: float  # λ
    fall: float  # Chernoff exponents for the ends of the tilted law
    rise: float
    window: float  # width of what holds those ends, and ε
    spread: float  # standard deviation of the sum
    span: float  # widest range of one step's loss
    work: float  # the same, over all the pairs that it may draw
    epsilon: float  # Rényi bounds on what is sought
    log_delta: float


def _log_hump(tilt: float) -> float:
    """ln max_u e^(−λu)·(1 − e^(−u)) = λ·ln λ − (λ+1)·ln(λ+1)."""
    return tilt * math.log(tilt) - (tilt + 1) * math.log1p(tilt)


def _plan(pairs: Mapping[Loss, int], log_delta: float, epsilon: float | None = None) -> _Plan:
    """For the ε that belongs to a δ or, at a given ``epsilon``, for a δ of about that size."""
    tail = math.exp(log_delta) * 1e-5 / sum(pairs.values())
    reach = -float(ndtri(tail))
    rough: list[tuple[int, Array, Array]] = []
    span = work = variance = 0.0
    for step, count in pairs.items():
        parts = _parts(step)
        size = max(4001 // len(parts), 101)
        edges = [np.linspace(*_ends(pair, reach), size) for _, pair in parts]
        losses = [
            _loss(pair, (x[1:] + x[:-1]) / 2)[0] for x, (_, pair) in zip(edges, parts, strict=True)
        ]
        masses = [w * _masses(pair[0], x) for x, (w, pair) in zip(edges, parts, strict=True)]
        loss, mass = np.concatenate(losses), np.concatenate(masses)
        rough.append((count, loss, np.log(np.maximum(mass, 1e-320))))
        span = max(span, float(np.ptp(loss)))
        work = max(work, math.fsum(np.ptp(part) for part in losses))
        variance += count * float(mass @ (loss - mass @ loss) ** 2)
    spread = math.sqrt(variance)

    def cumulant(tilt: float) -> float:
        return sum(c * _log_sum(tilt * loss + log_mass) for c, loss, log_mass in rough)

    def least(objective: Callable[[float], float]) -> tuple[float, float]:
        bounds = (math.log(1e-4 / (1 + spread)), math.log(1e4 / spread))
        found = minimize_scalar(lambda v: objective(math.exp(v)), bounds=bounds, method="bounded")
        return math.exp(found.x), float(found.fun)

    # δ ≤ e^(K(λ)−λε)·λ^λ/(λ+1)^(λ+1) for every λ (Canonne, Kamath & Steinke 2020, Prop. 12).
    if epsilon is None:
        tilt, epsilon = least(lambda v: (cumulant(v) + _log_hump(v) - log_delta) / v)
    else:
        at = epsilon
        tilt, log_delta = least(lambda v: cumulant(v) + _log_hump(v) - v * at)
    base = cumulant(tilt) + _STRAY
    rise, top = least(lambda v: (cumulant(tilt + v) - base) / v)
    fall, bottom = least(lambda v: (cumulant(tilt - v) - base) / v)
    window = max(top, epsilon) - min(-bottom, epsilon)
    log_delta = max(min(log_delta, 0.0), -WIDEST)
    return _Plan(reach, tilt, fall, rise, window, spread, span, work, epsilon, log_delta)


# --- composition -----------------------------------------------------------------------------


class _Curve(NamedTuple):
    """δ along a grid: δ(point) ≈ value, δ(point + up) ≤ upper, δ(point − down) ≥ lower."""

    points: Array
    value: Array
    upper: Array
    lower: Array
    up: float
    down: float


def _compose(pairs: Mapping[Loss, int], plan: _Plan, log_delta: float) -> _Curve:
    """All steps together; bounds on ε about ``_TOLERANCE`` apart if ``_MOST_POINTS`` allows."""
    from scipy.signal import lfilter  # half a second to import: not for Gaussian steps

    tilt, count = plan.tilt, sum(pairs.values())
    scale = max(plan.epsilon, 0.05 * plan.spread)
    failure = math.log(1e4) - log_delta  # ln(1/η), η = 1e-4·δ
    h = _TOLERANCE * scale / (math.sqrt(count * failure / 2) + failure / 3)
    largest = _MOST_POINTS if log_delta > -WIDEST else 2**14  # no need to resolve a δ of 1e-260
    widest = max(plan.window, plan.span, plan.work)
    h = max(min(h, plan.window / 2**14), widest / largest)
    steps = [(_blended(_parts(step), h, plan.reach), c) for step, c in pairs.items()]

    def cumulant(at: float) -> float:
        return sum(c * step.cumulant(h, at) for step, c in steps)

    total, margin = cumulant(tilt), 4 * _TOLERANCE * scale
    top = (cumulant(tilt + plan.rise) - total - _STRAY) / plan.rise
    bottom = -(cumulant(tilt - plan.fall) - total - _STRAY) / plan.fall
    start = math.floor(min(bottom, plan.epsilon - margin) / h)
    size = math.ceil(max(top, plan.epsilon + margin) / h) - start + 1
    if not size <= 4 * _MOST_POINTS:  # by far too many steps: their roundings alone fill the window
        raise InputError(f"{count} steps are too many for a recheck")
    size = next_fast_len(size, real=True)
    noise = 8 * UNIT * math.log2(size)  # of a transform of mass one, in each coefficient
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    magnitude, growth = np.ones(size // 2 + 1), np.zeros(size // 2 + 1)
    for step, c in steps:
        tilted = tilt * h * (step.first + np.arange(len(step.log_mass))) + step.log_mass
        offset = step.first % size
        wrapped = np.zeros(-(-(offset + len(tilted)) // size) * size)
        wrapped[offset : offset + len(tilted)] = np.exp(tilted - step.cumulant(h, tilt))
        factor = rfft(wrapped.reshape(-1, size).sum(axis=0))
        bound = np.abs(factor) + noise
        power = bound**c
        magnitude *= power
        growth += c * noise / bound  # |(F+e)^T − F^T| ≤ T·|e|·(|F|+|e|)^(T−1)
        live = power > 1e-60
        product[~live] = 0
        product[live] *= factor[live] ** c
    law = np.roll(irfft(product, size), -(start % size))

    # δ′(ε) = e^(K−λε)·Σ_{y>ε} law(y)·(e^(−λ(y−ε)) − e^(−(λ+1)(y−ε))), by recursion from the right.
    points = h * (start + np.arange(size))
    chernoff = np.exp(np.minimum(total - tilt * points, WIDEST))
    ratios = math.exp(-tilt * h), math.exp(-(tilt + 1) * h)
    plain, damped = (lfilter([0, r], [1, -r], law[::-1])[::-1] for r in ratios)
    value = chernoff * (plain - damped)

    # What may be wrong, in units of the Chernoff bound: mass that left the window, noise of the
    # transforms (over Σ_{y>ε} e^(−λ(y−ε))(1 − e^(ε−y)) ≤ hump·terms), rounding of the sums.
    terms = min(size, 1 + math.e / (tilt * h))
    fuzz = 2 * float((magnitude * (growth + noise)).sum()) / size + 1e-60
    stray = 2.1 * math.exp(_STRAY) + fuzz * terms
    slip = chernoff * (stray * math.exp(_log_hump(tilt)) + 8 * UNIT * terms)
    relative = sum(2 * c * (s.kappa + 4 * UNIT * (1 + tilt * plan.span)) for s, c in steps)
    relative += 8 * UNIT * (1 + abs(total) + tilt * float(np.max(np.abs(points[[0, -1]]))))
    upper = (value + slip) * (1 + relative) + sum(c * s.above for s, c in steps)
    lost = 2 * math.exp(-failure) + sum(c * s.below for s, c in steps)
    lower = value * (1 - relative) - slip - lost
    # Hoeffding for the dots; Bernstein for the cells that rounding moved up, binomially many.
    moved, up = sum(c * s.extra for s, c in steps), sum(c * s.edge for s, c in steps)
    down = h * (math.sqrt(count * failure / 2) + moved + math.sqrt(2 * moved * failure))
    down += h * failure / 3 + count * h * h / 8 + up
    return _Curve(points, value, upper, lower, up, down)


def epsilon_of(pairs: Mapping[Loss, int], delta: float, slip: float = 0.0) -> Recheck:
    """At ``delta``, itself known to within ``slip``."""
    if (mu := _only_gaussian(pairs)) is not None:
        return gaussian_epsilon(mu, delta, slip)
    plan = _plan(pairs, math.log(delta))
    if plan.epsilon <= 0:
        plan = _plan(pairs, math.log(delta), 0.0)
    while True:
        curve = _compose(pairs, plan, math.log(delta))
        points = np.append(curve.points, math.inf)
        above = np.flatnonzero(curve.upper + slip > delta)
        upper = max(float(points[above[-1] + 1 if len(above) else 0]) + curve.up, 0.0)
        above = np.flatnonzero(curve.lower - slip >= delta)
        lower = max(float(points[above[-1]]) - curve.down, 0.0) if len(above) else 0.0
        if not 0 < upper < plan.epsilon / 2:
            break
        plan = _plan(pairs, math.log(delta), upper)  # the Rényi bound was far off: again, nearer
    value = float(np.interp(-delta, -curve.value, curve.points))
    return Recheck(min(max(value, lower), upper), upper, lower)


def delta_of(pairs: Mapping[Loss, int], epsilon: float) -> Recheck:
    if (mu := _only_gaussian(pairs)) is not None:
        value, error = _gaussian_delta(mu, epsilon)
        return Recheck(max(value, 0.0), min(value + error, 1.0), max(value - error, 0.0))
    log_delta = _plan(pairs, -WIDEST, epsilon).log_delta
    while True:
        curve = _compose(pairs, _plan(pairs, log_delta, epsilon), log_delta)
        left = np.searchsorted(curve.points, epsilon - curve.up, "right") - 1
        right = np.searchsorted(curve.points, epsilon + curve.down, "left")
        upper = min(float(curve.upper[left]), 1.0) if left >= 0 else 1.0
        lower = max(float(curve.lower[right]), 0.0) if right < len(curve.points) else 0.0
        if upper > 0.05 * math.exp(log_delta) or log_delta <= -WIDEST:
            break
        log_delta = max(math.log(upper), -WIDEST)  # the Rényi bound was far off: again, nearer
    value = float(np.interp(epsilon, curve.points, curve.value))
    return Recheck(min(max(value, lower), upper), upper, lower)
