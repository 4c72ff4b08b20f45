"""What is composed is kept, bound to the chain, never below the truth, and not done twice."""

from __future__ import annotations

import json
import math
import multiprocessing
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger import racing

from tacit import Ledger
from tacit.exceptions import BudgetError
from tacit.ledger import composed, spending, store
from tacit.ledger.composed import Composed, composed_event, grid_for
from tacit.ledger.ledger import BOOKS
from tacit.ledger.links import canonical, digest
from tacit.ledger.spending import Limits, Spending, Tally
from tacit.ledger.store import Store
from tacit.privacy import Gamma, Gaussian, Iterated, Parallel, PoissonGaussian, Repeated
from tacit.privacy.accounting import loss_pmf
from tacit.privacy.accounting.accountants import MOST_STEPS, epsilon, gaussian_delta
from tacit.privacy.accounting.loss_pmf import TAIL, LossPmf, dyadic, event_losses
from tacit.privacy.verification import recheck

SPECIAL = "replace_special"


# --- distributions on a grid ---------------------------------------------------------------------


def random_pmf(chance, grid=2.0**-6, size=40):
    """Losses of a pair: e^(−loss) has a mean of at most one."""
    p, q = chance.dirichlet(np.ones(size), 2)
    losses = np.sort(np.log(p / q))
    return losses, p[np.argsort(np.log(p / q))], grid


def exact_delta(losses, mass, infinity, at):
    return infinity + float(mass @ np.maximum(-np.expm1(np.minimum(at - losses, 0.0)), 0.0))


@pytest.mark.parametrize("grid", [2.0**-8, 2.0**-4, 2.0**-1])
def test_another_grid_is_never_below_and_keeps_both_masses(grid):
    chance = np.random.default_rng(0)
    for _ in range(20):
        losses, mass, _ = random_pmf(chance)
        made = LossPmf.of_atoms(losses, mass, 1e-9, grid)
        assert made.mass.sum() == pytest.approx(1.0, abs=1e-12)
        assert made.mass @ np.exp(-made.losses) <= mass @ np.exp(-losses) * (1 + 1e-12)
        assert made.mass @ np.exp(-made.losses) == pytest.approx(mass @ np.exp(-losses), rel=1e-9)
        for at in np.linspace(-3, 3, 61):
            exact = exact_delta(losses, mass, 1e-9, at)
            assert exact <= made.delta(at, 0.0) * (1 + 1e-12)
            assert made.delta(at, 0.0) <= exact + grid


def test_compositions_and_joins_are_never_below():
    chance = np.random.default_rng(1)
    for _ in range(5):
        pmfs = [LossPmf.of_atoms(*random_pmf(chance)[:2], 0.0, 2.0**-7) for _ in range(2)]
        one, two = pmfs
        both = one.compose(two)
        losses = np.add.outer(one.losses, two.losses).ravel()
        mass = np.multiply.outer(one.mass, two.mass).ravel()
        joined = one.joined(two)
        for at in np.linspace(-2, 4, 13):
            exact = exact_delta(losses, mass, 0.0, at)
            assert exact <= both.delta(at, 0.0) * (1 + 1e-12) <= exact + 1e-4
            for pmf in pmfs:
                assert pmf.delta(at, 0.0) <= joined.delta(at, 0.0) * (1 + 1e-9)
                beside = pmf.compose(one).delta(at, 0.0)
                assert beside <= joined.compose(one).delta(at, 0.0) * (1 + 1e-6)


