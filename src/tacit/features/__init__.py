"""Features of images and texts from pre-trained networks, which are taken as public."""

from tacit.features.extractors import Extractor, open_extractor
from tacit.features.stored import FeatureSet, load_features, save_features
from tacit.features.work import extract

__all__ = [
    "Extractor",
    "FeatureSet",
    "extract",
    "load_features",
    "open_extractor",
    "save_features",
]
