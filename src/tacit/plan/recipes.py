"""Named plans of the papers: stages and a trainer for an estimator.

>>> from tacit import DPLinearClassifier, recipe
>>> clf = DPLinearClassifier(epsilon=0.5, **recipe("dp-gd", steps=100))
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tacit import preprocessing as every
from tacit.exceptions import InputError
from tacit.mechanisms.mean import locating_rows
from tacit.plan.defaults import AUTO_RECIPE, resolve_trainer
from tacit.preprocessing import (
    ClipNorm,
    NoiselessPCA,
    Normalize,
    PrivateCenter,
    PrivateCheckedPCA,
    PrivateClip,
    PrivateEqualize,
    PrivatePrecondition,
    PublicCenter,
    PublicPCA,
    RandomProjection,
    SoftPCA,
    Stage,
)
from tacit.preprocessing.base import PrivateStage
from tacit.privacy.events import Event
from tacit.registry import Registry
from tacit.trainers import DPGD, DPSGD, SufficientStatistics, Trainer

Recipe = Callable[..., tuple[list[Stage], Trainer]]

OWN: dict[str, type[Trainer]] = {
    "dp-gd": DPGD,
    "dpsgd": DPSGD,
    "statistics": SufficientStatistics,
}
TRAINERS = Registry("trainer", "trainers", OWN)


def _trained(default: type[Trainer], settings: dict[str, Any]) -> Trainer:
    """The recipe's trainer, or the one that ``trainer`` names, with these settings."""
    wanted = settings.pop("trainer", None)
    if isinstance(wanted, Trainer):
        if settings:
            raise InputError(f"{wanted.name} is complete: set {', '.join(settings)} there")
        return wanted
    if wanted is not None and wanted not in TRAINERS:
        raise InputError(f"no trainer is called {wanted!r}; there are {', '.join(TRAINERS)}")
    return (default if wanted is None else TRAINERS[wanted])(**settings)


LONGEST_STAGE = 20_000  # characters of a stage


def _dpsgd(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], Trainer]:
    """Rows scaled to a norm, then DP-SGD (Abadi et al. 2016): Sun et al.'s baseline."""
    return [Normalize(radius)], _trained(DPSGD, trainer)


def _dpsgd_f(
    radius: float = 1.0,
    share: float = PrivateCenter.share,
    equalize: float = 0.0,
    precondition: float = PrivatePrecondition.share,
    **trainer: Any,
) -> tuple[list[Stage], Trainer]:
    """DPSGD-F* (Sun et al. 2024, Algorithm 3): scaled rows, private mean, full-batch descent.

    ``equalize`` is the share spent on columns of one size, 0 for leaving them as they are;
    ``precondition`` that spent on a second moment, 0 for descent without it.
    """
    even: list[Stage] = [PrivateEqualize(equalize), Normalize(radius)] if equalize else []
    moment: list[Stage] = [PrivatePrecondition(precondition)] if precondition else []
    return [Normalize(radius), PrivateCenter(share), *even, *moment], _trained(DPGD, trainer)


@dataclass
class Preprocess(PrivateStage):
    """What Sun, Suresh & Menon (Sun et al. 2024) do to rows before they train: Algorithm 2, or 3.

    It stands for the stages of Algorithm 2, if there are rows enough for its mean at the share of
    the budget that it has, and else for those of Algorithm 3. Both are public facts, so a plan
    knows which before any row is read.

    Parameters
    ----------
    share, clip_share : float
        Parts of μ for the mean, and for the scale that Algorithm 2 clips to.
    """

    share: float = 0.3
    clip_share: float = 0.2

    def expand(
        self,
        before: Sequence[Stage],
        *,
        columns: int,
        size: int,
        mu: float,
        intercept: bool,
        takes_moment: bool,
    ) -> tuple[tuple[Stage, ...], str]:
        d = columns
        for stage in before:
            d = stage.width(d)
        needed = locating_rows(d, 1 / (self.share * mu))
        mean = f"its mean needs about {needed} rows of {d} columns at this budget, and there are "
        if size >= needed:
            chosen = _algorithm_2(self.share, self.clip_share, intercept)
            return chosen, f"Recipe: Algorithm 2 of Sun et al. 2024; {mean}{size}."
        return _algorithm_3(self.share), (
            f"Recipe: Algorithm 3 of Sun et al. 2024 in place of Algorithm 2: {mean}{size}. So "
            f"rows are "
            "scaled to one norm, and no scale is sought; algorithm=2 asks for it all the same."
        )

    def event(self, noise_multiplier: float) -> Event:
        raise InputError("what is done to the rows is not chosen yet: calibrate the plan first")


