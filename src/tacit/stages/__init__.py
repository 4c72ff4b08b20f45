"""Steps before training, each of which pays for looking at the data in one of four ways."""

from tacit.stages.base import Context, Stage
from tacit.stages.encode import Encode
from tacit.stages.free import Bound, ClipNorm, Normalize, RandomProjection
from tacit.stages.private import PrivateCenter
from tacit.stages.public import PublicPCA, PublicScale

__all__ = [
    "Bound",
    "ClipNorm",
    "Context",
    "Encode",
    "Normalize",
    "PrivateCenter",
    "PublicPCA",
    "PublicScale",
    "RandomProjection",
    "Stage",
]