def test_tails_and_rounding_of_a_thousand_compositions_are_counted_and_small():
    step = LossPmf.of_atoms(*random_pmf(np.random.default_rng(2))[:2], 0.0, 2.0**-5)
    small = LossPmf.of_atoms(step.losses / 64, step.mass, 0.0, 2.0**-12)
    whole = small
    for _ in range(999):
        whole = whole.compose(small)
    assert len(whole.mass) <= loss_pmf.MOST_POINTS
    # Nothing was dropped: what is not there is infinite, and that is little for any account that
    # sets 1e-11 aside for each of so many plans.
    assert whole.mass.sum() + whole.infinity >= 1 - 1e-9
    assert 1000 * TAIL / 10 < whole.infinity < 2e-9
    mean = float(small.mass @ small.losses)
    variance = float(small.mass @ small.losses**2) - mean**2
    assert whole.mass @ whole.losses == pytest.approx(1000 * mean, rel=1e-6)
    found = whole.mass @ (whole.losses - 1000 * mean) ** 2
    assert found == pytest.approx(1000 * variance, rel=1e-3)


@pytest.mark.parametrize("mu", [0.0, 1e-9, 0.3, 5.0])
def test_beside_a_gaussian_is_a_closed_form(mu):
    point = LossPmf(0.25, 2, np.array([1.0]), 0.0)  # a loss of one half, for certain
    for at in (0.6, 1.0, 3.0):
        assert point.delta(at, mu) == pytest.approx(gaussian_delta(mu, at - 0.5), rel=1e-9)
    assert point.delta(0.0, mu) >= -math.expm1(-0.5)


EVENTS = [
    PoissonGaussian(3.0, 100, 0.02),
    PoissonGaussian(20.0, 500, 0.01),
    PoissonGaussian(1.0, 50, 0.01),
    PoissonGaussian(100.0, MOST_STEPS + 7, 0.002),
    Gamma(40.0, 3),
    Gamma(30.0, 40, 0.1),
    Iterated(8.0, 2, steps=9),
]


@pytest.mark.parametrize("neighbors", [SPECIAL, "replace_one"])
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: f"{e.kind}-{e.noise_multiplier:g}")
def test_one_event_is_what_a_second_accountant_says(event, neighbors):
    alone = composed_event(event, neighbors, grid_for(2.0))
    found = alone.epsilon(1e-6, 0.0)
    again = recheck.epsilon([(event.kind, event.to_dict()["parameters"])], 1e-6, neighbors)
    assert again.lower <= found
    assert found <= again.upper * 1.004


def test_the_adapter_reads_what_dp_accounting_computed():
    from dp_accounting.pld import privacy_loss_distribution as pld

    event = PoissonGaussian(2.0, 7, 0.1)
    made = pld.from_gaussian_mechanism(
        2.0, value_discretization_interval=1e-4, sampling_prob=0.1
    ).self_compose(7)
    losses = event_losses(event, SPECIAL, dyadic(1e-4), fine=True)
    assert len(losses) == 2
    for at in (0.0, 0.5, 1.0):
        worst = max(loss.delta(at, 0.0) for loss in losses)
        assert worst == pytest.approx(made.get_delta_for_epsilon(at), rel=2e-4)


# --- property: kept and extended, or composed at once ------------------------------------------


SEARCH = Repeated(trial=((Gaussian(40.0, 16), Gaussian(50.0)),), shape=1.0, rate=0.2)
SAMPLED_SEARCH = Repeated(trial=((PoissonGaussian(30.0, 20, 0.05),),), shape=0.0, rate=0.3)

some_event = st.one_of(
    st.builds(Gaussian, st.floats(15.0, 200.0), st.integers(1, 3)),
    st.builds(
        PoissonGaussian,
        st.floats(4.0, 60.0),
        st.integers(1, 200),
        sampling_probability=st.floats(0.001, 0.2),
    ),
    st.builds(Gamma, st.floats(40.0, 200.0), st.integers(1, 3)),
    st.builds(Iterated, st.floats(10.0, 60.0), st.integers(1, 2), steps=st.integers(1, 50)),
    st.sampled_from([SEARCH]),
)
some_plans = st.lists(st.lists(some_event, min_size=1, max_size=3), min_size=2, max_size=5)


