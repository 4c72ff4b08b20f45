"""In how few directions the gradients of a run lie (Li et al. 2022, section 4.2)."""

from tacit.research.trajectories.density import spectral_density
from tacit.research.trajectories.module_trajectory import module_run, module_trajectory
from tacit.research.trajectories.released import (
    ReleasedTrajectory,
    module_trajectory_privately,
    trajectory_privately,
)
from tacit.research.trajectories.row_file import RowFile
from tacit.research.trajectories.sketch import Directions, Sketch
from tacit.research.trajectories.trajectory import Trajectory, trajectory

__all__ = [
    "Directions",
    "ReleasedTrajectory",
    "RowFile",
    "Sketch",
    "Trajectory",
    "module_run",
    "module_trajectory",
    "module_trajectory_privately",
    "spectral_density",
    "trajectory",
    "trajectory_privately",
]
