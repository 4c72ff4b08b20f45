"""Paper 003: PCA on public rows, then private training; and its rivals."""

from __future__ import annotations

from tacit.reproduce.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = ()