@settings(deadline=None, max_examples=12)
@given(
    plans=some_plans,
    neighbors=st.sampled_from([SPECIAL, "add_or_remove_one", "replace_one"]),
    failure=st.sampled_from([0.0, 1e-7]),
)
def test_plan_by_plan_is_never_below_all_at_once_and_hardly_above(plans, neighbors, failure):
    limits = Limits(4.0, 1e-5, neighbors)
    total = Tally()
    for k, events in enumerate(plans):
        named = tuple((f"{i}", event) for i, event in enumerate(events))
        total = total.plus(Spending(named, 10, failure))
        total.epsilon(limits)  # composed so far
        if k % 2 and total.others:  # as another process would find it
            kept = Composed.from_bytes(total.composed(limits).to_bytes())
            total = total.starting_from(kept, total.others)
    found = total.epsilon(limits)
    left = total.left_of(limits)
    flat = [event for events in plans for event in events]
    direct = epsilon(flat, left, neighbors, grid=1e-4)
    assert found <= direct * 1.01 + 1e-3
    if not any(isinstance(event, Gamma | Repeated) for event in flat):
        steps = [(event.kind, event.to_dict()["parameters"]) for event in flat]
        assert recheck.epsilon(steps, left, neighbors).lower <= found
    elif not any(isinstance(event, Gamma) for event in flat):
        assert found >= direct * (1 - 0.005) - 1e-3


def test_unlike_trials_of_one_search_are_counted_in_every_combination():
    """The settings of two searches may differ, though the searches are the same."""
    rare, pure = PoissonGaussian(0.4, 1, 1e-4), Gamma(2.0)
    search = Repeated(trial=((rare,), (pure,)), shape=1.0, rate=1.0)  # one trial, for certain
    two = composed_event(search.times(2), SPECIAL, grid_for(1.0))
    mixed = composed_event(rare, SPECIAL, grid_for(1.0)).beside(
        composed_event(pure, SPECIAL, grid_for(1.0))
    )
    for at in (0.5, 1.0, 1.5):
        assert two.delta(at, 0.0) >= mixed.delta(at, 0.0) * (1 - 1e-6)
    many = composed_event(search.times(40), SPECIAL, grid_for(1.0))  # too many combinations
    assert len(many.branches) <= composed.MOST_COMBINATIONS
    assert many.delta(1.0, 0.0) >= two.delta(1.0, 0.0)


def test_bytes_give_back_what_was_composed_and_damage_gives_nothing():
    whole = composed_event(PoissonGaussian(5.0, 20, 0.05), SPECIAL, grid_for(1.0))
    whole = whole.beside(composed_event(SEARCH, SPECIAL, grid_for(1.0)))
    data = whole.to_bytes()
    again = Composed.from_bytes(data)
    assert again.to_bytes() == data
    assert again.delta(1.0, 0.3) == whole.delta(1.0, 0.3)
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    for damage in (
        {"format": "tacit-composed/0"},
        {"branches": []},
        {"branches": [[0.0, 0.0, 0.0, [[0.1, 0, -5, 0.0]]]]},
        {"branches": [[0.0, 0.0, 0.0, [[0.1, 0.5, 5, 0.0]]]]},
        {"branches": [[-1.0, *head["branches"][0][1:]]]},
        {"branches": [[0.0, 0.0, -1.0, head["branches"][0][3]]]},
        {"branches": "x"},
        {"grid": None},
        {"failure": -1.0},
    ):
        assert Composed.from_bytes(json.dumps(head | damage).encode() + b"\n" + rest) is None
    for bad in (b"", b"\xff\n", line, line + b"\n" + rest[:-8], line + b"\n" + rest[:-3]):
        assert Composed.from_bytes(bad) is None
    negative = np.frombuffer(rest, "<f8").copy()
    negative[3] = -1e-9
    assert Composed.from_bytes(line + b"\n" + negative.tobytes()) is None


def test_a_search_in_one_of_two_parallel_parts_weighs_on_that_part_alone():
    alone = composed_event(SEARCH, SPECIAL, grid_for(1.0))
    for noise in (2.0, 5.0, 20.0):
        other = composed_event(Parallel([[Gaussian(noise)], [Gaussian(noise)]]), SPECIAL, 2.0**-12)
        both = composed_event(Parallel([[SEARCH], [Gaussian(noise)]]), SPECIAL, grid_for(1.0))
        for at in (0.5, 1.0, 2.0):
            worse = max(alone.delta(at, 0.0), other.delta(at, 0.0))
            assert worse <= both.delta(at, 0.0) * (1 + 1e-9) <= worse * (1 + 1e-6)


