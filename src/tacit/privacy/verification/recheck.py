"""A second accountant, on NumPy and SciPy alone, so that a claim can be checked by two routes.

Every step becomes a dominating pair; `tacit.privacy.verification.pairs` composes those, and bounds
its own errors. Searches and gamma noise, which have no such pair, are bounded from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_expit, ndtr, ndtri_exp

from tacit.exceptions import InputError
from tacit.privacy.relation import Neighbors
from tacit.privacy.verification.pairs import (
    UNIT,
    WIDEST,
    Array,
    Blend,
    Loss,
    Mixture,
    Pair,
    Recheck,
    delta_of,
    epsilon_of,
    gaussian_mu,
)

Steps = Sequence[tuple[str, Mapping[str, Any]]]

MOST_ROWS = 64  # of one unit


def epsilon(steps: Steps, delta: float, neighbors: Neighbors) -> Recheck:
    """ε of all steps together at ``delta``.

    Parameters
    ----------
    steps : sequence of (kind, parameters)
        ``("gaussian", {"noise_multiplier": z, "count": T})``, or ``"poisson-gaussian"`` with
        ``sampling_probability`` as well; z is relative to the contribution bound of one row.
        ``"selection"`` is the exponential mechanism, exp(utility/z). ``"gamma"`` has noise of
        density exp(−‖x‖/z): with it there is an upper bound only, by Rényi divergences.
        ``"iterated"`` is a pass of ``steps`` contractive steps, stopped at random.
        ``"repeated"`` is the best of a random number of trials, each of the steps of a list in
        ``trial``; with it there is an upper bound only.
        Drawn rows may have drifted: ``drift`` lists (weight, shift), and ``failure`` is the
        probability, in all ``count`` steps together, that they drifted farther. A unit may have
        several ``rows``, each drawn by itself.
        probability, in all ``count`` steps together, that they drifted farther.
        ``"parallel"`` has lists of steps in ``parts``, each on rows of its own: the worst counts.
        ``"failure"`` adds its ``probability`` to δ, ``count`` times.
    delta : float
        Between 0 and 1.
    neighbors : str
        ``"replace_special"``, ``"add_or_remove_one"`` or ``"replace_one"``.

    Examples
    --------
    >>> found = epsilon([("gaussian", {"noise_multiplier": 5.0})], 1e-5, "replace_one")
    >>> round(found.epsilon, 3)
    1.555
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1, not {delta!r}")
    cases = _cases(steps, neighbors)
    return _worst([_epsilon(plain, delta, chance, neighbors) for plain, chance in cases])


def _epsilon(steps: Steps, delta: float, chance: float, neighbors: Neighbors) -> Recheck:
    """The same of steps that are neither parallel nor failures, beside a ``chance`` to fail."""
    # Accidents of chance p in all that reveal everything make δ at least p − p²/2 + (1−p)·δ′, and
    # at most p + δ′: δ′ lies between δ − p and that plus δ·p/(1−p).
    left, slip = delta - chance, (4 * UNIT + chance / (1 - chance)) * delta if chance else 0.0
    if any(kind == "repeated" for kind, _ in steps):
        weight, shift, lists = _searches(steps, neighbors)
        if not ((left - slip) / weight > 1e-300 and shift < math.inf):
            return Recheck(math.inf, math.inf, 0.0)
        share = (left - slip) / weight
        worst = _worst([_epsilon(plain, share, 0.0, neighbors) for plain in lists])
        return Recheck(shift + worst.epsilon, (shift + worst.upper) * (1 + 4 * UNIT), 0.0)
    failure = _failure(steps)
    left, slip = left - failure, slip + (4 * UNIT * delta if failure else 0.0)
    if not left > slip:
        raise InputError(
            f"something may fail with probability {chance + failure:g}, such as a bound on drift: "
            f"delta={delta!r} is too small"
        )
    if any(kind == "gamma" for kind, _ in steps):
        log = math.log(1 / (left - slip))
        found = _renyi(steps, neighbors, lambda a, d: d + _gain(a) + log / (a - 1))
        return Recheck(max(found, 0.0), max(found, 0.0), 0.0)
    return _worst([epsilon_of(pairs, left, slip) for pairs in directions(steps, neighbors)])


