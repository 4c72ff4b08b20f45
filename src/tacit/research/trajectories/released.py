r"""The directions of a run, as its noisy gradients show them: nothing that was not released.

The noisy gradients H + N of r steps are covered by the event of the run, so their singular values
cost nothing more. By Weyl's inequality each is within ‖N‖ of that of H, and for independent
Gaussians of deviation s, ‖N‖ ≤ s(√r + √p + t) with probability 1 − e^(−t²/2) (Davidson & Szarek
2001, Theorem II.13). What lies above that is no mere noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.rows import as_rows
from tacit.diagnostics.lipschitz import power_law_fit
from tacit.exceptions import InputError, MissingBound
from tacit.ledger import Ledger
from tacit.losses import Loss
from tacit.mechanisms.random_streams import Key
from tacit.networks.fit import ModuleFit, fit_module
from tacit.plan import Fit, Plan
from tacit.plan.defaults import resolve_loss
from tacit.preprocessing import Normalize, PrivateCenter, Stage
from tacit.preprocessing.base import NoiselessStage
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.public_size import resolve_size
from tacit.research.trajectories.row_file import RowFile
from tacit.research.trajectories.sketch import Directions, Sketch
from tacit.research.trajectories.trajectory import COMPONENTS
from tacit.trainers import DPGD, GradientTrainer
from tacit.trainers.base import is_auto
from tacit.trainers.gradient import require_descent

FAILURE = 0.05


@dataclass(frozen=True, eq=False)
class ReleasedTrajectory:
    """Directions of noisy gradients: they may go out if the certificate of their run says so.

    Attributes
    ----------
    steps, parameters : int
    singular_values, at_most : ndarray of shape (k,)
        Of the noisy mean gradients; the true ones lie between these two.
    noise : float
        Standard deviation of the noise on a coordinate.
    edge : float
        Largest singular value of the noise alone, but with probability 5%.
    above_noise : int
        How many singular values exceed it.
    decay : float or None
        Power by which those fall, if there are three.
    fit : Fit or ModuleFit
        What the run trained.
    directions : Directions
    """

    steps: int
    parameters: int
    singular_values: np.ndarray
    at_most: np.ndarray
    noise: float
    edge: float
    above_noise: int
    decay: float | None
    fit: Fit | ModuleFit
    directions: Directions = field(repr=False)

    @property
    def certificate(self) -> Certificate:
        """Certificate of the run."""
        return self.fit.certificate

    @property
    def releasable(self) -> bool:
        """Whether it may go out."""
        return self.certificate.releasable

    def to_dict(self) -> dict[str, Any]:
        """What was found, with the certificate, as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {
            "releasable": self.releasable,
            "epsilon": self.certificate.epsilon,
            "delta": self.certificate.delta,
            "neighbors": self.certificate.neighbors,
            "steps": self.steps,
            "parameters": self.parameters,
            "singular_values": self.singular_values.tolist(),
            "at_most": self.at_most.tolist(),
            "noise": self.noise,
            "edge": self.edge,
            "above_noise": self.above_noise,
            "decay": self.decay,
            "certificate": self.certificate.to_dict(),
        }


