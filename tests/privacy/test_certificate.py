"""A certificate is a claim that cannot be changed, survives JSON, and is checked, not believed."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import pickle
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.exceptions import CertificateError, FileError, InputError
from tacit.privacy import Budget, Certificate, Expense, Gaussian, PoissonGaussian
from tacit.privacy import certificate as certificate_module
from tacit.privacy.accounting import accountants as accountants_module
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.verification.recheck import Recheck

fuzz = settings(derandomize=True, deadline=None, max_examples=200)

PLAN = {
    "rows": 1000,
    "stages": [{"name": "ClipNorm", "parameters": {"radius": 1.0, "limits": (0, 1)}}],
    "trainer": {"name": "DPGD", "parameters": {"steps": 100, "radius": None, "note": "ä🙂\ud800"}},
}


def issue(eps=1.0, delta=1e-5, neighbors="replace_special", q=None):
    def events(z):
        training = Gaussian(z, 100)
        if q is not None:
            training = PoissonGaussian(z, 40, sampling_probability=q)
        return [Gaussian(20.0 if neighbors == "replace_special" else 40.0), training]

    spent = events(calibrate(events, Budget(eps, delta - 1e-40), neighbors))
    named = zip(["PrivateCenter", "DPGD"], spent, strict=True)
    return Certificate.issue(
        epsilon=eps,
        delta=delta,
        neighbors=neighbors,
        spent=list(named),
        releasable=False,
        reasons=("seeded: not for release",),
        assumptions=("the number of rows, 1000, is public",),
        warnings=("delta is large",),
        numerical_delta=1e-40,
        plan=copy.deepcopy(PLAN),
        versions={"tacit": "0.1.0"},
        created="2026-01-01T00:00:00+00:00",
    )


@pytest.fixture(scope="module")
def certificate():
    return issue()


@pytest.fixture(scope="module")
def sampled():
    return issue(neighbors="replace_one", q=0.3)


def signed(data):
    """The JSON of a forger, who can compute a digest as well as anyone."""
    content = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    return json.dumps({**content, "digest": digest})


def test_a_forger_can_sign(certificate):
    assert json.loads(signed(certificate.to_dict())) == certificate.to_dict()


def forge(certificate, **changes):
    return signed({**certificate.to_dict(), **changes})


def forge_event(certificate, kind="gaussian", **parameters):
    event = {"stage": "DPGD", "kind": kind, "parameters": parameters}
    return forge(certificate, events=[event])


# Round trips


def test_json_round_trip_keeps_everything(certificate, sampled):
    for given_ in (certificate, sampled):
        again = Certificate.from_json(given_.to_json())
        assert again == given_
        assert again.to_json() == given_.to_json()
        assert again.digest == given_.digest
        assert [type(e.event) for e in again.events] == [type(e.event) for e in given_.events]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_and_pickles_are_equal(certificate, how):
    again = how(certificate)
    assert again == certificate
    assert again.digest == certificate.digest


def test_files_round_trip(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.json")
    assert Certificate.load(tmp_path / "certificate.json") == certificate


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2", b"null", b'"text"', b"\xef\xbb\xbf{}"])
def test_files_that_hold_something_else_are_refused(tmp_path, content):
    path = tmp_path / "certificate.json"
    path.write_bytes(content)
    with pytest.raises(CertificateError):
        Certificate.load(path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(FileError, match="cannot read"):
        Certificate.load(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not a text file"):
        Certificate.load(tmp_path / "binary")


# Immutable


def test_no_field_can_be_set(certificate):
    for field in dataclasses.fields(certificate):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(certificate, field.name, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.events[0].share = 1.0


def test_nothing_inside_can_be_changed(certificate):
    with pytest.raises(TypeError):
        certificate.plan["rows"] = 5
    with pytest.raises(TypeError):
        certificate.plan["stages"][0]["parameters"]["radius"] = 2.0
    with pytest.raises(TypeError):
        certificate.versions["tacit"] = "9"
    for name in ("events", "reasons", "assumptions", "warnings"):
        assert isinstance(getattr(certificate, name), tuple)
    assert isinstance(certificate.plan["stages"], tuple)


def test_what_it_was_made_from_does_not_reach_inside():
    plan = {"stages": [{"radius": 1.0}]}
    made = Certificate(1.0, 1e-5, "replace_one", (Expense("a", Gaussian(40.0)),), plan=plan)
    before = made.to_json()
    plan["stages"][0]["radius"] = 2.0
    plan["stages"].append("more")
    made.to_dict()["plan"]["stages"].clear()
    assert made.to_json() == before


# Damage and careless edits


def leaves(value, path=()):
    """Every place in a JSON value, with what stands there."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    else:
        yield path, value