# --- in a ledger ----------------------------------------------------------------------------------


def kind(k):
    return [("DPSGD", PoissonGaussian(30.0 + k, 1, 0.05))]


def fill(ledger, kinds):
    """Plans of so many kinds, as programs before this one wrote them: with nothing kept."""

    def work(journal):
        for k in range(kinds):
            facts = Spending(tuple(kind(k))).to_dict()
            facts |= {"at": "2026-01-01T00:00:00+00:00", "budget": None, "plan": {}}
            journal.append("a", k + 2, f"{k:032x}", kind="reserve", together=0.1, **facts)

    Store(ledger.address).write(work)


def forget():
    """As a new process."""
    BOOKS.clear()
    event_losses.cache_clear()
    composed_event.cache_clear()


@pytest.fixture
def built(monkeypatch):
    """Events whose distributions were built, and whether the lock was held meanwhile."""
    events, locked, usual = [], [], Store.transaction

    def transaction(self, left, progress, write, make):
        class Watched:
            def __enter__(inner):
                inner.context = usual(self, left, progress, write, make)
                connection = inner.context.__enter__()
                locked.append(write)
                return connection

            def __exit__(inner, *problem):
                locked.pop()
                return inner.context.__exit__(*problem)

        return Watched()

    def step(event, *others):
        events.append((event, any(locked)))
        return original(event, *others)

    original = loss_pmf.loss_of_step
    monkeypatch.setattr(loss_pmf, "loss_of_step", step)
    monkeypatch.setattr(Store, "transaction", transaction)
    forget()
    return events


def test_a_reservation_beside_a_hundred_kinds_builds_one_distribution(url, built):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    fill(ledger, 100)
    forget()
    ledger.reserve(kind(100), neighbors=SPECIAL)  # composes what nobody has kept
    assert len(built) == 101
    for k, again in enumerate([forget, lambda: None]):
        built.clear()
        again()
        held = ledger.reserve(kind(101 + k), neighbors=SPECIAL)
        assert len(built) == 1
    built.clear()
    forget()
    left = ledger.remaining()
    assert left.spent == pytest.approx(held.together, rel=1e-9)
    assert 1.5 < left.left < 2.0
    ledger.reserve([("mean", Gaussian(100.0))], neighbors=SPECIAL)
    with pytest.raises(BudgetError):
        ledger.reserve([("mean", Gaussian(0.5))], neighbors=SPECIAL)
    held.commit()
    assert not built
    # From nothing but the entries, and by another accountant, it comes to the same.
    flat = [event for charge in ledger.charges() for _, event in charge.spending.events]
    spent = reduce(Tally.plus, [charge.spending for charge in ledger.charges()], Tally())
    direct = epsilon(flat, spent.left_of(ledger.limits()), SPECIAL, grid=1e-4)
    # (Losses of such small steps are not much larger than the grid of the account.)
    assert direct * 0.99 <= ledger.remaining().spent <= direct * 1.01 + 2.0 / 1000
    assert ledger.check() == []


def test_nothing_is_composed_under_the_lock(url, built):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    fill(ledger, 5)
    forget()
    ledger.reserve([("mean", Gaussian(50.0))], neighbors=SPECIAL)
    forget()
    ledger.amend(epsilon=1.0, reason="less")
    forget()
    ledger.reserve(kind(9), neighbors=SPECIAL)
    assert len(built) >= 11
    assert not any(locked for _, locked in built)


