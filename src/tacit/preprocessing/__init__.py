"""Steps before training, each of which pays for looking at the data in one of four ways."""

from tacit.preprocessing.base import Context, Stage
from tacit.preprocessing.blocks import PrivateBlocks
from tacit.preprocessing.by_columns import ByColumns
from tacit.preprocessing.duplicates import Dedup, Quantize
from tacit.preprocessing.encode import Encode
from tacit.preprocessing.find_columns import PrivateByColumns
from tacit.preprocessing.free import Bound, ClipNorm, Normalize, RandomProjection, Root
from tacit.preprocessing.noiseless import NoiselessPCA, NoiselessScale, SoftPCA
from tacit.preprocessing.noiseless_impute import FillGaps, NoiselessImpute
from tacit.preprocessing.private_center import PrivateCenter
from tacit.preprocessing.private_checked import PrivateCheckedPCA
from tacit.preprocessing.private_encode import PrivateEncode
from tacit.preprocessing.private_equalize import PrivateEqualize
from tacit.preprocessing.private_extent import PrivateBounds, PrivateClip
from tacit.preprocessing.private_impute import PrivateImpute
from tacit.preprocessing.private_pca import PrivatePCA
from tacit.preprocessing.private_precondition import PrivatePrecondition
from tacit.preprocessing.private_scale import PrivateScale
from tacit.preprocessing.public import (
    PublicCenter,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
)
from tacit.preprocessing.public_features import PublicFeatures

__all__ = [
    "Bound",
    "ByColumns",
    "ClipNorm",
    "Context",
    "Dedup",
    "Encode",
    "FillGaps",
    "NoiselessImpute",
    "NoiselessPCA",
    "NoiselessScale",
    "Normalize",
    "PrivateBlocks",
    "PrivateBounds",
    "PrivateByColumns",
    "PrivateCenter",
    "PrivateCheckedPCA",
    "PrivateClip",
    "PrivateEncode",
    "PrivateEqualize",
    "PrivateImpute",
    "PrivatePCA",
    "PrivatePrecondition",
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
