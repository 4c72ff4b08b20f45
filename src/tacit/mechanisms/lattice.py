"""What noise on a lattice costs: the accounting of the discrete Gaussian.

A sum of integers with discrete Gaussian noise is accounted as a real sum with
continuous Gaussian noise, slightly smaller: `sigma_for` says what to draw,
`numerical_delta` what the sampler's own error adds to δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tacit.exceptions import BudgetError, InputError
from tacit.mechanisms import discrete_gaussian as dg
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event

_SMALLEST_SIGMA = 64.0
KAPPA = 2.0**-255  # bounds κ(3) = 2·Σ exp(-18π²j²) over j >= 1


def inclusion_threshold(probability: float) -> int:
    """Return ceil(probability·2^64), exactly."""
    if not 0.0 <= probability <= 1.0:
        raise InputError(f"probability is {probability!r}; pass a number from 0 to 1.")
    return math.ceil(Fraction(float(probability)) * 2**64)


def accounted_probability(q: float) -> float:
    """Return the probability with which a Poisson sample includes a row, rounded up.

    Parameters
    ----------
    q : float
        The probability asked for.

    Returns
    -------
    float
        At least ceil(q·2^64)/2^64; equal to q from 2^-12 on.

    Examples
    --------
    >>> accounted_probability(0.01)
    0.01
    """
    exact = Fraction(inclusion_threshold(q), 2**64)
    rounded = float(exact)
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, 1.0)


def accounted_sigma(sigma: float) -> float:
    """Return the continuous Gaussian that an accountant may put in place of the discrete one.

    The discrete Gaussian has the zCDP parameter of the continuous one with the same σ (Canonne,
    Kamath and Steinke 2020, Theorem 4), but not its privacy profile. This reduction is for
    accountants that use the profile, such as Gaussian DP and privacy loss distributions.

    Parameters
    ----------
    sigma : float
        In lattice units, at least 64.

    Returns
    -------
    float
        sqrt(σ² - 9), rounded down.

    Notes
    -----
    Let S be an integer vector and σ² = σ₀² + s². Draw y from N(S, σ₀²I) and round each coordinate
    to the integer k with probability proportional to exp(-(k - y)²/2s²). By Poisson summation the
    normaliser of that step is s√(2π) times a number in [1 - κ, 1 + κ], where
    κ = 2·Σ exp(-2π²s²j²) over j >= 1; without it, the integral over y is exactly
    exp(-(k - S)²/2σ²)/(σ√(2π)), and σ√(2π) is the normaliser of the discrete Gaussian up to a
    factor in [1, 1 + κ(σ)], where κ(σ) is far below κ. So the result has the probabilities of S
    plus a discrete Gaussian of scale σ up to factors exp(±2κ) per coordinate, whatever S is, and
    is a post-processing of the continuous mechanism with σ₀. This holds pointwise, hence also
    under adaptive choice of the steps and subsampling. At s = 3, κ < 2^-255;
    :func:`numerical_delta` charges for it.

    Examples
    --------
    >>> accounted_sigma(1000.0)
    999.9954999898749
    """
    _check_sigma(sigma)
    exact = Fraction(float(sigma)) ** 2 - 9
    rounded = math.sqrt((sigma - 3.0) * (sigma + 3.0))
    while Fraction(rounded) ** 2 <= exact:
        rounded = math.nextafter(rounded, math.inf)
    while Fraction(rounded) ** 2 > exact:
        rounded = math.nextafter(rounded, 0.0)
    return rounded


@lru_cache(maxsize=64)  # a run asks for the same in every step
def sigma_for(sigma_accounted: float) -> float:
    """Return the least σ to draw with, in lattice units, for a σ that was accounted for.

    Parameters
    ----------
    sigma_accounted : float
        The scale of the continuous Gaussian in the accounting, in lattice units.

    Returns
    -------
    float
        The least float with ``accounted_sigma(sigma) >= sigma_accounted``.

    Examples
    --------
    >>> accounted_sigma(sigma_for(500.0)) >= 500.0
    True
    """
    if not 0.0 < sigma_accounted < dg.SIGMA_LIMIT:
        _check_sigma(sigma_accounted)
    sigma = math.hypot(sigma_accounted, 3.0)
    exact = Fraction(float(sigma_accounted)) ** 2 + 9
    while Fraction(sigma) ** 2 >= exact:
        sigma = math.nextafter(sigma, 0.0)
    while Fraction(sigma) ** 2 < exact:
        sigma = math.nextafter(sigma, math.inf)
    _check_sigma(sigma)
    return sigma


def _check_sigma(sigma: float) -> None:
    if not _SMALLEST_SIGMA <= sigma < dg.SIGMA_LIMIT:
        raise InputError(
            f"sigma is {sigma!r} lattice units; it must be at least 64 and below 2^58. The "
            "accounting gives away 9 units of variance, which a small sigma cannot spare: choose "
            "a finer lattice (or, above 2^58, a coarser one)."
        )


def numerical_delta(draws: int, epsilon: float) -> float:
    """Return what finite precision adds to δ, when accounting with :func:`accounted_sigma`.

    Parameters
    ----------
    draws : int
        Discrete Gaussians in the whole release: coordinates times steps.
    epsilon : float
        The ε at which δ is stated.

    Returns
    -------
    float
        At least (1 + e^ε)·draws·2^-180 plus the charge of the lattice, at most 1; 0 for no draws.

    Notes
    -----
    *Sampler.* m draws are within total variation τ = m·2^-180 of exact ones, which costs
    (1 + e^ε)·τ.

    *Lattice.* Probabilities differ by factors exp(±2mκ) from those of a mechanism with
    (ε, δ₀(ε)), so the release has (ε + 4mκ, e^(2mκ)·δ₀(ε)). Back at ε this is at most
    δ₀ + (e^(2mκ) - 1) + e^ε·(e^(4mκ) - 1), below δ₀ + (1 + e^ε)·8mκ while 4mκ < 1.

    *AES.* The computational term is not in here; see `tacit.mechanisms.random_streams`.

    Examples
    --------
    >>> numerical_delta(10**9, 1.0) < 1e-44
    True
    """
    if draws < 0:
        raise InputError(f"draws is {draws!r}; pass an integer from 0.")
    if not epsilon >= 0.0:
        raise InputError(f"epsilon is {epsilon!r}; pass a number that is at least 0.")
    if draws == 0:
        return 0.0
    if epsilon > 700.0:  # e^ε would overflow, and the bound is far above 1
        return 1.0
    bound = (1.0 + math.exp(epsilon)) * draws * (dg.TOTAL_VARIATION + 8.0 * KAPPA)
    return min(1.0, bound * (1.0 + 2.0**-40))  # more than all roundings above


def sampler_delta(draws: int, spent: Sequence[tuple[str, Event]], budget: Budget) -> float | None:
    """`numerical_delta`, where a certificate has to tell it from what a grid may get wrong.

    Parameters
    ----------
    draws : int
        Discrete Gaussians in the whole release.
    spent : sequence of (str, Event)
        All that was counted.
    budget : Budget
        At whose ε.

    Returns
    -------
    float or None
        None where no event is counted on a grid.

    Examples
    --------
    >>> from tacit.privacy import Budget, Gaussian
    >>> sampler_delta(1000, [("Mean", Gaussian(9.0))], Budget(1.0, 1e-6)) is None
    True
    """
    if not any(event.sampled for _, event in spent):
        return None
    return numerical_delta(draws, budget.epsilon)


def require_precision(
    epsilon: float, delta: float, draws: int, *, grid: float = 0.0, ideal: bool = False
) -> float:
    """Return what finite precision takes from δ, or say which budget would leave something of it.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    draws : int
        As for `numerical_delta`.
    grid : float
        What the accountant's grid takes from δ besides.
    ideal : bool
        Whether there is a way without it: ``arithmetic="fast"``.

    Examples
    --------
    >>> require_precision(1.0, 1e-6, 1000) < 1e-50
    True
    """
    taken = numerical_delta(draws, epsilon) + grid
    if taken < delta:
        return taken
    # The ε that would leave half of δ to the events. Below 1 it is δ that is too small.
    most = math.log(max((delta - grid) / 2, 1e-300) / max(numerical_delta(draws, 1.0), 1e-300)) + 1
    if grid >= delta or most < 1:
        full = ", or train on full batches" if grid else ""
        raise BudgetError(
            f"delta={delta:g} is below what can be computed for this plan, {taken:.3g}: raise "
            f"delta{full}"
        )
    other = ", or pass arithmetic='fast', which assumes ideal arithmetic" if ideal else ""
    raise BudgetError(
        f"epsilon={epsilon:g} is too large: what finite precision adds to delta is multiplied by "
        f"e^epsilon, and would exceed delta={delta:g}. Pass epsilon up to {math.floor(most)}{other}"
    )
