"""What the commands do, as plain functions: no printing, no exit codes.

What can be refused is refused before a private row is learned from, and files
appear whole and together, or not at all. A ledger hears last of them: first the budget
is reserved, then files are written, then the entry says what came of it.
"""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import clone

from tacit.data.readers import read_table, write_predictions
from tacit.data.rows import Rows, as_rows
from tacit.data.scans import Scan, scan
from tacit.data.schema import NumberColumn, Schema, did_you_mean
from tacit.data.tables import ABSENT, UNSEEN, Table
from tacit.diagnostics import Inspection, PrivateInspection
from tacit.diagnostics import inspect as look_at
from tacit.diagnostics import inspect_privately as look_privately
from tacit.diagnostics.page import render_page
from tacit.exceptions import (
    CertificateError,
    FileError,
    InputError,
    PrivateTestError,
    SchemaError,
    TacitError,
    add_consequence,
    of_rows,
)
from tacit.files import find_output, first_bytes, new_file, new_output, write_bytes
from tacit.ledger import DeferredLedger, Ledger
from tacit.linear_model.estimators import DPLinearClassifier, DPLinearRegressor
from tacit.losses import get_loss
from tacit.median import DPGeometricMedian
from tacit.model_selection.dp_search import choose, planned
from tacit.model_selection.search import CalibratedSearch, Trials
from tacit.persistence import LIMIT, dumps, load
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.defaults import resolve_relation
from tacit.plan.recipes import RECIPES, parse_stage, recipe
from tacit.preprocessing import Encode, FillGaps, NoiselessImpute, Normalize, Stage
from tacit.privacy import Budget, Certificate, Expense
from tacit.privacy.events import sensitivity
from tacit.privacy.price import Price
from tacit.privacy.price import price as price_of
from tacit.progress import Progress, silent
from tacit.report import render_html
from tacit.report.price import plot_price

__all__ = [
    "CERTIFICATE",
    "FILES",
    "MEDIAN",
    "PAGE",
    "Fitted",
    "Middle",
    "Settings",
    "Verdict",
    "draft",
    "events",
    "fit",
    "inspect",
    "inspect_privately",
    "median",
    "parse_option",
    "plan",
    "predict",
    "price",
    "tuning",
    "verify",
]

MODEL, CERTIFICATE, REPORT = FILES = ("model.safetensors", "certificate.json", "report.html")
PAGE = "inspection.html"
MEDIAN = "median.json"
TAKERS = {
    "n_components": ("components", "pillar", "jl", "dp-pca", "ptr-pca", "gep", "dp-raft+pillar"),
    "public": ("public rows", "pillar", "gep", "adadps", "dp-raft+pillar"),
    "gap": ("eigengaps", "ptr-pca"),
    "strength": ("strengths", "soft-pca"),
}
BASE = 1 << 16  # bytes of a file, besides what grows with the table
MANY = 100  # classes, where nobody has said how many
LARGE = 1 << 28  # bytes of a file from which on a table is not read into memory
MARKS = (b"tacit-certificate/", b"tacit-model/")  # what a file of ours bears, damaged or not

PathLike: TypeAlias = str | os.PathLike[str]
Estimator: TypeAlias = DPLinearClassifier | DPLinearRegressor


