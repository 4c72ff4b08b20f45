"""Certificates and ledgers of rows and of persons, with parallel parts and failures."""

from __future__ import annotations

import copy
import hashlib
import json
import math

import pytest

from tacit.exceptions import CertificateError, InputError, LedgerError
from tacit.ledger import Ledger, Limits
from tacit.ledger.links import Tampered
from tacit.ledger.spending import Spending, Tally
from tacit.losses import LOSSES
from tacit.plan import Plan
from tacit.preprocessing import SoftPCA
from tacit.privacy.accounting.accountants import epsilon
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate, counts_groups
from tacit.privacy.events import Failure, Gaussian, Parallel, PoissonGaussian, Repeated
from tacit.privacy.unit import ROW, Unit
from tacit.research.trainers import LocalDPGD
from tacit.trainers import DPGD

PERSON = Unit("person", 5, "patient")
RELATION, DELTA = "replace_special", 1e-5
SPLIT = Parallel(
    [
        [PoissonGaussian(2.0, 20, 0.1), Failure(2e-6)],
        [Gaussian(9.0)],
        [PoissonGaussian(9.0, 3, 0.1)],
    ]
)
SPENT = [("Keys", Failure(1e-6)), ("Mean", Gaussian(20.0)), ("Halves", SPLIT)]
COST = epsilon([event for _, event in SPENT], DELTA, RELATION) * (1 + 1e-6)


def issue(claim=COST, spent=SPENT, **fields):
    stated = {"epsilon": claim, "delta": DELTA, "neighbors": RELATION, "spent": spent}
    return Certificate.issue(**stated | fields)


def forged(certificate, change):
    """What a forger makes of it, digest and all."""
    data = copy.deepcopy(certificate.to_dict())
    change(data)
    content = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["digest"] = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    return Certificate.from_dict(content)


@pytest.fixture(scope="module")
def certificate():
    return issue()


@pytest.fixture(scope="module")
def personal():
    return issue(unit=PERSON, assumptions=("n is public",))


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "household"},
        {"kind": "person", "rows": 0},
        {"kind": "person", "rows": 2.0},
        {"kind": "person", "rows": True},
        {"kind": "person", "rows": 10**9},
        {"kind": "person", "identifier": ""},
        {"kind": "person", "identifier": "a\nb"},
        {"kind": "person", "identifier": 3},
        {"kind": "row", "rows": 2},
        {"kind": "row", "identifier": "patient"},
    ],
)
def test_units_are_checked(given):
    with pytest.raises(InputError):
        Unit(**given)
    with pytest.raises(InputError):
        Unit.from_dict({**ROW.to_dict(), **given})


@pytest.mark.parametrize("unit", [ROW, PERSON, Unit("person"), Unit("person", 3)])
def test_units_are_the_same_after_json(unit):
    assert Unit.from_dict(json.loads(json.dumps(unit.to_dict()))) == unit


def test_what_a_unit_has_beyond_is_refused_and_none_is_a_row():
    assert Unit.from_dict(None) == ROW
    for wrong in ({}, {"kind": "row"}, {**PERSON.to_dict(), "households": 2}, "row", 3, []):
        with pytest.raises(InputError):
            Unit.from_dict(wrong)


def test_sentences_tell_units_apart():
    units = [ROW, PERSON, Unit("person"), Unit("person", 5), Unit("person", 5, "name")]
    assert len({unit.sentence for unit in units}) == len(units)
    for unit in units:
        assert not unit.contradicted_by([unit.sentence, "n is public"])
        assert all(unit.contradicted_by([each.sentence]) for each in units if each != unit)
        assert unit.contradicted_by([]) == (unit != ROW)  # old certificates say nothing of rows


# --- certificates ---------------------------------------------------------------------------------


def test_a_certificate_of_persons_says_so_and_states_no_groups(personal):
    assert personal.assumptions == (PERSON.sentence, "n is public")
    assert personal.groups == {} and personal.unit == PERSON
    assert personal.to_dict()["unit"] == PERSON.to_dict()
    assert Certificate.from_json(personal.to_json()) == personal
    assert personal.verify().holds


