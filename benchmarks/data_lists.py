"""Which data sets settings are chosen on, and which are kept for tests.

Fixed on 2026-11-18, before the first figure on any table of ``HELD_OUT``. Whatever is a matter of
choice (defaults, shares, knots, rules of ``"auto"``) is chosen on ``DEVELOPMENT`` alone.
Tables of ``HELD_OUT`` are read to see that they are parsed, and by the comparisons that report on
them; nothing is ever chosen by what those comparisons say. A table leaves ``HELD_OUT`` only for
``DEVELOPMENT``, never the other way.

Files, versions of packages and checksums are in ``sources.toml`` of `tacit.datasets`.
"""

from __future__ import annotations

FIXED_ON = "2026-11-18"

#: Names in `tacit.datasets.SOURCES`.
DEVELOPMENT = (
    "adult",
    "bank",
    "census_kdd",
    "diabetes130",
    "cod_rna",
    "randhie",
    "diamonds",
    "bike",
    "kdd99",
    "w8a",
    "mnist",
    "fashion_mnist",
    "cifar10",
    "cifar100",
    "chest_xray",
    "sst2",
)

#: The same, each read by `tacit.datasets.load_table`: seven classifications and five regressions.
HELD_OUT = (
    "compas",
    "flchain",
    "benefits",
    "caravan",
    "flights",
    "mortgages",
    "happiness",
    "slid",
    "wage",
    "hours",
    "census2000",
    "movies",
)
