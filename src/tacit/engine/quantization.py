r"""Integers for exact sums: the public scales, the clipping rule, and why they hold.

A row is an integer vector x in units of ``s_x``, its clipped residual an
integer vector z in units of ``s_z``, and a gradient sum is the integer matrix
:math:`\sum_i x_i z_i^T` in units of the lattice ``g = s_x s_z``. All units are
powers of two and public: they depend on the norm bound, on the clipping bound C
and on the shapes, never on the rows.

**One row counts for at most C, without slack.** Write ``T = C / (g |x|)`` with
the exact integer norm of the stored row, whatever bound was promised for it,
and K for the outputs. The residual r is scaled to a vector v of norm at most

    t = (1 - 2**-40) max(0, T - sqrt(K) / 2)

and z = rint(v). Rounding moves a coordinate by at most 1/2, so |z| <= |v| +
sqrt(K) / 2. The computed |v| exceeds the real t by a relative error of at most
(K + 16) units of 2**-53, which come from ``|r|`` (a sum of K squares, a root),
1 / |x| (two roundings), T, t, the quotient t / |r| and the product; since T >=
2 sqrt(K) is enforced, the difference T - sqrt(K) / 2 at most doubles those made
before it. For K <= `MAX_OUTPUTS` the total is below the factor's 2**-40. Hence
|z| <= T and |x z^T| = |x| |z| <= C / g, in exact arithmetic. A residual so small
that its square underflows is below 2**-500 and becomes z = 0, because 1 / s_z <
2**200 by the ranges enforced here. With ``per_class`` (and for K = 1) each
coordinate is limited by itself to C / sqrt(K), with the allowance 1/2.

**Every product is exact.** Terms and partial sums are integers below 2**53, so
any order, blocking, fused multiply or number of threads gives the same values.
Forward, Cauchy-Schwarz bounds the sum of magnitudes by |x| |w| <= 2**28 2**16,
where d <= `MAX_FEATURES` bounds |x| for every row that fits the integer type,
and w is rounded to a grid on which its norm is below 2**16. Backward, over at
most `LATTICE_ROWS` rows, by sum |x_i| |z_i| <= LATTICE_ROWS C / g <= 2**52.
Larger sums are taken in 64-bit integers, which
cannot wrap below 2**24 rows; beyond that a wrap would still be the reduction
modulo 2**64 of the ideal sum, a function of the released value alone.

**Two parts of a row, each clipped by itself.** An engine may split the columns in two. Write x_p
for a part of the row, C_p for its clipping bound, and give each part a lattice g_p = s_x s_p and
multipliers z_p of its own, found from the same residual. With |x_p|, C_p and g_p in place of |x|,
C and g the argument above holds word for word: |x_p z_p^T| <= C_p / g_p, and the backward product
of a part, over its own columns, has terms of magnitude LATTICE_ROWS C_p / g_p <= 2**52 in sum. The
integer norm |x_p| is exact and at most |x|, so T is still large enough; the forward product is one
and takes the whole row.

**Sixteen bits.** Dense rows may be multiplied in integers of 16 bits that are added up in 32.
Weights are rounded to a grid on which |x| |w| < 2**31 where |x| is at most `Scale.longest`, which
the promised bound implies; a dense row that is longer is shortened when it is read. So a score, and
every partial sum of it, fits 32 bits; the float64 products of other rows have all the more room.
The grid is that of public weights and does not depend on the rows, not even on their number: scores
are off by about 2**-16 |x| |w|, less than the noise in the weights by far. A multiplier is split in
two, z = 2**13 h + l with |l| <= 2**12. Write m for the larger of |h| and |l| over all outputs of a
row, and p for the largest magnitude of a feature in it. Products of features and parts are added up
in 32 bits over as many rows as the sum of m p stays below 2**31, which at least two do; 64-bit
integers take in the rest. Where h has more than 16 bits (a short row with a large residual), the
row is added in 64 bits by itself. Magnitudes of rows so decide about the *order* of exact
additions, and about nothing else.

**Several rows of one person** may oppose each other, so that each is far longer than what they add
up to. `tacit.engine.people` clips their sum, and has the proof.

**Rows that move with their neighbours' rows** (after a noiseless stage) must not be rounded to
integers: rounding is discontinuous, and every row might jump by a unit. Their sums are taken in
float64 ("rounded" arithmetic) and rounded at the end; `rounding_error` bounds how far that lies
from the ideal sum, and twice as much is added to the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.exceptions import InputError
from tacit.mechanisms.additive import squared_norm

LATTICE_ROWS = 1 << 13  # rows whose sum stays exact in float64; part of the lattice's definition
FEATURE_BITS = 15  # int16 features
FEATURE_MAX = (1 << FEATURE_BITS) - 1
EXACT_BITS = 52  # one bit below the exact integers of float64, for rounding of the weights
MAX_OUTPUTS = 4000
MAX_FEATURES = 1 << 22  # exact norms: MAX_FEATURES * 2**30 is below 2**53
LIMIT = 2.0**60  # bounds, clips, scores and targets stay within: no overflow, no underflow
SHRINK = {"exact": 1.0 - 2.0**-40, "rounded": 1.0 - 2.0**-40, "fast": 1.0 - 2.0**-16}
TINY = {"exact": 2.0**-500, "rounded": 2.0**-500, "fast": 2.0**-100}
#: What rows, scores and multipliers are computed in, where they are not exact integers.
FLOAT = {"rounded": np.float64, "fast": np.float32}
ROUNDED_BITS = 36  # float64 sums are rounded to multiples of about clip * 2**-36
ROUNDED_ROWS = 1 << 26  # so that they fit 64-bit integers


def rounding_error(
    clip: float, *, n: int, d: int, outputs: int, reach: float, curvature: float
) -> float:
    """How far a sum in "rounded" arithmetic may lie from the ideal one, in norm.

    With u = 2**-53: scores are off by (d + 8) u |theta| |x| for any order of summation (Higham
    2002, section 3.1), residuals by ``curvature`` times that, and clipping by a few u for each of
    the K outputs and d features, whose squares are summed. A sum of at most `LATTICE_ROWS` rows in
    float64, then over blocks, loses (rows + blocks) u of the sum of norms, which is at most n C.
    The result is rounded to multiples of C 2**-36 (at most twice that) in d K coordinates.

    Parameters
    ----------
    reach : float
        Bound on ``|theta| |x|``, times the norm bound of the rows.
    curvature : float
        Smoothness of the loss in the scores.
    """
    unit = 2.0**-53
    row = curvature * (d + 8) * unit * reach + (8 * (outputs + 16) + 2 * d) * unit * clip
    total = (LATTICE_ROWS + n / LATTICE_ROWS + 64) * unit * n * clip
    lattice = math.sqrt(d * outputs) * clip * 2.0 ** -(ROUNDED_BITS - 1) / 2
    return 2 * (n * row + total + lattice)


def ceil_log2(value: float) -> int:
    """Least e with 2**e >= value > 0, without the rounding of a logarithm."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else exponent


