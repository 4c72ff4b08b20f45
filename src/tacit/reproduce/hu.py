"""Paper 004: what preprocessing without noise costs."""

from __future__ import annotations

from tacit.reproduce.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = ()