def changed(data, path, value):
    data = copy.deepcopy(data)
    *inner, last = path
    place = data
    for key in inner:
        place = place[key]
    place[last] = value
    return data


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, 10.0)
    return "else" if value is None else f"{value}!"


def test_a_change_of_any_value_is_found(certificate, sampled):
    for data in (certificate.to_dict(), sampled.to_dict()):
        places = list(leaves(data))
        fields = {field.name for field in dataclasses.fields(Certificate)}
        fields -= {"unit", "sampler_delta"}  # of rows, counted without a grid
        assert {path[0] for path, _ in places} == {*fields, "format", "digest"}
        for path, value in places:
            text = json.dumps(changed(data, path, other(value)))
            with pytest.raises(CertificateError):
                Certificate.from_json(text)


def test_a_field_taken_away_or_added_is_found(certificate):
    data = certificate.to_dict()
    for name in data:
        rest = {key: value for key, value in data.items() if key != name}
        with pytest.raises(CertificateError):
            Certificate.from_json(json.dumps(rest))
        if name not in ("digest", "format", "groups"):  # earlier versions did not state groups
            with pytest.raises(CertificateError, match=f"lacks {name}"):
                Certificate.from_json(signed(rest))
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps({**data, "extra": 1}))
    for name in data["events"][0]["parameters"]:
        fewer = copy.deepcopy(data)
        del fewer["events"][0]["parameters"][name]
        with pytest.raises(CertificateError):
            Certificate.from_json(json.dumps(fewer))


def test_the_order_of_keys_and_the_white_space_do_not_matter(certificate):
    data = certificate.to_dict()
    shuffled = dict(reversed(data.items()))
    assert Certificate.from_json(json.dumps(shuffled, indent=None)) == certificate


# Verification


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
def test_calibrated_claims_hold_by_both_routes(neighbors):
    found = issue(neighbors=neighbors).verify()
    assert found.holds and not found.problems
    assert found.claimed == 1.0
    for route in ("dp-accounting", "recheck"):
        assert 0.99 < found.recomputed[route] <= 1.0


def test_sampled_claims_hold_by_both_routes(sampled):
    found = sampled.verify()
    assert found.holds and not found.problems
    assert 0.99 < found.recomputed["dp-accounting"] <= 1.0
    assert found.recomputed["recheck"] == pytest.approx(1.0, rel=2e-3)


def fewer_steps_of_noise(certificate):
    data = certificate.to_dict()
    for event in data["events"]:
        event["parameters"]["noise_multiplier"] *= 0.98
    return signed(data)


FALSE_CLAIMS = {
    "less epsilon": lambda c: forge(c, epsilon=c.epsilon * 0.99),
    "less delta": lambda c: forge(c, delta=c.delta * 0.5),
    "a stronger relation": lambda c: forge(c, neighbors="replace_one"),
    "less noise": fewer_steps_of_noise,
    "an event twice": lambda c: forge(c, events=c.to_dict()["events"] * 2),
    "no events": lambda c: forge(c, events=[]),
    "delta all numerical": lambda c: forge(c, numerical_delta=c.delta),
    "delta mostly numerical": lambda c: forge(c, numerical_delta=c.delta * 0.5),
}


@pytest.mark.parametrize("claim", FALSE_CLAIMS)
def test_false_claims_with_a_valid_digest_are_found(certificate, claim):
    found = Certificate.from_json(FALSE_CLAIMS[claim](certificate)).verify()
    assert not found.holds
    assert found.problems
    assert found.to_dict()["holds"] is False


def test_a_false_sampled_claim_is_found(sampled):
    found = Certificate.from_json(forge(sampled, epsilon=0.98)).verify()
    assert not found.holds
    assert len(found.problems) == 2  # by both routes