def check_range(name: str, value: float) -> float:
    """A positive public size that keeps every later quantity in range."""
    if not 1 / LIMIT <= value <= LIMIT:
        raise InputError(f"{name} is {value}; it must be a positive number within 2**-60 and 2**60")
    return float(value)


@dataclass(frozen=True)
class Scale:
    """Units of the stored rows.

    Attributes
    ----------
    bound : float
        Power of two that clamps every feature.
    unit : float
        Size of one integer step of a feature, ``bound * 2**-15``.
    radius : int
        log2 of a bound on the integer norm of any row that can be stored.
    span : float
        Norm that the integer weights of an output stay below.
    longest : float
        Integer norm that dense rows are shortened to; infinite in floating point.
    """

    bound: float
    unit: float
    radius: int
    span: float
    longest: float = math.inf

    @classmethod
    def of(
        cls,
        bound: float,
        d: int,
        shift: np.ndarray | None,
        intercept: float,
        *,
        exact: bool = True,
    ) -> Scale:
        """Units for rows of d columns, the intercept's among them, as integers or as numbers."""
        if d > MAX_FEATURES:
            raise InputError(f"rows of {d} features are too wide; at most {MAX_FEATURES}")
        norm = 0.0 if shift is None else math.sqrt(squared_norm(shift))
        promised = check_range("the norm bound", bound + norm)
        bound = 2.0 ** ceil_log2(max(promised, intercept))
        unit = math.ldexp(bound, -FEATURE_BITS)
        # Features are clamped one by one. An implicit shift comes on top of that; rounding
        # adds at most half a unit per feature to it.
        moved = norm / unit * (1 + 2.0**-40) + math.sqrt(d)
        radius = ceil_log2(math.sqrt(d) * 2.0**FEATURE_BITS + moved)
        if not exact:
            return cls(bound, unit, radius, math.inf)
        # A promise holds up to rounding in whatever precision; so do features and weights.
        half = math.sqrt(d) / 2
        longest = math.hypot(promised / unit * (1 + 2.0**-10) + half, intercept / unit + 1)
        span = min(2.0**31 / longest - half, 2.0**FEATURE_BITS - 1) * (1 - 2.0**-10)
        return cls(bound, unit, radius, span, longest)

    def integers(self, values: np.ndarray) -> np.ndarray:
        """Clamped integer features, in floating point; elementwise, so a row decides its own.

        A new array; ``values`` is kept.
        """
        if not np.isfinite(values).all():
            raise InputError("rows contain NaN or infinity after the stages")
        # A quotient by a power of two is exact in single precision, too, or far out of range.
        single = values.dtype == np.float32
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.divide(values, self.unit, dtype=np.float32 if single else np.float64)
        np.clip(scaled, -FEATURE_MAX, FEATURE_MAX, out=scaled)
        return np.rint(scaled, out=scaled)

    def floats(self, values: np.ndarray) -> np.ndarray:
        """Clamped features for arithmetic in floating point."""
        if not np.isfinite(values).all():
            raise InputError("rows contain NaN or infinity after the stages")
        return np.clip(values, -self.bound, self.bound)


