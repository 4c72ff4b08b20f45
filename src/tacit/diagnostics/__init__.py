"""What private rows are like, for those who may look; and advice, for those who may not.

Everything but `inspect_privately` reads the rows without noise. Its results are `NotReleasable`.
"""

from tacit.diagnostics.advice import Advice, Option, RowFacts, advise
from tacit.diagnostics.base import NotReleasable
from tacit.diagnostics.clipping import Clipping, clipping
from tacit.diagnostics.concentration import Concentration, concentration, diameter
from tacit.diagnostics.crowding import Crowding, crowding
from tacit.diagnostics.inspection import Inspection, inspect
from tacit.diagnostics.lipschitz import (
    Coefficients,
    PowerLaw,
    glm_coefficients,
    power_law_fit,
    restricted_lipschitz,
)
from tacit.diagnostics.moments import Moments
from tacit.diagnostics.private import PrivateInspection, inspect_privately
from tacit.diagnostics.separability import Separability, separability
from tacit.diagnostics.spectrum import Spectrum, spectrum

__all__ = [
    "Advice",
    "Clipping",
    "Coefficients",
    "Concentration",
    "Crowding",
    "Inspection",
    "Moments",
    "NotReleasable",
    "Option",
    "PowerLaw",
    "PrivateInspection",
    "RowFacts",
    "Separability",
    "Spectrum",
    "advise",
    "clipping",
    "concentration",
    "crowding",
    "diameter",
    "glm_coefficients",
    "inspect",
    "inspect_privately",
    "power_law_fit",
    "restricted_lipschitz",
    "separability",
    "spectrum",
]
