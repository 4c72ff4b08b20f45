"""Audits of plans, recipes and leaky pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tacit.audit.canaries import one_run
from tacit.audit.distinguish import Observe, Subject, distinguish, processes, separation, worst
from tacit.audit.leaky_pipelines import leaky_pipeline
from tacit.audit.neighbouring_tables import Pair, pairs, shape
from tacit.diagnostics.base import require_fraction
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.defaults import resolve_relation
from tacit.plan.recipes import RECIPES, recipe
from tacit.preprocessing.base import Stage
from tacit.privacy.budget import Budget
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit
from tacit.progress import Progress, silent
from tacit.trainers import DPGD

METHODS = ("many-runs", "one-run")
OBSERVE = ("steps", "model")
TRAINER: Mapping[str, Any] = {"steps": 2, "learning_rate": 0.1}


def settings(name: str, columns: int) -> dict[str, Any]:
    """Settings of a recipe by which the account leaves little room: few steps, a small clip."""
    both = np.vstack([np.eye(columns), -np.eye(columns)])  # their mean is zero: nothing is moved
    special: dict[str, dict[str, Any]] = {
        "dpsgd": {"batch_size": 8.0},
        "dpsgd-f-theory": {"radius": 1.0, "clip": 0.1, "algorithm": 2},
        "pillar": {"public": both, "n_components": columns},
        "gep": {"public": both, "n_components": columns // 2},
        "adadps": {"public": both},
        "dp-raft": {"clip": 0.1},
        "dp-raft+pillar": {"clip": 0.1, "public": both, "n_components": columns},
        "jl": {"n_components": columns, "seed": 0},
        "dp-pca": {"n_components": columns},
        # Steps that hardly move: the noise of a step follows the weights. Clipped so that the
        # common rows of `tacit.audit.neighbouring_tables` just are not, and the replaced one can do
        # much.
        "soft-pca": {"strength": 1.0, "clip": 0.195, "learning_rate": 0.01},
        "ptr-pca": {"n_components": 1, "gap": 0.88, "clip": 0.45, "learning_rate": 0.01},
    }
    return {**TRAINER, **special.get(name, {})}


@dataclass(frozen=True)
class Audit:
    """What was found out about a claim.

    Attributes
    ----------
    name : str
        What was audited.
    claimed, delta : float
        (ε, δ), as claimed.
    lower : float
        ε is at least this, with probability ``confidence`` over the runs.
    confidence : float
    runs : int
        Runs, or canaries in one run.
    method : {"many-runs", "one-run"}
    observe : {"steps", "model"}
    neighbors : str
    details : dict
        The tables, the test and its errors; how far apart each pair's releases lie.
    """

    name: str
    claimed: float
    delta: float
    lower: float
    confidence: float
    runs: int
    method: str
    observe: str
    neighbors: Neighbors
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the claim was not refuted."""
        return self.lower <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {**asdict(self), "holds": self.holds}


def prepare(
    what: str | Plan | CalibratedPlan | Sequence[Stage],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Neighbors = "auto",
    unit: Unit = ROW,
    size: int | None = None,
    columns: int | None = None,
    **options: Any,
) -> tuple[str, CalibratedPlan]:
    """A name and a calibrated plan, of the size at which it is put to the hardest test.

    As `audit` does it; keep the plan to audit it several times.

    Parameters
    ----------
    what : str, Plan, CalibratedPlan or sequence of Stage
        A recipe by its name, a plan, or stages.
    epsilon, delta : float, optional
        The budget, unless a plan has one.
    neighbors : str
        The relation.
    unit : Unit
        Of privacy, for a recipe or stages.
    size, columns : int, optional
        Of the tables; chosen unless given.
    **options
        For the recipe.

    Returns
    -------
    name : str
        What is audited.
    plan : CalibratedPlan
        To be passed to `audit`.

    Examples
    --------
    >>> name, plan = prepare("dpsgd-f", epsilon=4.0, delta=1e-5)
    >>> name
    'dpsgd-f'
    """
    if isinstance(what, CalibratedPlan):
        _same(what.plan.budget, epsilon, delta)
        return _name(what.plan.stages), what
    if isinstance(what, Plan):
        _same(what.budget, epsilon, delta)
        plan, name = what, _name(what.stages)
    else:
        if epsilon is None or delta is None:
            raise InputError("an audit of a recipe or of stages needs epsilon= and delta=")
        if isinstance(what, str):
            if what not in RECIPES:
                raise InputError(f"no recipe is called {what!r}; there are {', '.join(RECIPES)}")
            name = what
            made = recipe(what, **{**settings(what, columns or 2), **options})
            stages, trainer = tuple(made["stages"]), made["trainer"]
        else:
            stages = tuple(what)
            name, trainer = _name(stages), DPGD(**{**TRAINER, **options})
        relation = resolve_relation(neighbors, stages, trainer)
        budget = Budget(epsilon, delta)
        plan = Plan(budget, stages, trainer, get_loss("logistic"), relation, unit=unit)
    rows, width = shape(plan)
    classes = 0 if plan.loss.task == "regression" else 2
    return name, plan.calibrate(size=size or rows, columns=columns or width, classes=classes)