def delta(steps: Steps, epsilon: float, neighbors: Neighbors) -> Recheck:
    """δ of all steps together at ``epsilon``; the rest as for `epsilon`.

    Examples
    --------
    >>> step = ("poisson-gaussian", {"noise_multiplier": 1.0, "sampling_probability": 0.5})
    >>> round(delta([step], 1.0, "replace_special").epsilon, 4)
    0.0289
    """
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon must be at least 0 and finite, not {epsilon!r}")
    found = []
    for plain, p in _cases(steps, neighbors):
        one = _delta(plain, epsilon, neighbors)
        if p:
            value, upper = (min((x + p) * (1 + 4 * UNIT), 1.0) for x in (one.epsilon, one.upper))
            # Of accidents that reveal everything at least one happens with p − p²/2 or more.
            lower = (p * (1 - p / 2) + (1 - p) * one.lower) * (1 - 4 * UNIT)
            one = Recheck(value, upper, lower)
        found.append(one)
    return _worst(found)


def _delta(steps: Steps, epsilon: float, neighbors: Neighbors) -> Recheck:
    """The same of steps that are neither parallel nor failures."""
    if any(kind == "repeated" for kind, _ in steps):
        weight, shift, lists = _searches(steps, neighbors)
        if not (epsilon >= shift and weight < math.inf):
            return Recheck(1.0, 1.0, 0.0)
        worst = _worst([_delta(plain, epsilon - shift, neighbors) for plain in lists])
        value, upper = (min(weight * x * (1 + 4 * UNIT), 1.0) for x in (worst.epsilon, worst.upper))
        return Recheck(value, upper, 0.0)
    if any(kind == "gamma" for kind, _ in steps):
        least = _renyi(steps, neighbors, lambda a, d: (a - 1) * (d + _gain(a) - epsilon))
        return Recheck(math.exp(min(least, 0.0)), math.exp(min(least, 0.0)), 0.0)
    found = _worst([delta_of(pairs, epsilon) for pairs in directions(steps, neighbors)])
    if not (failure := _failure(steps)):
        return found
    value, upper, lower = (min(x + failure, 1.0) for x in (found.epsilon, found.upper, found.lower))
    return Recheck(value, min(upper * (1 + 4 * UNIT), 1.0), lower * (1 - 4 * UNIT))


def several(steps: Steps, rows: int) -> Steps | None:
    """The same steps for a unit of so many rows, or None if these pairs do not tell.

    Noise hides a contribution that is so many times as large as through so much less noise.

    Examples
    --------
    >>> several([("gaussian", {"noise_multiplier": 4.0, "count": 9})], 2)
    [('gaussian', {'noise_multiplier': 2.0, 'count': 9})]
    """
    made: list[tuple[str, Mapping[str, Any]]] = []
    for kind, given in steps:
        if kind in ("gaussian", "selection"):
            made.append((kind, {**given, "noise_multiplier": given["noise_multiplier"] / rows}))
        elif kind == "poisson-gaussian" and rows <= MOST_ROWS:
            # Of `rows` shifts none exceeds the largest, and some exceed b with probability
            # at most `rows` times that of one.
            tail, drift = 0.0, []
            for shift, weight in sorted(((b, w) for w, b in given.get("drift", ())), reverse=True):
                beyond = min(1.0, tail + rows * weight)
                if beyond > tail:
                    drift.append([beyond - tail, rows * shift])
                tail = beyond
            more = {"drift": drift, "failure": min(1.0, rows * given.get("failure", 0.0))}
            many = rows * int(given.get("rows", 1))
            made.append((kind, {**given, **more, "rows": many}))
        elif kind == "failure" and given.get("keys"):
            made.append((kind, {**given, "probability": _passing(given, rows)}))
        else:
            return None
    return made


