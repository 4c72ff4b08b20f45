"""All claims, in the order of the papers."""

from __future__ import annotations

from tacit.research.reproduce import hu, li, pinto, song, sun
from tacit.research.reproduce.claim import Claim

__all__ = ["CLAIMS"]

#: By name.
CLAIMS: dict[str, Claim] = {
    claim.name: claim for paper in (sun, song, li, pinto, hu) for claim in paper.CLAIMS
}