@dataclass(frozen=True)
class Settings:
    """What `fit` and `plan` share, known before any row is read."""

    epsilon: float
    delta: float
    recipe: str = "auto"
    components: int | str | None = None
    neighbors: str = "auto"
    loss: str | None = None
    steps: int | None = None
    arithmetic: str = "exact"
    stages: tuple[str, ...] = ()
    gap: float | None = None
    strength: float | None = None
    trainer: str | None = None
    options: tuple[str, ...] = ()
    tune: tuple[str, ...] = ()
    trials: float | None = None

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        sensitivity(resolve_relation(self.neighbors, ()))
        if self.components not in (None, "auto") and not str(self.components).isdecimal():
            raise InputError(f"components={self.components} must be a whole number or auto")
        if self.trials is not None and not self.tune:
            raise InputError("trials are made to tune settings: say which, as in clip=0.01,0.1")
        for name in ("components", "steps"):
            if (value := getattr(self, name)) not in (None, "auto") and int(value) < 1:
                raise InputError(f"{name}={value} must be at least 1")

    def parts(self, public: Any = None) -> dict[str, Any]:
        """Stages and trainer of the recipe."""
        count = self.components if self.components in (None, "auto") else int(self.components)
        given: dict[str, Any] = {"n_components": count, "public": public, "steps": self.steps}
        given |= {"gap": self.gap, "strength": self.strength, "trainer": self.trainer}
        options = {name: value for name, value in given.items() if value is not None}
        for name, value in map(parse_option, self.options):
            if name in options:
                raise InputError(f"{name} is given twice")
            options[name] = value
        for name, (words, *takers) in TAKERS.items():
            if name in options and self.recipe in ("auto", *RECIPES) and self.recipe not in takers:
                raise InputError(f"{words} are for the recipe {' or '.join(takers)}")
        if self.stages and options.keys() & TAKERS.keys():
            raise InputError("stages of your own take their settings themselves, in brackets")
        parts = recipe(self.recipe, **options)
        return parts | ({"stages": [parse_stage(s) for s in self.stages]} if self.stages else {})

    def candidates(self, public: Any = None) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Stages and trainer of every setting to be tried, and what it sets, in words.

        Stages that do not differ are the same objects: they are fitted once.
        """
        words = _combinations(self.tune)
        found = [
            replace(self, options=self.options + tuple(f"{k}={v}" for k, v in one.items()))
            for one in words
        ]
        parts = [each.parts(public) for each in found]
        if all(repr(part["stages"]) == repr(parts[0]["stages"]) for part in parts):
            parts = [part | {"stages": parts[0]["stages"]} for part in parts]
        return parts, words

    @property
    def how_often(self) -> Trials:
        """How many trials are made."""
        return Trials() if self.trials is None else Trials(self.trials)


def _combinations(tune: Sequence[str]) -> list[dict[str, str]]:
    """Every setting of a grid in words such as ``clip=0.01,0.1,1``.

    Examples
    --------
    >>> _combinations(["clip=0.1,1"])
    [{'clip': '0.1'}, {'clip': '1'}]
    """
    grid: dict[str, list[str]] = {}
    for text in tune:
        name, equals, values = (part.strip() for part in text.partition("="))
        listed = [value.strip() for value in values.split(",")]
        if not (equals and name.isidentifier() and all(listed)):
            raise InputError(f"{text!r:.80} is no list of settings; write for instance clip=0.1,1")
        if name in grid:
            raise InputError(f"{name} is given twice")
        if len(set(listed)) < len(listed):
            raise InputError(f"{name} has a value twice, which would be tried twice as often")
        grid[name] = listed
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def plan(
    settings: Settings,
    rows: int,
    *,
    schema: Schema | PathLike | None = None,
    columns: int | None = None,
    classes: int | None = None,
    public: Table | PathLike | None = None,
) -> CalibratedPlan:
    """The split and the noise of a fit, from public facts; 0 classes: a target of numbers.

    What would be tuned is left as it is by itself: see `tuning`.
    """
    facts = _public_facts(schema, columns, classes)
    seen = _public_features(public, facts.schema)
    estimator = facts.estimator(settings, settings.parts(seen))
    return facts.plan(estimator).calibrate(**facts.sizes(rows))


def tuning(
    settings: Settings,
    rows: int,
    *,
    schema: Schema | PathLike | None = None,
    columns: int | None = None,
    classes: int | None = None,
    public: Table | PathLike | None = None,
) -> CalibratedSearch:
    """The noise of a search, from public facts, as `plan` has that of a fit."""
    facts = _public_facts(schema, columns, classes)
    parts, words = settings.candidates(_public_features(public, facts.schema))
    encode = None if facts.schema is None else Encode(facts.schema)
    candidates = [facts.estimator(settings, part, encode) for part in parts]
    search = planned(candidates, words, settings.how_often, facts.classes)
    return search.calibrate(**facts.sizes(rows))


@dataclass(frozen=True)
class _Facts:
    """What is known of a table before it is read."""

    schema: Schema | None
    columns: int
    classes: int

    def sizes(self, rows: int) -> dict[str, int]:
        return {"size": rows, "columns": self.columns, "classes": self.classes}

    def estimator(
        self,
        settings: Settings,
        parts: Mapping[str, Any],
        encode: Encode | None = None,
        **options: Any,
    ) -> Estimator:
        """What is fitted to such a table; what is not set is the estimator's own default."""
        stages = parts["stages"]
        if self.schema is not None:
            stages = [encode or Encode(self.schema), *stages]
        loss = None if settings.loss is None else get_loss(settings.loss)
        if loss is not None and (loss.task == "regression") != (self.classes == 0):
            raise InputError(
                f"loss={loss.name!r} is for {loss.task}, which does not suit the target"
            )
        options |= {"neighbors": settings.neighbors, "arithmetic": settings.arithmetic}
        options |= {"stages": stages, "trainer": parts["trainer"]}
        options |= {} if loss is None else {"loss": settings.loss}
        budget = settings.epsilon, settings.delta
        if self.classes == 0:
            bounds = None if self.schema is None else self.schema.target_bounds
            return DPLinearRegressor(*budget, target_bounds=bounds, **options)
        classes = None if self.schema is None else self.schema.classes
        return DPLinearClassifier(*budget, classes=classes, **options)

    def plan(self, estimator: Estimator) -> Plan:
        """What a fit to such a table would do."""
        return estimator._from_zero(estimator._plan(estimator._loss_of(self.classes)))