def _passing(given: Mapping[str, Any], rows: int) -> float:
    """Probability that any key passes a threshold which only so many rows have.

    Each of the rows brings ``keys``, every one of which may be theirs alone and have all of them.
    """
    away = float(given["room"]) - (rows - 1) * float(given["step"])
    if not away > 0:
        return 1 - UNIT
    chance = rows * int(given["keys"]) * float(ndtr(-away))
    return min(max(chance, float(given["probability"])), 1 - UNIT)


def _worst(found: Sequence[Recheck]) -> Recheck:
    rows = [(f.epsilon, f.upper, f.lower) for f in found] or [(0.0, 0.0, 0.0)]
    return Recheck(*(max(column) for column in zip(*rows, strict=True)))


# --- steps as pairs --------------------------------------------------------------------------


def _gaussian(z: float, _: float, neighbors: Neighbors) -> list[Pair]:
    return [(((1.0, (2.0 if neighbors == "replace_one" else 1.0) / z),), ((1.0, 0.0),))]


def _binomial(q: float, rows: int) -> Mixture:
    """How many of so many rows are drawn: C(k, j)·q^j·(1−q)^(k−j), computed exactly."""
    chance = Fraction(q)
    weights = [
        (float(math.comb(rows, j) * chance**j * (1 - chance) ** (rows - j)), float(j))
        for j in range(rows + 1)
    ]
    return tuple(pair for pair in weights if pair[0] > 0)


def _poisson_gaussian(z: float, q: float, neighbors: Neighbors, rows: int = 1) -> list[Pair]:
    """Add or remove: Zhu, Dong & Wang 2022, Thm 11, each order of the neighbours by itself.

    Replace: given which other rows were drawn, two mixtures (1−q)N(0) + qN(u) and
    (1−q)N(0) + qN(v) with ‖u‖, ‖v‖ ≤ 1/z; opposite u and v dominate, in both orders. Several rows
    of one unit have as many means, up to j/z if j of them are drawn, each as far off as it can be.
    """
    if neighbors == "replace_one":
        return [_apart(z, q, 0.0, rows)]
    null = ((1.0, 0.0),)
    up = tuple((weight, j / z) for weight, j in _binomial(q, rows))
    down = tuple((weight, -mean) for weight, mean in up)
    return [(up, null), (null, down)]  # "remove"; "add", reflected so that the loss increases


def _apart(z: float, q: float, b: float, rows: int) -> Pair:
    """Rows replaced, and the sums over all others b apart, as far as they can be.

    Seen from half-way between these sums, no mean of the one mixture, and none of the other, is
    farther than b/2 or, with j replaced rows, j + b/2: opposite directions dominate.
    """
    up = tuple((weight, (j + b / 2) / z) for weight, j in _binomial(q, rows))
    return up, tuple((weight, -mean) for weight, mean in up)


def _drifted(z: float, q: float, shifts: Mixture, rows: int) -> Loss:
    """Replace, where sums over the other rows lie up to b apart, b by the draw of those rows."""
    if not shifts[-1][1] / z <= WIDEST:  # squares would overflow
        raise InputError("rows drift beyond 600 noises: far too little noise for a recheck")
    parts = tuple((weight, _apart(z, q, b, rows)) for weight, b in shifts)
    return Blend(parts) if len(parts) > 1 else parts[0][1]


def _iterated(z: float, steps: int, neighbors: Neighbors) -> Loss:
    """The first row of a pass, k steps behind which its trace has been through noise of √k·z.

    Each k of 1 … steps is as likely as any other, and may be known. Many are taken for a smaller.
    """
    if steps < 1 or steps > 10**12:
        raise InputError(f"a pass of {steps} steps cannot be checked")
    apart = (2.0 if neighbors == "replace_one" else 1.0) / z
    firsts = sorted({math.floor(k) for k in np.geomspace(1, steps, 80).tolist()})
    nexts = [*firsts[1:], steps + 1]
    parts = tuple(
        ((after - k) / steps, (((1.0, apart / math.sqrt(k)),), ((1.0, 0.0),)))
        for k, after in zip(firsts, nexts, strict=True)
    )
    return Blend(parts) if len(parts) > 1 else parts[0][1]