def _algorithm_2(share: float, clip_share: float, intercept: bool = True) -> tuple[Stage, ...]:
    center = PrivateCenter(share, method="instance-optimal")
    return center, PrivateClip(clip_share, constant=intercept)


def _algorithm_3(share: float, radius: float = 1.0) -> tuple[Stage, ...]:
    return Normalize(radius), PrivateCenter(share)


def _dpsgd_f_theory(
    radius: float | None = None,
    share: float = Preprocess.share,
    clip_share: float = Preprocess.clip_share,
    algorithm: int | str = "auto",
    **trainer: Any,
) -> tuple[list[Stage], Trainer]:
    """DPSGD-F (Sun et al. 2024, Algorithm 2): mean and scale found in rows of any norm, then
    descent.

    With too few rows for that mean, Algorithm 3 instead; ``algorithm`` 2 or 3 leaves no choice.
    """
    chosen: dict[Any, tuple[Stage, ...]] = {
        "auto": (Preprocess(share, clip_share=clip_share),),
        2: _algorithm_2(share, clip_share),
        3: _algorithm_3(share),
    }
    if algorithm not in chosen:
        raise InputError(f"algorithm={algorithm!r} must be 2, 3 or 'auto'")
    first: list[Stage] = [] if radius is None else [ClipNorm(radius)]
    # Rows of norm one after the division by τ, and a constant of the same size: √2 together.
    settings = {"clip": math.sqrt(2), "intercept_fraction": 1.0, **trainer}
    return [*first, *chosen[algorithm]], _trained(DPGD, settings)


def _dp_gd(radius: float = 1.0, **trainer: Any) -> tuple[list[Stage], Trainer]:
    """Rows scaled to a norm, then DP-GD (Song et al. 2021, Algorithm 1)."""
    return [Normalize(radius)], _trained(DPGD, trainer)


def _pillar(
    public: Any = None,
    n_components: int | str = "auto",
    radius: float = 1.0,
    center: bool = True,
    check: float = PrivateCheckedPCA.share,
    **trainer: Any,
) -> tuple[list[Stage], Trainer]:
    """PILLAR (Pinto et al. 2024, Algorithm 1): PCA on public rows, then private training.

    Components are about the public mean, which is subtracted (``center=False``: as in the paper),
    and as many as public facts speak for. ``check`` is the share spent on finding out whether the
    private rows lie along them, 0 for none (as in the paper).
    """
    trained = _trained(DPGD, trainer)
    middle = [PublicCenter(public)] if center else []
    components = PublicPCA(public, n_components)
    if check and not trained.local:  # there, nobody sees all rows
        components = PrivateCheckedPCA(public, n_components, share=check)
    return [Normalize(radius), *middle, components], trained


def _jl(
    n_components: int | str = "auto", radius: float = 1.0, seed: int | None = None, **trainer: Any
) -> tuple[list[Stage], Trainer]:
    """Random projection, then private training: Pinto et al.'s baseline "JL"."""
    return [Normalize(radius), RandomProjection(n_components, seed)], _trained(DPGD, trainer)