def _public_facts(
    schema: Schema | PathLike | None, columns: int | None, classes: int | None
) -> _Facts:
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
    return _Facts(schema, columns, count)


def _public_features(public: Table | PathLike | None, schema: Schema | None) -> Any:
    if public is None:
        return None
    table = _read(public)
    return _numbers(table) if schema is None else _features(table, schema)


def price(
    stage: str,
    *,
    base_epsilon: float | None = None,
    epsilon: float | None = None,
    plot: PathLike | None = None,
    **given: Any,
) -> Price:
    """What a stage without noise costs; ``plot`` draws it for budgets around the one asked."""
    found = price_of(stage, base_epsilon=base_epsilon, epsilon=epsilon, **given)
    if plot is not None:
        start = found.base_epsilon or base_epsilon or 1.0
        around = [start * 10 ** (k / 8) for k in range(-8, 9)]
        plot_price([price_of(stage, base_epsilon=base, **given) for base in around], plot)
    return found


def events(plan: CalibratedPlan) -> list[dict[str, Any]]:
    """What a plan will spend, as its certificate would list it."""
    spent = Expense.weigh(plan.spent, plan.plan.budget.delta, plan.plan.neighbors)
    return [expense.to_dict() for expense in spent]


@dataclass(frozen=True)
class Fitted:
    """A model, where its files are, and how it did on the test table, if there was one."""

    estimator: Estimator
    out: Path
    results: Mapping[str, Any] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)  # of private trials, if there were any

    def to_dict(self) -> dict[str, Any]:
        claim = self.estimator.certificate_
        scores = {k: v for k, v in self.results.items() if k.endswith(("accuracy", "r2", "rmse"))}
        facts = {"epsilon": claim.epsilon, "delta": claim.delta, "neighbors": claim.neighbors}
        # The number of rows that the certificate states: public, whatever the relation.
        entry = {"ledger": dict(claim.plan["ledger"])} if "ledger" in claim.plan else {}
        facts = {**facts, "train_rows": claim.plan["rows"], **self.best}
        return {**facts, **scores, **entry, "out": str(self.out)}


