"""Plans of which private trials choose one: settings, a number of trials, one budget for all.

A trial draws one of the settings, trains with it, and scores the result on the rows through
noise; training and score together are what a trial spends. How many trials are made is random.
Only the best is released, with its score. Stages that all settings have in common are fitted once,
and counted once, before the first trial; those that differ are a part of every trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tacit.data.rows import Rows
from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.exceptions import InputError, of_public_facts
from tacit.ledger import Ledger
from tacit.losses import Loss
from tacit.mechanisms.lattice import require_precision
from tacit.mechanisms.noise import Key
from tacit.mechanisms.release import BoundedSum, Draws, Releases
from tacit.mechanisms.trials import chances
from tacit.plan import CalibratedPlan, Fit, Plan
from tacit.plan.fit import Prepared
from tacit.plan.validate import validate_init, validate_rows
from tacit.preprocessing.base import NoiselessStage
from tacit.privacy.accounting.accountants import (
    PLD_SLACK,
    closed_form,
    epsilon,
    gaussian_epsilon,
)
from tacit.privacy.accounting.calibrate import MARGIN, calibrate
from tacit.privacy.accounting.repeated import rate_for, weight
from tacit.privacy.budget import Budget
from tacit.privacy.events import (
    MOST_ALTERNATIVES,
    Event,
    Gaussian,
    Repeated,
    sensitivity,
)

__all__ = ["CalibratedSearch", "Found", "Search", "Trials"]

SCORE_SHARE = 0.2  # part of a trial's Gaussian budget that its score takes: 2% more noise
MOST_SETTINGS = 10_000
SCORE = "Score"  # what the account of a trial calls its noisy score
MOST_DRAWS = 10**15  # set aside in δ, where they are less than 1e-38 at ε = 1
TOGETHER = 16  # settings in one product; more would not be faster
SHAPES = {"logarithmic": 0.0, "geometric": 1.0}


Start: TypeAlias = tuple[np.ndarray, np.ndarray] | None  # coefficients and intercepts


def _zero(loss: Loss) -> Start:
    return None


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
            for name in ("budget", "neighbors", "arithmetic"):
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
        first = self.plans[0].expanded(size=size, columns=columns)
        if self.shares_stages and first is not self.plans[0]:
            # The same stages for all, as they were.
            plans = (
                replace(plan, stages=first.stages, remarks=first.remarks) for plan in self.plans
            )
            return replace(self, plans=tuple(plans)).calibrate(**facts)
        grid = any(plan.trainer.samples for plan in self.plans)
        found = self._calibrated(facts, grid)
        if not grid and not closed_form([event for _, event in found.spent]):
            found = self._calibrated(facts, True)
        return found

    def _calibrated(self, facts: Mapping[str, int], grid: bool) -> CalibratedSearch:
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
                (*(event for _, event in _trial_events(plan, factor, shared)), score)
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


def _trial_events(
    plan: CalibratedPlan, factor: float, shared: bool
) -> tuple[tuple[str, Event], ...]:
    """What training spends with so many times the noise, and the stages if they are not shared."""
    trainer = plan.trainer.events(plan.noise_multiplier * factor, plan.facts)
    stages = () if shared else plan.spent[: len(plan.spent) - len(trainer)]
    return (*stages, *trainer)


class Found(NamedTuple):
    """The best trial: its model, the number of its setting, and its noisy score."""

    fit: Fit
    setting: int
    score: float


class _Best(NamedTuple):
    score: int
    trial: int
    prepared: Prepared
    weights: np.ndarray


@dataclass(frozen=True)
class CalibratedSearch:
    """A search with every number fixed: what will run, and what it will cost.

    Attributes
    ----------
    plans : tuple of CalibratedPlan
        Every setting with the noise of a trial.
    spent : tuple of (str, Event)
        What the whole search spends: shared stages, then the repeated trials.
    event : Repeated
        The trials.
    score_noise : float
        Noise multiplier of a trial's score.
    numerical_delta : float
        Part of δ that is set aside for numerics.
    draws : int
        Discrete Gaussians that are expected to be drawn; 0 with ideal arithmetic.
    """

    search: Search
    plans: tuple[CalibratedPlan, ...]
    spent: tuple[tuple[str, Event], ...]
    event: Repeated
    score_noise: float
    numerical_delta: float
    draws: int

    def __post_init__(self) -> None:
        """What runs is what was counted: every setting, with its noise and its score."""
        score, counted = Gaussian(self.score_noise), set(self.event.trial)
        for plan in self.plans:
            own = (event for _, event in _trial_events(plan, 1.0, self.search.shares_stages))
            if (*own, score) not in counted:
                raise InputError("a setting of this search is not what its account lists")
        if self.spent[-1][1] != self.event:
            raise InputError("the account of this search does not list its trials")

    @property
    def budget(self) -> Budget:
        return self.search.plans[0].budget

    @property
    def neighbors(self) -> str:
        return self.search.plans[0].neighbors

    def summary(self) -> dict[str, Any]:
        """What may be said of the search in a certificate: all of it was fixed before."""
        trials = self.search.trials
        facts: dict[str, Any] = {
            "settings": len(self.plans),
            "expected_trials": float(trials.expected),
            "distribution": trials.distribution
            if isinstance(trials.distribution, str)
            else float(trials.distribution),
            "score_noise": self.score_noise,
            "shared_stages": self.search.shares_stages,
        }
        return facts | {"grid": [dict(setting) for setting in self.search.settings[:100]]}

    def winner(self, setting: int) -> CalibratedPlan:
        """A setting's plan as the whole search's: its budget, and all that the search spends."""
        plan = self.plans[setting]
        return replace(
            plan,
            plan=replace(plan.plan, budget=self.budget),
            spent=self.spent,
            numerical_delta=self.numerical_delta,
            draws=self.draws,
            search=self.summary(),
        )

    def run(
        self,
        rows: Rows,
        targets: Callable[[Loss], np.ndarray],
        *,
        key: Key | None = None,
        assumptions: Sequence[str] = (),
        ledger: Ledger | None = None,
        init: Callable[[Loss], Start] = _zero,
        draws: Draws | None = None,
    ) -> Found:
        """Make the trials on private rows, and certify the best of them.

        ``targets`` and ``init``, public coefficients and intercepts to begin at or None, are
        asked for by loss.
        With a ledger, the budget is reserved there before the number of trials is drawn, and
        counts as spent from then on, whatever happens. Nobody is told of progress: how many
        trials are made is part of what keeps them private.
        """
        key = key or Key.fresh()
        for plan in self.plans:
            validate_init(plan, init(plan.plan.loss))
        for plan in self.plans[:1] if self.search.shares_stages else self.plans:
            validate_rows(plan, rows)
        entry = None if ledger is None else self.winner(0).reserve(ledger, key)
        began = datetime.now(UTC)  # certified, as the end would tell how many trials there were
        run = Releases(key, self.spent, draws=draws)
        token = run.token(self.spent[-1][0])
        number = token.at("search trials").trials()
        settings = len(self.plans)
        picks = [token.at("search setting", trial).setting(settings) for trial in range(number)]
        trials = [token.trial(self._counted(setting)) for setting in picks]
        best: _Best | None = None
        for found in self._trials(rows, (targets, init), run, picks, trials):
            # Equal scores: the earlier trial. As trials are alike, that is as good as a coin.
            if best is None or (found.score, -found.trial) > (best.score, -best.trial):
                best = found
        for each in (run, *trials):
            each.close()
        assert best is not None
        setting = picks[best.trial]
        ran = self.winner(setting).resolve(best.prepared)
        fit = ran.conclude(
            best.prepared,
            best.weights,
            seeded=run.seeded,
            assumptions=assumptions,
            entry=entry,
            created=began,
        )
        if entry is not None:
            entry.settle("model", fit.certificate.digest)
        return Found(fit, setting, self._readable(best.score))

    def _trials(
        self,
        rows: Rows,
        given: tuple[Callable[[Loss], np.ndarray], Callable[[Loss], Start]],
        run: Releases,
        picks: Sequence[int],
        paid: Sequence[Releases],
    ) -> Iterator[_Best]:
        """Outcomes of all trials, in any order; each draws what a trial was counted to.

        ``given`` are targets and initial models, by loss.
        """
        targets, init = given
        for lot, trials in enumerate(self._lots(picks)):
            first = self.plans[picks[trials[0]]]
            own = run if self.search.shares_stages else run.child("search lot", lot)
            # Stages that are not shared are the trial's own, or cost nothing.
            prepared = first.prepare(rows, run if own is run else paid[trials[0]].keyed(own))
            labels, begin = targets(first.plan.loss), init(first.plan.loss)
            engine, made = None, None
            ran = {trial: self.plans[picks[trial]].resolve(prepared) for trial in trials}
            for number, group in enumerate(_groups(trials, ran)):
                plans = [ran[trial] for trial in group]
                wanted = _engine_of(plans[0])
                if engine is None or wanted != made:
                    engine, made = plans[0].engine(prepared, labels), wanted
                at = plans[0].weights(begin, prepared)
                drawn = own.child("search group", number)
                theirs = [paid[trial].keyed(drawn) for trial in group]
                weights = _train(plans, prepared, engine, theirs, at)
                scores = self._scores(engine, weights, first.plan.loss.task, paid, group)
                for trial, score, each in zip(group, scores, weights, strict=True):
                    yield _Best(score, trial, prepared, each.copy())

    def _counted(self, setting: int) -> list[tuple[str, Event]]:
        """What a trial of a setting spends, by name."""
        own = _trial_events(self.plans[setting], 1.0, self.search.shares_stages)
        return [*own, (SCORE, Gaussian(self.score_noise))]

    def _lots(self, picks: Sequence[int]) -> list[list[int]]:
        """Trials that may use the same fitted stages: all, or those of a setting, or each alone."""
        if self.search.shares_stages:
            return [list(range(len(picks)))]
        lots: dict[tuple[int, int], list[int]] = {}
        for trial, setting in enumerate(picks):
            pays = any(stage.pays for stage in self.plans[setting].plan.stages)
            lots.setdefault((setting, trial if pays else -1), []).append(trial)
        return list(lots.values())

    def _scores(
        self,
        engine: Engine,
        weights: np.ndarray,
        task: str,
        paid: Sequence[Releases],
        group: Sequence[int],
    ) -> list[int]:
        """How well weights do on the rows, through the noise that every trial pays for."""
        sums = engine.row_sum(weights, _SCORES[task])
        found = []
        for total, trial in zip(sums, group, strict=True):
            token = paid[trial].token(SCORE).at("search score", trial)
            score = BoundedSum(np.array([total]), 1 / LOSS_UNIT, 1.0, 1.0, "score")
            found.append(int(token.multiples(score)[0]))
        return found

    def _readable(self, score: int) -> float:
        """A noisy sum of −1 to 1 for every row as a number from 0 to 1."""
        mean = score / LOSS_UNIT / self.plans[0].facts.size
        return min(max((1 + mean) / 2, 0.0), 1.0)

    @property
    def slowdown(self) -> float:
        """How many times the noise of a single fit every trial has, at the same budget."""
        first = self.search.plans[0]
        before = [event for _, event in first.stage_events()] if self.search.shares_stages else []
        single = calibrate(lambda z: [*before, Gaussian(z)], self.budget, self.neighbors)
        return self.score_noise * SCORE_SHARE / math.sqrt(1 - SCORE_SHARE**2) / single

    def to_dict(self) -> dict[str, Any]:
        """What the search would do and cost, as plain JSON values."""
        times = self.slowdown
        noise = [plan.noise_multiplier for plan in self.plans]
        return {
            **self.summary(),
            "noise_ratio": times,
            "as_if_rows": 1 / times,
            "single_trial": self.chances(1)[0][1],
            "noise_multipliers": [min(noise), max(noise)],
            "steps": sorted({int(plan.trainer.parameters()["steps"]) for plan in self.plans}),
            "events": [{"stage": name, **event.to_dict()} for name, event in self.spent],
        }

    @of_public_facts
    def explain(self) -> str:
        """What trying settings costs, and when it is worth it, in words."""
        trials, times = self.search.trials, self.slowdown
        alone = self.chances(1)[0][1]
        stages = [name for name, _ in self.spent[:-1]]
        once = f" {' and '.join(stages)}, the same for all, is counted once." if stages else ""
        rows = self.plans[0].facts.size
        return (
            f"Tuning: one of {len(self.plans)} settings is drawn for every trial, "
            f"{float(trials.expected):.4g} trials are expected ({trials.distribution}), and with "
            f"probability {alone:.2g} only one is made. A trial trains and then scores its model "
            f"on the rows, through noise of {self.score_noise / rows / 2:.2g} on a scale from 0 to "
            f"1.{once}\n"
            f"Every trial has {times:.3g} times the noise of a single fit at the same budget, as "
            f"if there were {1 / times:.0%} of the rows. Tuning is worth it if a good setting "
            f"gains more than the other {1 - 1 / times:.0%} of the rows would; settings that "
            "follow from public facts cost nothing."
        )

    def chances(self, most: int) -> list[tuple[int, float]]:
        """Numbers of trials up to ``most``, with their probabilities."""
        return [(k + 1, chance) for k, chance in enumerate(chances(self.event, most))]


# --- trials that share arithmetic -------------------------------------------------------------


def _engine_of(plan: CalibratedPlan) -> tuple[float, int | None]:
    """What an engine is made for, besides rows and targets."""
    return plan.intercept_scaling, plan.trainer.split(plan.facts)


def _groups(trials: Sequence[int], plans: Mapping[int, CalibratedPlan]) -> list[list[int]]:
    """Trials that can be trained in one product, by engine; ``plans`` has each trial's own.

    Steps on samples stay alone: trials must draw their rows independently of each other.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for trial in trials:
        plan = plans[trial]
        trainer = plan.trainer
        what = trainer.shared_settings or (trial,)
        groups.setdefault((*_engine_of(plan), *what), []).append(trial)
    ordered = sorted(groups.items(), key=lambda item: str(item[0][:2]))  # engines one by one
    return [
        group[start : start + TOGETHER]
        for _, group in ordered
        for start in range(0, len(group), TOGETHER)
    ]


