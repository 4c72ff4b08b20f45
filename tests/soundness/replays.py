"""Whole plans on neighbouring tables, with every release forced to be the same.

A plan is drawn at random: one to four stages of any kind, a trainer, a relation, an arithmetic. So
are two neighbouring tables, which are made to hurt. The plan runs on the first and what it releases
is recorded; then it runs on both with those releases replayed. What lies before the noise is then a
function of the table alone, and is held against the account, each kind in its own measure:

- Gaussian releases: Σ(distance/σ)² over all of them is at most μ² of what was counted for them;
- sampled steps: given the batch, sums lie within what one row contributes if the odd row is in it,
  and are equal if it is not;
- counts of keys: the same, over keys that both tables have; those that one of them has pass the
  threshold with no more probability than was counted as a failure;
- selections: no utility differs by more than one row may move it;
- tests: margins differ by at most one.

Whatever leaves the plan (weights, certificate, texts, warnings, exceptions) must be equal.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import norm
from tests.soundness import plans

from tacit.audit.recorder import Recorder, Release, Replayer
from tacit.data.columns import UnknownColumn, default_column
from tacit.data.owners import Owners
from tacit.data.rows import as_rows
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.engine.engine import one_thread
from tacit.exceptions import BudgetError, InputError, PrivateTestError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.targets import PrivateClasses, PrivateTargetBounds
from tacit.preprocessing import (
    Bound,
    ByColumns,
    ClipNorm,
    Dedup,
    FillGaps,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Normalize,
    PrivateBlocks,
    PrivateBounds,
    PrivateByColumns,
    PrivateCenter,
    PrivateCheckedPCA,
    PrivateClip,
    PrivateEncode,
    PrivateEqualize,
    PrivateImpute,
    PrivatePCA,
    PrivatePrecondition,
    PrivateScale,
    PublicCenter,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
    Quantize,
    RandomProjection,
    SoftPCA,
    Stage,
)
from tacit.preprocessing.by_columns import Branch
from tacit.preprocessing.column_maps import Bins, Fill, Levels, Numbers, Products
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS, Failure, Gaussian, PoissonGaussian
from tacit.research.trainers import DPRAFT, GEP, AdaDPS, FlattestDPGD, LocalDPGD, NoisySGD
from tacit.trainers import DPGD, DPSGD, SufficientStatistics

D = 3
PUBLIC = np.random.default_rng(11).normal(size=(30, D)) / 3


def _stages(rng: np.random.Generator) -> list[Stage]:
    """One to four stages of any kind; many orders are refused, and drawn again."""
    first: list[Any] = [
        ClipNorm(1.0),
        Normalize(),
        Bound(-1.0, 1.0),
        PrivateBounds(),
        ClipNorm(9.0),
    ]
    filling = [FillGaps(0.0), PrivateImpute(columns=[2]), NoiselessImpute(columns=[2])]
    later: list[Any] = [
        ClipNorm(0.7),
        Normalize(),
        RandomProjection(2, seed=3),
        PublicCenter(PUBLIC),
        PublicPCA(PUBLIC, 2),
        PrivateCheckedPCA(PUBLIC, 2),
        PublicScale(PUBLIC),
        PublicRotation(PUBLIC),
        PublicPrecondition(PUBLIC),
        PrivateCenter(),
        PrivateCenter(method="instance-optimal"),
        PrivateScale(),
        PrivateEqualize(),
        PrivateClip(),
        PrivateClip(method="exponential"),
        PrivatePCA(2),
        PrivateBlocks(blocks=[(1, [PrivateScale()]), (2, [PrivateScale(), ClipNorm(0.7)])]),
        PrivateBlocks(blocks=[(2, [ClipNorm(0.5), PrivateBounds(), PrivateCenter()]), (1, [])]),
        PrivateBlocks(blocks=[(1, [ClipNorm(0.5)]), (2, [PrivateImpute(0.3), PrivatePCA(1)])]),
        PrivatePrecondition(),
        Dedup(0.0, crowd=plans.CROWD, share=0.2),
        Dedup(plans.RADIUS, crowd=plans.CROWD, share=0.2),
        Quantize(plans.RADIUS, crowd=plans.CROWD, share=0.2),
        SoftPCA(0.05),
        NoiselessPCA(1, gap=0.02, share=0.2),
        NoiselessScale(0.1, centered=False, radius=1.0),
        NoiselessScale(0.1, radius=1.0),
        NoiselessImpute("mean", columns=[2], rows_with_gaps=60, share=0.2),
    ]
    made = [first[rng.integers(len(first))]]
    if rng.random() < 0.25:
        made.append(filling[rng.integers(len(filling))])
    made += [later[rng.integers(len(later))] for _ in range(int(rng.integers(0, 4)))]
    return made[:4]


def _trainer(rng: np.random.Generator) -> tuple[Any, str]:
    """A trainer of two steps, and a loss for it."""
    trainers: list[tuple[Any, str]] = [
        (DPGD(steps=2), "logistic"),
        (DPGD(steps=2), "softmax"),
        (DPGD(steps=2, clipping="per-class"), "softmax"),
        (DPGD(steps=2, radius=0.5, momentum=0.5, average="uniform"), "hinge"),
        (DPGD(steps=2), "squared"),
        (DPGD(steps=2), "absolute"),
        (DPSGD(steps=2, batch_size=5), "logistic"),
        (DPSGD(steps=2, batch_size=5), "softmax"),
        (FlattestDPGD(steps=2), "savage"),
        (NoisySGD(runs=2, steps=2), "logistic"),
        (GEP(steps=2, n_components=1), "logistic"),
        (AdaDPS(steps=2), "logistic"),
        (DPRAFT(steps=2), "softmax"),
        (LocalDPGD(steps=2), "logistic"),
        (SufficientStatistics(), "squared"),
    ]
    return trainers[rng.integers(len(trainers))]


@dataclass(frozen=True)
class Case:
    """A plan, and two tables that differ in row 0."""

    plan: CalibratedPlan
    name: str
    rows: tuple[Any, Any]
    labels: tuple[np.ndarray, np.ndarray]
    groups: tuple[np.ndarray, np.ndarray] | None = None  # whose rows they are
    block: int = 0  # rows of a partition, on the cluster of the present client; 0 for none

    def __str__(self) -> str:
        plan = self.plan.plan
        steps = [*(stage.name for stage in plan.stages), self.plan.trainer.name]
        how = f"{plan.neighbors}, {plan.arithmetic}, {plan.loss.name}"
        return f"{' → '.join(steps)} ({how}) on {self.name}"


@lru_cache(maxsize=4096)
def draw(seed: int) -> Case | None:
    """A case from a seed; None if no plan is made of what was drawn."""
    rng = np.random.default_rng([seed, 20261118])
    stages, (trainer, loss) = _stages(rng), _trainer(rng)
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    if trainer.local or any(stage.kind == "noiseless" for stage in stages):
        neighbors = "replace_one"  # no other is analysed
    arithmetic = ["exact", "exact", "exact", "strict", "fast"][rng.integers(5)]
    n = int(rng.choice([6, 40, 90]))
    pairs = plans.hostile(n, D, seed)
    pair = pairs[rng.integers(len(pairs))]
    if any(stage.fills_gaps for stage in stages):
        pair = plans.with_gaps(pair, seed)
    task = get_loss(loss).task
    try:
        plan = Plan(
            Budget(float(rng.choice([1.0, 8.0])), 1e-5),
            tuple(stages),
            trainer,
            get_loss(loss),
            neighbors,
            fit_intercept=bool(rng.integers(2)),
            arithmetic=arithmetic,
        ).calibrate(size=n + 1, columns=D, classes=3 if task == "classification" else 0)
    except (InputError, BudgetError):
        return None
    labels = rng.integers(0, 3, n + 1) if rng.random() < 0.5 else np.ones(n + 1, dtype=int)
    other = labels.copy()
    other[0] = (labels[0] + 1) % 3
    rows, both = pair.rows, (labels, other)
    if neighbors != "replace_one":  # the odd row is not there, under the same public number
        rows, both = (pair.rows[0], pair.rows[0][1:]), (labels, labels[1:])
    return Case(plan, pair.name, rows, both)


def draw_moment(seed: int) -> Case:
    """Two classes behind a mean, and steps along a second moment."""
    rng = np.random.default_rng([seed, 51])
    neighbors = list(NEIGHBORS)[seed % 3]
    first = [Normalize(), ClipNorm(9.0), ClipNorm(0.7)][seed // 3 % 3]
    plan = Plan(
        Budget(float(rng.choice([1.0, 8.0])), 1e-5),
        (first, PrivateCenter(), PrivatePrecondition()),
        DPGD(steps=3),
        get_loss("logistic"),
        neighbors,
        fit_intercept=bool(rng.integers(2)),
        arithmetic=["exact", "strict", "fast"][rng.integers(3)],
    ).calibrate(size=41, columns=D, classes=2)
    pairs = plans.hostile(40, D, seed)
    pair = pairs[rng.integers(len(pairs))]
    labels = rng.integers(0, 2, 41)
    rows, both = pair.rows, (labels, np.concatenate([1 - labels[:1], labels[1:]]))
    if neighbors != "replace_one":
        rows, both = (pair.rows[0], pair.rows[0][1:]), (labels, labels[1:])
    return Case(plan, pair.name, rows, both)


def draw_checked(seed: int) -> Case:
    """Public rows that are like the private ones or not, in front of further stages."""
    rng = np.random.default_rng([seed, 59])
    neighbors = list(NEIGHBORS)[seed % 3]
    public = PUBLIC * [[1.0, 1.0, 1.0], [1.0, 0.01, 0.01], [0.01, 0.01, 1.0]][seed // 3 % 3]
    otherwise = ["keep", "keep", "warn"][rng.integers(3)]
    checked = PrivateCheckedPCA(public, 1, share=0.6, otherwise=otherwise)
    behind: list[list[Stage]] = [[], [PrivateCenter()], [Normalize()], [PrivateScale()]]
    plan = Plan(
        Budget(float(rng.choice([1.0, 8.0])), 1e-5),
        ([Normalize(), ClipNorm(9.0)][rng.integers(2)], checked, *behind[rng.integers(4)]),
        [DPGD(steps=2), DPSGD(steps=2, batch_size=5)][rng.integers(2)],
        get_loss("logistic"),
        neighbors,
        fit_intercept=bool(rng.integers(2)),
        arithmetic=["exact", "strict", "fast"][rng.integers(3)],
    ).calibrate(size=91, columns=D, classes=2)
    pairs = plans.hostile(90, D, seed)
    pair = pairs[rng.integers(len(pairs))]
    labels = rng.integers(0, 2, 91)
    rows, both = pair.rows, (labels, np.concatenate([1 - labels[:1], labels[1:]]))
    if neighbors != "replace_one":
        rows, both = (pair.rows[0], pair.rows[0][1:]), (labels, labels[1:])
    return Case(plan, pair.name, rows, both)


def cells(rng: np.random.Generator, n: int) -> dict[str, list[Any]]:
    """Columns of a table: years, amounts with gaps, words, and any of these."""
    gap = rng.random(n) < rng.choice([0.0, 0.3])
    amounts = np.where(rng.random(n) < 0.7, 0.0, rng.lognormal(5, 3, n))
    words = np.array(["cook", "nurse", "1", "01", "?", ""], dtype=object)
    mixed = np.array(["7", "2.5", "1990-01-02", "x", "n/a", "1e400"], dtype=object)
    return {
        "year": (1955 + rng.integers(0, 36, n)).astype(float).tolist(),
        "amount": np.where(gap, np.nan, amounts).tolist(),
        "job": rng.choice(words[: rng.integers(1, 7)], n).tolist(),
        "town": [f"t{i}" for i in rng.integers(0, rng.choice([2, n]), n)],
        "any": rng.choice(mixed[: rng.integers(1, 7)], n).tolist(),
    }


ODD: list[dict[str, Any]] = [
    {"year": 1e308, "amount": math.inf, "job": "mine", "town": "only", "any": "own"},
    {"year": -1e308, "amount": math.nan, "job": "cook", "town": "t0", "any": "-1e300"},
    {"year": 1990.0, "amount": -math.inf, "job": None, "town": "unique", "any": ""},
    {"year": math.nan, "amount": 1e-300, "job": "1.0", "town": None, "any": "1990-01-02"},
]


@lru_cache(maxsize=4096)
def draw_table(seed: int) -> Case | None:
    """The same of a table with named columns, of which little is known."""
    rng = np.random.default_rng([seed, 22])
    n = int(rng.choice([300, 600]))
    common = cells(rng, n)
    pair = rng.permutation(len(ODD))[:2]
    tables = [
        Table.from_columns({k: [odd[k], *common[k]] for k in common})
        for odd in (ODD[pair[0]], ODD[pair[1]])
    ]
    known = [
        {},
        {"low": 0.0, "monotone": "increasing"},
        {"low": 1900.0, "high": 3e4, "shape": "hat", "knots": (1900.0, 1950.0, 2e4)},
    ]
    columns = {
        "year": default_column("number", **known[seed % 3]),
        "amount": default_column("number", shape=["auto", "straight"][seed % 2]),
        "job": default_column("category", **[{}, {"categories": ["cook", "nurse"]}][seed % 2]),
        "town": default_column("category"),
        "any": [UnknownColumn(), default_column("category"), default_column("date")][seed % 3],
    }
    kept = [name for name in columns if name == "town" or rng.random() < 0.8]
    schema = Schema({name: columns[name] for name in kept})
    first = PrivateEncode(
        schema, noise_multiplier=float(rng.choice([0.2, 0.5])), narrow=bool(rng.integers(2))
    )
    behind: list[list[Stage]] = [
        [],
        [Normalize()],
        [PrivateCenter()],
        [Normalize(), PrivateCenter()],
    ]
    if seed % 3 == 1:  # monotone: not behind Normalize
        behind = behind[::2]
    stages = (first, *behind[rng.integers(len(behind))])
    trainer, loss = [(DPGD(steps=2), "logistic"), (DPGD(steps=2), "squared")][rng.integers(2)]
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    finder = None
    if rng.random() < 0.4:
        finder = PrivateClasses() if loss == "logistic" else PrivateTargetBounds()
    try:
        plan = Plan(
            Budget(float(rng.choice([20.0, 80.0])), 1e-5),
            stages,
            trainer,
            get_loss(loss),
            neighbors,
            target=finder,
        ).calibrate(size=n + 1, columns=len(kept), classes=2 * (loss == "logistic"))
    except (InputError, BudgetError):
        return None
    both = [table.drop([k for k in columns if k not in kept]) for table in tables]
    labels, odd = rng.integers(0, 2, n + 1), 1 - rng.integers(0, 2)
    if finder is not None and loss == "logistic":  # labels that nobody else has
        words = np.array(["no", "yes"], dtype=object)[labels]
        labels, words[0], odd = words, "mine", "other"
    elif finder is not None:
        labels = labels * 1e9 + rng.normal(size=n + 1)
        labels[0], odd = rng.choice([1e308, np.nan, -1e300]), 1e10
    other = labels.copy()
    other[0] = odd
    if neighbors != "replace_one":
        rows, targets = (both[0], both[0].take(slice(1, None))), (labels, labels[1:])
    else:
        rows, targets = (both[0], both[1]), (labels, other)
    return Case(plan, f"table {seed}", rows, targets)


@lru_cache(maxsize=4096)
def draw_columns(seed: int) -> Case | None:
    """The same of columns in groups, each with maps and private stages of its own."""
    rng = np.random.default_rng([seed, 54])
    n = int(rng.choice([300, 600]))
    common, pair = cells(rng, n), rng.permutation(len(ODD))[:2]
    both = [Table.from_columns({k: [ODD[i][k], *common[k]] for k in common}) for i in pair]
    numbers = Numbers(("year", "amount"), (1900.0, 0.0), (2000.0, 1e3))
    maps: list[tuple[Any, ...]] = [(), (Bins(3),), (Products(2),), (Fill(0.0, mark=True),)]
    first = Branch(numbers, maps[rng.integers(4)], gaps=bool(rng.integers(2)))
    words = Branch(Levels(("job", "town"), (("cook", "1"), ("t0",)), (2, 1), (None, None)))
    twice = Branch(Numbers(("year",), (1950.0,), (1990.0,)), (Bins(2, weights=False),))
    bounds, categories = ["amount"] * int(rng.integers(2)), ["town"] * int(rng.integers(2))
    branches, z = [twice, first, words], float(rng.choice([0.2, 0.5]))
    stage: Stage = ByColumns(branches)
    if bounds or categories:
        stage = PrivateByColumns(
            noise_multiplier=z,
            branches=branches,
            bounds=bounds,
            categories=categories,
            within=bounds * int(rng.integers(2)),
        )
    chain = [ClipNorm(math.sqrt(first.square)), PrivateImpute(), PrivateScale()]
    behind = [ClipNorm(1.0), PrivateCenter()] if rng.random() < 0.5 else [PrivateEqualize()]
    blocks = [(1, behind), (first.end.width, chain), (None, [ClipNorm(2.0)])]
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    trainer, loss = [(DPGD(steps=2), "logistic"), (DPGD(steps=2), "squared")][rng.integers(2)]
    try:
        plan = Plan(
            Budget(80.0, 1e-5),
            (stage, PrivateBlocks(blocks=blocks)),
            trainer,
            get_loss(loss),
            neighbors,
        ).calibrate(size=n + 1, columns=len(common), classes=2 * (loss == "logistic"))
    except (InputError, BudgetError):
        return None
    labels = rng.integers(0, 2, n + 1)
    rows, targets = (both[0], both[1]), (labels, np.concatenate([[1 - labels[0]], labels[1:]]))
    if neighbors != "replace_one":
        rows, targets = (both[0], both[0].take(slice(1, None))), (labels, labels[1:])
    return Case(plan, f"columns {seed}", rows, targets)


class Lenient(CalibratedPlan):
    """The same plan, for a table that lacks the odd row: a null row is one that counts nothing."""

    @classmethod
    def of(cls, plan: CalibratedPlan) -> Lenient:
        return cls(**{item.name: getattr(plan, item.name) for item in fields(plan)})

    def validate(self, rows: Any, start: Any = None) -> None:
        pass

    def certify(self, seeded: bool, fitted: Any, *more: Any, **named: Any) -> Any:
        """What a certificate would be made of; issuing thousands of them takes long."""
        cautions = [text for stage in fitted for text in stage.cautions()]
        return [seeded, self.to_dict(fitted), self.assumptions(), cautions, more[0]]


class Watching(Replayer):
    """A replayer that also keeps what selections and tests are made of, and takes a batch."""

    def __init__(self, tape: Sequence[Release], batch: np.ndarray) -> None:
        super().__init__(tape)
        self._batch = batch
        self.utilities: list[tuple[np.ndarray, float]] = []
        self.margins: list[float] = []
        self.histograms: list[tuple[dict[Any, float], float, float]] = []
        self.votes: list[tuple[np.ndarray, float]] = []

    def gaussian(self, total: Any, deviation: float, stream: Any) -> np.ndarray:
        if total.kind == "votes":
            self.votes.append((total.values * total.unit, total.reach))
        return super().gaussian(total, deviation, stream)

    def keys(self, total: Any, keys: Any, deviation: float, threshold: int, stream: Any) -> Any:
        counts = dict(zip(keys, (total.values * total.unit).tolist(), strict=True))
        self.histograms.append((counts, deviation, threshold * total.unit))
        return super().keys(total, keys, deviation, threshold, stream)

    def above(self, value: float, threshold: float, deviation: float, stream: Any) -> bool:
        self.margins.append(value)
        return super().above(value, threshold, deviation, stream)

    def choose(self, utilities: Any, noise: float, stream: Any) -> int:
        self.utilities.append((np.asarray(utilities, dtype=np.float64), noise))
        return super().choose(utilities, noise, stream)

    def batch(self, n: int, probability: float, stream: Any) -> np.ndarray:
        return self._batch


@dataclass
class Outcome:
    """What became of a run: what lay before its noise, and what left it."""

    draws: Watching
    left: dict[str, Any] = field(default_factory=dict)


def run(case: Case, side: int, draws: Any) -> dict[str, Any]:
    """One run; everything that anybody could see of it."""
    plan, seen = case.plan, {}
    gaps = any(stage.fills_gaps for stage in plan.plan.stages)
    labels = case.labels[side]
    loss = plan.plan.loss
    values, finds = labels, plan.plan.target is not None
    if loss.task == "regression" and not finds:
        values = labels / 2.0 - 0.5
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tacit")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned, one_thread():
            warnings.simplefilter("always")
            rows = as_rows(_placed(case.rows[side], case.block), gaps=gaps)
            if case.groups is not None:
                rows = replace(rows, owners=Owners.of(case.groups[side], plan.plan.unit))
            targets = values if finds else loss.targets(values, plan.facts.outputs)
            fit = Lenient.of(plan).run(
                rows,
                rows.source.alike(targets) if rows.distributed else targets,
                key=Key.from_seed("replay"),
                draws=draws,
            )
            seen["coef"], seen["intercept"] = fit.coef.tobytes(), np.ravel(fit.intercept).tobytes()
            seen["stages"] = repr([_learned(stage) for stage in fit.stages])
            seen["words"] = fit.plan.explain()
            seen["certificate"] = repr(fit.certificate)
    except (PrivateTestError, InputError, ArithmeticError) as error:
        seen["error"] = f"{type(error).__name__}: {error}"
    except StopIteration:
        seen["error"] = "went on where the recorded run had ended"
    finally:
        logger.removeHandler(handler)
    seen["warnings"] = [str(each.message) for each in warned] + heard
    return seen


def _placed(rows: Any, block: int) -> Any:
    """Rows as they are, or in partitions on a cluster."""
    if not block:
        return rows
    import dask.array as da

    return da.from_array(rows, chunks=(block, rows.shape[1]))


def _learned(stage: Stage) -> dict[str, Any]:
    """What a fitted stage would write to a file."""
    found = {k: np.asarray(v).tobytes() for k, v in stage.arrays().items()}
    return {**found, "parameters": stage.parameters()}


def compare(case: Case, seed: int = 0) -> list[str]:
    """What is wrong: empty if the account covers these neighbours."""
    rng = np.random.default_rng(seed)
    recorder = Recorder()
    run(case, 0, recorder)
    n = len(case.rows[0])
    batch = np.flatnonzero(rng.random(n) < 0.5)
    wrong = []
    batches = [np.union1d(batch, [0]), np.setdiff1d(batch, [0])] if samples(case) else [batch]
    for with_odd, chosen in zip((True, False), batches, strict=False):
        outcomes = []
        for side in (0, 1):
            theirs = chosen
            if len(case.rows[1]) < n and side:
                theirs = chosen[chosen > 0] - 1
            watching = Watching(recorder.tape, theirs)
            outcomes.append(Outcome(watching, run(case, side, watching)))
        wrong += judged(case, recorder.tape, outcomes, with_odd)
    return [f"{case}: {text}" for text in wrong]


def samples(case: Case) -> bool:
    return any(isinstance(event, PoissonGaussian) for _, event in case.plan.spent)


def judged(
    case: Any, tape: Sequence[Release], outcomes: Sequence[Outcome], with_odd: bool = True
) -> list[str]:
    """What is wrong with two outcomes of what is on the tape, of a case's plan."""
    one, other = outcomes
    wrong = [
        f"{key} differs: {one.left.get(key)!r:.200} and {other.left.get(key)!r:.200}"
        for key in {*one.left, *other.left}
        if one.left.get(key) != other.left.get(key)
    ]
    if len(one.draws.margins) != len(other.draws.margins):
        return [*wrong, "one table was tested and the other was not"]
    passing = True
    for a, b in zip(one.draws.margins, other.draws.margins, strict=True):
        passing &= min(a, b) >= 0
        if not abs(a - b) <= 1 + 1e-6 and min(a, b) > -math.inf:
            wrong.append(f"margins {a} and {b} differ by more than one")
    if not passing:  # a private test makes such neighbours as good as equal
        return wrong
    unit = NEIGHBORS[case.plan.plan.neighbors]
    for (a, noise), (b, _) in zip(one.draws.utilities, other.draws.utilities, strict=True):
        beta = case.plan.spent[-1][1].noise_multiplier
        if np.abs(a - b).max() > unit * noise / beta * (1 + 1e-9):
            wrong.append(f"utilities differ by {np.abs(a - b).max()}")
    for (a, reach), (b, _) in zip(one.draws.votes, other.draws.votes, strict=True):
        apart = float(np.linalg.norm(a - b))
        if apart > unit * reach * (1 + 1e-9):  # each by itself, however little the others used
            wrong.append(f"votes lie {apart:.6g} apart, {unit * reach:.6g} were counted")
    keys, failing = _keys(one.draws, other.draws)
    counted = math.fsum(e.failure for _, e in case.plan.spent if isinstance(e, Failure))
    if failing > counted * (1 + 1e-6):
        wrong.append(f"keys of one row pass with probability {failing:.3g}, {counted:.3g} counted")
    sums = one.draws.sums, other.draws.sums
    return wrong + _sums(case, tape, sums, with_odd, square=keys)


