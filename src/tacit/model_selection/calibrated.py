"""A search whose noise is settled: its trials, made one after the other, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tacit.data.rows import Rows
from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.exceptions import InputError, of_public_facts
from tacit.ledger import Ledger, Reservation
from tacit.losses import Loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import BoundedSum, Draws, Releases
from tacit.mechanisms.trials import chances
from tacit.plan import CalibratedPlan, Fit
from tacit.plan.fit import Prepared
from tacit.plan.validate import validate_init, validate_rows
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, Gaussian, Repeated

if TYPE_CHECKING:
    from tacit.model_selection.search import Search

SCORE_SHARE = 0.2  # part of a trial's Gaussian budget that its score takes: 2% more noise
SCORE = "Score"  # what the account of a trial calls its noisy score
TOGETHER = 16  # settings in one product; more would not be faster

Start: TypeAlias = tuple[np.ndarray, np.ndarray] | None  # coefficients and intercepts


def _zero(loss: Loss) -> Start:
    return None


def trial_events(
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

    @property
    def certificate(self) -> Certificate:
        """Of the fit."""
        return self.fit.certificate


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
            own = (event for _, event in trial_events(plan, 1.0, self.search.shares_stages))
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
        self.validate(rows, init)
        entry = None if ledger is None else self.winner(0).reserve(ledger, key)
        run = Releases(key, self.spent, draws=draws, unit=self.plans[0].plan.unit)
        found = self.fit_with(rows, targets, run, assumptions=assumptions, entry=entry, init=init)
        if entry is not None:
            entry.settle("model", found.fit.certificate.digest)
        return found

    def validate(self, rows: Rows, init: Callable[[Loss], Start] = _zero) -> None:
        """Refuse, before anything is spent, rows or a start that the search was not made for."""
        for plan in self.plans:
            validate_init(plan, init(plan.plan.loss))
        for plan in self.plans[:1] if self.search.shares_stages else self.plans:
            validate_rows(plan, rows)

    def fit_with(
        self,
        rows: Rows,
        targets: Callable[[Loss], np.ndarray],
        run: Releases,
        *,
        assumptions: Sequence[str] = (),
        entry: Reservation | None = None,
        init: Callable[[Loss], Start] = _zero,
        account: Callable[[CalibratedPlan], CalibratedPlan] | None = None,
    ) -> Found:
        """Make the trials with what a run may draw; ``account`` is what a certificate says of it.

        The search's own, if not given. Rows were checked.
        """
        began = datetime.now(UTC)  # certified, as the end would tell how many trials there were
        rows, kept = self.plans[0].choose(rows, run)
        given = (lambda loss: kept(targets(loss))), init

        token = run.token(self.spent[-1][0])
        number = token.at("search trials").trials()
        settings = len(self.plans)
        picks = [token.at("search setting", trial).setting(settings) for trial in range(number)]
        trials = [token.trial(self._counted(setting)) for setting in picks]
        best: _Best | None = None
        for found in self._trials(rows, given, run, picks, trials):
            # Equal scores: the earlier trial. As trials are alike, that is as good as a coin.
            if best is None or (found.score, -found.trial) > (best.score, -best.trial):
                best = found
        for each in (run, *trials):
            each.close()
        assert best is not None
        setting = picks[best.trial]
        winner = self.winner(setting)
        ran = (winner if account is None else account(winner)).resolve(best.prepared)
        fit = ran.conclude(
            best.prepared,
            best.weights,
            seeded=run.seeded,
            assumptions=assumptions,
            entry=entry,
            created=began,
        )
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
                weights = train_trials(plans, prepared, engine, theirs, at)
                scores = self.score_trials(engine, weights, first.plan.loss.task, paid, group)
                for trial, score, each in zip(group, scores, weights, strict=True):
                    yield _Best(score, trial, prepared, each.copy())

    def _counted(self, setting: int) -> list[tuple[str, Event]]:
        """What a trial of a setting spends, by name."""
        own = trial_events(self.plans[setting], 1.0, self.search.shares_stages)
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

    def score_trials(
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
            score = BoundedSum(
                np.array([total]), 1 / LOSS_UNIT, 1.0, 1.0, "score", owner=engine.unit
            )
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


def train_trials(
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


def right_or_wrong(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 where the label with the highest score is the true one, −1 elsewhere."""
    if targets.ndim == 1:
        hit = scores.argmax(axis=1) == targets
    elif scores.shape[1] == 1:
        hit = (scores[:, 0] > 0) == (targets[:, 0] > 0)
    else:
        hit = scores.argmax(axis=1) == targets.argmax(axis=1)
    return np.where(hit, 1.0, -1.0)


def nearness(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 for no error, −1 for one of half the target's range or more; squares in between."""
    error = scores[:, 0].astype(np.float64) - targets[:, 0]
    worse = np.where(np.isfinite(error), np.minimum(error * error, 1.0), 1.0)
    return np.asarray(1.0 - 2.0 * worse)


_SCORES = {"classification": right_or_wrong, "regression": nearness}
