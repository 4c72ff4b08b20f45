"""What a plan has spent and takes for granted, as its certificate states it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import TYPE_CHECKING, Any

from tacit import __version__
from tacit.engine.arithmetic import Arithmetic
from tacit.ledger import Reservation
from tacit.mechanisms.lattice import sampler_delta
from tacit.preprocessing.base import Stage
from tacit.privacy import sentences
from tacit.privacy.certificate import Certificate

if TYPE_CHECKING:
    from tacit.plan.run import CalibratedPlan


def certify(
    plan: CalibratedPlan,
    seeded: bool,
    fitted: Sequence[Stage],
    assumptions: Sequence[str] = (),
    *,
    entry: Reservation | None = None,
    created: datetime | None = None,
) -> Certificate:
    """The certificate of one run with these fitted stages, and its entry in a ledger.

    Parameters
    ----------
    seeded : bool
        Whether the key was, so that nothing may go out.
    fitted : sequence of Stage
        The stages after fitting.
    assumptions : sequence of str
        What the certificate says besides.
    entry : Reservation, optional
        In the ledger.
    created : datetime, optional
        When; now unless given.

    Returns
    -------
    Certificate
        Of the whole plan.
    """
    budget = plan.plan.budget
    reasons = sentences.reasons(seeded)
    cautions = [*sentences.cautions(budget.delta, plan.facts.size)]
    cautions += dict.fromkeys(text for stage in fitted for text in stage.cautions())
    return Certificate.issue(
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbors=plan.plan.neighbors,
        unit=plan.plan.unit,
        spent=plan.spent,
        releasable=not reasons,
        reasons=reasons,
        assumptions=(*assumptions_of(plan), *assumptions),
        warnings=tuple(cautions),
        numerical_delta=plan.numerical_delta,
        sampler_delta=sampler_delta(plan.draws, plan.spent, budget),
        plan=describe(plan, fitted) | ({} if entry is None else {"ledger": entry.to_dict()}),
        versions=dict(_versions()),
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
    )


def assumptions_of(plan: CalibratedPlan) -> list[str]:
    """What the guarantee takes for granted, in words, besides that a person is one row."""
    size, asked = plan.facts.size, plan.plan
    texts = [
        sentences.rows_known(size, asked.neighbors, asked.unit),
        sentences.columns_known(plan.columns),
    ]
    if plan.search is None:
        texts.append(sentences.SETTINGS)
    else:
        texts += [sentences.SEARCHED, sentences.UNSEEN_TRIALS]
    texts += [] if asked.target is None else [asked.target.assumption()]
    texts += [f"{stage.name}: {stage.assumption()}" for stage in asked.stages if stage.assumption()]
    paid = [stage.name for stage in asked.stages if stage.pays]
    if asked.fitted and paid:
        texts.append(sentences.released_before(paid))
    texts += plan.trainer.assumptions()
    if plan.holdout is not None:
        texts += [sentences.held_out(plan.holdout, plan.plan.unit), sentences.SCORED]
    if plan.moves is not None:
        texts.append(sentences.UNSEEN_STAGES)
    if plan.test is not None:
        texts.append(sentences.tested(plan.test.delta))
    if asked.arithmetic is Arithmetic.FAST:
        texts.append(sentences.IDEAL)
    elif plan.moves is not None:
        texts.append(sentences.ROUNDED)
    else:
        strict = asked.arithmetic is Arithmetic.STRICT
        texts += [sentences.EXACT, sentences.STRICT if strict else sentences.TRUSTED]
    return texts


def describe(plan: CalibratedPlan, fitted: Sequence[Stage] = ()) -> dict[str, Any]:
    """Everything public about the plan, as plain JSON values."""
    stages = []
    for i, stage in enumerate(fitted or plan.plan.stages):
        entry = {
            "name": stage.name,
            "kind": stage.kind,
            "parameters": stage.parameters(),
            "note": stage.note(),
        }
        behind = plan.drifts[i + 1] if plan.drifts and plan.plan.noiseless else None
        if behind is not None and behind.l1:
            entry["drift"] = behind.to_dict()
        if stage.found():
            entry["found"] = stage.found()
        stages.append(entry)
    chosen: dict[str, Any] = {} if plan.search is None else {"search": dict(plan.search)}
    if plan.found is not None:
        chosen["target"] = dict(plan.found)
    if plan.holdout is not None:
        chosen["holdout"] = plan.holdout
    if plan.test is not None:
        chosen["test"] = {"deviation": plan.test.deviation, "delta": plan.test.delta}
    return {
        plan.plan.unit.plural: plan.facts.size,
        "columns": plan.columns,
        "features": plan.facts.features,
        "classes": plan.classes,
        "loss": plan.plan.loss.name,
        "arithmetic": plan.arithmetic,
        "intercept": plan.plan.fit_intercept,
        "stages": stages,
        "trainer": {"name": plan.trainer.name, "parameters": plan.trainer.parameters()},
        **chosen,
    }


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    found = {"tacit": __version__}  # of the code that runs, whatever was last installed
    for name in ("numpy", "scipy", "scikit-learn", "dp-accounting", "cryptography"):
        try:
            found[name] = _version(distribution(name).read_text("METADATA") or "") or version(name)
        except PackageNotFoundError:
            continue
    return found


def _version(metadata: str) -> str:
    """The field of this name: parsing the whole takes a tenth of a first fit."""
    return next((line[9:] for line in metadata.splitlines() if line.startswith("Version: ")), "")
