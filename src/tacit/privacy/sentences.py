"""The standard sentences of certificates: written once, whatever is certified."""

from __future__ import annotations

__all__ = ["EXACT", "IDEAL", "SEEDED", "SETTINGS", "cautions", "reasons", "rows_known"]

SEEDED = "seeded: not for release"
SETTINGS = "all settings were chosen without looking at the private rows"
EXACT = (
    "sums are exact integers and the noise an exact discrete Gaussian, from AES-256 in counter "
    "mode keyed by the operating system: the guarantee is computational"
)
IDEAL = "ideal arithmetic assumed: sums and noise are in floating point"


def reasons(seeded: bool) -> tuple[str, ...]:
    """Why a result must not be released; empty if it may be."""
    return (SEEDED,) if seeded else ()


def rows_known(size: int, neighbors: str) -> str:
    """What is assumed of the number of rows, or of its public stand-in."""
    if neighbors == "add_or_remove_one":
        return f"the normaliser {size} was chosen without looking at the rows"
    return f"the number of rows, {size}, is public"


def cautions(delta: float, size: int) -> tuple[str, ...]:
    """What is wrong with a δ for so many rows.

    Examples
    --------
    >>> cautions(1e-6, 1000), len(cautions(0.01, 1000))
    ((), 1)
    """
    if delta <= 1 / size:
        return ()
    return (
        f"delta = {delta:g} is larger than one over the number of rows, {1 / size:.3g}: releasing "
        "a whole row would be within it",
    )
