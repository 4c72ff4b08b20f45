"""Recipes of papers: local privacy, and PILLAR's rivals (Pinto et al. 2024)."""

from __future__ import annotations

from typing import Any

from tacit.plan.recipes import RECIPES
from tacit.preprocessing import Normalize, PublicPCA, PublicPrecondition, PublicRotation, Stage
from tacit.research.trainers import DPRAFT, GEP, AdaDPS, LocalDPGD
from tacit.trainers import GradientTrainer


def _local(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], GradientTrainer]:
    """Every row scaled and randomised by its owner (Song et al. 2021, section 3): local privacy."""
    return [Normalize(radius)], LocalDPGD(**trainer)


def _gep(
    public: Any = None, n_components: Any = "auto", radius: float = 1.0, **trainer: Any
) -> tuple[list[Stage], GradientTrainer]:
    """GEP (Yu et al. 2021): gradients in and outside a public subspace, clipped separately."""
    return [Normalize(radius), PublicRotation(public)], GEP(n_components=n_components, **trainer)


def _adadps(
    public: Any = None, floor: float = 0.1, radius: float = 1.0, **trainer: Any
) -> tuple[list[Stage], GradientTrainer]:
    """AdaDPS (Li, Zaheer et al. 2022): gradients divided by public scales before they are
    clipped.
    """
    return [Normalize(radius), PublicPrecondition(public, floor)], AdaDPS(**trainer)


def _dp_raft(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], GradientTrainer]:
    """DP-RAFT (Panda et al. 2022): a linear probe on normalised rows, hardly clipped."""
    return [Normalize(radius)], DPRAFT(**{"clip": radius, **trainer})


def _dp_raft_pillar(
    public: Any = None,
    n_components: int | str = "auto",
    radius: float = 1.0,
    rescale: bool = False,
    **trainer: Any,
) -> tuple[list[Stage], GradientTrainer]:
    """DP-RAFT on rows projected by public ones (Pinto et al. 2024, appendix B-F).

    With ``rescale``, projected rows are scaled to the radius again: the clip is for rows of that
    norm, and so is the noise. Weights are then those of projected rows.
    """
    stages, probe = _dp_raft(radius, **trainer)
    again = [Normalize(radius)] if rescale else []
    return [*stages, PublicPCA(public, n_components), *again], probe


RECIPES.add("local", _local)
RECIPES.add("gep", _gep)
RECIPES.add("adadps", _adadps)
RECIPES.add("dp-raft", _dp_raft)
RECIPES.add("dp-raft+pillar", _dp_raft_pillar)