def test_events_that_others_add_in_between_are_composed_before_the_lock_too(
    url, built, monkeypatch
):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    usual, added = Store.write, []

    def slow(self, wanted, **how):
        if len(added) < 2:  # somebody with an older program, who keeps nothing
            added.append(len(added))
            count = self.read(lambda journal: journal.count)

            def work(journal):
                facts = Spending(tuple(kind(50 + count))).to_dict()
                facts |= {"at": "2026-01-01T00:00:00+00:00", "budget": None, "plan": {}}
                journal.append(
                    "a", count + 1, f"{count:032x}", kind="reserve", together=0.1, **facts
                )

            usual(self, work)
        return usual(self, wanted, **how)

    monkeypatch.setattr(Store, "write", slow)
    held = ledger.reserve(kind(0), neighbors=SPECIAL)
    assert held.number == 4
    assert len(built) == 3
    assert not any(locked for _, locked in built)
    forget()
    assert ledger.remaining().spent == pytest.approx(held.together, rel=1e-9)
    assert ledger.check() == []


@pytest.fixture
def full(url):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    for k in range(3):
        ledger.reserve([("DPSGD", PoissonGaussian(9.0 + k, 20, 0.1))], neighbors=SPECIAL)
    ledger.reserve([("mean", Gaussian(40.0))], neighbors=SPECIAL)
    return ledger


def change(ledger, of, edit, number=None):
    at, content = Store(ledger.address).read(lambda journal: journal.kept("a"))
    values = {"content": of(content), "number": at if number is None else number}
    edit(ledger, "UPDATE tacit_composed SET content = :content, number = :number", **values)


def less(content):
    """What an honest ledger would keep if only half as much had been spent."""
    kept = Composed.from_bytes(content)
    (branch,) = kept.branches
    points = [LossPmf(loss.grid, 0, np.ones(1), 0.0) for loss in branch.losses]
    return Composed(kept.neighbors, kept.grid, branches=(branch._replace(losses=tuple(points)),))


