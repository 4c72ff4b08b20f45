"""Steps before training, each of which pays for looking at the data in one of four ways."""

from tacit.stages.base import Context, Stage
from tacit.stages.duplicates import Dedup, Quantize
from tacit.stages.encode import Encode
from tacit.stages.equalize import PrivateEqualize
from tacit.stages.features import PublicFeatures
from tacit.stages.free import Bound, ClipNorm, Normalize, RandomProjection, Root
from tacit.stages.impute import FillGaps, PlainImpute
from tacit.stages.plain import PlainPCA, PlainScale, SoftPCA
from tacit.stages.private import PrivateCenter
from tacit.stages.private_extent import PrivateBounds, PrivateClip
from tacit.stages.private_impute import PrivateImpute
from tacit.stages.private_pca import PrivatePCA
from tacit.stages.public import (
    PublicCenter,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
)
from tacit.stages.scale import PrivateScale

__all__ = [
    "Bound",
    "ClipNorm",
    "Context",
    "Dedup",
    "Encode",
    "FillGaps",
    "Normalize",
    "PlainImpute",
    "PlainPCA",
    "PlainScale",
    "PrivateBounds",
    "PrivateCenter",
    "PrivateClip",
    "PrivateEqualize",
    "PrivateImpute",
    "PrivatePCA",
    "PrivateScale",
    "PublicCenter",
    "PublicFeatures",
    "PublicPCA",
    "PublicPrecondition",
    "PublicRotation",
    "PublicScale",
    "Quantize",
    "RandomProjection",
    "Root",
    "SoftPCA",
    "Stage",
]
