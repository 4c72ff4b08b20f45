"""Features of images and texts from pre-trained networks, which are taken as public."""

from tacit.features.extractors import Extractor, open_extractor
from tacit.features.work import FeatureSet, extract, load_features, save_features

__all__ = [
    "Extractor",
    "FeatureSet",
    "extract",
    "load_features",
    "open_extractor",
    "save_features",
]