@pytest.mark.parametrize("numerical", [-0.9, -1e-3, -5e-324])
def test_a_negative_numerical_error_cannot_buy_a_smaller_delta(certificate, numerical):
    text = forge(certificate, epsilon=0.1, numerical_delta=numerical)
    try:
        found = Certificate.from_json(text).verify()
    except CertificateError:
        return
    assert not found.holds


def test_each_route_finds_a_false_claim_without_the_other(certificate, monkeypatch):
    false = Certificate.from_json(forge(certificate, epsilon=0.5))
    with monkeypatch.context() as patch:
        clueless = Recheck(0.1, lower=0.0, upper=math.inf)
        patch.setattr(certificate_module.recheck, "epsilon", lambda *_: clueless)
        assert "dp-accounting finds" in " ".join(false.verify().problems)
    with monkeypatch.context() as patch:
        honest = accountants_module.loss_distribution
        deaf = honest([Gaussian(1e4)], "replace_special", 1e-4)
        patch.setattr(accountants_module, "loss_distribution", lambda *_: deaf)
        assert "recheck finds" in " ".join(false.verify().problems)


@pytest.mark.parametrize("lost", ["recheck", "dp-accounting", "both"])
def test_a_route_that_does_not_know_confirms_nothing(certificate, monkeypatch, lost):
    class Lost:
        def get_epsilon(self, delta):
            return math.nan

    unknown = Recheck(math.nan, lower=math.nan, upper=math.nan)
    if lost != "dp-accounting":
        monkeypatch.setattr(certificate_module.recheck, "epsilon", lambda *_: unknown)
    if lost != "recheck":
        monkeypatch.setattr(accountants_module, "loss_distribution", lambda *_, **__: Lost())
    false = Certificate.from_json(forge(certificate, epsilon=0.5))
    assert not false.verify().holds


# Hostile files


class Slow(BaseException):
    """Not an Exception: nothing may swallow it."""


@contextmanager
def within(seconds):
    def ring(*_):
        raise Slow(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # processor time: the same on a busy machine
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def refused_or_sound(text, *, verify=True):
    """A certificate error, or a certificate that can be written and checked like any other."""
    try:
        made = Certificate.from_json(text)
    except CertificateError:
        return None
    assert Certificate.from_json(made.to_json()) == made
    if verify:
        with within(4):
            return made.verify()
    return None


@fuzz
@given(st.text(max_size=200))
@example("1" * 5000)
@example('{"format": ' + "9" * 5000 + "}")
@example("[" * 100_000)
@example('{"a":' * 20_000 + "1" + "}" * 20_000)
@example('"\ud800"')
def test_any_text_is_refused(text):
    with pytest.raises(CertificateError):
        Certificate.from_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@fuzz
@given(JSON)
def test_any_json_is_refused(value):
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(value))
    with pytest.raises(CertificateError):
        Certificate.from_dict(value)


DATA = issue().to_dict()
PLACES = [path for path, _ in leaves(DATA) if path[0] != "digest"]
PLACES += [("plan",), ("events",), ("events", 0), ("events", 0, "parameters"), ("versions",)]
NUMBERS = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 0, -1, -0.0, 1e308, 5e-324, 2.0]


@settings(fuzz, max_examples=100)
@given(st.sampled_from(PLACES), st.sampled_from(NUMBERS) | JSON)
@example(("epsilon",), 10**400)
@example(("numerical_delta",), "nought")
@example(("numerical_delta",), None)
@example(("numerical_delta",), math.nan)
@example(("plan", "rows"), math.nan)
@example(("events", 0, "parameters", "count"), math.inf)
@example(("events", 0, "parameters", "count"), 2.0)
@example(("events", 0, "parameters", "noise_multiplier"), 10**400)
@example(("events", 0, "epsilon_alone"), math.nan)
@example(("events", 0, "share"), 10**400)
@example(("releasable",), "yes")
@example(("plan",), 5)
@example(("versions",), [1])
def test_a_hostile_value_anywhere_is_refused_or_harmless(path, value):
    # What is spent is tried below, with a limit of time: any other value is verified here.
    about_cost = "parameters" in path or path in (("events",), ("events", 0))
    refused_or_sound(signed(changed(DATA, path, value)), verify=not about_cost)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
