"""Paper 000: private centring and clipping of features before training."""

from __future__ import annotations

from tacit.reproduce.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = ()