def _dp_pca(
    n_components: int | str = "auto", radius: float = 1.0, share: float = 0.5, **trainer: Any
) -> tuple[list[Stage], Trainer]:
    """PCA of a noisy second moment, then private training: Pinto et al.'s baseline "DP-PCA"."""
    from tacit.preprocessing import PrivatePCA

    components = PrivatePCA(n_components=n_components, share=share)
    return [Normalize(radius), components], _trained(DPGD, trainer)


def _soft_pca(
    strength: float = 0.05, radius: float = 1.0, **trainer: Any
) -> tuple[list[Stage], Trainer]:
    """Soft PCA of the private rows themselves, paid for by more noise in training."""
    return [Normalize(radius), SoftPCA(strength)], _trained(DPGD, trainer)


def _ptr_pca(
    n_components: int | str = "auto", gap: float | None = None, radius: float = 1.0, **trainer: Any
) -> tuple[list[Stage], Trainer]:
    """Rank-k PCA of the private rows behind a test of their eigengap (Hu et al. 2024, section
    4.3).
    """
    return [Normalize(radius), NoiselessPCA(n_components, gap)], _trained(DPGD, trainer)


RECIPES: Registry[Recipe] = Registry(
    "recipe",
    "recipes",
    {
        "dpsgd-f": _dpsgd_f,
        "dpsgd-f-theory": _dpsgd_f_theory,
        "dpsgd": _dpsgd,
        "dp-gd": _dp_gd,
        "pillar": _pillar,
        "jl": _jl,
        "dp-pca": _dp_pca,
        "soft-pca": _soft_pca,
        "ptr-pca": _ptr_pca,
    },
)


def recipe(name: str, **options: Any) -> dict[str, Any]:
    """Stages and trainer of a named plan, as keyword arguments of an estimator.

    Parameters
    ----------
    name : str
        One of `RECIPES`, or ``"auto"``: what estimators do by themselves, with these options.
    **options
        Settings of the recipe's stages; anything else goes to its trainer, except ``trainer``,
        which puts another one in its place: one of `TRAINERS` by its name, such as ``"dpsgd"``,
        or a trainer with settings of its own. (Recipes that are about a trainer keep theirs.)

    Returns
    -------
    dict
        ``stages`` and ``trainer``.

    Examples
    --------
    >>> [stage.name for stage in recipe("dpsgd-f")["stages"]]
    ['Normalize', 'PrivateCenter', 'PrivatePrecondition']
    """
    if name == "auto":
        parts = recipe(AUTO_RECIPE, **options)
        if parts["trainer"] == resolve_trainer("auto"):  # nothing of it was set
            parts["trainer"] = "auto"
        of_stages = inspect.getfullargspec(RECIPES[AUTO_RECIPE]).args
        if not options.keys() & set(of_stages):
            parts["stages"] = "auto"  # nor of them
        return parts
    if name not in RECIPES:
        raise InputError(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    try:
        stages, trainer = RECIPES[name](**options)
    except TypeError as error:
        raise InputError(f"recipe {name!r}: {error}") from None
    return {"stages": stages, "trainer": trainer}


def parse_stage(text: str) -> Stage:
    """A stage from words such as ``SoftPCA(strength=0.05)``, with plain values only.

    Examples
    --------
    >>> parse_stage("ClipNorm(2.0)")
    ClipNorm(radius=2.0)
    """
    try:
        if len(text) > LONGEST_STAGE:  # long ones can exhaust the stack
            raise ValueError
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(call, [], [])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        name = call.func.id
        values = [ast.literal_eval(value) for value in call.args]
        named = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"{text!r:.200} is not a stage; write for instance SoftPCA(strength=0.05)"
        ) from None
    others = ("Context", "Encode", "PrivateEncode", "Stage")  # of which two need a schema
    known = [name for name in every.__all__ if name not in others]
    if name not in known:
        raise InputError(f"no stage is called {name!r:.80}; there are {', '.join(known)}")
    try:
        stage: Stage = getattr(every, name)(*values, **named)
    except (TypeError, ArithmeticError, AttributeError) as error:
        raise InputError(f"{name}: {error!s:.200}") from None
    return stage