@pytest.mark.parametrize("depth", [50, 300, 450, 600, 800, 950])
def test_nesting_of_any_depth_is_refused_or_harmless(depth, wrap):
    nested = 1
    for _ in range(depth):
        nested = wrap(nested)
    try:
        text = signed({**DATA, "plan": {"x": nested}})
    except RecursionError:
        pytest.skip("too deep to be written")
    try:
        assert Certificate.from_json(text).plan["x"]
    except CertificateError:
        assert depth > 50


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("gaussian", {"noise_multiplier": 40.0, "count": 10**9}),
        ("gaussian", {"noise_multiplier": 40.0, "count": 10**30}),
        ("gaussian", {"noise_multiplier": 40.0, "count": 10**400}),
        ("gaussian", {"noise_multiplier": 1e-200}),
        ("gaussian", {"noise_multiplier": 1e-3}),
        ("gaussian", {"noise_multiplier": 1e-300}),
        ("poisson-gaussian", {"noise_multiplier": 0.03, "sampling_probability": 0.5}),
        ("poisson-gaussian", {"noise_multiplier": 40.0, "count": 10**9}),
        (
            "poisson-gaussian",
            {"noise_multiplier": 1000.0, "count": 10**9, "sampling_probability": 0.5},
        ),
    ],
)
def test_huge_costs_are_found_false_in_good_time(certificate, kind, parameters):
    found = refused_or_sound(forge_event(certificate, kind, **parameters))
    assert found is None or not found.holds


@pytest.mark.parametrize(
    "parameters",
    [
        {"noise_multiplier": 1e300},
        {"noise_multiplier": 1.0, "sampling_probability": 1e-300},
        {"noise_multiplier": 1e83, "count": 3, "sampling_probability": 1e-240},
        {"noise_multiplier": 1e182, "count": 7, "sampling_probability": 0.004},
        {"noise_multiplier": 1e75, "count": 1000, "sampling_probability": 0.01},
    ],
)
def test_tiny_costs_give_an_answer(certificate, parameters):
    kind = "poisson-gaussian" if "sampling_probability" in parameters else "gaussian"
    refused_or_sound(forge_event(certificate, kind, **parameters))


@pytest.mark.parametrize(
    ("events", "neighbors", "delta"),
    [
        ([Gaussian(7.8e-6, 35_477)], "replace_one", 1e-5),
        (
            [Gaussian(9.7e108, 5), PoissonGaussian(5e267, 887, sampling_probability=3e-15)],
            "replace_special",
            1e-100,
        ),
        (
            [Gaussian(1.6e216, 4), PoissonGaussian(1.5e201, 59, sampling_probability=0.1)],
            "replace_special",
            1e-300,
        ),
    ],
    ids=["hardly any noise", "noise of 1e108", "noise of 1e201"],
)
def test_what_the_accountants_cannot_compose_is_a_problem_not_a_crash(events, neighbors, delta):
    spent = tuple(Expense("DPGD", event) for event in events)
    with within(4), np.errstate(all="ignore"):
        found = Certificate(1e-5, delta, neighbors, events=spent).verify()
    assert isinstance(found.holds, bool)


def test_hostile_arguments_are_input_errors():
    spent = (Expense("a", Gaussian(40.0)),)
    for arguments in ((0.0, 1e-5, "replace_one"), (1.0, 1.0, "replace_one"), (1.0, 1e-5, "other")):
        with pytest.raises(InputError):
            Certificate(*arguments, events=spent)


# Expenses


def test_shares_sum_to_one_and_each_event_alone_costs_less_than_all(certificate, sampled):
    for made in (certificate, sampled):
        assert math.fsum(expense.share for expense in made.events) == pytest.approx(1.0)
        assert all(0 < expense.epsilon_alone < made.epsilon for expense in made.events)
    center, training = certificate.events
    mu = accountants_module.gaussian_mu(1.0, 1e-5)
    assert center.share == pytest.approx((1 / 20.0 / mu) ** 2, rel=1e-3)
    assert training.epsilon_alone == pytest.approx(
        accountants_module.epsilon([training.event], 1e-5, "replace_special")
    )
