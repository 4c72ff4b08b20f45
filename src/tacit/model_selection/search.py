"""Plans of which private trials choose one: settings, a number of trials, one budget for all.

A trial draws one of the settings, trains with it, and scores the result on the rows through
noise; training and score together are what a trial spends. How many trials are made is random.
Only the best is released, with its score. Stages that all settings have in common are fitted once,
and counted once, before the first trial; those that differ are a part of every trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.exceptions import InputError, of_public_facts
from tacit.mechanisms.lattice import require_precision
from tacit.model_selection.calibrated import SCORE_SHARE, CalibratedSearch, trial_events
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing.base import NoiselessStage
from tacit.privacy.accounting.accountants import PLD_SLACK, closed_form, epsilon, gaussian_epsilon
from tacit.privacy.accounting.calibrate import MARGIN, calibrate
from tacit.privacy.accounting.repeated import rate_for, weight
from tacit.privacy.budget import Budget
from tacit.privacy.events import MOST_ALTERNATIVES, Event, Gaussian, Repeated, sensitivity

MOST_SETTINGS = 10_000
MOST_DRAWS = 10**15  # set aside in δ, where they are less than 1e-38 at ε = 1
SHAPES = {"logarithmic": 0.0, "geometric": 1.0}


@dataclass(frozen=True)
class Trials:
    """How many trials are made: a random number, never none.

    Parameters
    ----------
    expected : float
        Their mean, at least 1.
    distribution : {"geometric", "logarithmic", "poisson"} or float
        A number is the shape η > -1 of the negative binomial, of which geometric (1) and
        logarithmic (0) are cases. The smaller the shape, the less a search costs, and the more
        often it makes a single trial. Poisson numbers stay near their mean and cost the most.

    Examples
    --------
    >>> Trials(10).event([[Gaussian(20.0)]]).rate
    0.1
    """

    expected: float = 10.0
    distribution: str | float = "geometric"

    def __post_init__(self) -> None:
        given = self.expected
        number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
        if not (number and 1 <= given < math.inf):
            raise InputError(f"trials={given!r:.80} must be a number of at least 1")
        kind = self.distribution
        if isinstance(kind, str):
            if kind not in (*SHAPES, "poisson"):
                raise InputError(
                    f"distribution={kind!r:.80} must be one of {', '.join((*SHAPES, 'poisson'))}, "
                    "or the shape of a negative binomial, a number"
                )
        elif isinstance(kind, bool) or not isinstance(kind, int | float | np.number):
            raise InputError(f"distribution={kind!r:.80} must be a name or a number")
        self.event([[Gaussian(1.0)]])  # refuses what cannot be had

    def event(self, trial: Sequence[Sequence[Event]]) -> Repeated:
        """Trials that spend these events each: one of the lists."""
        lists = tuple(tuple(events) for events in trial)
        name, shape = "negative-binomial", 0.0
        if self.distribution == "poisson":
            name = "poisson"
        elif isinstance(self.distribution, str):
            shape = SHAPES[self.distribution]
        else:
            shape = float(self.distribution)
            if not -1 < shape <= 100:
                raise InputError(f"distribution={shape!r}: a shape lies above -1, up to 100")
        rate = rate_for(float(self.expected), name, shape)
        return Repeated(trial=lists, distribution=name, shape=shape, rate=rate)


@dataclass(frozen=True)
class Search:
    """What is to be tried, before any number of rows is known.

    Parameters
    ----------
    plans : tuple of Plan
        One for every setting, all with the budget of the whole search.
    trials : Trials
        How many are made.
    settings : tuple of mappings
        What every plan sets, in words that may be published.
    """

    plans: tuple[Plan, ...]
    trials: Trials = Trials()
    settings: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.plans) <= MOST_SETTINGS:
            raise InputError(f"a search needs from 1 to {MOST_SETTINGS} settings to try")
        first = self.plans[0]
        for plan in self.plans:
            for name in ("budget", "neighbors", "arithmetic", "unit"):
                if getattr(plan, name) != getattr(first, name):
                    raise InputError(f"settings must agree in {name}: it is the search that has it")
            if plan.loss.task != first.loss.task:
                raise InputError("settings must agree in what is predicted, labels or numbers")
            if any(isinstance(stage, NoiselessStage) for stage in plan.stages):
                raise InputError(
                    "settings with a noiseless stage cannot be tried against each other: it moves "
                    "the "
                    "rows that the score is taken from. Use stages of another kind, or tune without"
                )
            if plan.target is not None:
                raise InputError(
                    f"{plan.target.name} looks at the targets once, and trials would each look: "
                    "say what is public of them (classes=, target_bounds=)"
                )
            if any(stage.fails for stage in plan.stages) and not self.shares_stages:
                raise InputError(
                    "stages that rest on a threshold, such as PrivateEncode, are fitted once, "
                    "before all trials: tune the trainer alone, or give them a schema in which "
                    "categories are public"
                )
            if not plan.trainer.descends:
                raise InputError(
                    f"{plan.trainer.name} takes no steps, so there is nothing to try: use DPGD"
                )
            if plan.trainer.local:
                raise InputError(
                    f"{plan.trainer.name} leaves no rows to score trials on: nobody may see them"
                )
        if first.arithmetic == "strict":
            raise InputError(
                "arithmetic='strict' does not check the sums behind scores: use arithmetic='exact'"
            )

    @property
    def shares_stages(self) -> bool:
        """Whether all settings have the same stages, which are then fitted once."""
        first = self.plans[0]

        def same(plan: Plan) -> bool:
            stages = len(plan.stages) == len(first.stages) and all(
                one is other for one, other in zip(plan.stages, first.stages, strict=True)
            )
            return stages and plan.loss.name == first.loss.name and plan.loss == first.loss

        return all(same(p) and p.fit_intercept == first.fit_intercept for p in self.plans)

    @of_public_facts
    def calibrate(self, *, size: int, columns: int, classes: int = 0) -> CalibratedSearch:
        """Fix every setting and all noise from public facts, as `Plan.calibrate` does."""
        facts = {"size": size, "columns": columns, "classes": classes}
        first = self.plans[0].expanded(**facts)
        if self.shares_stages and first is not self.plans[0]:
            # The same stages for all, as they were.
            plans = (
                replace(plan, stages=first.stages, remarks=first.remarks) for plan in self.plans
            )
            return replace(self, plans=tuple(plans)).calibrate(**facts)
        grid = any(plan.trainer.samples for plan in self.plans)
        found = self.calibrated_on(facts, grid)
        if not grid and not closed_form([event for _, event in found.spent]):
            found = self.calibrated_on(facts, True)
        return found

    def calibrated_on(self, facts: Mapping[str, int], grid: bool) -> CalibratedSearch:
        first, shared = self.plans[0], self.shares_stages
        budget, neighbors, unit = first.budget, first.neighbors, sensitivity(first.neighbors)
        many = weight(self.trials.event([[Gaussian(1.0)]]))
        most = 0 if first.arithmetic == "fast" else MOST_DRAWS
        on_grid = PLD_SLACK * (1 + many) if grid else 0.0
        slack = require_precision(budget.epsilon, budget.delta, most, grid=on_grid, ideal=True)
        left = Budget(budget.epsilon, budget.delta - slack)
        fixed = first.stage_events() if shared else []
        before = [event for _, event in fixed]

        def as_gaussian(z: float) -> list[Event]:
            return [*before, self.trials.event([[Gaussian(z)]])]

        one = calibrate(as_gaussian, left, neighbors)  # noise of a whole trial, as one Gaussian
        score = Gaussian(math.nextafter(one / SCORE_SHARE, math.inf))
        training = unit / one * math.sqrt(1 - SCORE_SHARE**2) * (1 - 1e-9)
        plans = tuple(self._trial(plan, training, left.delta / many, facts) for plan in self.plans)

        def events(factor: float) -> list[Event]:
            lists = [
                (*(event for _, event in trial_events(plan, factor, shared)), score)
                for plan in plans
            ]
            distinct = list(dict.fromkeys(lists))
            if len(distinct) > MOST_ALTERNATIVES:
                raise InputError(
                    f"the settings differ in their number of steps, or in noise, in {len(distinct)}"
                    f" ways; {MOST_ALTERNATIVES} are allowed: give all of them the same steps="
                )
            return [*before, self.trials.event(distinct)]

        factor = 1.0
        spent = epsilon(events(factor), left.delta, neighbors)
        target = budget.epsilon * (1 - MARGIN / 2)
        if not (0.98 if grid else 0.0) * target <= spent <= target:
            factor = calibrate(events, left, neighbors)
        repeated = events(factor)[-1]
        assert isinstance(repeated, Repeated)
        louder = tuple(
            replace(plan, noise_multiplier=plan.noise_multiplier * factor) for plan in plans
        )
        draws = math.ceil(many) * (max(plan.draws for plan in plans) + 2) + 1
        if draws > MOST_DRAWS:
            raise InputError("the search draws more noise than can be accounted for: fewer steps")
        return CalibratedSearch(
            self,
            louder,
            (*fixed, ("Search", repeated)),
            repeated,
            score.noise_multiplier,
            slack,
            draws if first.arithmetic != "fast" else 0,
        )

    def _trial(
        self, plan: Plan, training: float, delta: float, facts: Mapping[str, int]
    ) -> CalibratedPlan:
        """One setting with the noise of a trial."""
        if self.shares_stages:
            found = plan.calibrate(**facts, training=training)
        else:
            own = Budget(gaussian_epsilon(training, delta), delta)
            found = replace(plan, budget=own).calibrate(**facts)
        if found.test is not None:
            raise InputError("stages with a private test cannot be tried against each other")
        return found
