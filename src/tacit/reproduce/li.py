"""Paper 002: restricted Lipschitz continuity, and the spectrum of gradients."""

from __future__ import annotations

from tacit.reproduce.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = ()
