"""Split and noise of a fit, or of a search, from public facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tacit.cli.settings import Settings
from tacit.cli.tasks.outputs import PathLike
from tacit.cli.tasks.tables import public_features
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.losses import get_loss
from tacit.model_selection.calibrated import CalibratedSearch
from tacit.model_selection.dp_search import planned
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import Encode, PrivateEncode, Stage
from tacit.privacy import Expense

Estimator: TypeAlias = DPLinearClassifier | DPLinearRegressor


def plan(
    settings: Settings, rows: int, *, public: Table | PathLike | None = None, **known: Any
) -> CalibratedPlan:
    """The split and the noise of a fit, from public facts: see `public_facts`.

    What would be tuned is left as it is by itself: see `tuning`.
    """
    facts = public_facts(**known)
    estimator = facts.estimator(settings, settings.parts(public_features(public, facts.schema)))
    asked = replace(facts.plan(estimator), unit=settings.unit(facts.schema))
    return asked.calibrate(**facts.sizes(rows))


def tuning(
    settings: Settings, rows: int, *, public: Table | PathLike | None = None, **known: Any
) -> CalibratedSearch:
    """The noise of a search, from public facts, as `plan` has that of a fit."""
    facts = public_facts(**known)
    parts, words = settings.candidates(public_features(public, facts.schema))
    encode = None if facts.schema is None else encoder(facts.schema)
    candidates = [facts.estimator(settings, part, encode) for part in parts]
    search = planned(candidates, words, settings.how_often, facts.classes, schema=facts.schema)
    unit = settings.unit(facts.schema)
    search = replace(search, plans=tuple(replace(each, unit=unit) for each in search.plans))
    return search.calibrate(**facts.sizes(rows))


@dataclass(frozen=True)
class TableFacts:
    """What is known of a table before it is read."""

    schema: Schema | None
    columns: int
    classes: int
    target_bounds: tuple[float, float] | None = None  # where there is no schema to say so

    def sizes(self, rows: int) -> dict[str, int]:
        return {"size": rows, "columns": self.columns, "classes": self.classes}

    def estimator(
        self,
        settings: Settings,
        parts: Mapping[str, Any],
        encode: Stage | None = None,
        **options: Any,
    ) -> Estimator:
        """What is fitted to such a table; what is not set is the estimator's own default."""
        stages = parts["stages"]
        if self.schema is not None:
            if stages == "auto":
                options |= {"schema": self.schema}
            else:
                stages = [encode or encoder(self.schema), *stages]
        loss = None if settings.loss is None else get_loss(settings.loss)
        if loss is not None and (loss.task == "regression") != (self.classes == 0):
            raise InputError(
                f"loss={loss.name!r} is for {loss.task}, which does not suit the target"
            )
        options |= settings.chosen | {"stages": stages, "trainer": parts["trainer"]}
        budget = settings.epsilon, settings.delta
        if self.classes == 0:
            bounds = self.target_bounds if self.schema is None else self.schema.target_bounds
            return DPLinearRegressor(*budget, target_bounds=bounds, **options)
        classes = None if self.schema is None else self.schema.classes
        return DPLinearClassifier(*budget, classes=classes, **options)

    def plan(self, estimator: Estimator) -> Plan:
        """What a fit to such a table would do."""
        loss = estimator._loss_of(self.classes)
        return estimator._from_zero(estimator._plan(loss, schema=self.schema))


def encoder(schema: Schema) -> Stage:
    """What turns a table into rows of numbers: what is private in its schema is found first."""
    return PrivateEncode(schema) if schema.private else Encode(schema)


def public_facts(
    schema: Schema | PathLike | None = None, columns: int | None = None, classes: int | None = None
) -> TableFacts:
    """What a schema says of a table, or two numbers; 0 classes: a target of numbers."""
    schema = None if schema is None else Schema.of(schema)
    if schema is not None:
        known = 0 if schema.target_bounds else len(schema.classes or ()) or classes
        if columns is not None or classes not in (None, known):
            raise InputError("columns and classes come from the schema; do not give others")
        columns, classes = len(schema.columns), known
    if columns is None or columns < 1:
        raise InputError("give a schema, or the number of columns, at least 1")
    count = 2 if classes is None else classes
    if count < 0 or count == 1:
        raise InputError(f"classes={count} must be at least 2, or 0 for a target of numbers")
    return TableFacts(schema, columns, count)


def events(plan: CalibratedPlan) -> list[dict[str, Any]]:
    """What a plan will spend, as its certificate would list it."""
    spent = Expense.weigh(plan.spent, plan.plan.budget.delta, plan.plan.neighbors)
    return [expense.to_dict() for expense in spent]
