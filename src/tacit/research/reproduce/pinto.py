"""Pinto et al. 2024: PCA on public rows, then private training; and its rivals."""

from __future__ import annotations

from tacit.research.reproduce.claim import Claim
from tacit.research.reproduce.pinto_dimension import DIMENSION, MNIST, RAFT
from tacit.research.reproduce.pinto_methods import METHODS
from tacit.research.reproduce.pinto_public import PUBLIC, SHIFT, XI

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (DIMENSION, METHODS, PUBLIC, SHIFT, MNIST, XI, RAFT)