DAMAGE = {
    "a bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "less spent": lambda content: less(content).to_bytes(),
    "nothing": lambda content: b"",
    "words": lambda content: b"words",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_kept_and_was_edited_is_not_used(full, edit, built, damage):
    spent = full.remaining().spent
    change(full, DAMAGE[damage], edit)
    forget()
    built.clear()
    assert full.remaining().spent == pytest.approx(spent, rel=1e-3)
    assert len(built) == 3  # from the entries
    assert full.check() == [
        "'a': what is kept of its composed events was edited; it is not used, and the next plan "
        "writes it anew"
    ]
    full.reserve(kind(7), neighbors=SPECIAL)
    assert full.check() == []


def test_what_is_kept_for_another_entry_is_not_used(full, edit, built):
    spent = full.remaining().spent
    change(full, DAMAGE["less spent"], edit, number=3)
    forget()
    built.clear()
    assert full.remaining().spent == pytest.approx(spent, rel=1e-3)
    assert len(built) == 3


def test_what_was_forged_together_with_the_entries_is_found_by_a_check(full, edit):
    """Whoever rewrites the end of the chain can do that; composing anew finds it all the same."""
    entries = full.entries()
    honest = full.remaining().spent
    _, content = Store(full.address).read(lambda journal: journal.kept("a"))
    forged = less(content).to_bytes()
    fourth = dict(entries[3].facts) | {"composed": digest(forged)}
    text = canonical(fourth)
    last = canonical(dict(entries[4].facts) | {"previous": digest(text)})
    for number, body in ((4, text), (5, last)):
        edit(
            full,
            f"UPDATE tacit_entries SET body = :body, hash = :hash WHERE number = {number}",
            body=body,
            hash=digest(body),
        )
    edit(full, "UPDATE tacit_ledger SET head = :head", head=digest(last))
    change(full, lambda _: forged, edit)
    forget()
    assert full.remaining().spent < honest
    forget()
    (problem,) = full.check()
    assert "the ledger was rewritten" in problem and "'a'" in problem


def test_a_ledger_from_before_anything_was_kept(url, edit, built):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    fill(ledger, 3)
    edit(ledger, "DROP TABLE tacit_composed")
    forget()
    spent = ledger.remaining().spent
    assert ledger.check() == []
    held = ledger.reserve(kind(3), neighbors=SPECIAL)
    assert held.together > spent
    forget()
    built.clear()
    assert ledger.remaining().spent == pytest.approx(held.together, rel=1e-9)
    assert not built
    edit(ledger, "DROP TABLE tacit_composed")
    forget()
    assert ledger.remaining().spent == pytest.approx(held.together, rel=1e-2)
    assert ledger.check() == []


def test_what_is_kept_may_be_longer_than_any_entry(url):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    content = bytes(range(256)) * (1 << 14)  # four megabytes

    def work(journal):
        journal.keep("a", 1, content)
        return journal.kept("a")

    assert Store(ledger.address).write(work) == (1, content)
    assert Store(ledger.address).read(lambda journal: journal.kept("a")) == (1, content)


def test_other_limits_keep_or_compose_anew_what_is_spent(full):
    before = full.remaining().spent
    for limit in (8.0, 0.5, 2.0):
        full.amend(epsilon=limit, reason="measured")
        assert full.remaining().spent == pytest.approx(before, rel=2e-3)
        forget()
        assert full.remaining().spent == pytest.approx(before, rel=2e-3)
        assert full.check() == []


def test_more_kinds_than_are_composed_are_refused(monkeypatch):
    monkeypatch.setattr(spending, "MOST_KINDS", 2)
    total = Tally()
    for k in range(3):
        total = total.plus(Spending(tuple(kind(k))))
    assert total.epsilon(Limits(2.0, 1e-5, SPECIAL)) == math.inf


@pytest.mark.slow
def test_processes_that_reserve_sampled_plans_at_once(url):
    ledger = Ledger(url).create("a", epsilon=0.2, delta=1e-6)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=racing.race, args=(url, k, results)) for k in range(2)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=120) for _ in range(8)]
    for worker in workers:
        worker.join()
    held = {id for answer, id in answers if answer == "held"}
    charges = ledger.charges()
    assert {charge.id for charge in charges} == held
    totals = [charge.together for charge in charges]
    assert totals == sorted(totals)
    assert totals[-1] <= 0.2
    assert ("refused", "") in answers
    assert ledger.check() == []  # composed anew, from the entries alone
    kept = Store(ledger.address).read(lambda journal: journal.kept("a"))
    assert kept[0] == charges[-1].number


def test_a_role_without_rights_to_what_is_kept_loses_speed_only(server, built, edit):
    owner = Ledger(server.place()).create("a", epsilon=2.0, delta=1e-6)
    owner.reserve(kind(0), neighbors=SPECIAL)
    schema = owner.address.place.rsplit("search_path%3D", 1)[1]
    role = f"analyst_{schema}"
    edit(
        owner,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE ON tacit_ledger, tacit_entries TO {role}",
    )
    place = owner.address.place.split("@", 1)[1]
    analyst = Ledger(f"postgresql://{role}:secret@{place}", "a")
    for dropped in (False, True):
        if dropped:  # and no right to make it
            edit(owner, "DROP TABLE tacit_composed")
        forget()
        held = analyst.reserve(kind(1 + dropped), neighbors=SPECIAL)
        forget()
        assert analyst.remaining().spent == pytest.approx(held.together, rel=1e-3)
        assert analyst.check() == []


def test_a_ledger_is_not_read_for_the_first_time_under_the_lock(url, monkeypatch, spend):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-6)
    fill(ledger, 20)
    read, usual = [], store.Journal.rows

    def rows(self, *arguments, **options):
        found = usual(self, *arguments, **options)
        read.append(len(found))
        return found

    monkeypatch.setattr(store.Journal, "rows", rows)
    for use in (
        lambda: spend(ledger, 50.0),
        lambda: ledger.amend(epsilon=3.0, reason="more"),
        lambda: ledger.create("b", epsilon=2.0, delta=1e-6),
    ):
        forget()
        read.clear()
        use()
        assert read[0] >= 20
        assert sum(read[1:]) == 0