def _train(
    plans: Sequence[CalibratedPlan],
    prepared: Prepared,
    engine: Engine,
    runs: Sequence[Releases],
    init: np.ndarray | None,
) -> np.ndarray:
    """Weights (S, d, K) of the trials of one group, each of which draws what is its own."""
    facts = plans[0].facts_for(prepared)
    if len(plans) == 1:
        return plans[0].trainer.train(engine, runs[0], facts, init=init)[None]
    first, *others = (plan.trainer for plan in plans)
    return first.train_group(others, engine, runs, facts, init=init)


# --- scores: from −1 to 1 for every row -------------------------------------------------------


def _right(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 where the label with the highest score is the true one, −1 elsewhere."""
    if targets.ndim == 1:
        hit = scores.argmax(axis=1) == targets
    elif scores.shape[1] == 1:
        hit = (scores[:, 0] > 0) == (targets[:, 0] > 0)
    else:
        hit = scores.argmax(axis=1) == targets.argmax(axis=1)
    return np.where(hit, 1.0, -1.0)


def _near(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 for no error, −1 for one of half the target's range or more; squares in between."""
    error = scores[:, 0].astype(np.float64) - targets[:, 0]
    worse = np.where(np.isfinite(error), np.minimum(error * error, 1.0), 1.0)
    return np.asarray(1.0 - 2.0 * worse)


_SCORES = {"classification": _right, "regression": _near}
