"""A model fitted to a table: model, certificate and report, in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from tacit.cli.settings import Settings, takers
from tacit.cli.tasks import arrays, outputs, tables
from tacit.cli.tasks.evaluate import groups_of, require_known, room_of
from tacit.cli.tasks.evaluate import shown as pictured
from tacit.cli.tasks.outputs import PathLike
from tacit.cli.tasks.plan import Estimator, TableFacts, encoder, public_facts
from tacit.cli.tasks.scores import nonprivate_accuracy, rows_to_test_on, score
from tacit.data.scans import Scan
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError, PrivateTestError, of_rows
from tacit.features import load_features
from tacit.model_selection.dp_search import choose
from tacit.model_selection.search import Trials
from tacit.persistence import LIMIT, dumps
from tacit.privacy.unit import ROW
from tacit.report import render_html

MANY_CLASSES = 100  # where nobody has said how many
MANY_NUMBERS = 20  # that may be classes without anybody's word
CURVE = 200  # bytes of a picture of curves, for every weight in them
CATEGORY = 100  # bytes of a category that is found, on the average


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
        what = claim.unit.plural
        facts = {**facts, f"train_{what}": claim.plan[what], **self.best}
        facts |= {} if claim.unit == ROW else {"unit": claim.unit.to_dict()}
        found = [stage["found"] for stage in claim.plan["stages"] if "found" in stage]
        facts |= {"found": found} if found else {}
        tested = getattr(self.estimator, "evaluation_", None)
        facts |= {} if tested is None else {"evaluation": tested.to_dict()}
        return {**facts, **scores, **entry, "out": str(self.out)}


@dataclass(frozen=True)
class Problem:
    """What is fitted: rows and labels, what is public of them, and what is tested on.

    Attributes
    ----------
    rows, labels
        As an estimator takes them; no labels where it reads them itself.
    facts : TableFacts
    public
        Public rows, if any.
    tests : (rows, labels), or None
    scores, wide, text : int
        Columns of scores and of rows, and characters that describe them, at most.
    groups
        Whose rows are whose, if people are counted.
    """

    rows: Any
    labels: Any
    facts: TableFacts
    public: Any
    tests: tuple[Any, np.ndarray] | None
    scores: int
    wide: int
    text: int = 0
    groups: Any = None


def fit(
    table: Table | PathLike,
    settings: Settings,
    *,
    schema: Schema | PathLike | None = None,
    out: PathLike,
    target: str | None = None,
    target_bounds: str | None = None,
    test: Table | PathLike | None = None,
    public: Table | PathLike | None = None,
    labels: Table | PathLike | None = None,
    key: str | None = None,
    baseline: bool = False,
    force: bool = False,
    memory: float | None = None,
    decimal: str | None = None,
    by: str | None = None,
    **options: Any,
) -> Fitted:
    """Fit a model to a table and write model, certificate and report into ``out``.

    A folder of Parquet files, or a large file, is not read into memory but scanned on every pass;
    ``memory`` is what rows may take in bytes. What ``schema`` does not say is found through noise;
    ``target_bounds``, such as ``0,100`` or ``private``, say that the target is a number.
    ``baseline`` also fits a model without privacy, for comparison: only for rows
    that are public anyway. ``by`` names groups of a test on rows that are held out. ``options``
    go to the estimator as they are.

    An ``.npz`` holds features (`tacit.features.load_features`): ``key`` is the array of the rows,
    ``target`` that of the labels, or a column of the table ``labels``.
    """
    if public is None and settings.recipe in takers("public"):
        raise InputError(f"the recipe {settings.recipe} needs public rows, of the same schema")
    tables.require_other_file(table, public)
    if by is not None:
        if options.get("holdout") is None:
            raise InputError("groups are those of a test on rows that are held out: give holdout")
        options["holdout_by"] = groups_of(by)
    with outputs.output_in(out, outputs.FILES, force, options) as output:
        files: dict[str, Any] = {"target": target, "target_bounds": target_bounds}
        files |= {"test": test, "public": public, "decimal": decimal}
        if arrays.is_features(table):
            refused = {"schema": schema, "memory": memory, "baseline": baseline}
            arrays.refuse(table, **refused, person=settings.person)
            problem = _of_features(table, key=key, labels=labels, **files)
        else:
            if labels is not None or key is not None:
                raise InputError("labels and key are for features (.npz); this is a table")
            problem = _of_table(table, settings, schema, memory=memory, baseline=baseline, **files)
        require_known(problem.facts.schema, options.get("holdout_by") or {})
        listed, words = settings.candidates(problem.public)
        rows, classes = problem.rows, problem.labels
        output.set_aside(_room(problem, listed, tested=_tested(problem, options)))
        estimator = problem.facts.estimator(settings, listed[0], **options)
        best: dict[str, Any] = {}
        try:
            if settings.tune:
                how = settings.how_often
                data = (rows, classes, problem.groups)
                estimator, best = _tuned(estimator, listed, words, how, data)
            else:
                whose = {} if problem.groups is None else {"groups": problem.groups}
                estimator.fit(rows, classes, **whose)
        except PrivateTestError as failed:  # the budget is spent all the same: that stays on record
            output.commit({outputs.CERTIFICATE: outputs.written(failed.certificate)})
            raise
        certificate = outputs.written(estimator.certificate_)
        model = {outputs.MODEL: dumps(estimator), outputs.CERTIFICATE: certificate}
        with outputs.paid_for(output, model) as contents:
            results = {} if problem.tests is None else score(estimator, *problem.tests)
            if problem.tests is not None and baseline:
                encode = estimator.stages_[0]
                results["nonprivate_accuracy"] = nonprivate_accuracy(
                    encode, rows, classes, *problem.tests
                )
            contents[outputs.REPORT] = _page(estimator, results)
    return Fitted(estimator, Path(out), results, best)


def _page(estimator: Estimator, results: Mapping[str, Any]) -> bytes:
    """The report of a model."""
    curves = None
    with suppress(InputError):  # a model that is no sum of curves
        curves = estimator.shape_curves().svg()
    tested = getattr(estimator, "evaluation_", None)
    return render_html(
        estimator.certificate_.to_dict(),
        results={**results, "files": list(outputs.FILES)} if results else None,
        curves=curves,
        evaluation=None if tested is None else pictured(tested),
    ).encode()


def _of_table(
    table: Table | PathLike,
    settings: Settings,
    schema: Schema | PathLike | None,
    *,
    target: str | None,
    target_bounds: str | None,
    test: Table | PathLike | None,
    public: Table | PathLike | None,
    memory: float | None,
    decimal: str | None,
    baseline: bool,
) -> Problem:
    """A table with named columns, in memory or in files."""
    train = tables.open_table(table, memory, decimal)
    schema, number = tables.schema_of(train, schema, target, target_bounds)
    schema = settings.identified(schema)
    groups = None if settings.rows_per_person is None else tables.identifiers_of(train, schema)
    seen = tables.public_features(public, schema)
    rows: Any = tables.features_of(train, schema)
    if isinstance(train, Scan):
        target = tables.require_target(train.column_names, schema)
        rows, labels = rows.aim(target), None  # read by the estimator
        if baseline:
            raise InputError("a baseline needs all rows in memory, and these are too many")
    else:
        labels = tables.labels_of(train, schema, schema.classes, number=number)
    if not (number or schema.classes):
        _require_classes(rows.labels()[0] if labels is None else labels, schema)
    tests = None
    if test is not None:
        known: Any = schema.classes
        if not known and not number:
            known = (rows.labels()[0] if labels is None else np.unique(labels)).tolist()
        stages = settings.candidates(seen)[0][0]["stages"]
        tests = rows_to_test_on(tables.read(test, decimal), schema, known, stages, number=number)
    many = schema.classes or (range(MANY_CLASSES) if labels is None else np.unique(labels))
    facts = public_facts(schema)
    wide = encoder(schema).widest(len(schema.columns))
    text = len(json.dumps(json.dumps(schema.to_dict(), indent=2)))
    return Problem(
        rows,
        labels,
        replace(facts, classes=0) if number else facts,
        seen,
        tests,
        1 if number else len(many),
        wide,
        text + CATEGORY * wide * schema.private,  # what may be found
        groups,
    )


def _require_classes(labels: np.ndarray, schema: Schema) -> None:
    """Refuse very many different numbers as classes, if nobody has said that they are.

    The set of labels is taken as public, here as in what is learned from them.
    """
    found = np.unique(labels)
    if found.dtype.kind in "iu" and len(found) > MANY_NUMBERS:
        raise of_rows(
            InputError(
                f"the target {schema.target!r:.80} holds more than {MANY_NUMBERS} different "
                "numbers: if it is a number, say its limits, --target-bounds 0,100 (or private), "
                "or target_bounds in a schema; if these are classes, list them in a schema. "
                "Nothing was spent"
            )
        )


def _of_features(
    path: PathLike,
    *,
    key: str | None,
    labels: Table | PathLike | None,
    target: str | None,
    target_bounds: str | None,
    test: PathLike | None,
    public: PathLike | None,
    decimal: str | None,
) -> Problem:
    """Features in a file: rows that are ready."""
    where = {"key": key, "labels": None if labels is not None else target}
    found = load_features(path, part="train", **where)
    number = target_bounds is not None
    limits = None if target_bounds is None else tables.limits_of(target_bounds)
    if labels is None:
        classes = arrays.targets_of(found.labels, path, number=number)
    else:
        beside = tables.read(labels, decimal)
        if target not in beside.column_names:
            raise InputError(
                f"which column of {labels} holds the labels? Name it as target: "
                f"{', '.join(beside.column_names)}"
            )
        classes = tables.column_labels(beside, target, number=number)
        if len(classes) != len(found.features):
            raise of_rows(InputError(f"{labels} has not one row for every row of {path}"))
    seen = None if public is None else arrays.public_rows(public, beside=found)
    tests = None
    if test is not None:
        given = arrays.test_rows(test, path, found, **where)
        truth = arrays.targets_of(given.labels, test, number=number)
        if not number and not np.isin(truth, classes).all():
            raise InputError(f"{test} holds a label that is not among the classes")
        tests = given, truth
    wide, many = found.features.shape[1], len(np.unique(classes))
    facts = TableFacts(None, wide, 0 if number else max(many, 2), limits)
    return Problem(found, classes, facts, seen, tests, 1 if number else many, wide)


def _tested(problem: Problem, options: Mapping[str, Any]) -> int:
    """Bytes of what a test on rows that are held out says; none without one."""
    if options.get("holdout") is None:
        return 0
    groups = sum(len(values) for values in (options.get("holdout_by") or {}).values())
    return room_of(problem.scores, groups)


def _room(problem: Problem, parts: Sequence[Mapping[str, Any]], *, tested: int) -> dict[str, int]:
    """At most so many bytes have the files of a fit, as far as public facts tell."""
    wide, scores, text, public = problem.wide, problem.scores, problem.text, problem.public
    kept = 0  # numbers in stages that a later one does not allow to be folded into coefficients
    for part in parts:
        stages = () if part["stages"] == "auto" else part["stages"]
        affine = [stage.affine for stage in stages]
        last = max((i for i, folds in enumerate(affine) if not folds), default=0)
        components = [getattr(stage, "n_components", 0) for stage in stages[:last]]
        shown = wide if public is None else public.n if isinstance(public, Table) else len(public)
        most = min(wide, shown)
        sizes = [n if isinstance(n, int) else most for n in components]
        kept = max(kept, wide * (sum(sizes) + 8 * len(sizes)))
    if 8 * (scores * wide + kept) > LIMIT:
        raise InputError(
            f"a model of {wide} columns, {scores} classes and its stages would have more than "
            f"{LIMIT >> 20} MB, and could not be read again: project to fewer components"
        )
    pages = 0 if problem.tests is None else 64 * scores**2
    return {
        outputs.MODEL: 8 * (scores * (wide + 1) + kept) + 3 * text + outputs.BASE,
        outputs.CERTIFICATE: 2 * text + outputs.BASE,
        outputs.REPORT: 2 * text + pages + CURVE * scores * wide + tested + outputs.BASE,
    }


def _tuned(
    estimator: Estimator,
    parts: Sequence[Mapping[str, Any]],
    words: Sequence[dict[str, str]],
    trials: Trials,
    table: tuple[Any, Any, Any],
) -> tuple[Estimator, dict[str, Any]]:
    """The best of private trials, and what it sets."""
    encode = [] if estimator.stages == "auto" else [estimator.stages[0]]
    found: dict[int, Any] = {}  # the same list wherever the stages are the same
    candidates = []
    for part in parts:
        given = part["stages"]
        stages = found.setdefault(id(given), [*encode, *given] if encode else given)
        candidates.append(clone(estimator).set_params(stages=stages, trainer=part["trainer"]))
    *rows, groups = table
    chosen = choose(candidates, words, trials, *rows, groups=groups)
    best = {"chosen": words[chosen.setting], "noisy_score": chosen.score}
    return chosen.estimator, best