def _selection(beta: float, _: float, neighbors: Neighbors) -> list[Pair]:
    """Exponents that move by r at most: as hard as N(0, 1) against N(2·Φ⁻¹(p), 1), logit p = r."""
    reach = (2.0 if neighbors == "replace_one" else 1.0) / beta
    return [(((1.0, -2 * float(ndtri_exp(log_expit(-reach)))),), ((1.0, 0.0),))]


_PAIRS: Mapping[str, Callable[[float, float, str], list[Pair]]] = {
    "gaussian": _gaussian,
    "selection": _selection,
}
_NEIGHBORS = ("replace_special", "add_or_remove_one", "replace_one")


def _failure(steps: Steps) -> float:
    """Probability that the rows of any step drifted farther than it says."""
    chances = [float(given.get("failure", 0.0)) for _, given in steps]
    if not all(0 <= chance < 1 for chance in chances):
        raise InputError(f"failure must be a probability below one, not {chances}")
    return math.fsum(chances)


def _shifts(given: Mapping[str, Any]) -> Mixture:
    """(weight, shift) by shift; what rounding made the weights lack goes to the last, largest."""
    pairs = sorted((float(shift), float(weight)) for weight, shift in given.get("drift", ()))
    if not pairs:
        return ((1.0, 0.0),)
    total = math.fsum(weight for _, weight in pairs)
    if not (
        abs(total - 1) <= 1e-12
        and all(0 < weight <= 1 and 0 <= shift < math.inf for shift, weight in pairs)
    ):
        raise InputError("drift needs weights that sum to one, and finite shifts from 0")
    *others, (largest, weight) = pairs
    weight = max(weight, 1 - math.fsum(weight for _, weight in others))
    return (*((weight, shift) for shift, weight in others), (weight, largest))


def _losses(kind: str, given: Mapping[str, Any], neighbors: Neighbors) -> tuple[list[Loss], int]:
    """What a step loses, in either order of the neighbours, and how often it is taken."""
    if kind == "iterated":
        z, count = float(given.get("noise_multiplier", 0)), int(given.get("count", 1))
        if not (0 < z < math.inf and count > 0):
            raise InputError(f"{kind} with {dict(given)}: needs noise_multiplier > 0, count >= 1")
        return [_iterated(z, int(given.get("steps", 1)), neighbors)], count
    if kind not in _PAIRS and kind != "poisson-gaussian":
        known = ", ".join((*_PAIRS, "poisson-gaussian"))
        raise InputError(f"unknown kind of step {kind!r}; known are {known}")
    z, count = float(given.get("noise_multiplier", 0)), int(given.get("count", 1))
    q = float(given.get("sampling_probability", 0.0 if kind == "poisson-gaussian" else 1.0))
    if not (0 < z < math.inf and 0 < q <= 1 and count == given.get("count", 1) and count > 0):
        raise InputError(
            f"{kind} with {dict(given)}: needs noise_multiplier > 0, a whole count >= 1 and, "
            "if rows are drawn, 0 < sampling_probability <= 1"
        )
    shifts, rows = _shifts(given), given.get("rows", 1)
    if not (isinstance(rows, int) and 1 <= rows <= MOST_ROWS):
        raise InputError(f"rows={rows!r:.80}: a unit of 1 to {MOST_ROWS} rows can be checked")
    if shifts[-1][1] == 0 and not given.get("failure"):
        if kind == "poisson-gaussian":
            return list(_poisson_gaussian(z, q, neighbors, rows)), count
        return list(_PAIRS[kind](z, q, neighbors)), count
    if kind != "poisson-gaussian" or neighbors != "replace_one":
        raise InputError("drift is checked for drawn rows and neighbors='replace_one' only")
    return [_drifted(z, q, shifts, rows)], count


