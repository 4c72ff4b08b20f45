"""What private rows are like, for those who may look; and advice, for those who may not.

Everything but `inspect_privately` and the trajectories of released gradients reads the rows
without noise. Its results are `NotReleasable`.
"""

from tacit.diagnostics.advice import Advice, Facts, Option, advise
from tacit.diagnostics.base import NotReleasable
from tacit.diagnostics.clipping import Clipping, clipping
from tacit.diagnostics.concentration import Concentration, concentration, diameter
from tacit.diagnostics.crowding import Crowding, crowding
from tacit.diagnostics.inspection import Inspection, inspect
from tacit.diagnostics.lipschitz import (
    Coefficients,
    PowerLaw,
    power_law_fit,
    restricted_lipschitz,
)
from tacit.diagnostics.module_trajectory import module_trajectory
from tacit.diagnostics.moments import Moments
from tacit.diagnostics.private import PrivateInspection, inspect_privately
from tacit.diagnostics.released import (
    ReleasedTrajectory,
    module_trajectory_privately,
    trajectory_privately,
)
from tacit.diagnostics.separability import Separability, separability
from tacit.diagnostics.sketch import Directions, Sketch
from tacit.diagnostics.spectrum import Spectrum, spectrum
from tacit.diagnostics.trajectory import Trajectory, trajectory

__all__ = [
    "Advice",
    "Clipping",
    "Coefficients",
    "Concentration",
    "Crowding",
    "Directions",
    "Facts",
    "Inspection",
    "Moments",
    "NotReleasable",
    "Option",
    "PowerLaw",
    "PrivateInspection",
    "ReleasedTrajectory",
    "Separability",
    "Sketch",
    "Spectrum",
    "Trajectory",
    "advise",
    "clipping",
    "concentration",
    "crowding",
    "diameter",
    "inspect",
    "inspect_privately",
    "module_trajectory",
    "module_trajectory_privately",
    "power_law_fit",
    "restricted_lipschitz",
    "separability",
    "spectrum",
    "trajectory",
    "trajectory_privately",
]
