"""The standard sentences of certificates: written once, whatever is certified.

What a stage or a trainer takes for granted it says itself (`Stage.assumption`, `Stage.cautions`,
`Trainer.assumptions`); of whom the guarantee is about, `tacit.privacy.unit`, whose words `verify`
reads; of several rows, `tacit.privacy.accounting.group`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

SEEDED = "seeded: not for release"
SETTINGS = "all settings were chosen without looking at the private rows"
SEARCHED = (
    "what was to be tried, and how the number of trials was drawn, were chosen without looking at "
    "the private rows"
)
UNSEEN_TRIALS = (
    "how many trials were made, how long they took, and every trial but the best stay unknown"
)
UNSEEN_STAGES = (
    "what the noiseless stages learned from the rows is kept from everybody, and so is how long "
    "they took"
)
_KEYED = (
    "an exact discrete Gaussian, from AES-256 in counter mode keyed by the operating system: the "
    "guarantee is computational"
)
EXACT = f"sums are exact integers and the noise {_KEYED}"
ROUNDED = (
    "sums are in float64 with a proven bound on their rounding, which is part of the sensitivity, "
    f"and the noise is {_KEYED}"
)
STRICT = (
    "strict: every product behind a sum was checked, with probability 2^-30 at most that an error "
    "passes, and gradients come from correctly rounded operations"
)
TRUSTED = (
    "elementary functions give a row the same value wherever it stands, and the linear algebra "
    "library adds products in float64"
)
SCORED = "the functions in a model's scores give a row the same value wherever it stands"
NOT_OURS = "the model says the same of a row, whatever rows are passed with it"
IDEAL = "ideal arithmetic assumed: sums and noise are in floating point"


def reasons(seeded: bool) -> tuple[str, ...]:
    """Why a result must not be released; empty if it may be."""
    return (SEEDED,) if seeded else ()


def rows_known(size: int, neighbors: Neighbors, unit: Unit = ROW) -> str:
    """What is assumed of the number of rows or of people, or of its public stand-in."""
    if neighbors == "add_or_remove_one":
        return f"the normaliser {size} was chosen without looking at the rows"
    if unit == ROW:
        return f"the number of rows, {size}, is public"
    return (
        f"the number of people, {size}, is public; how many rows each has, and in which places of "
        "the table, is not"
    )


def columns_known(columns: int) -> str:
    """What is assumed of the columns."""
    return f"the names and the number of the columns, {columns}, are public"


def released_before(stages: Sequence[str]) -> str:
    """Of stages that an earlier fit has paid for."""
    return (
        f"what {' and '.join(stages)} released before is counted in the certificate that this one "
        "continues"
    )


def held_out(share: float, unit: Unit = ROW) -> str:
    """Of rows, or people, that were set aside for a test."""
    return (
        f"a coin for each, drawn without looking, set aside {share:g} of the {unit.plural} for "
        "testing: epsilon holds for who was trained on and for who was tested on, since nobody "
        "was both"
    )


def tested(delta: float) -> str:
    """Of a private test that passes wrongly with this probability."""
    return (
        "a private test of the stages' conditions passes wrongly with probability "
        f"{delta:.3g} at most, which delta covers"
    )


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