def fit(
    table: Table | PathLike,
    settings: Settings,
    *,
    schema: Schema | PathLike,
    out: PathLike,
    target: str | None = None,
    test: Table | PathLike | None = None,
    public: Table | PathLike | None = None,
    baseline: bool = False,
    force: bool = False,
    memory: float | None = None,
    **options: Any,
) -> Fitted:
    """Fit a model to a table and write model, certificate and report into ``out``.

    A folder of Parquet files, or a large file, is not read into memory but scanned on every pass;
    ``memory`` is what rows may take in bytes.
    ``baseline`` also fits a model without privacy, for comparison: only for rows
    that are public anyway. ``options`` go to the estimator as they are.
    """
    schema = _with_target(Schema.of(schema), target)
    if public is None and settings.recipe in TAKERS["public"]:
        raise InputError(f"the recipe {settings.recipe} needs public rows, of the same schema")
    _require_other_file(table, public)
    with _output(out, FILES, force, options) as output:
        seen = None if public is None else _features(_read(public), schema)
        listed, words = settings.candidates(seen)
        parts = listed[0]
        train = _open(table, memory)
        rows: Any = _features(train, schema)
        if isinstance(train, Scan):
            _require_target(train.column_names, schema)
            rows, labels = rows.aim(str(schema.target)), None  # read by the estimator
            if baseline:
                raise InputError("a baseline needs all rows in memory, and these are too many")
        else:
            labels = _labels(train, schema, schema.classes)
        given, tests = None if test is None else _read(test), None
        if given is not None:
            known: Any = schema.classes
            if not known and schema.target_bounds is None:
                known = (rows.labels()[0] if labels is None else np.unique(labels)).tolist()
            tests = _test_rows(given, schema, known, parts["stages"])
        many = schema.classes or (range(MANY) if labels is None else np.unique(labels))
        outputs = 1 if schema.target_bounds else len(many)
        output.set_aside(_room(schema, outputs, listed, seen, given))
        estimator = _public_facts(schema, None, None).estimator(settings, parts, **options)
        best: dict[str, Any] = {}
        try:
            if settings.tune:
                how = settings.how_often
                estimator, best = _tuned(estimator, listed, words, how, (rows, labels))
            else:
                estimator.fit(rows, labels)
        except PrivateTestError as failed:  # the budget is spent all the same: that stays on record
            output.commit({CERTIFICATE: _written(failed.certificate)})
            raise
        results = {} if tests is None else _score(estimator, *tests)
        if tests is not None and baseline and labels is not None:
            results["nonprivate_accuracy"] = _nonprivate(Encode(schema), rows, labels, *tests)
        certificate = estimator.certificate_
        shown = {**results, "files": list(FILES)} if results else None
        page = render_html(certificate.to_dict(), results=shown).encode()
        contents = (dumps(estimator), _written(certificate), page)
        output.commit(dict(zip(FILES, contents, strict=True)))
    return Fitted(estimator, Path(out), results, best)


@contextmanager
def _output(
    out: PathLike | None, names: tuple[str, ...], force: bool, options: dict[str, Any] | None = None
) -> Iterator[Any]:
    """A place for these files, or for none; what came of a plan is recorded once they are there.

    The ledger among ``options`` is replaced by one that waits for it.
    """
    if out is None:
        yield None
        return
    held, output = None, None
    if isinstance((options or {}).get("ledger"), Ledger):
        assert options is not None
        held = options["ledger"] = DeferredLedger(options["ledger"])
    try:
        with new_output(Path(os.path.realpath(out)), names, force) as output:
            yield output
    except BaseException as error:
        if output is not None and output.committed:
            if held is not None:
                held.record()
            add_consequence(error, f"Files were written to {out}")
        elif held is not None and held.entry is not None:
            add_consequence(
                error,
                f"The budget of {held.spent} was spent and nothing was written: entry "
                f"{held.entry.number} of the ledger stays, as not finished",
            )
        elif held is not None and held.asked and not isinstance(error, TacitError):
            add_consequence(error, "Whether budget was spent, tacit ledger show tells")
        raise
    if held is not None:
        held.record()


def _written(certificate: Certificate) -> bytes:
    return certificate.to_json().encode() + b"\n"