def directions(steps: Steps, neighbors: Neighbors) -> list[dict[Loss, int]]:
    """Losses and their counts, for each order of the neighbours that has a curve of its own."""
    if neighbors not in _NEIGHBORS:
        raise InputError(f"neighbors={neighbors!r}: choose one of {', '.join(_NEIGHBORS)}")
    totals: list[dict[Loss, int]] = [{}, {}]
    squares: list[float] = []
    for kind, given in steps:
        losses, count = _losses(kind, given, neighbors)
        if (mu := gaussian_mu(losses[0])) is not None:  # they compose exactly: μ² = Σ μᵢ²
            squares.append(count * mu**2)
            continue
        for total, loss in zip(totals, (losses[0], losses[-1]), strict=True):
            total[loss] = total.get(loss, 0) + count
    if squares:
        whole: Pair = (((1.0, math.sqrt(math.fsum(squares))),), ((1.0, 0.0),))
        totals = [{whole: 1, **total} for total in totals]
    return [total for i, total in enumerate(totals) if total and total not in totals[:i]]


# --- parallel parts and failures ---------------------------------------------------------------


def _cases(steps: Steps, neighbors: Neighbors) -> list[tuple[Steps, float]]:
    """Plain steps, and a chance to fail, for every part that the odd row may be in.

    A row is in one part of each split, and what is computed from the other parts is the same
    whatever it is. So each of these is what some pair of neighbours may see, at worst.
    """
    plain: list[Any] = []
    chance = 0.0
    splits: dict[tuple[str, ...], tuple[list[Any], int]] = {}
    for kind, given in steps:
        if kind not in ("parallel", "failure"):
            plain.append((kind, given))
            continue
        count = int(given.get("count", 1))
        if not (count > 0 and count == given.get("count", 1)):
            raise InputError(f"{kind} needs a whole count of at least 1")
        if kind == "parallel":
            parts = [[(e["kind"], dict(e["parameters"])) for e in part] for part in given["parts"]]
            if not parts or any(name == "parallel" for part in parts for name, _ in part):
                raise InputError("a split has parts, which are not split again")
            unlike = {repr(part): part for part in _worst_trials(parts, neighbors)}
            before = splits.get(tuple(unlike), ([], 0))[1]
            splits[tuple(unlike)] = list(unlike.values()), before + count
            continue
        probability = float(given["probability"])
        if not 0 <= probability < 1:
            raise InputError(f"a failure has a probability below one, not {probability!r}")
        chance += count * probability
    cases = [(plain, chance)]
    for parts, count in splits.values():
        cases = [
            ([*others, *rest], chance + p)
            for others, chance in cases
            for taken in _drawn(parts, count, 32 // len(cases))
            for rest, p in _cases(taken, neighbors)
        ]
    if not all(chance < 1 for _, chance in cases):
        raise InputError("something fails for certain")
    return list(cases)


def _repeated(steps: Sequence[Any], count: int) -> list[Any]:
    """Steps, so many times as often. The chance that drift fails to hold is of all of them."""
    more = []
    for kind, given in steps:
        now = {**given, "count": int(given.get("count", 1)) * count}
        if "failure" in given:
            now["failure"] = min(float(given["failure"]) * count * (1 + 4 * UNIT), 1 - UNIT)
        more.append((kind, now))
    return more


def _drawn(lists: Sequence[Any], count: int, most: int) -> list[list[Any]]:
    """What drawing one list ``count`` times, each time anew, may come to, in whatever order."""
    if len(lists) == 1:
        return [_repeated(lists[0], count)]
    found: list[list[Any]] = []
    for k in range(count + 1):  # of the first; the others share the rest
        if max(count, len(found)) > most:
            raise InputError("so many unlike settings or parts cannot be checked")
        first = _repeated(lists[0], k) if k else []
        rest = _drawn(lists[1:], count - k, most) if count > k else [[]]
        found += [[*first, *others] for others in rest]
    return found


# --- the best of a random number of trials --------------------------------------------------


def _searches(steps: Steps, neighbors: Neighbors) -> tuple[float, float, list[Steps]]:
    """Expected trials, what comparing them adds to ε, and the steps with one trial of each search.

    An outcome that a trial beats with chance s, or s′ for a neighbour, is released with a density
    of g(s) times the trial's, g decreasing from g(0), the expected number of trials. The ratio
    g(s)/g(s′) is largest for the largest s′, which is at most min over x of e^x·s + δ(x).
    """
    weight, shift = 1.0, 0.0
    lists: list[Steps] = [[]]
    for kind, given in steps:
        if kind != "repeated":
            lists = [[*plain, (kind, given)] for plain in lists]
            continue
        count, rate = int(given.get("count", 1)), float(given["rate"])
        trials = [[(e["kind"], dict(e["parameters"])) for e in trial] for trial in given["trial"]]
        if any(name == "repeated" for trial in trials for name, _ in trial) or not trials:
            raise InputError("a trial has steps, and no trials of its own")
        trials = _worst_trials(trials, neighbors)
        only_gaussian = all(name in ("gaussian", "selection") for t in trials for name, _ in t)
        known: dict[float, float] = {}

        def exceeds(x: float, known: dict[float, float] = known, trials: Any = trials) -> float:
            if x not in known:
                known[x] = max(_delta(trial, x, neighbors).upper for trial in trials)
            return known[x]

        if given["distribution"] == "poisson":  # λe^(−λs)/(1 − e^−λ)
            if not 0 < rate < 1e4:
                raise InputError(f"a rate of {rate!r} cannot be checked")
            many, more = rate / (1 - math.exp(-rate)), rate * exceeds(0.0)
        elif given["distribution"] == "negative-binomial":  # ∝ (γ + (1−γ)s)^(−1−η)
            eta = float(given["shape"])
            if not (0 < rate <= 1 and -1 < eta < 1e3):
                raise InputError(f"a rate of {rate!r} and a shape of {eta!r} cannot be checked")
            many = _expected(rate, eta)
            more = (1 + eta) * _crossing(exceeds, rate, 1e-13 if only_gaussian else 1e-4)
        else:
            raise InputError(f"unknown numbers of trials: {given['distribution']!r:.80}")
        power = count * math.log(max(many * (1 + 1e-11), 1.0))
        weight *= math.exp(power) if power < WIDEST else math.inf
        shift += count * more * (1 + 1e-11)
        again = _drawn(trials, count, 32 // len(lists))
        lists = [[*plain, *trial] for plain in lists for trial in again]
    return weight, shift, lists


def _worst_trials(trials: list[list[Any]], neighbors: Neighbors) -> list[list[Any]]:
    """Of the trials of Gaussian noise only that with the largest Σ count·μ², and all others."""
    kept, worst, most = [], None, -1.0
    for trial in trials:
        square = 0.0
        for kind, given in trial:
            other = kind in ("gamma", "repeated", "failure")
            (loss, *_), count = ([None], 1) if other else _losses(kind, given, neighbors)
            mu = None if loss is None else gaussian_mu(loss)
            square += math.inf if mu is None else count * mu**2
        if square == math.inf:
            kept.append(trial)
        elif square > most:
            worst, most = trial, square
    return kept if worst is None else [*kept, worst]


def _expected(rate: float, eta: float) -> float:
    """η(1−γ)/(γ(1−γ^η)) as 1/γ over the mean of γ^(ηu)·(−ln γ)/(1−γ), u uniform; series near 1."""
    if rate == 1:
        return 1.0
    log = -math.log(rate)
    power = eta * log
    mean = (1 - math.exp(-power)) / power if abs(power) > 1e-4 else 1 - power / 2 + power**2 / 6
    return (1 - rate) / (rate * log * mean)


def _crossing(exceeds: Callable[[float], float], rate: float, precision: float) -> float:
    """The least x, rounded up, with (1−γ)·δ(x) ≤ γ·(e^x − 1)."""
    if rate == 1:
        return 0.0

    def enough(x: float) -> bool:
        return (1 - rate) * exceeds(x) * (1 + 1e-12) <= rate * math.expm1(x)

    def side(x: float) -> float:
        spent = max(exceeds(x), 1e-300)
        return math.log(rate * math.expm1(x)) - math.log((1 - rate) * spent)

    # δ falls in x, so that e^x − 1 at the crossing is at most (1−γ)·δ(0)/γ.
    high = math.log1p((1 - rate) / rate * exceeds(0.0)) * (1 + 1e-9) + 1e-12
    if high > WIDEST:
        return math.inf
    found = high
    if side(high) > 0 > side(high * 1e-6):
        found = float(brentq(side, high * 1e-6, high, xtol=precision * high, rtol=1e-13))
    while not enough(found):
        found *= 1 + precision
        if found > WIDEST:
            return math.inf
    return found


# --- gamma noise: Rényi divergences, order by order ------------------------------------------


def _gain(order: float) -> float:
    """What ln(1/δ)/(α−1) is too much by (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    return math.log((order - 1) / order) - math.log(order) / (order - 1)


def _renyi(steps: Steps, neighbors: Neighbors, bound: Callable[[float, float], float]) -> float:
    """The least ``bound`` of an order and the divergence there, by ever finer grids of orders.

    A step's loss is at most ε: randomised response is the worst. Its divergence is taken as the
    mean of e^((α−1)·loss) over the two outcomes.
    """
    if neighbors not in _NEIGHBORS:
        raise InputError(f"neighbors={neighbors!r}: choose one of {', '.join(_NEIGHBORS)}")
    square, gamma = 0.0, []
    for kind, given in steps:
        z, count = float(given.get("noise_multiplier", 0)), int(given.get("count", 1))
        q = float(given.get("sampling_probability", 1.0))
        if not (0 < z < math.inf and 0 < q <= 1 and count > 0):
            raise InputError(f"{kind} with {dict(given)}: no such step")
        if kind != "gamma":
            (loss, *_), _ = _losses(kind, given, neighbors)
            if (mu := gaussian_mu(loss)) is None:
                raise InputError("gamma noise beside sampled Gaussian noise cannot be checked")
            square += count * mu**2
            continue
        if not 1 / z <= WIDEST:
            raise InputError("privacy losses beyond 600: far too little noise for a recheck")
        most, least = 1 - q + q * math.exp(1 / z), 1 - q + q * math.exp(-1 / z)
        pure = math.log(most / least) if neighbors == "replace_one" else math.log(most)
        gamma.append((count, pure * (1 + 16 * UNIT) + 4 * UNIT))

    def at(log_order: Array) -> Array:
        excess = np.exp(log_order)
        total = (1 + excess) * square / 2
        for count, pure in gamma:
            up, down = -math.log1p(math.exp(-pure)), -math.log1p(math.exp(pure))
            mean = np.logaddexp(up + excess * pure, down - excess * pure)
            total = total + count * np.minimum(mean / excess + 1e-14, pure)
        return np.array([bound(1 + a, float(d)) for a, d in zip(excess, total, strict=True)])

    low, high, best = math.log(1e-3), math.log(1e6), math.inf
    for _ in range(6):
        grid = np.linspace(low, high, 201)
        values = at(grid)
        middle = int(np.argmin(values))
        best = min(best, float(values[middle]))
        low, high = grid[max(middle - 1, 0)], grid[min(middle + 1, 200)]
    return best + 1e-12 * (1 + abs(best))
