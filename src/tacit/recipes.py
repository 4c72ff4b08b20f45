"""Named plans of the papers: stages and a trainer for an estimator.

>>> from tacit import DPLinearClassifier, recipe
>>> clf = DPLinearClassifier(epsilon=0.5, **recipe("dp-gd", steps=100))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit.exceptions import InputError
from tacit.stages import Normalize, PrivateCenter, PublicPCA, RandomProjection, Stage
from tacit.trainers import DPGD, DPSGD, GradientTrainer

__all__ = ["RECIPES", "recipe"]


def _dpsgd(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], GradientTrainer]:
    """Rows scaled to a norm, then DP-SGD (Abadi et al. 2016): paper 000's baseline."""
    return [Normalize(radius)], DPSGD(**trainer)


def _dpsgd_f(
    radius: float = 1.0, share: float = 0.1, **trainer: Any
) -> tuple[list[Stage], GradientTrainer]:
    """DPSGD-F* (paper 000, Algorithm 3): scaled rows, private mean, full-batch descent."""
    return [Normalize(radius), PrivateCenter(share)], DPGD(**trainer)


def _dp_gd(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], GradientTrainer]:
    """Rows scaled to a norm, then DP-GD (paper 001, Algorithm 1)."""
    return [Normalize(radius)], DPGD(**trainer)


def _pillar(
    public: Any = None, n_components: int = 40, radius: float = 1.0, **trainer: Any
) -> tuple[list[Stage], GradientTrainer]:
    """PILLAR (paper 003, Algorithm 1): PCA on public rows, then private training."""
    return [Normalize(radius), PublicPCA(public, n_components)], DPGD(**trainer)


def _jl(
    n_components: int = 40, radius: float = 1.0, seed: int | None = None, **trainer: Any
) -> tuple[list[Stage], GradientTrainer]:
    """Random projection, then private training: paper 003's baseline "JL"."""
    return [Normalize(radius), RandomProjection(n_components, seed)], DPGD(**trainer)


RECIPES: dict[str, Callable[..., tuple[list[Stage], GradientTrainer]]] = {
    "dpsgd-f": _dpsgd_f,
    "dpsgd": _dpsgd,
    "dp-gd": _dp_gd,
    "pillar": _pillar,
    "jl": _jl,
}


def recipe(name: str, **options: Any) -> dict[str, Any]:
    """Stages and trainer of a named plan, as keyword arguments of an estimator.

    Parameters
    ----------
    name : str
        One of `RECIPES`.
    **options
        Settings of the recipe's stages; anything else goes to its trainer.
    """
    if name not in RECIPES:
        raise InputError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    try:
        stages, trainer = RECIPES[name](**options)
    except TypeError as error:
        raise InputError(f"recipe {name!r}: {error}") from None
    return {"stages": stages, "trainer": trainer}
