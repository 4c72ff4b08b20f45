"""Sums in other namespaces and on devices: the integers of an engine, for every loss."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction

import array_api_compat.numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch
from tacit.data import NumberColumn, Schema
from tacit.data.arrays import is_array
from tacit.data.rows import as_rows, shares_memory
from tacit.engine.array_api import ArrayEngine
from tacit.engine.array_losses import rounds_roots
from tacit.engine.engine import Engine
from tacit.engine.quantization import LATTICE_ROWS
from tacit.exceptions import InputError, MachineError
from tacit.losses import LOSSES, Logistic, get_loss
from tacit.preprocessing import ClipNorm, Encode, PublicPCA, PublicRotation, SoftPCA
from tacit.research.trainers import GEP, NoisySGD
from tacit.trainers import DPGD, DPSGD

# All that an engine asks of a namespace. Each is in the array API standard, version 2023.12.
STANDARD = re.findall(
    r"\w+",
    """abs all asarray astype clip concat empty exp expand_dims float64 int64 isfinite matmul
    maximum minimum ones_like reshape round sign sqrt take where zeros_like""",
)


class Standard:
    """A namespace with nothing else."""

    __name__ = "standard"

    def __getattr__(self, name):
        if name not in STANDARD:
            raise AttributeError(f"the engine has no business with {name}")
        return getattr(array_api_compat.numpy, name)


class Elsewhere:
    """Rows of another library, which keeps to the standard."""

    def __init__(self, array):
        self.array = np.asarray(array)
        self.shape, self.ndim, self.dtype = self.array.shape, self.array.ndim, self.array.dtype
        self.device = "cpu"

    def __array_namespace__(self, api_version=None):
        return STRICT

    def __getitem__(self, where):
        return Elsewhere(self.array[where])

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


STRICT = Standard()


def torch_tensor(array):
    return pytest.importorskip("torch").from_numpy(np.array(array))


def namespace(which):
    if which == "standard":
        return {"xp": STRICT, "device": "cpu"}
    torch = pytest.importorskip("torch")
    return {"xp": pytest.importorskip("array_api_compat.torch"), "device": torch.device("cpu")}


WHERE = ["standard", pytest.param("torch", marks=pytest.mark.torch)]
everywhere = pytest.mark.parametrize("where", WHERE)
MAKERS = [Elsewhere, pytest.param(torch_tensor, marks=pytest.mark.torch)]
every_library = pytest.mark.parametrize("other", MAKERS)


@dataclass
class Problem:
    """Rows, targets and weights of any kind and size, drawn from a seed."""

    name: str
    seed: int

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.loss = get_loss(self.name)
        margin, regression = self.name != "softmax", self.loss.task == "regression"
        k = 1 if regression else int(rng.choice([1, 3, 40] if margin else [2, 5, 40]))
        n, d = int(rng.integers(1, 90)), int(rng.integers(2, 9))
        size = 2.0 ** rng.integers(-3, 4)
        rows = rng.normal(size=(n, d)) * size
        rows[rng.random(n) < 0.2] = 0.0
        targets = rng.normal(size=n) * size if regression else rng.integers(0, max(k, 2), n)
        self.targets = self.loss.targets(targets, k)
        blanked = rng.random(n) < 0.2 if rng.integers(2) else None
        rows = as_rows(rows, bound=float(size * rng.choice([0.5, 3.0])))
        self.rows = replace(rows, blanked=blanked)
        self.options = {
            "intercept": float(rng.choice([0.0, 0.7])),
            "shift": rng.normal(size=d) / 4 if rng.random() < 0.3 else None,
            "split": int(rng.integers(1, d)) if rng.random() < 0.3 else None,
        }
        d += bool(self.options["intercept"])
        steep = 10.0 ** rng.integers(-3, 4)  # to where exponentials underflow
        self.weights = rng.normal(size=(int(rng.integers(1, 4)), d, k)) * steep
        clips = 1 if self.options["split"] is None else 2
        self.clips = [rng.uniform(0.01, 3.0, len(self.weights)) for _ in range(clips)]
        self.how = {
            "batch": np.flatnonzero(rng.random(n) < 0.6) if rng.random() < 0.5 else None,
            "per_class": bool(rng.integers(2)),
        }

    def sums(self, engine):
        return engine.gradient_sums(self.weights, self.clips, **self.how)


def assert_equal(found, expected):
    for mine, known in zip(found, expected, strict=True):
        assert mine.values.dtype == known.values.dtype == np.int64
        assert np.array_equal(mine.values, known.values)
        assert np.array_equal(mine.lattice, known.lattice)
        assert mine.start == known.start


# The integers


@everywhere
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_sums_are_those_of_an_engine_bit_for_bit(name, where):
    place = namespace(where)

    @settings(derandomize=True, max_examples=25, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def search(seed):
        case = Problem(name, seed)
        known = Engine(case.rows, case.targets, case.loss.portable(), threads=1, **case.options)
        mine = ArrayEngine(case.rows, case.targets, case.loss, **place, **case.options)
        assert_equal(case.sums(mine), case.sums(known))

    search()


@everywhere
@pytest.mark.parametrize("per_class", [False, True])
def test_sums_over_many_blocks_are_those_of_an_engine(per_class, where):
    rng = np.random.default_rng(0)
    n, d, k = LATTICE_ROWS + 77, 5, 4
    loss = get_loss("softmax")
    rows = as_rows(rng.normal(size=(n, d)), bound=2.0)
    targets, weights = loss.targets(rng.integers(0, k, n), k), rng.normal(size=(2, d, k))
    mine = ArrayEngine(rows, targets, loss, **namespace(where))
    known = Engine(rows, targets, loss.portable())
    expected = [known.gradient_sum(weights, 0.3, per_class=per_class)]
    for block in (128, 1000, LATTICE_ROWS):
        mine.block_rows = block
        assert_equal([mine.gradient_sum(weights, 0.3, per_class=per_class)], expected)


@everywhere
def test_the_largest_sums_there_can_be_are_exact(where):
    n, d = LATTICE_ROWS, 24
    loss = get_loss("squared")
    rows, targets = as_rows(np.full((n, d), 1e9), bound=1.0), loss.targets(np.full(n, -1e6), 1)
    engine = ArrayEngine(rows, targets, loss, **namespace(where))
    weights = np.full((1, d, 1), 1e3)
    one = engine.gradient_sum(weights, 1.999, batch=np.array([5])).values
    total = engine.gradient_sum(weights, 1.999).values
    reach = n * math.isqrt(sum(int(v) ** 2 for v in one.ravel()))
    assert 2**51 < reach <= 2**52
    assert (total == n * one).all()


@everywhere
@pytest.mark.parametrize("name", ["logistic", "softmax", "tangent", "squared"])
@pytest.mark.parametrize("per_class", [False, True])
def test_one_row_counts_for_at_most_the_clip_and_for_nothing_else(name, per_class, where):
    rng = np.random.default_rng(3)
    n, k = 40, 1 if name == "squared" else 4
    loss = get_loss(name)
    rows = as_rows(rng.normal(size=(n, 6)) * np.exp2(rng.integers(-9, 3, (n, 1))), bound=1.0)
    targets = loss.targets(rng.normal(size=n) if k == 1 else rng.integers(0, k, n), k)
    engine = ArrayEngine(rows, targets, loss, **namespace(where))
    weights, clips = rng.normal(size=(2, 6, k)) * 30, np.array([0.01, 1.7])
    how = {"clip": clips, "per_class": per_class}
    total = engine.gradient_sum(weights, **how)
    largest = np.zeros(2)
    for i in range(n):
        others = engine.gradient_sum(weights, batch=np.delete(np.arange(n), i), **how).values
        own = engine.gradient_sum(weights, batch=np.array([i]), **how).values
        assert np.array_equal(total.values - others, own)
        for s in range(2):
            norm = sum(int(v) ** 2 for v in own[s].ravel())
            assert norm <= (Fraction(float(clips[s])) / Fraction(float(total.lattice[s]))) ** 2
            largest[s] = max(largest[s], math.sqrt(norm) * total.lattice[s] / clips[s])
    assert (largest > 0.49).all()  # so the test would notice


@dataclass(frozen=True)
class Doubled(Logistic):
    """A loss that is defined elsewhere, and no number in places."""

    name = "doubled"

    def residual(self, scores, targets, out=None):
        found = super().residual(scores, targets, out)
        found *= 2
        found[targets[:, 0] > 0] *= np.where(found[targets[:, 0] > 0] < -1.5, np.nan, 1.0)
        return found


@everywhere
def test_losses_from_elsewhere_are_computed_on_the_host(where):
    case = Problem("logistic", 5)
    case.loss = Doubled()
    known = Engine(case.rows, case.targets, case.loss, threads=1, **case.options)
    mine = ArrayEngine(case.rows, case.targets, case.loss, **namespace(where), **case.options)
    assert_equal(case.sums(mine), case.sums(known))


@everywhere
def test_losses_and_counts_are_summed_as_by_an_engine(where):
    for name in ("softmax", "huber"):
        case = Problem(name, 8)
        rows = replace(case.rows, blanked=None)
        known = Engine(rows, case.targets, case.loss, threads=1, **case.options)
        mine = ArrayEngine(rows, case.targets, case.loss, **namespace(where), **case.options)
        found = mine.loss_sum(case.weights, 2.0)
        assert found.dtype == np.int64
        assert np.array_equal(found, known.loss_sum(case.weights, 2.0))


@everywhere
def test_fast_sums_are_close(where):
    for name in LOSSES:
        case = Problem(name, 21)
        options = {"arithmetic": "fast", **case.options}
        known = Engine(case.rows, case.targets, case.loss, threads=1, **options)
        mine = ArrayEngine(case.rows, case.targets, case.loss, **namespace(where), **options)
        for found, expected in zip(case.sums(mine), case.sums(known), strict=True):
            assert found.values.dtype == np.float64
            near = 1e-4 * (1 + np.abs(expected.values).max())
            assert np.allclose(found.values, expected.values, atol=near)


def test_an_engine_refuses_what_it_cannot_sum():
    case = Problem("softmax", 1)
    place = namespace("standard")
    with pytest.raises(InputError, match="exact or fast"):
        ArrayEngine(case.rows, case.targets, case.loss, arithmetic="strict", **place)
    engine = ArrayEngine(case.rows, np.full(case.rows.n, 6), case.loss, **place)
    with pytest.raises(InputError, match="later class"):
        engine.gradient_sum(np.zeros((1, case.rows.d, 2)), 1.0)
    with pytest.raises(InputError, match="clips do not suit"):
        engine.gradient_sums(np.zeros((1, case.rows.d, 7)), [1.0, 1.0])
    with pytest.raises(InputError, match="strictly increasing"):
        engine.gradient_sum(np.zeros((1, case.rows.d, 7)), 1.0, batch=np.array([0, 0]))


# The self-test


class Wrong(Standard):
    """A namespace of which one function is not what it should be."""

    def __init__(self, **functions):
        self.functions = functions

    def __getattr__(self, name):
        return self.functions.get(name) or super().__getattr__(name)


def test_a_namespace_that_is_not_exact_is_found_out():
    case = Problem("softmax", 1)

    def single(a, b):
        return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)

    def up(x):
        return np.nextafter(np.round(x), np.inf)

    def float32(values, device=None):
        values = np.asarray(values)
        return values.astype(np.float32) if values.dtype == np.float64 else values

    for error, wrong in [
        (MachineError, Wrong(matmul=single)),
        (MachineError, Wrong(round=up)),
        (InputError, Wrong(asarray=float32)),
    ]:
        with pytest.raises(error, match=r"float64|gradient"):
            ArrayEngine(case.rows, case.targets, case.loss, xp=wrong, device="cpu")


def test_roots_that_are_off_by_a_bit_are_taken_by_numpy():
    sloppy = Wrong(sqrt=lambda x: np.exp2(0.5 * np.log2(x)))
    assert rounds_roots(STRICT, "cpu")
    assert not rounds_roots(sloppy, "cpu")
    for name, seed in (("softmax", 3), ("tangent", 4)):
        case = Problem(name, seed)
        known = Engine(case.rows, case.targets, case.loss.portable(), threads=1, **case.options)
        mine = ArrayEngine(case.rows, case.targets, case.loss, xp=sloppy, **case.options)
        assert_equal(case.sums(mine), case.sums(known))


# Whole fits


def data(n=240, d=5, classes=3):
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, d)) + 2.0 * np.eye(classes, d)[y], y


def told(model):
    """A certificate without the time at which it was made."""
    return replace(model.certificate_, created="")


def fitted(X, y, kind=DPLinearClassifier, **options):
    options = {"trainer": DPGD(steps=6), "random_state": 0, **options}
    return kind(1.0, 1e-5, **options).fit(X, y)


PLANS = {
    "default": {"loss": get_loss("softmax").portable()},
    "hinge": {"loss": "hinge", "fit_intercept": False},
    "poisson": {"loss": get_loss("logistic").portable(), "trainer": DPSGD(steps=9, batch_size=40)},
    "strict": {"arithmetic": "strict"},  # by NumPy
    "plain": {"stages": [ClipNorm(1.0), SoftPCA(2)], "arithmetic": "exact"},  # the same
    "selection": {
        "loss": get_loss("softmax").portable(),
        "stages": [ClipNorm(1.0)],
        "trainer": NoisySGD(steps=20, runs=2),
    },
}


@every_library
@pytest.mark.parametrize("which", PLANS)
def test_model_and_certificate_are_those_of_numpy(which, other):
    X, y = data()
    known, mine = fitted(X, y, **PLANS[which]), fitted(other(X), other(y), **PLANS[which])
    assert np.array_equal(known.coef_, mine.coef_)
    assert np.array_equal(known.intercept_, mine.intercept_)
    assert told(known) == told(mine)
    assert np.array_equal(known.decision_function(X), mine.decision_function(other(X)))
    assert isinstance(mine.predict(other(X)), np.ndarray)


@every_library
def test_exact_rows_elsewhere_are_what_strict_arithmetic_finds_on_numpy(other):
    X, y = data()
    known, mine = fitted(X, y, arithmetic="strict"), fitted(other(X), y)
    assert np.array_equal(known.coef_, mine.coef_)


@every_library
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64])
def test_any_real_numbers_will_do(dtype, other):
    X, y = data()
    X = np.clip(X * 20 + 100, 0, 255).astype(dtype)
    known, mine = fitted(X, y, loss="hinge"), fitted(other(X), y, loss="hinge")
    assert np.array_equal(known.coef_, mine.coef_)
    assert told(known) == told(mine)  # bytes have their roots taken


@every_library
def test_a_regressor_goes_on_from_where_it_is(other):
    X, y = data()
    options = {"kind": DPLinearRegressor, "target_bounds": (0, 2)}
    known, mine = fitted(X, y, **options), fitted(other(X), other(y), **options)
    known.partial_fit(X, y, epsilon=0.5, delta=1e-6)
    mine.partial_fit(other(X), other(y), epsilon=0.5, delta=1e-6)
    assert np.array_equal(known.coef_, mine.coef_)
    with pytest.raises(InputError, match="expecting 5 features"):
        mine.predict(other(X[:, :3]))


@every_library
def test_trainers_with_two_parts_and_searches_take_them_as_well(other):
    X, y = data()
    public = np.random.default_rng(1).normal(size=(60, 5)) / 9
    loss = get_loss("softmax").portable()
    for model in (
        DPLinearClassifier(
            stages=[ClipNorm(1.0), PublicRotation(public)],
            loss=loss,
            trainer=GEP(steps=3, n_components=2),
            random_state=0,
        ),
        DPSearch(
            DPLinearClassifier(loss=loss, random_state=0),
            {"trainer": [DPGD(steps=2), DPGD(steps=4)]},
            epsilon=1.0,
            delta=1e-5,
        ),
    ):
        known = model.fit(X, y).predict(X)
        assert np.array_equal(known, model.fit(other(X), other(y)).predict(X))


def test_numpy_s_arrays_and_tables_are_not_for_the_array_engine():
    for known in (np.zeros((2, 2)), np.float64(1), [[1.0]], {"a": [1]}, "rows", None):
        assert not is_array(known)
    assert is_array(Elsewhere(np.zeros((2, 2))))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 2), dtype=complex), "complex128"),
        (np.array([[1.0, np.nan]] * 4), "NaN or infinity"),
        (np.zeros(4), "two dimensions"),
        (np.zeros((0, 3)), "no rows"),
        (np.array([["a", "b"]] * 4), "real numbers"),
    ],
)
def test_rows_that_are_no_numbers_are_refused(array, words):
    with pytest.raises(InputError, match=words):
        DPLinearClassifier().fit(Elsewhere(array), [0, 1, 0, 1])
    with pytest.raises(InputError, match=words):
        as_rows(Elsewhere(array))


# PyTorch's own


@pytest.mark.torch
def test_tensors_that_cannot_be_read_are_refused():
    torch = pytest.importorskip("torch")
    X, y = data(60)
    rows = torch.from_numpy(X)
    ragged = torch.nested.nested_tensor([rows[0], rows[1, :3]], layout=torch.jagged)
    for wrong, words in [
        (rows.clone().requires_grad_(), "detach"),
        (rows.to("meta"), "meta"),
        (rows.to(torch.bfloat16), "bfloat16.*float32"),
        (rows.to(torch.complex64), "complex64"),
        (rows.to_sparse(), "to_dense"),
        (ragged, "ragged"),
        (torch.full((60, 2), torch.nan), "NaN"),
        (rows[0], "two dimensions"),
        (rows[None], "two dimensions"),
        (rows[:0], "no rows"),
    ]:
        with pytest.raises(InputError, match=words):
            fitted(wrong, y)
        with pytest.raises(InputError, match=words):
            as_rows(wrong)
    for labels in (torch.ones(60, requires_grad=True), torch.ones(60, device="meta")):
        with pytest.raises(InputError, match=r"y .*(gradient|meta)"):
            fitted(rows, labels)
    with pytest.raises(InputError, match="one value for each row"):
        fitted(rows, torch.from_numpy(y[:7]))
    with pytest.raises(InputError, match="y contains NaN"):
        fitted(rows, torch.full((60,), torch.nan))
    with pytest.raises(InputError, match="lacks columns of the schema"):
        fitted(rows, y, stages=[Encode(Schema({"a": NumberColumn(0, 1)}))])


@pytest.mark.torch
def test_float32_products_in_fewer_bits_are_refused_before_anything_is_spent():
    torch = pytest.importorskip("torch")
    X, y = data(60)
    rows = torch.from_numpy(X)
    fitted(rows, y, arithmetic="fast")
    for level in ("high", "medium"):
        torch.set_float32_matmul_precision(level)
        try:
            with pytest.raises(InputError, match="fewer bits"):
                fitted(rows, y, arithmetic="fast", random_state=None)
            fitted(rows, y)  # float64 has nothing to do with it
        finally:
            torch.set_float32_matmul_precision("highest")
    with torch.autocast("cpu"):
        with pytest.raises(InputError, match="fewer bits"):
            fitted(rows, y, arithmetic="fast")
        found = fitted(rows, y)
    assert np.array_equal(found.coef_, fitted(rows, y).coef_)


@pytest.mark.torch
def test_public_rows_that_are_private_tensors_are_refused():
    torch = pytest.importorskip("torch")
    X, y = data(200)
    rows = torch.from_numpy(X)
    for public in (rows, rows[10:20], rows.T[:, 5:9].T, X, X[3:4]):
        assert shares_memory(public, rows)
        assert shares_memory(rows, public)
        with pytest.raises(InputError, match="share memory"):
            fitted(rows, y, stages=[ClipNorm(1.0), PublicPCA(public, 2)])
    assert not shares_memory(rows[:100], rows[100:])
    assert not shares_memory(rows.clone(), rows)
    other = torch.from_numpy(np.random.default_rng(1).normal(size=(80, 5)) / 9)
    known = fitted(X, y, stages=[ClipNorm(1.0), PublicPCA(other.numpy(), 2)], loss="hinge")
    mine = fitted(rows, y, stages=[ClipNorm(1.0), PublicPCA(other, 2)], loss="hinge")
    assert np.array_equal(known.coef_, mine.coef_)


@pytest.mark.torch
def test_rows_may_lie_in_memory_in_any_way():
    torch = pytest.importorskip("torch")
    X, y = data()
    known = fitted(X, y, loss="hinge").coef_
    wide = torch.zeros(len(X), 10, dtype=torch.float64)
    wide[:, ::2] = torch.from_numpy(X)
    for rows in (torch.from_numpy(np.asfortranarray(X)), wide[:, ::2]):
        assert np.array_equal(fitted(rows, y, loss="hinge").coef_, known)
