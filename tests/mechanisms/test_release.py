"""The one seam of private randomness: what was counted is drawn, and nothing else is."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.seam import Quiet

from tacit.audit.recorder import Recorder, Replayer
from tacit.exceptions import ReleaseError
from tacit.mechanisms.lattice import accounted_sigma, sigma_for
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import BoundedSum, Draws, PublicRandomness, Releases, Token
from tacit.privacy.events import (
    Event,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
)
from tacit.privacy.unit import Unit

UNIT = 2.0**-12
ONE = BoundedSum(np.array([5, -3]), UNIT, bound=1.0, reach=1.0)
FLOATS = BoundedSum(np.array([0.5, 2.0]), 1.0, bound=1.0, reach=1.0)
SQUARE = BoundedSum(np.zeros((2, 2), dtype=np.int64), UNIT, bound=1.0, reach=1.0)
RUNS = [((0, 3), (3, 5), (30, 50))]  # eight cells, all as likely
TRIAL = (Gaussian(4.0, count=2), Gaussian(9.0))
CALLED = [("Training", TRIAL[0]), ("Score", TRIAL[1])]


def paid(*events, seed=0, draws=None):
    """A run, and a token for each of its events."""
    run = Releases(Key.from_seed(seed), [("it", event) for event in events], draws=draws)
    return run, *(run.token("it").at("noise", i) for i in range(len(events)))


#: What a token may be asked for, and an event that counts it once.
DRAWN = {
    "gaussian": (lambda token: token.gaussian(ONE), Gaussian(2.0)),
    "gaussian, floats": (lambda token: token.gaussian(FLOATS), Gaussian(2.0)),
    "gaussian, sampled": (
        lambda token: token.gaussian(ONE),
        PoissonGaussian(2.0, sampling_probability=0.5),
    ),
    "multiples": (lambda token: token.multiples(ONE), Gaussian(2.0)),
    "symmetric": (lambda token: token.symmetric(SQUARE), Gaussian(2.0)),
    "above": (lambda token: token.above(3.0, 2.0), Gaussian(2.0)),
    "reports": (lambda token: token.reports(ONE, 7, 0), Gaussian(2.0)),
    "gamma": (lambda token: token.gamma(FLOATS), Gamma(2.0)),
    "hidden": (lambda token: token.hidden(FLOATS), Iterated(2.0, steps=1)),
    "stop": (lambda token: token.stop(), Iterated(2.0, steps=4)),
    "choose": (lambda token: token.choose([1.0, 2.0], 1.0), Selection(2.0)),
    "cells": (lambda token: token.cells(RUNS), Selection(2.0)),
    "batch": (lambda token: token.batch(9), PoissonGaussian(2.0, sampling_probability=0.5)),
    "batch, gamma": (lambda token: token.batch(9), Gamma(2.0, sampling_probability=0.5)),
    "trials": (lambda token: token.trials(), Repeated(trial=(TRIAL,), rate=0.1)),
}
#: As many kinds of events as there are.
EVENTS = {
    "gaussian": Gaussian(2.0),
    "poisson-gaussian": PoissonGaussian(2.0, sampling_probability=0.5),
    "gamma": Gamma(2.0, sampling_probability=0.5),
    "iterated": Iterated(2.0, steps=4),
    "selection": Selection(2.0),
    "repeated": Repeated(trial=(TRIAL,), rate=0.1),
    "parallel": Parallel([TRIAL, TRIAL[:1]]),
}
SUITS = {
    "gaussian": {"gaussian", "poisson-gaussian"},
    "gaussian, floats": {"gaussian", "poisson-gaussian"},
    "gaussian, sampled": {"gaussian", "poisson-gaussian"},
    "multiples": {"gaussian", "poisson-gaussian"},
    "symmetric": {"gaussian"},
    "above": {"gaussian"},
    "reports": {"gaussian"},
    "gamma": {"gamma"},
    "hidden": {"iterated"},
    "stop": {"iterated"},
    "choose": {"selection"},
    "cells": {"selection"},
    "batch": {"poisson-gaussian", "gamma"},
    "batch, gamma": {"poisson-gaussian", "gamma"},
    "trials": {"repeated"},
}


def position(stream):
    """Where a stream is, by the words that it gives next."""
    return stream.words(4).tolist()


@pytest.fixture
def opened(monkeypatch):
    """Every stream that is opened, by its name."""
    found, real = {}, Key.stream

    def open_(key, label, step=0, worker=0):
        found[label, step, worker] = real(key, label, step, worker)
        return found[label, step, worker]

    monkeypatch.setattr(Key, "stream", open_)
    return found


# --- No more than was counted ---------------------------------------------------------------------


def test_nothing_is_drawn_without_a_token():
    run = Releases(Key.from_seed(0), [("Mean", Gaussian(1.0))])
    with pytest.raises(ReleaseError, match="Scale asks for a release that was not counted"):
        run.token("Scale")
    run.token("Mean")
    with pytest.raises(ReleaseError, match="Mean asks for a release that was not counted"):
        run.token("Mean")  # its event is taken
    with pytest.raises(ReleaseError, match="was not counted"):
        run.child("lot").token("Mean")


def test_events_of_one_name_are_handed_out_in_their_order():
    run = Releases(
        Key.from_seed(0), [("a", Gaussian(1.0)), ("b", Gaussian(2.0)), ("a", Gaussian(3.0))]
    )
    noise = [run.token(name).noise_multiplier for name in ("a", "a", "b")]
    assert noise == [1.0, 3.0, 2.0]


def test_a_token_that_names_no_stream_draws_nothing():
    run = Releases(Key.from_seed(0), [("Mean", Gaussian(1.0))])
    with pytest.raises(ReleaseError, match="without saying from which stream"):
        run.token("Mean").gaussian(ONE)


@pytest.mark.parametrize("name", DRAWN)
def test_what_was_counted_once_is_drawn_once(name, opened):
    draw, event = DRAWN[name]
    (_, one), (_, other) = paid(event), paid(event)
    streams = []
    for token in (one, other):
        draw(token)
        streams.append(opened["noise", 0, 0])
    again = (lambda token: token.reports(ONE, 7, 1)) if name == "reports" else draw
    with pytest.raises(ReleaseError, match=r"it asks for .* not counted: 1 of 1 are used"):
        again(one)
    with pytest.raises(ReleaseError, match="not counted: 1 of 1 are used"):
        again(one.at("noise", 7))  # nor from another stream
    assert ("noise", 7, 0) not in opened
    begun, refused, drawn = map(position, (Key.from_seed(0).stream("noise"), *streams))
    assert refused == drawn  # the refusal took nothing from the stream
    assert refused != begun


@pytest.mark.parametrize("kind", EVENTS)
@pytest.mark.parametrize("name", DRAWN)
def test_another_kind_of_event_is_refused_before_anything_is_drawn(name, kind, opened):
    draw, _ = DRAWN[name]
    run, token = paid(EVENTS[kind])
    if kind in SUITS[name]:
        draw(token)
        return
    with pytest.raises(
        ReleaseError, match=r"^it was counted as|^it was counted on all|^it was not counted as"
    ):
        draw(token)
    assert not opened
    with pytest.raises(ReleaseError, match="it was counted and not drawn"):
        run.close()


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, 1.1])
def test_a_share_that_is_none_gives_nothing_back(wrong):
    _, token = paid(Gaussian(2.0))
    with pytest.raises(ReleaseError, match="was not counted"):
        token.part(wrong)
    token.gaussian(ONE)
    with pytest.raises(ReleaseError, match="was not counted"):
        token.gaussian(ONE)


# --- Parts and rounds -----------------------------------------------------------------------------


def spent(tokens):
    """Σ 1/z² of everything that tokens may draw, exactly."""
    return sum(t.event.count / Fraction(t.noise_multiplier) ** 2 for t in tokens)


@pytest.mark.parametrize(
    "shares", [(0.5, 0.25, 0.25), (0.3, 0.7), (0.1,) * 10, (1 / 3, 2 / 3), (1.0,)]
)
@pytest.mark.parametrize("z", [0.3, 1.0, 7.7])
def test_parts_add_up_to_the_event_and_to_no_more(shares, z):
    run, token = paid(Gaussian(z), draws=Quiet())
    parts = [token.part(share) for share in shares]
    assert 1 - Fraction(1, 10**9) < spent(parts) * Fraction(z) ** 2 <= 1
    for part in parts:
        part.gaussian(ONE)
        with pytest.raises(ReleaseError, match="was not counted"):
            part.gaussian(ONE)
    run.close()
    for more in (1e-6, 0.5, 1.0):
        with pytest.raises(ReleaseError, match="was not counted"):
            token.part(more)
    with pytest.raises(ReleaseError, match="was not counted"):
        token.rounds(2)


@pytest.mark.parametrize("count", [1, 3, 10, 40])
def test_rounds_cost_one_release_together(count):
    run, token = paid(Gaussian(1.7), draws=Quiet())
    each = token.rounds(count)
    assert each.event.count == count
    assert 1 - Fraction(1, 10**9) < spent([each]) * Fraction(1.7) ** 2 <= 1
    for _ in range(count):
        each.gaussian(ONE)
    run.close()
    with pytest.raises(ReleaseError, match=f"{count} of {count} are used"):
        each.gaussian(ONE)
    with pytest.raises(ReleaseError, match="1 of 1 are used"):
        token.gaussian(ONE)


def test_rounds_of_a_part_cost_that_part():
    run, token = paid(Gaussian(2.0), draws=Quiet())
    half, rest = token.part(0.5), token.part(0.5)
    rounds = half.rounds(4)
    assert spent([rounds, rest]) * 4 <= 1
    with pytest.raises(ReleaseError, match="was not counted"):
        half.gaussian(ONE)
    for each in (rest, *(rounds,) * 4):
        each.gaussian(ONE)
    run.close()


def test_parts_are_drawn_from_one_stream_in_turn(opened):
    _, token = paid(Gaussian(2.0))
    for share in (0.5, 0.5):
        token.part(share).gaussian(ONE)
    assert list(opened) == [("noise", 0, 0)]


def test_steps_in_parts_cannot_be_taken_whole():
    _, token = paid(Gaussian(2.0, count=3), draws=Quiet())
    for _ in range(2):
        for share in (0.3, 0.7):
            token.part(share).gaussian(ONE)
    token.gaussian(ONE)
    with pytest.raises(ReleaseError, match="3 of 3 are used"):
        token.part(0.3)


# --- Noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("z", [0.3, 1 / 3, 5.0])
@pytest.mark.parametrize("reach", [1.0, 1.3, 77.0])
def test_noise_is_that_of_the_event_at_the_reach_of_the_sum(z, reach, monkeypatch):
    asked, real = [], Stream.discrete_gaussian

    def draw(self, sigma, count):
        asked.append((sigma, count))
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", draw)
    _, token = paid(Gaussian(z))
    noisy = token.gaussian(BoundedSum(ONE.values, UNIT, 1.0, reach))
    ((sigma, count),) = asked
    assert count == 2 and (noisy % UNIT == 0).all()
    wanted = Fraction(z) * Fraction(reach) / Fraction(UNIT)
    assert wanted <= Fraction(accounted_sigma(sigma)) <= wanted * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize(
    ("bound", "reach"), [(1.0, 0.999), (2.0, 1.0), (1.0, math.nan), (math.nan, 1.0)]
)
def test_a_reach_below_the_bound_is_refused(bound, reach):
    with pytest.raises(ReleaseError, match="does not cover a bound"):
        BoundedSum(np.zeros(2), 1.0, bound, reach)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(ReleaseError, match="does not cover a bound"):
        BoundedSum(np.zeros(2), 1.0, bound, max(bound, 1.0))


def test_a_symmetric_release_has_half_the_variance_beside_the_diagonal(monkeypatch):
    asked = []
    monkeypatch.setattr(
        Stream,
        "discrete_gaussian",
        lambda self, sigma, count: asked.append((sigma, count)) or np.zeros(count, np.int64),
    )
    _, token = paid(Gaussian(3.0))
    token.symmetric(SQUARE)
    (first, on), (second, beside) = asked
    assert (on, beside) == (2, 1)
    assert first >= sigma_for(3.0 / UNIT)
    assert accounted_sigma(second) ** 2 == pytest.approx(accounted_sigma(first) ** 2 / 2, rel=1e-9)


# --- Batches --------------------------------------------------------------------------------------


def test_batches_are_drawn_with_the_probability_counted_and_as_often_as_steps(opened):
    event = PoissonGaussian(2.0, 3, sampling_probability=0.25)
    run, token = paid(event)
    fresh = Key.from_seed(0)
    for step in range(3):
        batch = token.at("batch", step).batch(1000)
        assert batch.tolist() == fresh.stream("batch", step).include(1000, 0.25).tolist()
        token.at("noise", step).gaussian(ONE)
    run.close()
    with pytest.raises(ReleaseError, match="3 of 3 are used"):
        token.at("batch", 3).batch(1000)
    assert ("batch", 3, 0) not in opened


def test_all_rows_in_place_of_a_batch_are_found_at_the_end():
    run, token = paid(PoissonGaussian(2.0, sampling_probability=0.25))
    token.gaussian(ONE)
    with pytest.raises(ReleaseError, match="it was counted and not drawn"):
        run.close()


def test_a_batch_without_noise_is_found_at_the_end():
    run, token = paid(PoissonGaussian(2.0, sampling_probability=0.25))
    token.batch(10)
    with pytest.raises(ReleaseError, match="it was counted and not drawn"):
        run.close()


# --- Reports, hidden steps, trials ----------------------------------------------------------------


def test_a_row_reports_as_often_as_was_counted_whatever_the_groups():
    run, token = paid(Gaussian(2.0, count=2), draws=Quiet())
    for turn in range(2):
        for group in range(5):
            token.at("noise", 5 * turn + group).reports(FLOATS, 4, turn)
    run.close()
    with pytest.raises(ReleaseError, match="2 of 2 are used"):
        token.at("noise", 10).reports(FLOATS, 4, 2)


def test_turns_that_were_counted_and_not_taken_are_found():
    run, token = paid(Gaussian(2.0, count=2))
    token.reports(ONE, 4, 0)
    with pytest.raises(ReleaseError, match="counted and not drawn"):
        run.close()


def test_hidden_steps_are_one_release_together_and_end_at_random(opened):
    run, token = paid(Iterated(2.0, steps=5))
    assert 1 <= token.at("stop").stop() <= 5
    for step in range(5):
        token.at("noise", step).hidden(FLOATS)
    run.close()
    with pytest.raises(ReleaseError, match="1 of 1 are used"):
        token.at("noise", 5).hidden(FLOATS)
    with pytest.raises(ReleaseError, match="was not counted"):
        token.at("stop", 1).stop()  # until it suits
    assert not {("noise", 5, 0), ("stop", 1, 0)} & set(opened)


@pytest.mark.parametrize(("steps", "stops"), [(4, 1), (5, 0)])
def test_a_pass_that_is_cut_short_or_does_not_stop_at_random_is_found(steps, stops):
    run, token = paid(Iterated(2.0, steps=5))
    for _ in range(stops):
        token.at("stop").stop()
    for step in range(steps):
        token.at("noise", step).hidden(FLOATS)
    with pytest.raises(ReleaseError, match="it was counted and not drawn"):
        run.close()


@pytest.mark.parametrize("total", [ONE, FLOATS], ids=["exact", "fast"])
def test_hidden_sums_are_numbers_whatever_they_were_summed_in(total):
    recorder = Recorder()
    _, token = paid(Iterated(1e-6, steps=1), draws=recorder)
    found = token.hidden(total)
    assert found == pytest.approx(total.numbers(), abs=1e-4)
    assert not recorder.tape  # nobody sees them
    _, again = paid(Iterated(1e-6, steps=1), draws=Replayer(recorder.tape))
    assert (again.hidden(total) == total.numbers()).all()


class Six(Draws):
    """As many trials."""

    def trials(self, event, stream):
        return 6


def searched():
    return paid(Repeated(trial=(TRIAL,), rate=0.1), draws=Six())


def test_as_many_trials_are_made_as_were_drawn_and_each_draws_what_one_was_counted_to():
    run, token = searched()
    with pytest.raises(ReleaseError, match="was not counted"):
        token.trial(CALLED)  # before their number is known
    assert token.at("trials").trials() == 6
    for number in range(6):
        assert 0 <= token.at("setting", number).setting(3) < 3
        one = token.trial(CALLED)
        own = one.token("Training")
        with pytest.raises(ReleaseError, match="Training and Score was counted and not drawn"):
            one.close()
        for step in range(2):
            own.at("noise", 2 * number + step).gaussian(ONE)
        one.token("Score").at("score", number).gaussian(ONE)
        one.close()
        with pytest.raises(ReleaseError, match="Training asks for a release"):
            own.gaussian(ONE)
    run.close()
    with pytest.raises(ReleaseError, match="6 of 6 are used"):
        token.trial(CALLED)
    with pytest.raises(ReleaseError, match="1 of 1 are used"):
        token.at("trials", 1).trials()


@pytest.mark.parametrize(
    "counted",
    [
        [("Training", Gaussian(3.9, count=2)), CALLED[1]],  # less noise
        [("Training", Gaussian(4.0, count=3)), CALLED[1]],  # one step more
        [*CALLED, ("Score", Gaussian(9.0))],  # a second score
        CALLED[:1],  # a score that comes from nowhere
        CALLED[::-1],
        [],
    ],
)
def test_a_trial_that_was_not_counted_is_refused(counted):
    _, token = searched()
    token.at("trials").trials()
    with pytest.raises(ReleaseError, match="makes a trial that was not counted"):
        token.trial(counted)


def test_the_trials_of_one_search_may_differ_as_was_counted():
    other = (Gaussian(5.0, count=8), Gaussian(9.0))
    _, token = paid(Repeated(trial=(TRIAL, other), rate=0.1), draws=Six())
    token.at("trials").trials()
    for number in range(2):
        token.at("setting", number).setting(2)
    token.trial(CALLED)
    token.trial([("Training", other[0]), ("Score", other[1])])
    with pytest.raises(ReleaseError, match="a trial that was not counted"):
        token.trial([("Training", other[0]), ("Score", Gaussian(8.0))])


def test_a_trial_whose_setting_was_not_drawn_is_refused():
    _, token = searched()
    token.at("trials").trials()
    with pytest.raises(ReleaseError, match="whose setting was not drawn"):
        token.trial(CALLED)


# --- The end of a run -----------------------------------------------------------------------------


def test_what_was_counted_and_not_drawn_is_found():
    run = Releases(Key.from_seed(0), [("Mean", Gaussian(1.0)), ("Steps", Gaussian(2.0, count=2))])
    with pytest.raises(ReleaseError, match="Mean and Steps was counted and not drawn"):
        run.close()
    run.token("Mean").at("mean").gaussian(ONE)
    steps = run.token("Steps")
    for step in range(2):
        with pytest.raises(ReleaseError, match="Steps was counted and not drawn"):
            run.close()
        steps.at("noise", step).gaussian(ONE)
    run.close()


def test_at_a_failed_test_only_what_was_begun_before_must_have_been_drawn():
    names = ["Mean", "Scale", "Test", "Steps"]
    run = Releases(Key.from_seed(0), [(name, Gaussian(2.0, count=2)) for name in names])
    mean = run.token("Mean")
    mean.at("mean").gaussian(ONE)
    with pytest.raises(ReleaseError, match=r"^Mean was counted and not drawn"):
        run.close(failed=True)  # the first half of it was
    mean.at("mean", 1).gaussian(ONE)
    run.token("Scale")  # by a stage that is tested, and draws if the test passes
    test = run.token("Test")
    for number in range(2):
        test.at("test", number).above(-9.0, 2.0)
    run.close(failed=True)
    with pytest.raises(ReleaseError, match=r"^Scale and Steps was counted and not drawn"):
        run.close()


def test_streams_of_another_run_do_not_bring_its_events():
    """Trials have events of their own, and draw from the streams of the group they are in."""
    run = Releases(Key.from_seed(0), [("Steps", Gaussian(1.0))])
    own = run.keyed(run.child("group", 3))
    noisy = own.token("Steps").at("noise").gaussian(ONE)
    group = Releases(Key.from_seed(0).child("group", 3), [("Steps", Gaussian(1.0))])
    assert (noisy == group.token("Steps").at("noise").gaussian(ONE)).all()
    for each in (run, own):
        each.close()
        with pytest.raises(ReleaseError, match="was not counted"):
            each.token("Steps")


def test_messages_tell_nothing_of_the_rows():
    _, token = paid(Gaussian(1.0))
    secret = BoundedSum(np.array([123456789]), UNIT, 1.0, 1.0)
    token.gaussian(secret)
    for ask in (token.gaussian, token.gamma, token.hidden):
        with pytest.raises(ReleaseError) as refused:
            ask(secret)
        assert "123456789" not in str(refused.value)


# --- What is public -------------------------------------------------------------------------------


def test_public_signs_come_from_the_key_and_from_no_event():
    run = Releases(Key.from_seed(3), ())
    signs = run.public.signs("rotation", 2, 1000)
    assert set(signs.tolist()) == {-1, 1} and abs(signs.sum()) < 200
    words = Key.from_seed(3).stream("rotation", 2).words(1000)
    assert ((signs > 0) == (words >= 2**63)).all()
    again = PublicRandomness(Key.from_seed(3))
    assert (again.signs("rotation", 2, 1000) == signs).all()
    run.close()


def test_a_seeded_run_says_so():
    assert Releases(Key.from_seed(0), ()).seeded
    assert not Releases(Key.fresh(), ()).seeded
    assert not Releases(Key.fresh(), ()).child("lot").seeded


def test_every_event_can_be_drawn_and_every_draw_is_tried_here():
    kinds = {event.kind for event in EVENTS.values()}
    assert kinds | {Failure.kind} == {
        each.kind for each in Event.__subclasses__() if each.__module__ == Event.__module__
    }
    # Of parallel parts each is a run of its own, tried above; failures are nothing to draw.
    assert set().union(*SUITS.values()) == kinds - {"parallel"} and set(SUITS) == set(DRAWN)
    drawing = {name for name in vars(Draws) if not name.startswith("_")}
    # `cell` is drawn by `cells`, and `setting` needs a trial; both are tried above.
    assert drawing <= {*vars(Token), "cell", "setting"}


# --- Parallel parts, failures, units --------------------------------------------------------------

HALVES = Parallel([TRIAL, TRIAL[:1]])


def use(run, counted, at):
    for i, (name, event) in enumerate(counted):
        token = run.token(name)
        for step in range(event.count):
            token.at(f"{name}, {at}", 10 * i + step).gaussian(ONE)


def test_every_part_of_a_split_is_a_run_of_its_own():
    run, split = paid(HALVES)
    sides = [split.side(0, CALLED), split.side(1, CALLED[:1])]
    for k, (side, counted) in enumerate(zip(sides, (CALLED, CALLED[:1]), strict=True)):
        use(side, counted, k)
    with pytest.raises(ReleaseError, match="not counted"):
        sides[1].token("Score")  # which was counted for the other part
    with pytest.raises(ReleaseError, match="not counted: 1 of 1 are used"):
        split.side(0, CALLED)
    run.close()


@pytest.mark.parametrize(
    "index, counted", [(0, CALLED[:1]), (1, CALLED), (2, CALLED), (-1, CALLED[:1]), (0, [])]
)
def test_a_part_gets_what_was_counted_for_it_and_nothing_else(index, counted):
    _, split = paid(HALVES)
    with pytest.raises(ReleaseError, match="a part that was not counted"):
        split.side(index, counted)


def test_a_part_that_did_not_run_or_only_in_part_is_found_at_the_end():
    run, split = paid(HALVES)
    use(split.side(0, CALLED), CALLED, 0)
    with pytest.raises(ReleaseError, match="counted and not drawn"):
        run.close()
    split.side(1, CALLED[:1]).token("Training").at("one").gaussian(ONE)  # of two
    with pytest.raises(ReleaseError, match="Training was counted and not drawn"):
        run.close()


def test_only_a_split_has_parts():
    _, token = paid(Gaussian(2.0))
    with pytest.raises(ReleaseError, match="draws something else"):
        token.side(0, [("it", Gaussian(2.0))])


def test_a_failure_is_counted_and_nothing_is_drawn_for_it():
    counted = [("Mean", Gaussian(1.0)), ("Keys", Failure(1e-9))]
    run = Releases(Key.from_seed(0), counted)
    with pytest.raises(ReleaseError, match="not counted"):
        run.token("Keys")
    run.token("Mean").at("mean").gaussian(ONE)
    run.close()


@pytest.mark.parametrize("name", sorted({*DRAWN} - {"stop", "trials"}))  # which look at nobody
def test_a_bound_on_rows_does_not_do_where_persons_were_counted(name):
    draw, event = DRAWN[name]
    run = Releases(Key.from_seed(0), [("it", event)], unit=Unit("person", 3))
    with pytest.raises(ReleaseError, match="what a row counts for, and was counted for"):
        draw(run.token("it").at("noise"))


def test_a_bound_on_persons_does_where_they_were_counted():
    person = Unit("person", 3)
    ours = BoundedSum(np.array([5, -3]), UNIT, bound=1.0, reach=1.0, owner=person)
    run = Releases(Key.from_seed(0), [("it", Parallel([[Gaussian(2.0)]]))], unit=person)
    run.token("it").side(0, [("a", Gaussian(2.0))]).token("a").at("noise").gaussian(ours)
    run.close()
    _, token = paid(Gaussian(2.0))
    with pytest.raises(ReleaseError, match="what a person counts for"):
        token.gaussian(ours)


def test_a_run_in_which_others_draw_is_never_for_release():
    """Whoever replaces the noise gets no certificate that says otherwise."""
    assert not Releases(Key.fresh(), []).seeded
    assert Releases(Key.fresh(), [], draws=Recorder()).seeded
    assert Releases(Key.from_seed(0), []).seeded