def trajectory_privately(
    data: Any,
    labels: Any,
    *,
    epsilon: float,
    delta: float,
    classes: Sequence[Any] | None = None,
    loss: str | Loss | None = None,
    stages: Sequence[Stage] | None = None,
    trainer: GradientTrainer | None = None,
    components: int = COMPONENTS,
    neighbors: str = "replace_special",
    public_size: int | None = None,
    arithmetic: str = "exact",
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> ReleasedTrajectory:
    """Train a linear model, and find the directions of its noisy gradients on the way.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    labels : sequence
        Classes, or numbers for a loss of numbers.
    epsilon, delta : float
        The budget of the fit, which covers all that is returned.
    classes : sequence, optional
        The labels that may occur, which are public: needed unless the loss is one of numbers.
    loss : str or Loss, optional
        Logistic for two classes, softmax for more.
    stages : sequence of stages, optional
        Before training, none of them noiseless; by default rows are scaled to norm one, and their
        private mean is subtracted.
    trainer : DPGD or DPSGD, optional
        Settings; those left at ``"auto"`` follow from public facts.
    components : int
        Directions to find, as far as there are steps and parameters.
    neighbors : str
        The relation. With ``add_or_remove_one`` ``public_size`` must be given.
    public_size : int, optional
        Public number that stands for the number of rows.
    arithmetic : {"exact", "strict", "fast"}
        Whether noise is exact, exact and checked, or in floating point.
    ledger : Ledger, optional
        Account that the budget is taken from, before any noise is drawn.
    random_state : int, optional
        Repeatable noise: for tests, not for release.

    Returns
    -------
    ReleasedTrajectory
        With the fit and its certificate.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(size=(5000, 20)) + 2.0 * y[:, None]
    >>> found = trajectory_privately(
    ...     X, y, epsilon=1.0, delta=1e-6, classes=[0, 1], trainer=DPGD(steps=30), random_state=0
    ... )
    >>> found.above_noise, found.certificate.verify().holds
    (1, True)
    """
    rows, names = as_rows(data), np.asarray(labels)
    if names.shape != (rows.n,):
        raise InputError(f"labels must be one for each of the {rows.n} rows")
    known = None if classes is None else np.asarray(list(classes))
    count = 2 if known is None else max(2, len(known))
    loss = resolve_loss("auto" if loss is None else loss, count)
    if loss.task == "classification":
        if known is None or len(known) < 2:
            raise MissingBound("trajectory_privately", "classes=, the labels that may occur")
        order = np.argsort(known)
        place = np.minimum(np.searchsorted(known[order], names), len(known) - 1)
        codes = order[place]
        if not (known[codes] == names).all():
            raise InputError("there is a label that is not among the classes")
        targets = loss.targets(codes, outputs=loss.outputs(len(known)))
    else:
        targets = loss.targets(names.astype(np.float64), outputs=1)
    stages = (Normalize(), PrivateCenter()) if stages is None else tuple(stages)
    if any(isinstance(stage, NoiselessStage) for stage in stages):
        raise InputError(
            "the noise of a run behind a noiseless stage changes: leave such stages out"
        )
    plan = Plan(
        Budget(epsilon, delta),
        stages,
        trainer or DPGD(),
        loss,
        neighbors,
        arithmetic=arithmetic,
    ).calibrate(
        size=resolve_size(rows.n, neighbors, public_size),
        columns=rows.d,
        classes=0 if known is None else len(known),
    )
    settings, facts = require_descent(plan.trainer), plan.facts
    count = (facts.features + 1) * facts.outputs
    sketch = Sketch(min(int(components), int(settings.steps), count))
    key = Key.fresh() if random_state is None else Key.from_seed(random_state)
    said = [] if known is None else [f"the {len(known)} classes were given, not read off the rows"]
    fit = plan.run(rows, targets, key=key, assumptions=said, ledger=ledger, on_gradient=sketch.add)
    noise = settings.deviation(plan.noise_multiplier, 0.0, None) / settings.normaliser(facts)
    return _read(sketch.directions().first(sketch.components), fit, noise)


def module_trajectory_privately(
    module: Any,
    inputs: Any,
    targets: Any,
    *,
    loss: Callable[[Any, Any], Any],
    trainer: GradientTrainer,
    components: int = COMPONENTS,
    folder: str | Path | None = None,
    **settings: Any,
) -> ReleasedTrajectory:
    """Train a PyTorch module, and find the directions of its noisy gradients on the way.

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
    **settings
        ``epsilon``, ``delta`` and what else `tacit.networks.fit.fit_module` takes, but
        ``on_gradient``.
    components : int
        Directions to find, as far as there are steps.
    folder : str or Path, optional
        Where to keep the noisy gradients, 2 bytes for each step and parameter, in a file without a
        name: singular values are then right to some 4·10⁻⁵ of the norm of all gradients.

    Returns
    -------
    ReleasedTrajectory
        With the fit and its certificate.

    Examples
    --------
    >>> found = module_trajectory_privately(  # doctest: +SKIP
    ...     module, inputs, targets, loss=loss, trainer=trainer, epsilon=8.0, delta=1e-5
    ... )
    """
    steps = components if is_auto(trainer.steps) else int(trainer.steps)  # refused below
    many = min(int(components), steps)
    sketch = Sketch(many, dtype=np.float32) if folder is None else RowFile(folder, vectors=many)
    fit = fit_module(
        module, inputs, targets, loss=loss, trainer=trainer, on_gradient=sketch.add, **settings
    )
    return _read(sketch.directions().first(many), fit, fit.noise)


def _read(found: Directions, fit: Fit | ModuleFit, noise: float) -> ReleasedTrajectory:
    """Everything that follows from what was released; rows are out of sight here."""
    steps, size = found.rows, found.vectors.shape[1]
    edge = noise * (math.sqrt(steps) + math.sqrt(size) + math.sqrt(2 * math.log(1 / FAILURE)))
    above = int((found.values > edge).sum())
    decay = power_law_fit(found.values[:above]).decay if above > 2 else None
    return ReleasedTrajectory(
        steps=steps,
        parameters=size,
        singular_values=found.values,
        at_most=found.at_most,
        noise=noise,
        edge=edge,
        above_noise=above,
        decay=decay,
        fit=fit,
        directions=found,
    )