def _room(
    schema: Schema,
    outputs: int,
    parts: Sequence[Mapping[str, Any]],
    public: Any,
    test: Table | None,
) -> dict[str, int]:
    """At most so many bytes have the files of a fit, as far as public facts tell."""
    wide = Encode(schema).width()
    text = len(json.dumps(json.dumps(schema.to_dict(), indent=2)))
    kept = 0  # numbers in stages that a later one does not allow to be folded into coefficients
    for part in parts:
        affine = [stage.affine for stage in part["stages"]]
        last = max((i for i, folds in enumerate(affine) if not folds), default=0)
        components = [getattr(stage, "n_components", 0) for stage in part["stages"][:last]]
        most = wide if public is None else min(wide, public.n)
        sizes = [n if isinstance(n, int) else most for n in components]
        kept = max(kept, wide * (sum(sizes) + 8 * len(sizes)))
    if 8 * (outputs * wide + kept) > LIMIT:
        raise InputError(
            f"a model of {wide} columns, {outputs} classes and its stages would have more than "
            f"{LIMIT >> 20} MB, and could not be read again: project to fewer components"
        )
    tables = 0 if test is None else 64 * outputs**2
    return {
        MODEL: 8 * (outputs * (wide + 1) + kept) + 3 * text + BASE,
        CERTIFICATE: 2 * text + BASE,
        REPORT: 2 * text + tables + BASE,
    }


def _tuned(
    estimator: Estimator,
    parts: Sequence[Mapping[str, Any]],
    words: Sequence[dict[str, str]],
    trials: Trials,
    table: tuple[Any, Any],
) -> tuple[Estimator, dict[str, Any]]:
    """The best of private trials, and what it sets."""
    encode = estimator.stages[0]
    found: dict[int, list[Stage]] = {}  # the same list wherever the stages are the same
    candidates = []
    for part in parts:
        stages = found.setdefault(id(part["stages"]), [encode, *part["stages"]])
        candidates.append(clone(estimator).set_params(stages=stages, trainer=part["trainer"]))
    chosen = choose(candidates, words, trials, *table)
    best = {"chosen": words[chosen.setting], "noisy_score": chosen.score}
    return chosen.estimator, best


