"""In how few directions the training of a PyTorch module moves: needs ``tacit[torch]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.exceptions import InputError
from tacit.networks.fit import resolve_settings
from tacit.networks.gradients import ModuleEngine
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.progress import Progress, silent
from tacit.research.trajectories.trajectory import (
    COMPONENTS,
    RETRAIN,
    Run,
    Trajectory,
    follow,
    noise_for,
)
from tacit.trainers import GradientTrainer
from tacit.trainers.settings import PublicFacts


def module_trajectory(
    module: Any,
    inputs: Any,
    targets: Any,
    *,
    loss: Callable[[Any, Any], Any],
    trainer: GradientTrainer,
    test: tuple[Any, Any],
    epsilon: float | None = 8.0,
    delta: float = 1e-5,
    parameters: Callable[[str], bool] | Sequence[str] | None = None,
    components: int = COMPONENTS,
    retrain: Sequence[int] = RETRAIN,
    passes: int = 1,
    folder: str | Path | None = None,
    public_size: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Trajectory:
    """Follow noisy descent on a module's parameters, and find the directions of its gradients.

    The run is a rehearsal: fast arithmetic, seeded noise, no guarantee. `fit_module` trains.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode. Its parameters and buffers are public.
    inputs : tensor or tuple of tensors
        What the module is called with; rows come first.
    targets : tensor
        One for each row.
    loss : callable
        Of the module's outputs and the targets, for a batch of one row.
    trainer : DPGD or DPSGD
        With ``steps``, ``learning_rate``, ``clip`` (and ``batch_size``).
    parameters : callable or sequence of str, optional
        Names of the parameters that are trained, or whether a name is one.
    test : (inputs, targets)
        Other rows, for the scores: accuracies, of the largest output.
    epsilon, delta : float
        Budget of the run; ``epsilon=None``: no noise.
    components : int
        Directions to find. Memory is some 8 bytes for each of them and each parameter, unless
        there is a folder.
    retrain : sequence of int
        Numbers of directions to repeat the run with; larger ones than were found are left out.
    passes : int
        How often to go through the run; from the second on the directions found are improved.
    folder : str or Path, optional
        Where to keep the gradients, 2 bytes for each step and parameter, in a file without a name:
        singular values are then right to some 4·10⁻⁵ of the norm of all gradients. The file holds
        private gradients.
    public_size : int, optional
        Number of rows that these stand for: noise is that of a run on so many.
    seed : int
        Of the noise of the rehearsal.
    progress : callable
        Told how far it is.

    Returns
    -------
    Trajectory
        Not releasable.

    Examples
    --------
    >>> found = module_trajectory(  # doctest: +SKIP
    ...     module, inputs, targets, loss=loss, trainer=trainer, test=(more_inputs, more_targets)
    ... )
    """
    run = module_run(
        module,
        inputs,
        targets,
        loss=loss,
        trainer=trainer,
        test=test,
        epsilon=epsilon,
        delta=delta,
        parameters=parameters,
        public_size=public_size,
        seed=seed,
    )
    return follow(
        run,
        components=components,
        retrain=retrain,
        passes=passes,
        measure="accuracy",
        dtype=np.float32,
        folder=folder,
        progress=progress,
    )


def module_run(
    module: Any,
    inputs: Any,
    targets: Any,
    *,
    loss: Callable[[Any, Any], Any],
    trainer: GradientTrainer,
    test: tuple[Any, Any],
    epsilon: float | None,
    delta: float,
    parameters: Callable[[str], bool] | Sequence[str] | None = None,
    public_size: int | None = None,
    seed: int = 0,
) -> Run:
    """Make ready a rehearsal of a module's training that can be repeated, noise and batches too.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode. Its parameters and buffers are public.
    inputs : tensor or tuple of tensors
        What the module is called with; rows come first.
    targets : tensor
        One for each row.
    loss : callable
        Of the module's outputs and the targets, for a batch of one row.
    trainer : DPGD or DPSGD
        With ``steps``, ``learning_rate``, ``clip`` (and ``batch_size``).
    test : (inputs, targets)
        Other rows, for the score: accuracy, of the largest output.
    epsilon, delta : float
        Budget of the run; ``epsilon=None``: no noise.
    parameters : callable or sequence of str, optional
        Names of the parameters that are trained, or whether a name is one.
    public_size : int, optional
        Number of rows that these stand for: noise is that of a run on so many.
    seed : int
        Of the noise of the rehearsal.

    Returns
    -------
    Run
        Whose ``train`` takes directions to stay within, and ``score`` weights.

    Examples
    --------
    >>> run = module_run(  # doctest: +SKIP
    ...     module, inputs, targets, loss=loss, trainer=trainer, test=(more_inputs, more_targets),
    ...     epsilon=8.0, delta=1e-5,
    ... )
    >>> run.score(run.train(within=directions.first(10)))  # doctest: +SKIP
    """
    if epsilon is not None:
        Budget(epsilon, delta)
    engine = ModuleEngine(module, inputs, targets, loss, parameters=parameters, arithmetic="fast")
    if public_size is not None and public_size < engine.n:
        raise InputError(
            f"public_size={public_size!r} must be at least the {engine.n} rows that are here"
        )
    mu = 1.0 if epsilon is None else gaussian_mu(epsilon, delta)
    facts = PublicFacts(public_size or engine.n, engine.d, 1, 1.0, mu)
    settings = resolve_settings(trainer, facts)
    noise = noise_for(settings, facts, (epsilon, delta))
    here = PublicFacts(engine.n, engine.d, 1, 1.0, mu)
    settings.check(here)  # batches must last
    noise *= settings.normaliser(here) / settings.normaliser(facts)
    rows, truth = test

    def score(weights: np.ndarray) -> float:
        return float((engine.outputs(weights, rows).argmax(dim=1) == truth).double().mean())

    return Run(engine, settings, here, noise, score, seed)
