"""What cannot run is refused by public facts: by a plan, and by a fit before it costs anything."""

from __future__ import annotations

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import DPLinearClassifier, DPSearch, Ledger
from tacit import preprocessing as stages
from tacit.cli.main import app
from tacit.cli.settings import Settings
from tacit.cli.tasks.plan import plan as plan_of
from tacit.data import memory
from tacit.exceptions import BudgetError, InputError
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.privacy import Budget
from tacit.research.trainers import GEP, FlattestDPGD, NoisySGD
from tacit.trainers import DPGD, DPSGD

BUDGET = Budget(1.0, 1e-5)


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    return Ledger(path).create("people", epsilon=20.0, delta=1e-3)


def rows(n=200, d=4):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)), rng.integers(0, 2, n)


def planned(trainer, arithmetic="exact", **facts):
    first = (stages.Normalize(),)
    plan = Plan(BUDGET, first, trainer, get_loss("logistic"), arithmetic=arithmetic)
    return plan.calibrate(**{"size": 200, "columns": 4, "classes": 2, **facts})


IMPOSSIBLE = [
    DPGD(steps=10**9),
    DPGD(steps=10**7 + 1),
    DPSGD(steps=10**9, batch_size=10),
    *(DPGD(clip=value, steps=5) for value in (1e-320, 1e-30, 1e30, 1e308, 10**400)),
    *(DPGD(learning_rate=value, steps=5) for value in (1e17, 1e150, 1.7e308, 10**400)),
    *(DPGD(intercept_fraction=value, steps=5) for value in (1e30, 1e308, 10**400)),
    *(DPGD(alpha=value, steps=5, learning_rate=1.0) for value in (1e50, 1e200, 1e308, 10**400)),
    DPGD(anchor=1.0, learning_rate=10.0, momentum=0.0, steps=300),
    DPGD(radius=10**400, steps=5),
    *(DPGD(momentum=value, steps=5) for value in (1, 1.0, -0.1, "0.5", None, True)),
    *(DPGD(steps=value) for value in ("100", 1.5, None, True, [3], float("nan"), 10**400)),
    DPSGD(batch_size=10**400, steps=5),
    NoisySGD(ceiling=1e-300, steps=5),
    FlattestDPGD(choice_noise=1e300, steps=5),
    GEP(balance=1e-320, steps=5),
]


@pytest.mark.parametrize("trainer", IMPOSSIBLE, ids=lambda t: str(t)[:90])
def test_settings_that_cannot_run_are_refused_before_they_cost(account, trainer):
    spent = len(account.charges())
    with pytest.raises(InputError):
        planned(trainer)
    with pytest.raises(InputError):
        DPLinearClassifier(1.0, 1e-5, trainer=trainer, ledger=account).fit(*rows())
    assert len(account.charges()) == spent


def test_a_refusal_says_what_is_allowed():
    with pytest.raises(InputError, match=r"DPGD\(steps=1000000000\).* from 1 to 10,000,000"):
        planned(DPGD(steps=10**9))
    with pytest.raises(InputError, match=r"DPGD\(clip=1e-320\).* within 2\*\*-60 and 2\*\*60"):
        planned(DPGD(clip=1e-320))
    with pytest.raises(InputError, match=r"learning_rate=1e\+150.* lower the learning rate"):
        planned(DPGD(learning_rate=1e150, steps=5))


@pytest.mark.parametrize(
    "trainer",
    [
        DPGD(steps=5, learning_rate=1e6),
        DPGD(steps=5, clip=1e-9),
        DPGD(steps=5, clip=1e9),
        DPGD(steps=5, alpha=0.5, learning_rate=1.0),
        DPGD(steps=5, radius=1e-9),
        DPGD(steps=5, radius=1e300),
        DPGD(steps=5, momentum=0.999999),
        DPGD(steps=5, intercept_fraction=1e6),
        DPGD(steps=5, learning_rate=1e-320),
    ],
    ids=lambda t: str(t)[:90],
)
def test_settings_that_are_only_odd_run_as_before(trainer):
    found = DPLinearClassifier(1.0, 1e-5, trainer=trainer, stages=[stages.Normalize()]).fit(*rows())
    assert np.isfinite(found.coef_).all()


@pytest.mark.parametrize(
    ("facts", "arithmetic", "words"),
    [
        ({"columns": 1 << 23}, "exact", "too wide"),
        ({"size": 1 << 25}, "strict", "too many for arithmetic='strict'"),
    ],
)
def test_tables_that_no_engine_takes_are_refused(facts, arithmetic, words):
    with pytest.raises(InputError, match=words):
        planned(DPGD(steps=5), arithmetic, **facts)


def test_more_classes_than_sums_can_have_are_refused():
    plan = Plan(BUDGET, (stages.Normalize(),), DPGD(steps=5), get_loss("softmax"))
    with pytest.raises(InputError, match="5000 outputs are too many; at most 4000"):
        plan.calibrate(size=10_000, columns=4, classes=5000)


def test_weights_that_do_not_fit_into_memory_are_refused(monkeypatch, account):
    monkeypatch.setattr("tacit.trainers.feasible.machine_memory", lambda: 1 << 20)
    for trainer, columns in ((DPGD(steps=5), 20_000), (FlattestDPGD(steps=100_000), 4)):
        with pytest.raises(InputError, match="this machine has"):
            planned(trainer, columns=columns)
    spent = len(account.charges())
    with pytest.raises(InputError, match="this machine has"):
        DPLinearClassifier(1.0, 1e-5, ledger=account).fit(*rows(50, 20_000))
    assert len(account.charges()) == spent
    planned(DPGD(steps=5), columns=1000)