@dataclass(frozen=True)
class Weights:
    """Weights of one step as columns (S*K, d), rounded to their public grid.

    Attributes
    ----------
    columns : ndarray
        Integers in float64 (exact), or the weights in floating point.
    unit : ndarray of shape (S*K, 1)
        Power of two: a row's integers times ``columns`` times ``unit`` are its scores.
    """

    columns: np.ndarray
    unit: np.ndarray

    @classmethod
    def of(cls, weights: np.ndarray, scale: Scale, arithmetic: str) -> Weights:
        settings, d, outputs = weights.shape
        columns = weights.transpose(0, 2, 1).reshape(settings * outputs, d)
        with np.errstate(over="ignore"):  # found by the next check
            norms = np.sqrt(np.add.reduce(np.square(columns), axis=1, keepdims=True))
        # The rows can be no longer than this, so scores stay in range. NaN fails as well.
        reach = math.ldexp(scale.unit, scale.radius)
        if not (norms * reach <= LIMIT).all():
            raise InputError(
                f"weights of norm {norms.max()} are not finite or too large for rows of norm "
                f"{reach:.3g}; training diverged: lower the learning rate"
            )
        if arithmetic != "exact":
            kind = FLOAT[arithmetic]
            return cls(columns.astype(kind), np.ones_like(norms, dtype=kind))
        # norm < span 2**exponent, rounding included
        exponent = np.frexp(np.maximum(norms, 2.0**-401) * (1 + 2.0**-40) / scale.span)[1]
        integers = columns * np.ldexp(1.0, -exponent)  # exact
        np.rint(integers, out=integers)
        return cls(integers, np.ldexp(scale.unit, exponent))