def _keys(one: Watching, other: Watching) -> tuple[float, float]:
    """(distance/σ)² over keys that both have, and how likely others pass, on the worse side."""
    square, sides = 0.0, [0.0, 0.0]
    for (a, deviation, threshold), (b, *same) in zip(one.histograms, other.histograms, strict=True):
        assert same == [deviation, threshold]
        square += math.fsum((a[key] - b[key]) ** 2 for key in {*a} & {*b}) / deviation**2
        for i, (mine, theirs) in enumerate([(a, b), (b, a)]):
            rooms = [(threshold - mine[key]) / deviation for key in {*mine} - {*theirs}]
            sides[i] += math.fsum(norm.sf(rooms))
    return square, max(sides)


def _sums(
    case: Case,
    tape: Sequence[Release],
    sums: tuple[Sequence[np.ndarray], Sequence[np.ndarray]],
    with_odd: bool,
    *,
    square: float,
) -> list[str]:
    first, second = sums
    unit = NEIGHBORS[case.plan.plan.neighbors]
    if not len(tape) == len(first) == len(second):
        return [f"{len(tape)} releases, and {len(first)} and {len(second)} sums"]
    fast = 1e-5 if case.plan.arithmetic == "fast" else 0.0  # ideal arithmetic is assumed there
    wrong: list[str] = []
    sampled = samples(case)
    counted = sum(
        event.count * (unit / event.noise_multiplier) ** 2
        for name, event in case.plan.spent
        if isinstance(event, Gaussian) and name != "Test"
    )
    for release, a, b in zip(tape, first, second, strict=True):
        if release.kind in ("test", "keys"):
            continue
        apart = float(np.sqrt(((a - b) ** 2).sum())) / release.deviation
        if release.kind == "step" and sampled:
            event = next(e for _, e in case.plan.spent if isinstance(e, PoissonGaussian))
            shift = max((s for _, s in event.drift), default=0.0)
            allowed = (unit * with_odd + shift) / event.noise_multiplier
            if apart > allowed * (1 + 1e-9) + fast and not event.failure:
                wrong.append(f"a sampled step lies {apart:.6g} apart, allowed are {allowed:.6g}")
            continue
        if release.kind == "step" and case.plan.trainer.local:
            # The account is of one report; the sum has the noise of all that are in its group.
            apart *= math.sqrt(math.ceil(len(case.rows[0]) / case.plan.trainer.groups))
        square += apart**2
    if square > counted * (1 + 1e-6) + fast:
        wrong.append(f"Σ(distance/σ)² = {square:.6g}, and {counted:.6g} were counted")
    return wrong