def test_a_certificate_of_rows_is_written_as_it_always_was(certificate):
    plain = issue(1.0, [("Mean", Gaussian(20.0))])
    assert "unit" not in plain.to_dict() and "unit" not in certificate.to_dict()
    assert plain.groups["2"] is not None
    assert plain.assumptions[0].startswith("every person is one row; at the same delta")


def test_nothing_is_promised_to_several_rows_where_something_may_fail(certificate):
    assert set(certificate.groups.values()) == {None}
    assert "nothing is promised to somebody with 2, 5 or 10 rows" in certificate.assumptions[0]
    for spent in ([Failure(1e-9)], [SPLIT], [Parallel([[Gaussian(9.0), Failure(1e-9)]])]):
        assert not counts_groups([Gaussian(1.0), *spent])
    halves = Parallel([[Gaussian(9.0)], [Gaussian(20.0)]])
    assert counts_groups([halves])
    one, other = (issue(2.0, [("Mean", event)]) for event in (halves, Gaussian(9.0)))
    assert one.groups == pytest.approx(other.groups, rel=1e-9) and one.verify().holds


def test_the_claim_is_confirmed_by_both_routes(certificate):
    found = certificate.verify()
    assert found.holds and set(found.recomputed) == {"recheck", "dp-accounting"}
    assert all(value == pytest.approx(COST, rel=5e-3) for value in found.recomputed.values())
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert certificate.accountant == "pld"


WITHOUT_WORST = [*SPENT[:2], ("Halves", Parallel(SPLIT.parts[1:]))]
WITHOUT_FAILURE = [("Keys", Failure(0.0)), *SPENT[1:]]


@pytest.mark.parametrize("counted", [WITHOUT_WORST, WITHOUT_FAILURE], ids=["part", "failure"])
def test_a_claim_that_leaves_out_a_part_or_a_failure_is_found(counted):
    """The claim of a plan that counted less than its certificate lists."""
    claim = epsilon([event for _, event in counted], DELTA, RELATION) * (1 + 1e-6)
    assert claim < COST * (1 - 1e-3)
    found = issue(claim).verify()
    assert not found.holds and "above the claimed" in found.problems[0]


def test_any_change_of_parts_failures_or_unit_breaks_the_digest(personal):
    data = personal.to_dict()
    for change in (
        lambda d: d["events"][2]["parameters"]["parts"].pop(0),
        lambda d: d["events"][0]["parameters"].update(probability=1e-9),
        lambda d: d["unit"].update(rows=6),
        lambda d: d.pop("unit"),
    ):
        wrong = copy.deepcopy(data)
        change(wrong)
        with pytest.raises(CertificateError, match="digest"):
            Certificate.from_dict(wrong)


def test_a_forged_unit_is_found(certificate, personal):
    """Of rows and persons that a forger exchanges, words and numbers speak of something else."""
    changes = {
        "more rows": (personal, lambda d: d["unit"].update(rows=50)),
        "another column": (personal, lambda d: d["unit"].update(identifier="name")),
        "rows": (personal, lambda d: d.pop("unit")),
        "persons": (certificate, lambda d: d.update(unit=PERSON.to_dict())),
        "no words": (personal, lambda d: d.update(assumptions=[])),
        "groups": (personal, lambda d: d.update(groups={"2": 9.0})),
    }
    for name, (honest, change) in changes.items():
        found = forged(honest, change).verify()
        assert not found.holds, name
        assert "said of the rows of a person" in found.problems[0]


def test_events_that_say_something_unknown_are_refused(certificate):
    def unknown(data):
        data["events"][2]["parameters"]["parts"][0][0]["kind"] = "quantum"

    with pytest.raises(CertificateError, match="unknown kind"):
        forged(certificate, unknown)

    def nested(data):
        data["events"][2]["parameters"]["parts"][0].append(SPLIT.to_dict())

    with pytest.raises(CertificateError, match="cannot itself"):
        forged(certificate, nested)


def test_a_certificate_whose_delta_a_failure_exceeds_is_refused():
    with pytest.raises(InputError, match="chance that something fails"):
        issue(1.0, [("Keys", Failure(1e-4)), ("Mean", Gaussian(9.0))])