@dataclass(frozen=True)
class Clipping:
    """Turns residuals into clipped multipliers of the rows, one setting per axis 0.

    Attributes
    ----------
    lattice : ndarray of shape (S,)
        Spacing g of the sums; 1 in fast arithmetic.
    ceiling : ndarray of shape (S, 1)
        C / g, or C / (g sqrt(K)) where each output is clipped by itself.
    multiplier : ndarray of shape (S, 1)
        1 / s_z: what an unclipped residual is multiplied by.
    allowance : float
        What rounding to integers can add to a norm; 0 in floating point.
    separate : bool
        Whether each output is clipped by itself.
    arithmetic : str
        ``"exact"`` rounds to integers.
    clip : ndarray of shape (S,)
        C, the norm that no gradient exceeds.
    """

    lattice: np.ndarray
    ceiling: np.ndarray
    multiplier: np.ndarray
    allowance: float
    separate: bool
    arithmetic: str
    clip: np.ndarray

    @classmethod
    def of(
        cls,
        clip: np.ndarray,
        outputs: int,
        scale: Scale,
        arithmetic: str,
        per_class: bool,
        *,
        loose: float = 1.0,
    ) -> Clipping:
        """Public numbers of a step; rows add up to at most ``loose`` clips each on their way."""
        if outputs > MAX_OUTPUTS:
            raise InputError(f"{outputs} outputs are too many; at most {MAX_OUTPUTS}")
        for value in clip:
            check_range("clip", float(value))
        share = clip / math.sqrt(outputs) if per_class else clip
        separate = per_class or outputs == 1
        if arithmetic != "exact":
            one = np.ones((clip.size, 1), dtype=FLOAT[arithmetic])
            ceiling = share.astype(FLOAT[arithmetic])[:, None]
            lattice = np.ones(clip.size)
            if arithmetic == "rounded":
                lattice = np.ldexp(1.0, [ceil_log2(float(value)) - ROUNDED_BITS for value in clip])
            return cls(lattice, ceiling, one, 0.0, separate, arithmetic, clip)
        most = LATTICE_ROWS * loose
        exponents = [ceil_log2(most * float(value)) - EXACT_BITS for value in clip]
        lattice = np.ldexp(1.0, exponents)
        ceiling = (share / lattice)[:, None]
        # Of people, `tacit.engine.people` has the rule.
        if loose == 1 and ceiling.min() < math.ldexp(2 * math.sqrt(outputs), scale.radius):
            raise InputError(
                f"{outputs} outputs on rows this wide leave no room for exact sums; "
                "use arithmetic='fast' or fewer features"
            )
        allowance = 0.5 if separate else math.sqrt(outputs) / 2
        multiplier = (scale.unit / lattice)[:, None]
        return cls(lattice, ceiling, multiplier, allowance, separate, arithmetic, clip)

    def apply(self, residual: np.ndarray, inverse_norm: np.ndarray) -> None:
        """Clip and round residuals (S, K, b) in place; ``inverse_norm`` is 1 / |x|, (b,)."""
        if not np.isfinite(residual).all():  # a row whose residual is not a number counts nothing
            finite = np.isfinite(residual).all(axis=1, keepdims=True)
            np.copyto(residual, 0.0, where=~finite)
        limit = self.ceiling * inverse_norm
        if self.allowance:
            limit -= self.allowance
            np.maximum(limit, 0.0, out=limit)
        limit *= SHRINK[self.arithmetic]
        if self.separate:
            residual *= self.multiplier[:, :, None]
            np.clip(residual, -limit[:, None], limit[:, None], out=residual)
        else:
            norm = np.sqrt(np.add.reduce(np.square(residual), axis=1))
            # The floor only lowers the factor, and only where the result rounds to zero.
            np.maximum(norm, TINY[self.arithmetic], out=norm)
            limit /= norm
            residual *= np.minimum(limit, self.multiplier, out=limit)[:, None]
        if self.arithmetic == "exact":
            np.rint(residual, out=residual)
