"""Numbers, settings and strings as a person would write them.

Whatever a report states as "at most" is rounded up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import MAX_EMAX, ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from numbers import Integral, Real
from typing import SupportsFloat

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STEERING = re.compile(  # controls, halves of characters, direction of writing, and no characters
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb"
    r"\ufffe\uffff\U000e0000-\U000e0fff]"
)
_EXP = Context(prec=40, Emax=MAX_EMAX, traps=[])


def clean(value: object) -> str:
    """``value`` as one line that can neither steer a terminal nor reorder text."""
    line = re.sub(r"\s", " ", str(value))
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def number(value: SupportsFloat, *, digits: int = 4, up: bool = False) -> str:
    """A number to ``digits`` significant digits, integers in full.

    >>> number(32561), number(64.8123), number(1e-5), number(-0.25)
    ('32,561', '64.81', '10⁻⁵', '−0.25')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", "−")
    value = float(value)
    if math.isnan(value):
        return "not defined"
    if value < 0:
        return "−" + number(-value, digits=digits)
    return _write(_decimal(value), digits, ROUND_CEILING if up else ROUND_HALF_EVEN)


def exact(value: float) -> str:
    """Every digit of a claim: it is never rounded.

    >>> exact(1.0), exact(1e-5), exact(3.0712e-5)
    ('1', '10⁻⁵', '3.0712 × 10⁻⁵')
    """
    return _write(_decimal(value), digits=17)


def factor(epsilon: float) -> str:
    """e^ε, rounded up.

    >>> factor(1.0), factor(0.01), factor(50.0), factor(2000.0)
    ('2.72', '1.011', '5.19 × 10²¹', '3.89 × 10⁸⁶⁸')
    """
    value = _EXP.exp(_decimal(epsilon))
    digits = 3 if epsilon > 0.095 else 2 - (value - 1).adjusted()
    return _write(value, digits, ROUND_CEILING)


def one_in(delta: float) -> str:
    """A probability in words, rounded up.

    >>> one_in(1e-5), one_in(3e-5), one_in(1e-12), one_in(0.2)
    ('1 in 100,000', '1 in 33,333', '1 in 10¹²', '20%')
    """
    if delta > 0.01:
        return at_most(delta)
    times = int(1 / _decimal(delta))
    return "1 in " + (f"{times:,}" if times < 10**9 else _write(Decimal(times), 2, ROUND_FLOOR))


def at_most(probability: float) -> str:
    """A probability as a percentage of two decimals, rounded up."""
    return f"{min(math.ceil(probability * 1e4) / 100, 100):.4g}%"


def percent(part: float) -> str:
    """A part of one as a percentage of one decimal."""
    if 0 < part < 0.0005:
        return "<0.1%"
    if 0.9995 < part < 1:
        return ">99.9%"
    return f"{100 * part:.1f}".removesuffix(".0") + "%"


def setting(value: object, *, most: int = 12) -> str:
    """A parameter as a person would write it; long lists are cut short."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return number(value)
    if isinstance(value, Mapping):
        items = [f"{clean(key)}: {setting(item)}" for key, item in list(value.items())[:most]]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        items = [setting(item) for item in value[:most]]
    else:
        return clean(value)
    if len(value) > most:
        items.append(f"… ({len(value):,} in all)")
    return ", ".join(items) or "none"


def date(created: str) -> str:
    """A moment in ISO 8601 as words, anything else as it is."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    zone = f"{moment: UTC%z}".removesuffix("+0000") if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def _write(value: Decimal, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """To that many digits: in full, or a multiple of a power of ten if far from one."""
    if value.is_infinite():
        return "∞"
    full = value == 0 or Decimal("1e-3") <= value < 10**6
    if full:
        digits = max(digits, value.adjusted() + 1)
    value = Context(digits, rounding, Emax=MAX_EMAX).plus(value).normalize(_EXP)
    if full:
        return f"{value:,f}"
    exponent = value.adjusted()
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    mantissa = value.scaleb(-exponent, _EXP)
    return power if mantissa == 1 else f"{mantissa:f} × {power}"