def inspect(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    train: tuple[float, float] = (1.0, 1e-6),
    radii: Sequence[float] = (0.0,),
    trajectory: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> Inspection:
    """Look at a table without noise, and write a page of plots into ``out``."""
    schema = _with_target(Schema.of(schema), target)
    with _output(out, (PAGE,), force) as output:
        given = _read(table)
        rows, labels = _unit_rows(given, schema), _labels(given, schema, schema.classes)
        bounds = schema.target_bounds
        if bounds is not None:  # numbers between -1 and 1, as a regressor has them
            middle, half = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2
            labels = np.clip((labels - middle) / half, -1.0, 1.0)
        options: dict[str, Any] = {"epsilon": train[0], "delta": train[1], "radii": radii}
        options["trajectory"] = trajectory
        found = look_at(
            rows, labels, regression=bounds is not None, unit=False, progress=progress, **options
        )
        found = replace(found, unit=True)
        if output is not None:
            output.commit({PAGE: render_page(found, title="Inspection").encode()})
    return found


def inspect_privately(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    train: tuple[float, float] = (1.0, 1e-6),
    force: bool = False,
    **budget: Any,
) -> PrivateInspection:
    """Look at a table through noise; ``out`` gets a page and the certificate.

    ``budget`` goes to `tacit.diagnostics.inspect_privately` as it is. The target is not looked at.
    """
    schema = Schema.of(schema)
    schema = schema if schema.target is None and target is None else _with_target(schema, target)
    with _output(out, (PAGE, CERTIFICATE), force, budget) as output:
        if output is not None:
            output.set_aside({PAGE: 8 * BASE, CERTIFICATE: BASE})
        found = look_privately(_unit_rows(_read(table), schema), train=train, **budget)
        if output is not None:
            page = render_page(found, title="Inspection through noise").encode()
            output.commit({PAGE: page, CERTIFICATE: _written(found.certificate)})
    return found


def _unit_rows(table: Table, schema: Schema) -> Rows:
    """Rows as recipes have them: encoded, and scaled to norm one."""
    features = _features(table, schema)
    encode = Encode(schema).fit(features)
    return Normalize().through(encode.through(as_rows(features)))


@dataclass(frozen=True)
class Middle:
    """The median of a table's rows, in the units of the table.

    Attributes
    ----------
    location : mapping of str to float
        Numbers in their own units; for a category, how near the median is to it.
    certificate : Certificate
    """

    location: Mapping[str, float]
    certificate: Certificate

    def to_dict(self) -> dict[str, Any]:
        claim = self.certificate
        facts = {"epsilon": claim.epsilon, "delta": claim.delta, "neighbors": claim.neighbors}
        return {**facts, "releasable": claim.releasable, "location": dict(self.location)}


def median(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    out: PathLike,
    epsilon: float,
    delta: float,
    force: bool = False,
    **options: Any,
) -> Middle:
    """Find the geometric median of a table's rows; ``out`` gets it, and its certificate.

    ``options`` go to `DPGeometricMedian` as they are. The target is not looked at.
    """
    encode = Encode(Schema.of(schema))
    if encode.makes_gaps:
        raise InputError("the schema says missing: gap; a median needs another way to fill gaps")
    with _output(out, (MEDIAN, CERTIFICATE), force, options) as output:
        output.set_aside(
            {MEDIAN: 2 * len(json.dumps(encode.schema.to_dict())) + BASE, CERTIFICATE: BASE}
        )
        features = _features(_read(table), encode.schema)
        rows = encode.fit(features).transform(features)
        # The schema bounds the norm of every row, whatever the table holds.
        found = DPGeometricMedian(epsilon, delta, radius=encode.bound(), **options).fit(rows)
        middle = Middle(_decoded(encode.schema, found.location_), found.certificate_)
        text = json.dumps(middle.to_dict(), indent=2, allow_nan=False).encode() + b"\n"
        output.commit({MEDIAN: text, CERTIFICATE: _written(found.certificate_)})
    return middle


def _decoded(schema: Schema, location: np.ndarray) -> dict[str, float]:
    """Encoded values by the names of their columns, numbers in their own units."""
    values, found = iter(location.tolist()), {}
    for name, column in schema.columns.items():
        for i, part in enumerate(column.feature_names(name)):
            value = next(values)
            if isinstance(column, NumberColumn) and i == 0:
                span = column.high - column.low
                if column.scale == "log":
                    value = math.expm1(min(max(value, 0.0), 1.0) * math.log1p(span))
                else:
                    value = min(max((value + 1) / 2, 0.0), 1.0) * span
                value += column.low
            found[part] = value
    return found


def predict(
    model: PathLike,
    table: PathLike,
    out: PathLike,
    *,
    proba: bool = False,
    force: bool = False,
    extractor: PathLike | None = None,
) -> int:
    """Write predictions for a table to a CSV or Parquet file, and say how many."""
    path, target = Path(model), new_file(Path(out), force, (".csv", ".parquet"))
    estimator = load(_model_in(path) if path.is_dir() else path, extractor=extractor)
    if not any(stage.takes_tables for stage in estimator.stages_):
        raise InputError(f"{path} takes arrays, not tables; load it in Python with tacit.load")
    rows = _open(table)
    columns = {"prediction": estimator.predict(rows)}
    if proba:
        if not hasattr(estimator, "predict_proba"):
            raise InputError(f"a model with loss {estimator.loss!r} gives no probabilities")
        for name, column in zip(estimator.classes_, estimator.predict_proba(rows).T, strict=True):
            columns[f"probability_{name}"] = column
    write_predictions(target, columns)
    return rows.n


def _model_in(directory: Path) -> Path:
    """The model of an output that is complete."""
    found, problems = find_output(directory)
    if problems or MODEL not in found:
        raise FileError("; ".join(problems) or f"{directory} holds no {MODEL}")
    return found[MODEL]


def draft(
    table: PathLike, target: str | None = None, out: PathLike | None = None, *, force: bool = False
) -> str:
    """A schema with blanks for a person to fill in, written to ``out`` if that is given."""
    path = None if out is None else new_file(Path(out), force)
    text = Schema.draft(read_table(table), target)
    if path is not None:
        write_bytes(path, text.encode())
    return text


@dataclass(frozen=True)
class Verdict:
    """What recomputing a claim found; no certificate if none could be read.

    ``revoked`` are those of the problems that are advisories, ``groups`` what several rows of one
    person cost, recomputed.
    """

    problems: tuple[str, ...]
    recomputed: Mapping[str, float] = field(default_factory=dict)
    certificate: Certificate | None = None
    groups: Mapping[str, float | None] = field(default_factory=dict)
    revoked: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "holds": not self.problems,
            "claimed": self.certificate.epsilon if self.certificate else None,
            "recomputed": dict(self.recomputed),
            "groups": dict(self.groups),
            "revoked": list(self.revoked),
            "problems": list(self.problems),
        }