def _same(budget: Budget, epsilon: float | None, delta: float | None) -> None:
    if epsilon not in (None, budget.epsilon) or delta not in (None, budget.delta):
        raise InputError("the plan has a budget of its own; leave out epsilon and delta")


def _name(stages: Sequence[Stage]) -> str:
    return " → ".join(stage.name for stage in stages)


def audit(
    what: str | Plan | CalibratedPlan | Sequence[Stage],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Neighbors = "auto",
    unit: Unit = ROW,
    runs: int = 2000,
    confidence: float = 0.95,
    observe: Observe = "steps",
    method: str = "many-runs",
    pair: Pair | None = None,
    jobs: int | None = None,
    seed: int | str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Audit:
    """Try to refute the (ε, δ) of a whole plan.

    Parameters
    ----------
    what : str, Plan, CalibratedPlan or list of stages
        A recipe by name, a plan, or stages in front of full-batch descent. Tables are
        made for it: tiny and as bad as its rules allow. A `CalibratedPlan` keeps its size.
    epsilon, delta : float
        The claim, unless a plan comes with its own.
    neighbors : str
        The relation, for a recipe or stages.
    unit : Unit
        Of privacy, for a recipe or stages: people have as many rows as count, all alike.
    runs : int
        Runs of the plan, half of them on either table; or canaries in a single run.
    confidence : float
        With which ``lower`` is one.
    observe : {"steps", "model"}
        What the adversary sees: every noisy sum, as the account assumes, or the model alone.
    method : {"many-runs", "one-run"}
        Telling two tables apart, many times; or guessing the coins of many canaries, once.
    pair : Pair, optional
        Two tables of one's own instead.
    jobs : int, optional
        Processes; −1 for one per core. By default the one we are in.
    seed : int or str, optional
        Makes the audit repeatable.
    progress : Progress, optional
        Told of the runs done.
    **options
        Settings of the recipe, or of `DPGD` for stages.

    Returns
    -------
    Audit

    Examples
    --------
    >>> found = audit("dp-gd", epsilon=4.0, delta=1e-5, runs=400, seed=0)
    >>> 1.0 < found.lower <= found.claimed
    True
    """
    if method not in METHODS:
        raise InputError(f"method={method!r} must be one of {', '.join(METHODS)}")
    if observe not in OBSERVE:
        raise InputError(f"observe={observe!r} must be one of {', '.join(OBSERVE)}")
    require_fraction(confidence=confidence)
    least = 40 if method == "many-runs" else 2
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < least:
        raise InputError(f"runs={runs!r} must be an integer of at least {least}")
    if method == "one-run":
        if unit != ROW or (isinstance(what, Plan) and what.unit != ROW):
            raise InputError("canaries of one run are rows: people are audited by many-runs")
        wide = {"size": runs, "columns": runs, **options}
        name, plan = prepare(what, epsilon=epsilon, delta=delta, neighbors=neighbors, **wide)
        guessed = one_run(plan, observe=observe, confidence=confidence, seed=seed)
        settings = {"confidence": confidence, "runs": guessed.canaries, "observe": observe}
        return _audit(name, plan, asdict(guessed), method=method, **settings)
    known: dict[str, Any] = {"neighbors": neighbors, "unit": unit}
    name, plan = prepare(what, epsilon=epsilon, delta=delta, **known, **options)
    if pair is not None:
        if plan.plan.unit != ROW:
            raise InputError("tables of people are made by the audit: leave out pair")
        _neighbours(pair, plan)
    how: dict[str, Any] = {"runs": runs, "confidence": confidence, "observe": observe}
    return _many(name, plan, pair, **how, jobs=jobs, seed=seed, progress=progress)


def _neighbours(pair: Pair, plan: CalibratedPlan) -> None:
    """Refuse tables about which the guarantee says nothing."""
    size, relation = plan.facts.size, plan.plan.neighbors
    first, second = (len(table.rows) for table in (pair.first, pair.second))
    wanted = (size, size) if relation == "replace_one" else (size, size - 1)
    if (first, second) != wanted:
        raise InputError(
            f"under {relation} with {size} rows, the tables of a pair have {wanted[0]} and "
            f"{wanted[1]}, not {first} and {second}"
        )
    rest = second - size + 1  # where the common rows of the second begin
    if not (
        np.array_equal(pair.first.rows[1:], pair.second.rows[rest:], equal_nan=True)
        and np.array_equal(pair.first.labels[1:], pair.second.labels[rest:])
    ):
        raise InputError("the tables of a pair may differ in their first row only")


def audit_leaky(
    name: str,
    *,
    epsilon: float,
    delta: float,
    runs: int = 2000,
    confidence: float = 0.95,
    observe: Observe = "steps",
    jobs: int | None = None,
    seed: int | str | None = None,
    progress: Progress = silent,
) -> Audit:
    """Try to refute the ε of a pipeline that ignores its preprocessing.

    The pipelines are those of `tacit.audit.leaky_pipelines`: what people do by mistake.

    Parameters
    ----------
    name : {"centring", "dedup", "pca"}
        What is done to the private rows and not counted.
    epsilon, delta : float
        What is claimed.
    runs : int
        How many models are trained.
    confidence : float
        With which the lower bound holds.
    observe : {"steps", "model"}
        Whether the attacker sees every step, or the model alone.
    jobs : int, optional
        Processes; one a core unless given.
    seed : int or str, optional
        Makes the audit repeatable.
    progress : callable
        Told how far it is.

    Returns
    -------
    Audit
        With the lower bound on ε, and whether the claim stands.

    Examples
    --------
    >>> found = audit_leaky("centring", epsilon=1.0, delta=1e-5, runs=200, seed=0)
    >>> found.holds, found.lower > 2 * found.claimed
    (False, True)
    """
    chosen = leaky_pipeline(name)
    plan, pair = chosen.plan(epsilon, delta), chosen.prepared()
    how: dict[str, Any] = {"runs": runs, "confidence": confidence, "observe": observe}
    return _many(f"leaky {name}", plan, pair, **how, jobs=jobs, seed=seed, progress=progress)


def _many(
    name: str,
    plan: CalibratedPlan,
    pair: Pair | None,
    *,
    runs: int,
    confidence: float,
    observe: Observe,
    jobs: int | None,
    seed: int | str | None,
    progress: Progress,
) -> Audit:
    if pair is None:
        subject, apart = worst([Subject(plan, found, observe) for found in pairs(plan)])
    else:
        subject = Subject(plan, pair, observe)
        apart = {pair.name: separation(subject)}
    found = distinguish(
        subject,
        runs=runs,
        confidence=confidence,
        jobs=processes(jobs),
        seed=seed,
        progress=progress,
    )
    details = {"pair": subject.pair.name, **asdict(found), "separation": apart}
    settings = {"confidence": confidence, "runs": runs, "method": "many-runs", "observe": observe}
    return _audit(name, plan, details, **settings)


def _audit(name: str, plan: CalibratedPlan, details: dict[str, Any], **settings: Any) -> Audit:
    budget = plan.plan.budget
    return Audit(
        name=name,
        claimed=budget.epsilon,
        delta=budget.delta,
        lower=details.pop("lower"),
        neighbors=plan.plan.neighbors,
        details=details,
        **settings,
    )