def test_certificates_add_up_for_one_unit_only(certificate, personal):
    both = personal.then(personal)
    assert both.unit == PERSON and both.assumptions[0] == PERSON.sentence
    assert both.epsilon < 2 * personal.epsilon and both.verify().holds
    events = [event for _, event in (*SPENT, *SPENT)]
    assert both.epsilon == pytest.approx(epsilon(events, 2 * DELTA, RELATION), rel=1e-4)
    for one, two in ((certificate, personal), (personal, certificate)):
        with pytest.raises(InputError, match="different units"):
            one.then(two)
    with pytest.raises(InputError, match="different units"):
        personal.then(issue(unit=Unit("person", 4, "patient")))


def test_plans_are_of_rows_unless_everything_bounds_what_a_person_counts_for():
    how = {"budget": Budget(1.0, 1e-5), "trainer": DPGD(), "loss": LOSSES["logistic"]}
    assert Plan(**how, stages=()).unit == ROW
    assert Plan(**how, stages=(), unit=PERSON).unit == PERSON
    with pytest.raises(InputError, match="SoftPCA is fitted on the rows without noise"):
        Plan(**how, stages=(SoftPCA(0.1),), unit=PERSON, neighbors="replace_one")
    for wrong, more in (
        ("train with DPGD or DPSGD", {"trainer": LocalDPGD(), "neighbors": "replace_one"}),
        ("lower max_rows_per_group", {"unit": Unit("person", 10_000)}),
        ("sums over rows, not over people", {"arithmetic": "strict"}),
    ):
        with pytest.raises(InputError, match=wrong):
            Plan(**{**how, "stages": (), "unit": PERSON, **more})


# --- ledgers --------------------------------------------------------------------------------------


def charge(*events, failure=0.0):
    return Spending(tuple(("it", event) for event in events), 0, failure)