def verify(path: PathLike) -> Verdict:
    """Recompute the claim of a certificate, a model, or a directory that holds them.

    A file with Tacit's mark that cannot be read whole is a problem: it was
    changed or damaged. A file without it, or none at all, is bad input.
    """
    files, problems = [Path(path)], list[str]()
    if files[0].is_dir():
        output, problems = find_output(files[0])
        files = [output[name] for name in (CERTIFICATE, MODEL) if name in output]
        if not files and not problems:
            raise FileError(f"{path} holds neither {CERTIFICATE} nor {MODEL}")
    found: list[Certificate] = []
    for file in files:
        start = first_bytes(file)
        is_model = b"\0" in start[:8]  # it begins with the length of its header, as 8 bytes
        try:
            found.append(load(file).certificate_ if is_model else Certificate.load(file))
        except (InputError, CertificateError) as error:
            if not any(mark in start for mark in MARKS):
                raise FileError(f"{file} is neither a certificate nor a model of Tacit") from error
            problems.append(str(error) if str(file) in str(error) else f"{file}: {error}")
    if len({certificate.digest for certificate in found}) > 1:
        problems.append(f"{MODEL} carries a different certificate from {CERTIFICATE}")
    if not found:
        return Verdict(tuple(problems))
    check = found[0].verify()
    problems += check.problems
    return Verdict(tuple(problems), check.recomputed, found[0], check.groups, check.revoked)