def test_the_memory_of_a_machine_is_what_a_process_may_have(monkeypatch, tmp_path):
    whole = memory.machine_memory()
    assert whole > 1 << 26
    (tmp_path / "max").write_text(f"{whole // 2}\n")
    (tmp_path / "none").write_text("max\n")
    places = (str(tmp_path / "max"), str(tmp_path / "none"), str(tmp_path / "missing"))
    monkeypatch.setattr(memory, "CONTAINERS", places)
    assert memory.machine_memory() == whole // 2


def test_stages_whose_noise_cannot_be_drawn_are_refused(account):
    spent = len(account.charges())
    for stage in (stages.PrivateCenter(1e-30), stages.PrivateEqualize(1e-9)):
        model = DPLinearClassifier(
            1.0, 1e-5, stages=[stages.Normalize(), stage], trainer=DPGD(steps=3), ledger=account
        )
        with pytest.raises(InputError, match=f"{stage.name} would add noise of .* raise its share"):
            model.fit(*rows())
    assert len(account.charges()) == spent


@pytest.mark.parametrize("start", [(1e300, 0.0), (1e17, 0.0), (0.0, 1e300)], ids=str)
def test_a_start_that_is_too_far_away_is_refused(account, start):
    spent = len(account.charges())
    given = (np.full((1, 4), start[0]), np.full(1, start[1]))
    model = DPLinearClassifier(1.0, 1e-5, trainer=DPGD(steps=3), init=given, ledger=account)
    with pytest.raises(InputError, match="the model to start from has coefficients"):
        model.fit(*rows())
    assert len(account.charges()) == spent
    near = (np.full((1, 4), 1e6), np.full(1, -1e6))
    DPLinearClassifier(1.0, 1e-5, trainer=DPGD(steps=3), init=near).fit(*rows())


def test_a_search_among_settings_that_cannot_run_costs_nothing(account):
    spent = len(account.charges())
    model = DPLinearClassifier(1.0, 1e-5, ledger=account)
    for grid in ({"trainer__clip": [0.1, 1e-320]}, {"trainer__steps": [5, 10**9]}):
        with pytest.raises(InputError):
            DPSearch(model, grid, trials=2).fit(*rows())
        with pytest.raises(InputError):
            DPSearch(model, grid, trials=2).plan(size=200, columns=4)
    assert len(account.charges()) == spent


@pytest.mark.parametrize(
    "more",
    [
        ["--steps", "1000000000"],
        ["--option", "clip=1e-320"],
        ["--option", "learning_rate=1e308"],
        ["--option", "momentum=1"],
        ["--option", "steps=None"],
        ["--option", "clip=[1]"],
        ["--recipe", "jl", "--components", "1000000000"],
        ["--recipe", "dp-pca", "--components", "100"],
        ["--tune", "clip=0.1,1e-320"],
    ],
    ids=" ".join,
)
def test_plan_and_fit_refuse_alike_on_the_command_line(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    columns = "\n".join(f"  c{i}: {{kind: number, low: -1, high: 1}}" for i in range(3))
    (tmp_path / "s.yaml").write_text(f"target: y\nclasses: ['a', 'b']\ncolumns:\n{columns}\n")
    cells, labels = rows(200, 3)
    lines = [",".join([*map(str, c), "ab"[k]]) for c, k in zip(cells, labels, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["c0,c1,c2,y", *lines]))
    ledger = Ledger("ledger.db").create("people", epsilon=5.0, delta=1e-5)
    shared = ["--schema", "s.yaml", "--epsilon", "1", "--delta", "1e-6", *more]
    account = ["--ledger", "ledger.db", "--dataset", "people", "--out", "m", "--quiet"]
    said = []
    for call in (["plan", "--rows", "200"], ["fit", "t.csv", *account]):
        result = CliRunner().invoke(app, [*call, *shared])
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        said.append(result.stderr)
    assert said[0] == said[1]
    assert ledger.charges() == [] and not (tmp_path / "m").exists()


# --- budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["dpsgd-f", "dpsgd"])
@pytest.mark.parametrize("epsilon", [120.0, 500.0, 1e6])
def test_an_epsilon_that_is_too_large_is_told_which_would_do(recipe, epsilon):
    with pytest.raises(
        BudgetError, match=re.escape(f"epsilon={epsilon:g} is too large")
    ) as refused:
        plan_of(Settings(epsilon, 1e-6, recipe), 1000, columns=5)
    words = str(refused.value)
    assert "full batches" not in words and "raise delta" not in words
    most = float(re.search(r"epsilon up to (\d+)", words)[1])
    assert most > 90
    assert plan_of(Settings(most, 1e-6, recipe), 1000, columns=5).noise_multiplier > 0
    fast = Settings(min(epsilon, 500.0), 1e-6, recipe, arithmetic="fast")
    assert plan_of(fast, 1000, columns=5).noise_multiplier > 0  # the other way that it names


def test_a_delta_that_is_too_small_is_told_so():
    with pytest.raises(BudgetError, match=r"raise delta$"):
        plan_of(Settings(1.0, 1e-200), 1000, columns=5)
    for arithmetic in ("exact", "fast"):
        with pytest.raises(BudgetError, match="raise delta, or train on full batches"):
            sampled = Settings(1.0, 1e-12, "dpsgd", arithmetic=arithmetic)
            plan_of(sampled, 1000, columns=5)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-13])
def test_an_epsilon_that_is_too_small_does_not_blame_stages(epsilon):
    with pytest.raises(BudgetError, match="more than 10\\^9 times") as refused:
        plan_of(Settings(epsilon, 1e-9, "dp-gd"), 1000, columns=5)
    assert "stages" not in str(refused.value)
