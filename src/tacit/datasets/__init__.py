"""Data sets: one that comes with the package, and readers with checksums for the others.

Files are looked for in the folder that the environment variable ``TACIT_DATA``
names, then in the user's cache, and then fetched from their public source, unless
``download=False``.
"""

from tacit.datasets.loaders import (
    decode_features,
    load_chest_xray,
    load_cifar10,
    load_cifar100,
    load_cod_rna,
    load_fashion_mnist,
    load_mnist,
    load_sst2,
    load_w8a,
)
from tacit.datasets.people import load_table
from tacit.datasets.sources import SOURCES
from tacit.datasets.store import fetch, find
from tacit.datasets.tables import (
    load_adult,
    load_bank,
    load_census_kdd,
    load_diabetes130,
    load_kdd99,
)

__all__ = [
    "SOURCES",
    "decode_features",
    "fetch",
    "find",
    "load_adult",
    "load_bank",
    "load_census_kdd",
    "load_chest_xray",
    "load_cifar10",
    "load_cifar100",
    "load_cod_rna",
    "load_diabetes130",
    "load_fashion_mnist",
    "load_kdd99",
    "load_mnist",
    "load_sst2",
    "load_table",
    "load_w8a",
]
