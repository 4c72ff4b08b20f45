"""What a plan will do, in words, from public facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.unit import ROW
from tacit.trainers.settings import outlook as weakness
from tacit.trainers.settings import prospect

if TYPE_CHECKING:
    from tacit.plan.run import CalibratedPlan


def explain(plan: CalibratedPlan) -> str:
    """What was chosen and why, in words.

    Returns
    -------
    str
        Sentences, a line each.
    """
    asked, facts, trainer = plan.plan, plan.facts, plan.trainer
    budget, unit = asked.budget, asked.unit.kind
    counted = f"Rows: {facts.size}" if asked.unit == ROW else f"People: {facts.size}, with rows"
    lines = [
        f"Budget: epsilon = {budget.epsilon:g}, delta = {budget.delta:g}, {asked.neighbors}; "
        f"as Gaussian DP, mu = {gaussian_mu(budget.epsilon, budget.delta):.4g}.",
        f"{counted} of {plan.columns} columns; {facts.features} features reach the "
        f"trainer, scores of width {facts.outputs} come out.",
    ]
    if asked.unit != ROW:
        lines.append(
            f"Unit of privacy: {asked.unit.described}. Private stages see one row of everybody, "
            "and steps the sum of all rows of a person that count, clipped as a whole."
        )
    lines += asked.remarks
    if asked.target is not None:
        lines.append(
            f"Targets, {asked.target.name}: adds noise of {asked.target_noise():.4g} contributions "
            f"of a {unit}; {asked.target.assumption()}."
        )
    for i, stage in enumerate(asked.stages):
        lines.append(f"Stage {i + 1}, {stage.name} ({stage.kind}): {_cost(plan, i)}.")
    if plan.test is not None:
        lines.append(
            f"Test: what the stages ask of the rows must hold with {plan.test.slack():.3g} "
            "rows to spare to pass 99 times in 100; if it fails, nothing is trained."
        )
    lines += trainer.explain(plan.noise_multiplier, facts)
    if plan.moves is None:
        lines += trainer.explain_settings(asked.trainer, facts, constant=asked.adds_constant)
    if plan.search is not None:
        lines.append(
            f"Chosen by private trials from {plan.search['settings']} settings; about "
            f"{plan.search['expected_trials']:.3g} were expected, each with this noise and a "
            "noisy score, and all of them are in the account."
        )
    drawn = [b for _, b in facts.shifts]
    if drawn:
        lines.append(
            "What the noiseless stages do to the rows of everybody else moves a sum of drawn "
            f"rows by up to {max(drawn):.3g} clips more, {min(drawn):.3g} or less as a rule, which "
            "this noise includes; it grows when the weights grow."
        )
    elif plan.moves is not None:
        near, far = (plan.inflation(norm) for norm in (1.0, 10.0))
        lines.append(
            "What the noiseless stages do to the rows of everybody else makes every sum "
            f"{near:.3g} times as sensitive at weights of norm 1, {far:.3g} times at norm 10; "
            "the noise follows the weights."
        )
    expected = outlook(plan) or prospect(trainer.signal(facts), plan.classes)
    lines += [f"Outlook: {expected}"] if expected else []
    return "\n".join(lines)


def outlook(plan: CalibratedPlan) -> str:
    """What the model cannot be expected to do, from public facts; empty as a rule."""
    trainer, facts = plan.trainer, plan.facts
    units = plan.plan.unit.plural
    weak = weakness(trainer.signal(facts), facts.size, plan.classes, trainer.rows_for, units)
    return " ".join(text for text in (shortage(plan), weak) if text)


def shortage(plan: CalibratedPlan) -> str:
    """Which stages have too few rows for their noise, from public facts; empty as a rule."""
    d, texts = plan.columns, []
    for i, stage in enumerate(plan.plan.stages):
        if i in plan.stage_noise:
            texts.append(stage.shortage(plan.facts.size, d, plan.stage_noise[i]))
        d = stage.width(d)
    return " ".join(text for text in texts if text)


def _cost(plan: CalibratedPlan, i: int) -> str:
    """What a stage costs, in words."""
    stage, parts = plan.plan.stages[i], []
    if i in plan.stage_noise:
        unit = plan.plan.unit.kind
        parts.append(f"adds noise of {plan.stage_noise[i]:.4g} contributions of a {unit}")
        chance = plan.plan.stage_failures().get(i)
        if chance is not None:
            parts.append(f"may reveal what one {unit} alone has with probability {chance:.2g}")
    behind = plan.drifts[i + 1]
    if stage.kind == "noiseless" and behind is not None:
        parts.append(
            f"one row moves all others by {behind.l1:.4g} together, {behind.linf:.3g} at most each"
        )
    cost = " and ".join(parts) or "costs nothing"
    return f"{cost}; {stage.why()}" if stage.why() else cost