def test_a_ledger_keeps_one_unit_for_each_account(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    rows = book.create("rows", epsilon=3.0, delta=1e-5)
    people = book.create("people", epsilon=3.0, delta=1e-5, unit=PERSON)
    step = [("mean", Gaussian(9.0))]
    for ledger, wrong in ((rows, PERSON), (people, ROW), (people, Unit("person", 6, "patient"))):
        with pytest.raises(LedgerError, match="what is hidden differs"):
            ledger.reserve(step, neighbors=RELATION, unit=wrong)
    rows.reserve(step, neighbors=RELATION).commit()
    people.reserve(step, neighbors=RELATION, unit=PERSON).commit()
    assert [book.remaining(name).unit for name in ("rows", "people")] == [ROW, PERSON]
    assert book.remaining("people").to_dict()["unit"] == PERSON.to_dict()
    assert [one.unit for one in book.charges("people")] == [PERSON]
    people.amend(epsilon=4.0, reason="board")
    assert book.limits("people") == Limits(4.0, 1e-5, RELATION, PERSON)
    facts = [entry.facts for entry in book.entries("rows")]
    assert not any("unit" in fact for fact in facts)  # as they always were
    assert book.check() == []


def test_an_entry_of_another_unit_than_its_account_is_found(tmp_path):
    from tacit.ledger.account import Account, with_entry
    from tacit.ledger.links import Row

    body = {"kind": "reserve", "nth": 2, "at": "now", "budget": None, "together": 1.0, "plan": {}}
    body |= charge(Gaussian(9.0)).to_dict()
    for unit, said in ((PERSON, {}), (ROW, {"unit": PERSON.to_dict()})):
        account = Account("a", Limits(3.0, 1e-5, RELATION, unit), count=1)
        with pytest.raises((TypeError, Tampered), match="another unit"):
            with_entry(account, Row(2, "a", "id", "{}", "hash"), {**body, **said})


def test_a_tally_of_parts_and_failures_is_what_composing_all_of_it_gives():
    """Never less, and little more, in whatever order plans come."""
    other = Parallel([[Gaussian(30.0), PoissonGaussian(3.0, 9, 0.1)], [Gaussian(8.0)]])
    halves = Parallel([[Gaussian(25.0)], [Gaussian(50.0, 2)]])
    plans = [[SPLIT], [Gaussian(15.0), Failure(1e-6)], [other], [halves], [SPLIT, Failure(1e-7)]]
    limits, events = Limits(8.0, 1e-4, RELATION), [event for plan in plans for event in plan]
    exact = epsilon(events, limits.delta, RELATION, grid=1e-3)
    for order in (plans, plans[::-1]):
        total = Tally()
        for plan in order:
            total = total.plus(charge(*plan))
            total.epsilon(limits)  # composed one after another, as a ledger does
        assert exact * (1 - 1e-3) <= total.epsilon(limits) <= exact * 1.02
    # So many splits that their parts can no longer be told apart cost more, and never less.
    for _ in range(3):
        total = total.plus(charge(SPLIT))
        total.epsilon(limits)
    worst = [SPLIT.parts[0][0].times(5), Gaussian(15.0), Gaussian(25.0), *other.parts[0]]
    assert epsilon(worst, limits.delta, RELATION, grid=1e-3) < total.epsilon(limits) < 4 * exact


def test_the_part_that_is_worst_may_change_as_others_are_added():
    """Whichever part is worst by itself, an account keeps all of them."""
    rare, often = PoissonGaussian(0.5, 1, 0.01), PoissonGaussian(1.0, 1, 0.5)
    limits = Limits(8.0, 1e-8, RELATION)
    split, total = Parallel([[rare], [often]]), Tally()
    for plan in (split, split):
        total = total.plus(charge(plan))
        total.epsilon(limits)

    def cost(*events):
        return epsilon(events, limits.delta, RELATION, grid=1e-2)

    exact, alone = cost(split, split), max(cost(rare.times(2)), cost(often.times(2)))
    assert exact == pytest.approx(cost(rare, often), rel=1e-6) and exact > 1.03 * alone
    assert exact * (1 - 1e-3) <= total.epsilon(limits) <= exact * 1.02


def test_failures_add_up_in_an_account_and_tests_do_beside_them():
    limits = Limits(3.0, 1e-5, RELATION)
    total = Tally().plus(charge(Gaussian(9.0), Failure(2e-6, count=2), failure=3e-6))
    assert total.left_of(limits) == pytest.approx(3e-6, rel=1e-6)
    assert total.epsilon(limits) == pytest.approx(
        epsilon([Gaussian(9.0)], 3e-6, RELATION), rel=1e-6
    )
    assert total.plus(charge(Gaussian(900.0), Failure(3e-6))).epsilon(limits) == math.inf
    searched = Repeated(trial=[[Gaussian(60.0)]], rate=0.2)
    beside = Tally().plus(charge(searched, Failure(2e-6))).epsilon(limits)
    exact = epsilon([searched, Failure(2e-6)], limits.delta, RELATION)
    assert exact <= beside <= exact * 1.01


def test_a_search_in_a_part_counts_with_its_trials():
    search = Repeated(trial=[[PoissonGaussian(6.0, 9, 0.1)]], distribution="poisson", rate=3.0)
    split = Parallel([[search, Gaussian(60.0)], [Gaussian(30.0)]])
    limits = Limits(3.0, 1e-5, RELATION)
    exact = epsilon([split], limits.delta, RELATION, grid=1e-3)
    assert exact * (1 - 1e-3) <= Tally().plus(charge(split)).epsilon(limits) <= exact * 1.02


def test_a_ledger_refuses_what_does_not_fit_and_says_what_would(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create("a", epsilon=1.0, delta=1e-5)
    first = ledger.reserve([("split", SPLIT.scaled(4.0))], neighbors=RELATION)
    first.commit()
    refused = [("split", SPLIT), ("keys", Failure(1e-6))]
    with pytest.raises(Exception, match="A plan of this kind with epsilon=") as error:
        ledger.reserve(refused, neighbors=RELATION)
    assert 0 < error.value.remaining < 1
    ledger.reserve([("split", SPLIT.scaled(30.0)), ("k", Failure(1e-7))], neighbors=RELATION)
    assert ledger.remaining().spent <= 1.0 and ledger.check() == []
    again = [charge.spending.events[0][1] for charge in ledger.charges()]
    assert again == [SPLIT.scaled(4.0), SPLIT.scaled(30.0)]