def parse_option(text: str) -> tuple[str, Any]:
    """A setting from words such as ``n_components=20``; what is no plain value is text.

    Examples
    --------
    >>> parse_option("n_components=auto"), parse_option("clip=0.5")
    (('n_components', 'auto'), ('clip', 0.5))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise InputError(f"{text!r:.80} is not a setting; write for instance n_components=20")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return name.strip(), value.strip()


def _require_other_file(table: Table | PathLike, public: Table | PathLike | None) -> None:
    """Refuse a table that is to be private and public at once; its cells are not compared."""
    if public is None or isinstance(table, Table) or isinstance(public, Table):
        return
    try:
        same = os.path.samefile(table, public)
    except OSError:  # which of them cannot be read, reading will say
        return
    if same or Path(os.path.realpath(table)) in Path(os.path.realpath(public)).parents:
        raise InputError(
            f"{public} is the private table itself: public rows must be rows that everybody may "
            "see, in a file of their own"
        )


def _numbers(table: Table) -> np.ndarray:
    """A table of numbers as an array."""
    words = [name for name in table.column_names if table.kind(name) != "number"]
    if words:
        raise InputError(f"the public rows hold text in {words[0]!r}; give a schema")
    return np.column_stack([table.column(name) for name in table.column_names])


def _read(table: Table | PathLike) -> Table:
    """A table in memory."""
    if isinstance(table, Table):
        return table
    if not os.path.isdir(table):
        return read_table(table)
    whole = scan(table)
    return whole.read(whole.column_names or ())


def _open(table: Table | PathLike, memory: float | None = None) -> Table | Scan:
    """A table in memory, or a scan of one that is large."""
    if isinstance(table, Table):
        return table
    large = os.path.isdir(table) or memory is not None
    if large or (os.path.isfile(table) and os.path.getsize(table) > LARGE):
        found = scan(table, memory=memory)
        if found.column_names is None:
            raise FileError(f"{table} is an array; this needs a table with named columns")
        return found
    return read_table(table)


def _with_target(schema: Schema, target: str | None) -> Schema:
    if schema.target is None and target is None:
        raise InputError(
            "which column is to be predicted? Name it as target, here or in the schema"
        )
    if schema.target is None:
        return replace(schema, target=target)
    if target not in (None, schema.target):
        raise SchemaError(f"target {target!r}, but the schema's target is {schema.target!r}")
    return schema


def _features(table: Any, schema: Schema) -> Any:
    """A table or scan without what is not learned from; a column unknown to the schema stays."""
    unused = {schema.target, *schema.ignore}
    return table.drop([name for name in table.column_names if name in unused])


def _require_target(names: Sequence[str] | None, schema: Schema) -> None:
    name = str(schema.target)
    if name not in (names or ()):
        near = did_you_mean(name, names or ())
        raise SchemaError(f"the table lacks the target {name!r}{near}")


def _labels(table: Table, schema: Schema, classes: Sequence[Any] | None) -> np.ndarray:
    """The target column; messages name the column, never a value, a row or a count."""
    _require_target(table.column_names, schema)
    name = str(schema.target)
    values, is_text = table.column(name), table.kind(name) == "text"
    if (table.match(name, ()) == ABSENT).any():
        raise of_rows(InputError(f"the target {name!r} has a missing value; leave such rows out"))
    if schema.target_bounds is not None and is_text:
        raise of_rows(InputError(f"the target {name!r} has target_bounds, but holds text"))
    if schema.target_bounds is not None:
        return values
    if classes:
        codes = table.match(name, classes)
        if (codes == UNSEEN).any():
            raise of_rows(
                InputError(f"the target {name!r} holds a label that is not among its classes")
            )
        return np.asarray(classes)[codes]
    if is_text:
        return values.astype(str)
    if not (np.isfinite(values) & (values == np.round(values))).all():
        raise of_rows(
            InputError(
                f"the target {name!r} holds fractions; the schema must say its target_bounds or "
                "classes"
            )
        )
    return values.astype(np.int64)


def _test_rows(
    test: Table, schema: Schema, classes: Sequence[Any] | None, stages: Sequence[Stage]
) -> tuple[Table, np.ndarray]:
    """Rows and labels to test on; what is wrong with them shows before budget is spent."""
    rows, truth = _features(test, schema), _labels(test, schema, classes)
    for _, chunk in Encode(schema).fit(rows).transform(as_rows(rows)).chunks():
        for stage in stages:
            if isinstance(stage, NoiselessImpute):
                FillGaps(stage.at_prediction).apply(chunk)
    return rows, truth


def _score(estimator: Estimator, test: Table, truth: np.ndarray) -> dict[str, Any]:
    """Results for the report; they read the test rows and nothing else."""
    guess = estimator.predict(test)
    if isinstance(estimator, DPLinearRegressor):
        error, spread = float(((truth - guess) ** 2).mean()), float(truth.var())
        r2 = {"test_r2": 1 - error / spread} if spread else {}
        return {"task": "regression", "test_rows": test.n, **r2, "test_rmse": error**0.5}
    classes = estimator.classes_
    confusion = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (np.searchsorted(classes, truth), np.searchsorted(classes, guess)), 1)
    return {
        "task": "classification",
        "test_rows": test.n,
        "test_accuracy": float(confusion.trace() / test.n),
        "majority_accuracy": float(confusion.sum(axis=1).max() / test.n),
        "class_names": [str(name) for name in classes],
        "confusion": confusion.tolist(),
    }


def _nonprivate(
    encode: Encode, rows: Table, labels: np.ndarray, test: Table, truth: np.ndarray
) -> float:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="newton-cholesky").fit(encode.transform(rows), labels)
    return float(model.score(encode.transform(test), truth))
