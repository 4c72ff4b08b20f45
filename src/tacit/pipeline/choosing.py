"""Which counterparts leave the most of the budget for training, and the account of that choice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import BudgetError, InputError
from tacit.losses import Loss
from tacit.pipeline.parts import Choice, Last, Option, Part, Place
from tacit.plan import Plan
from tacit.plan.defaults import resolve_relation
from tacit.plan.plan import share_of
from tacit.plan.propagate import propagate_bounds
from tacit.plan.validate import validate_stages
from tacit.preprocessing import Stage
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.trainers import DPGD

MOST_COMBINATIONS = 4096

#: One option of every part, by number.
Picks = tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """One combination of counterparts and the part of mu that it leaves for training."""

    picks: Picks
    groups: tuple[tuple[Stage, ...], ...]  # of the bounds, each step, and what follows the last
    loss: Loss
    noiseless: bool
    inflation: float
    left: float

    @property
    def stages(self) -> list[Stage]:
        return [stage for group in self.groups for stage in group]


@dataclass(frozen=True)
class Problem:
    """Everything that the choice may depend on."""

    budget: Budget
    n: int
    d: int
    classes: int
    bounds: Stage
    parts: tuple[Part, ...]
    last: Last
    arithmetic: str

    @property
    def mu(self) -> float:
        return gaussian_mu(self.budget.epsilon, self.budget.delta)

    @property
    def facts(self) -> str:
        """In words."""
        kind = f", {self.classes} classes" if self.classes else ""
        budget = f"epsilon = {self.budget.epsilon:g}, delta = {self.budget.delta:g}"
        return f"{self.n} rows of {self.d} columns{kind}, {budget}"

    def solve(self) -> tuple[Candidate, DPGD, tuple[Choice, ...]]:
        """The combination that leaves most for training, and the account of the choice."""
        kinds = [range(len(part.options)) for part in self.parts]
        if math.prod(map(len, kinds)) > MOST_COMBINATIONS:
            raise InputError(
                f"the pipeline has {len(kinds)} steps, whose counterparts combine in more than "
                f"{MOST_COMBINATIONS} ways; leave some out"
            )
        found: list[Candidate] = []
        against: dict[Picks, str] = {}
        for picks in itertools.product(*kinds):
            try:
                found.append(self.candidate(picks))
            except (InputError, BudgetError) as error:
                against[picks] = str(error)
        # Of equals the first: counterparts stand in the order of preference.
        for chosen in sorted(found, key=lambda c: -round(c.left, 9)):
            try:
                trainer = self.trainer(chosen)
            except (InputError, BudgetError) as error:
                against[chosen.picks] = str(error)
                continue
            able = [other for other in found if other.picks not in against]
            return chosen, trainer, self._story(chosen, trainer, able, against)
        raise InputError(self._complaint(against))

    def candidate(self, picks: Picks) -> Candidate:
        """One combination; raises what speaks against it."""
        options = self._options(picks)
        noiseless = any(option.noiseless for option in options)
        if noiseless and self.arithmetic == "strict":
            raise InputError("arithmetic='strict' needs rows that no noiseless stage has moved")
        relation = "replace_one" if noiseless else "replace_special"
        unit = sensitivity(relation)
        groups: list[tuple[Stage, ...]] = [(self.bounds,)]
        stages: list[Stage] = [self.bounds]
        for option in options:
            groups.append(tuple(option.build(self._place(stages, unit))))
            stages += groups[-1]
        validate_stages(stages, relation)
        if noiseless:  # what drift costs depends on the proven bound
            groups.append(tuple(self._place(stages, unit).tight()))
            stages += groups[-1]
        loss = self.last.loss_for(self.classes, noiseless=noiseless)
        shares = [share_of(stage) for stage in stages if stage.pays]
        tests = [share_of(stage) for stage in stages if stage.tested]
        spent = math.fsum(share**2 for share in [*shares, max(tests, default=0.0)])
        if spent >= 1:
            raise InputError("together they would take the whole budget")
        inflation = self._inflation(stages, loss) if noiseless else 1.0
        left = math.sqrt(1 - spent) / (inflation * unit)
        return Candidate(picks, tuple(groups), loss, noiseless, inflation, left)

    def trainer(self, chosen: Candidate) -> DPGD:
        """Descent with the penalty of the pipeline; raises what speaks against it."""
        trainer = DPGD(alpha=self.last.alpha(self.n))
        Plan(
            self.budget,
            tuple(chosen.stages),
            trainer,
            chosen.loss,
            resolve_relation("auto", chosen.stages),
            self.last.fit_intercept,
            self.arithmetic,
        ).calibrate(size=self.n, columns=self.d, classes=self.classes)
        return trainer

    def _options(self, picks: Picks) -> list[Option]:
        return [part.options[i] for part, i in zip(self.parts, picks, strict=True)]

    def _place(self, stages: Sequence[Stage], unit: float) -> Place:
        trace = propagate_bounds(stages, self.n, self.d)
        last = trace.drifts[-1]
        bound = trace.typical if last is None else last.bound
        return Place(self.n, trace.d, bound, trace.typical, trace.drift_l1, unit, self.mu)

    def _inflation(self, stages: Sequence[Stage], loss: Loss) -> float:
        """How many times more sensitive sums are, at weights of norm 1/R and a clip of R/2."""
        trace = propagate_bounds(stages, self.n, self.d)
        outputs = loss.outputs(self.classes) if loss.task == "classification" else 1
        intercept_scaling = 0.1 * trace.typical if self.last.fit_intercept else 0.0
        moves = trace.movement(loss, outputs, intercept_scaling, rounded=self.arithmetic != "fast")
        return 1 + moves.distance(1 / trace.typical, trace.typical / 2) / trace.typical

    def _complaint(self, against: Mapping[Picks, str]) -> str:
        lines = [f"no private counterpart of this pipeline is possible for {self.facts}:"]
        for picks, why in against.items():
            names = [option.name for option in self._options(picks)]
            lines.append(f"- {' + '.join(names) or 'training'}: {why}")
        lines += [f"- {name}: {why}" for part in self.parts for name, why in part.missing]
        return "\n".join(lines)

    def _story(
        self,
        chosen: Candidate,
        trainer: DPGD,
        able: Sequence[Candidate],
        against: Mapping[Picks, str],
    ) -> tuple[Choice, ...]:
        what = "every row by itself, with public constants: no cost"
        if any(stage.pays for stage in chosen.groups[0]):
            what = "bounds and categories that nobody declared are found through noise"
        told = [Choice("bounds", _words(chosen.groups[0]), what)]
        for at, (part, pick) in enumerate(zip(self.parts, chosen.picks, strict=True)):
            rivals: list[tuple[str, str]] = []
            for i, other in enumerate(part.options):
                if i != pick:
                    swapped = (*chosen.picks[:at], i, *chosen.picks[at + 1 :])
                    rivals.append((other.name, _verdict(at, swapped, able, against)))
            why = "; ".join(filter(None, [part.options[pick].note, part.note]))
            stages = _words(chosen.groups[at + 1])
            told.append(Choice(part.step, stages, why, (*rivals, *part.missing)))
        loss = f"loss {chosen.loss.name!r}, DPGD(alpha={trainer.alpha:.3g})"
        told.append(Choice(self.last.step, loss, self.last.note))
        return tuple(told)


def _verdict(
    at: int, swapped: Picks, able: Sequence[Candidate], against: Mapping[Picks, str]
) -> str:
    """What the rival at step ``at`` would have cost at best; ``swapped`` changes that step only."""
    best = max(
        (other for other in able if other.picks[at] == swapped[at]),
        key=lambda other: other.left,
        default=None,
    )
    if best is None:
        return f"not possible: {against[swapped]}"
    why = f"would leave {best.left:.3g} of mu for training"
    if best.noiseless:
        why += (
            ": the relation would be replace_one, which takes twice the noise, and moved rows make "
            f"sums {best.inflation:.3g} times as sensitive"
        )
    return why


def _words(stages: Sequence[Stage]) -> str:
    """Stages as they would be written, without data."""
    return " + ".join(map(_word, stages)) or "nothing"


def _word(stage: Stage) -> str:
    told = [
        f"{name}={_short(value)}"
        for name, value in stage.parameters().items()
        if value is not None and name not in ("fingerprint", "noise_multiplier")
    ]
    return f"{stage.name}({', '.join(told)})"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return f"[{len(value)} groups of columns]"
    if isinstance(value, list) and len(value) > 3:
        return f"[{len(value)} numbers]"
    return str(value)
