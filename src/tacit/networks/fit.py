"""Private training of PyTorch modules: the parameters that are chosen, with a certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tacit import __version__
from tacit.exceptions import InputError
from tacit.ledger import Ledger
from tacit.ledger.required import require_ledger
from tacit.mechanisms.lattice import require_precision, sampler_delta
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.networks.factors import load_torch
from tacit.networks.gradients import ModuleEngine
from tacit.privacy import sentences
from tacit.privacy.accounting.accountants import PLD_SLACK, accountant_for, gaussian_mu
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import sensitivity
from tacit.privacy.public_size import resolve_size
from tacit.progress import Progress, silent
from tacit.trainers import DPGD, DPSGD, GradientTrainer
from tacit.trainers.base import is_auto
from tacit.trainers.descent import train_together
from tacit.trainers.settings import PublicFacts

__all__ = ["ModuleFit", "fit_module", "resolve_settings"]

PLAIN: dict[str, Any] = {
    "momentum": 0.0,
    "average": "last",
    "schedule": "constant",
    "intercept_fraction": 1.0,
}


@dataclass(frozen=True, eq=False)
class ModuleFit:
    """Trained parameters, and what they cost.

    Attributes
    ----------
    parameters : dict of str to tensor
        For ``module.load_state_dict(parameters, strict=False)``.
    certificate : Certificate
    noise : float
        Standard deviation of the noise on a coordinate of a step's mean gradient.
    """

    parameters: dict[str, Any] = field(repr=False)
    certificate: Certificate
    noise: float


def resolve_settings(trainer: GradientTrainer, facts: PublicFacts) -> GradientTrainer:
    """A trainer with every setting fixed; what decides the outcome must be given."""
    if type(trainer) not in (DPGD, DPSGD):
        raise InputError(f"a module is trained by DPGD or DPSGD, not by {trainer!r:.80}")
    trainer.check(facts)
    if trainer.clipping != "flat" or getattr(trainer, "norm", None) is not None:
        raise InputError("for a module, clipping must be flat, and norm is not known")
    if trainer.alpha:
        raise InputError(
            f"{trainer.name}(alpha={trainer.alpha!r}) pulls towards zero, and a module begins at "
            "its own parameters: pass anchor=, which pulls towards those"
        )
    trainer = replace(trainer, **{k: v for k, v in PLAIN.items() if is_auto(getattr(trainer, k))})
    lost = [name for name, value in trainer.parameters().items() if is_auto(value)]
    if lost:
        raise InputError(f"{trainer.name}: there is no rule for modules; pass {', '.join(lost)}")
    return trainer


def fit_module(
    module: Any,
    inputs: Any,
    targets: Any,
    *,
    loss: Callable[[Any, Any], Any],
    trainer: GradientTrainer,
    epsilon: float,
    delta: float,
    parameters: Callable[[str], bool] | Sequence[str] | None = None,
    neighbors: str = "replace_special",
    public_size: int | None = None,
    arithmetic: str = "exact",
    ledger: Ledger | None = None,
    random_state: int | None = None,
    on_gradient: Callable[[np.ndarray], None] | None = None,
    progress: Progress = silent,
) -> ModuleFit:
    """Train some parameters of a PyTorch module on private rows, spending the budget.

    Every row's gradient is clipped; batches are all rows (`DPGD`) or Poisson samples (`DPSGD`).
    The module itself is left as it is.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode. Its parameters and buffers are public: pre-trained, or at random.
    inputs : tensor or tuple of tensors
        What the module is called with; rows come first.
    targets : tensor
        One for each row.
    loss : callable
        Of the module's outputs and the targets, for a batch of one row.
    trainer : DPGD or DPSGD
        With ``steps``, ``learning_rate``, ``clip`` (and ``batch_size``); by default no momentum,
        a constant rate, and the last iterate. ``anchor``, ``radius`` and
        ``constraint`` are around the module's own parameters.
    epsilon, delta : float
        The budget.
    parameters : callable or sequence of str, optional
        Names of the parameters that are trained, or whether a name is one; by default all that
        require a gradient.
    neighbors : str
        The relation. With ``add_or_remove_one`` ``public_size`` must be given.
    public_size : int, optional
        Public number that stands for the number of rows.
    arithmetic : {"exact", "fast"}
        Exact sums and noise, where a row counts the same whatever comes with it; or floating
        point, where the certificate says "ideal arithmetic assumed".
    ledger : Ledger, optional
        Account that the budget is taken from, before any noise is drawn.
    random_state : int, optional
        Repeatable noise: for tests, not for release.
    on_gradient : callable, optional
        Shown the noisy mean gradient of every step, which the certificate covers.
    progress : callable
        Told how far it is.

    Returns
    -------
    ModuleFit
        The trained parameters, and their certificate.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> fit = fit_module(
    ...     torch.nn.Linear(3, 2),
    ...     torch.randn(500, 3),
    ...     torch.arange(500) % 2,
    ...     loss=torch.nn.functional.cross_entropy,
    ...     trainer=DPGD(steps=10, learning_rate=1.0, clip=1.0),
    ...     epsilon=1.0,
    ...     delta=1e-5,
    ... )  # doctest: +SKIP
    """
    budget = Budget(epsilon, delta)
    engine = ModuleEngine(
        module, inputs, targets, loss, parameters=parameters, arithmetic=arithmetic
    )
    size = resolve_size(engine.n, neighbors, public_size)
    mu = gaussian_mu(budget.epsilon, budget.delta) / sensitivity(neighbors)
    facts = PublicFacts(size, engine.d, 1, 1.0, mu)
    settings = resolve_settings(trainer, facts)
    draws = settings.draws(engine.d, 1) if arithmetic == "exact" else 0
    pld = accountant_for([settings.event(1.0, facts)]) == "pld"
    slack = require_precision(budget.epsilon, budget.delta, draws, grid=PLD_SLACK * pld, ideal=True)
    left = Budget(budget.epsilon, budget.delta - slack)
    z = calibrate(lambda z: [settings.event(z, facts)], left, neighbors)
    spent = settings.events(z, facts)
    key = Key.fresh() if random_state is None else Key.from_seed(random_state)
    said = {"kind": "module", "rows": size, "parameters": engine.d, "arithmetic": arithmetic}
    entry = None
    if ledger is not None:
        require_ledger(ledger, seeded=key.seeded)
        entry = ledger.reserve(spent, neighbors=neighbors, draws=draws, budget=budget, plan=said)
    run = Releases(key, spent)
    tokens = [run.token(settings.name)]
    weights = train_together(
        engine, [settings], tokens, facts, progress=progress, on_gradient=on_gradient
    )[0]
    run.close()
    told = {"name": settings.name, "parameters": settings.parameters()}
    plan = {**said, "trained": list(engine.names), "trainer": told}
    certificate = Certificate.issue(
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbors=neighbors,
        spent=spent,
        releasable=not key.seeded,
        reasons=sentences.reasons(key.seeded),
        assumptions=_assumptions(neighbors, size, arithmetic),
        warnings=sentences.cautions(budget.delta, size),
        numerical_delta=slack,
        sampler_delta=sampler_delta(draws, spent, budget),
        plan={**plan, **({"ledger": entry.to_dict()} if entry else {})},
        versions={
            "tacit": __version__,
            "numpy": np.__version__,
            "torch": str(load_torch().__version__),
        },
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if entry is not None:
        entry.settle("model", certificate.digest)
    noise = settings.deviation(z, 0.0, None) / settings.normaliser(facts)
    return ModuleFit(engine.parameters(weights), certificate, noise)


def _assumptions(neighbors: str, size: int, arithmetic: str) -> tuple[str, ...]:
    sums: tuple[str, ...] = (
        sentences.EXACT,
        "PyTorch gives the gradient of a row, at its place in a group of fixed size, the same "
        "value each time, whatever the other rows, and fails for no row",
    )
    if arithmetic == "fast":
        sums = (sentences.IDEAL,)
    return (
        sentences.rows_known(size, neighbors),
        "the module as it was given, its parameters and buffers included, is public, and so are "
        "the shape of a row and the classes",
        sentences.SETTINGS,
        *sums,
    )
