"""Randomised steps as frozen data.

An event says what noise was added to a sum in which one row (or, where a certificate says so, one
person: `tacit.privacy.unit`) contributes a vector of norm at most one; how far two neighbouring
sums lie apart is for the neighbouring relation to say (`sensitivity`). Accountants read events;
events know nothing of accountants.

Events are written into certificates and ledgers, which must be read for as long as somebody keeps
them. Hence, from version to version:

1. A kind, once released, keeps its name, the names of its parameters and what these mean. What
   would mean something else is a new kind.
2. A new parameter has a default that means what files without it meant, and is left out of a file
   where it has that value: an old certificate, read and written again, has the same digest.
3. No parameter and no kind is dropped. One that is no longer made is still read and counted.
4. What is unknown is refused, be it a kind or a parameter: an event that is not understood cannot
   be counted, and leaving it out would claim too little.
5. An account may become tighter, or looser where it was found to be wrong; in the latter case
   an advisory says so (`tacit.privacy.advisories`).

``tests/old`` holds files of earlier versions, which every version must read as they were meant
(``docs/decisions/0045``, which says the same of certificates, ledgers and models).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

from tacit.exceptions import InputError
from tacit.params import Documented
from tacit.privacy.relation import Neighbors

#: Neighbouring relations, by dp-accounting's names, with how far one row moves a
#: sum of contributions of norm at most one.
NEIGHBORS: Mapping[str, float] = {
    "replace_special": 1.0,  # one row swapped for a null row that contributes nothing
    "add_or_remove_one": 1.0,
    "replace_one": 2.0,  # any row for any other: one contribution leaves, another enters
}

SMALLEST_NOISE = 1e-6  # below it there is no privacy to speak of, and arithmetic ends
LARGEST_COUNT = 10**12
MOST_SHIFTS = 256
MOST_ALTERNATIVES, MOST_IN_TRIAL = 64, 32  # lists of events, and events of one list
MOST_SAMPLED_TRIALS = 8  # of the alternatives: each of them is composed on a grid, several times
SLOWEST_STOP = 1e-3  # γ; the table of all numbers of trials grows as 1/γ
MOST_TRIALS, LARGEST_SHAPE = 1000.0, 100.0
WEIGHT_ERROR = 1e-12  # by how much weights may miss one: rounding, no more


def sensitivity(neighbors: Neighbors) -> float:
    """How far neighbouring sums of unit contributions can lie apart."""
    try:
        return NEIGHBORS[neighbors]
    except (KeyError, TypeError):
        allowed = ", ".join(NEIGHBORS)
        raise InputError(f"neighbors={neighbors!r} is not a relation; choose {allowed}") from None


@dataclass(frozen=True)
class Event(Documented):
    """A randomised step, repeated ``count`` times with fresh noise.

    Attributes
    ----------
    noise_multiplier : float
        Scale of the noise, in contributions of one row: the bound on the norm of what one row adds.
    count : int
        How often, with fresh noise each time.
    """

    kind: ClassVar[str]
    #: Whether it is Gaussian differentially private by a closed form.
    gaussian: ClassVar[bool] = False
    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        noise = self._plain("noise_multiplier")
        if not SMALLEST_NOISE <= noise < math.inf:
            raise InputError(
                f"noise_multiplier must be positive and finite, from {SMALLEST_NOISE:g} on, "
                f"not {noise!r}"
            )
        self._require_count()

    def _require_count(self) -> None:
        count = self._plain("count")
        if not (1 <= count <= LARGEST_COUNT and count == int(count)):
            raise InputError(
                f"count must be an integer of at least 1 and at most 10**12, not {count!r}"
            )
        object.__setattr__(self, "count", int(count))

    def _plain(self, name: str) -> float:
        """A parameter as a Python float, whatever type of number it came as."""
        value = getattr(self, name)
        try:
            if isinstance(value, bool | str):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            kinds = {"count": "an integer of at least 1", "failure": "a number from 0 to 1"}
            kinds |= {"shape": "a number above -1", "probability": "a number from 0 to 1"}
            kinds |= {"keys": "an integer from 0"}
            kind = kinds.get(name, "a positive number")
            raise InputError(f"{name} must be {kind}, not {value!r:.80}") from None
        object.__setattr__(self, name, number)
        return number

    def times(self, count: int) -> Self:
        """The same step, ``count`` times as often.

        Parameters
        ----------
        count : int
            A factor.

        Returns
        -------
        Self
            An event.
        """
        return replace(self, count=self.count * count)

    def scaled(self, factor: float) -> Self:
        """The same step with so many times the noise.

        Parameters
        ----------
        factor : float
            Positive.

        Returns
        -------
        Self
            An event.
        """
        return replace(self, noise_multiplier=self.noise_multiplier * factor)

    def several(self, rows: int) -> Self | None:
        """The same step for a unit of so many rows; None if there is no better than a path.

        All of its rows are there, or all of them are null, absent or replaced. A sum, or a utility,
        then moves by so many contributions, as if there were so much less noise.

        Parameters
        ----------
        rows : int
            k, most rows of one unit.

        Returns
        -------
        Self or None
            An event of noise z/k, rounded down, unless the kind has a rule of its own.
        """
        return replace(self, noise_multiplier=self.noise_multiplier / rows * (1 - 1e-15))

    @property
    def leaves(self) -> tuple[Event, ...]:
        """The steps that it is made of."""
        return (self,)

    @property
    def sampled(self) -> bool:
        """Whether any step of it has no closed form: its losses are composed on a grid."""
        return not self.gaussian

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON values.

        Returns
        -------
        dict
            Its kind and its parameters.
        """
        return {"kind": self.kind, "parameters": asdict(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """The event of ``{"kind": ..., "parameters": {...}}``.

        Parameters
        ----------
        data : mapping
            What `to_dict` gave.

        Returns
        -------
        Event
            Of that kind.
        """
        kind = data.get("kind")
        if kind not in EVENTS:
            raise InputError(f"unknown kind of event {kind!r}; known are {', '.join(EVENTS)}")
        parameters = data.get("parameters")
        if not isinstance(parameters, Mapping):
            raise InputError(f"event {kind!r} has no parameters")
        try:
            return EVENTS[kind](**parameters)
        except TypeError as error:
            raise InputError(f"event {kind!r}: {error}") from None


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise of ``noise_multiplier`` row contributions, on a sum over all rows.

    Notes
    -----
    Released is Σᵢ vᵢ + z·C·N(0, I), with ‖vᵢ‖ ≤ C the contribution of row i and z the noise
    multiplier. It is μ-Gaussian differentially private with μ = Δ·√count/z, for Δ = 1 if
    neighbours differ in one contribution, and 2 if one is replaced (Dong, Roth & Su 2022, Theorem
    2.7 and Corollary 3.3).
    """

    kind: ClassVar[str] = "gaussian"
    gaussian: ClassVar[bool] = True


@dataclass(frozen=True)
class Selection(Event):
    """The exponential mechanism (McSherry & Talwar 2007): one of many public candidates.

    Candidate r is chosen with a probability in proportion to w(r)·exp(u(r)/``noise_multiplier``),
    where one row contributes at most one to any utility u(r), and the weights w are public.
    """

    kind: ClassVar[str] = "selection"
    gaussian: ClassVar[bool] = True


@dataclass(frozen=True)
class PoissonGaussian(Event):
    """Gaussian noise on a sum over rows drawn independently with ``sampling_probability``.

    Attributes
    ----------
    drift : tuple of (weight, shift)
        How far the sums over the rows that both neighbours have may lie apart because
        of preprocessing, in contributions of one row: ``shift`` at most, with
        probability ``weight``, over the draw of those rows in each step; weights sum
        to one. Empty if they cannot differ.
    failure : float
        Probability that, in any of the steps, ``drift`` does not hold; part of δ.
    rows : int
        How many rows one unit has at most, each of them drawn by itself; the noise is in
        contributions of one of them.
    sampling_probability : float
        Chance of a row to be in a sample.

    Notes
    -----
    Released is Σ vᵢ over the sample, plus z·C·N(0, I), with ‖vᵢ‖ ≤ C the contribution of row i
    (Abadi et al. 2016, Algorithm 1).
    """

    kind: ClassVar[str] = "poisson-gaussian"
    sampling_probability: float = 1.0
    drift: tuple[tuple[float, float], ...] = ()
    failure: float = 0.0
    rows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self._plain("sampling_probability") <= 1:
            raise InputError(
                f"sampling_probability must lie in (0, 1], not {self.sampling_probability!r}"
            )
        if not 0 <= self._plain("failure") < 1:
            raise InputError(f"failure must lie in [0, 1), not {self.failure!r}")
        object.__setattr__(self, "drift", _shifts(self.drift))
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise InputError(f"rows must be an integer of at least 1, not {self.rows!r:.80}")

    @property
    def drifts(self) -> bool:
        """Whether rows that both neighbours have may move the sum, even if improbably."""
        return self.failure > 0 or any(shift > 0 for _, shift in self.drift)

    def times(self, count: int) -> Self:
        more = super().times(count)
        if not self.failure:
            return more
        failure = math.nextafter(self.failure * count, math.inf)
        return replace(more, failure=min(failure, math.nextafter(1.0, 0.0)))  # above every δ

    def several(self, rows: int) -> Self:
        """Each row is drawn by itself (`tacit.privacy.accounting.mixtures`).

        Along a path of tables that differ in one row each, b₁, …, bₖ are what the sums over the
        common drawn rows move by. They sum to at most k·max bᵢ, which exceeds k·b with at most k
        times the probability that one of them exceeds b.
        """
        left, drift = 1.0, []
        for weight, shift in sorted(self.drift, key=lambda pair: -pair[1]):
            drift.append((min(weight * rows, left), shift * rows * (1 + 1e-15)))
            left -= drift[-1][0]
            if not left > 0:
                break
        failure = min(math.nextafter(self.failure * rows, math.inf), math.nextafter(1.0, 0.0))
        return replace(
            self,
            drift=tuple(reversed(drift)),
            failure=failure if self.failure else 0.0,
            rows=self.rows * rows,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON would give it back; what steps without drift do not have is left out."""
        data = super().to_dict()
        if not (self.drift or self.failure):
            del data["parameters"]["drift"], data["parameters"]["failure"]
        else:
            data["parameters"]["drift"] = [list(pair) for pair in self.drift]
        if self.rows == 1:
            del data["parameters"]["rows"]
        return data


@dataclass(frozen=True)
class Gamma(Event):
    """Noise of density e^(−‖z‖/``noise_multiplier``) on a sum over rows, drawn or all of them.

    Its direction is uniform and its length has a gamma distribution, whose shape is the number of
    coordinates: the more of them, the longer it is.

    Attributes
    ----------
    sampling_probability : float
        Chance of a row to be in a sample; 1 for all of them.
    """

    kind: ClassVar[str] = "gamma"
    sampling_probability: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self._plain("sampling_probability") <= 1:
            raise InputError(
                f"sampling_probability must lie in (0, 1], not {self.sampling_probability!r}"
            )

    def several(self, rows: int) -> Self | None:
        return super().several(rows) if self.sampling_probability == 1 else None


@dataclass(frozen=True)
class Iterated(Event):
    """A pass of contractive steps over groups of rows, each with Gaussian noise on its sum.

    After a number of steps drawn uniformly from 1 to ``steps`` the iterate is released, and nothing
    else. A row is in one group; it is met first by the worst account.

    Attributes
    ----------
    steps : int
        Groups of rows, and most steps.
    """

    kind: ClassVar[str] = "iterated"
    steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self._plain("steps")
        if not (1 <= steps <= LARGEST_COUNT and steps == int(steps)):
            raise InputError(f"steps must be an integer of at least 1, not {steps!r}")
        object.__setattr__(self, "steps", int(steps))

    def several(self, rows: int) -> None:
        """Rows of one unit may be in several groups, for which the proof has no rule."""


@dataclass(frozen=True)
class Repeated(Event):
    """A trial, made a random number of times; the best outcome is released and nothing else.

    A trial is all that it spends, its noisy score included. How many are made is drawn before,
    without looking at the rows, and stays secret; outcomes are compared by their noisy scores.

    Attributes
    ----------
    trial : tuple of tuples of events
        What one trial spends: one list, or several if settings with different events are drawn.
    distribution : str
        Of the number of trials: ``"negative-binomial"`` without zero (Papernot & Steinke 2022,
        Definition 1), or ``"poisson"`` without zero.
    shape : float
        η of the negative binomial: 0 logarithmic, 1 geometric.
    rate : float
        γ of the negative binomial, or the Poisson distribution's mean if zero were allowed.
    noise_multiplier : float
        That of the least noisy step, for reading; it is filled in.
    """

    kind: ClassVar[str] = "repeated"
    noise_multiplier: float = 0.0
    count: int = 1
    trial: tuple[tuple[Event, ...], ...] = ()
    distribution: str = "negative-binomial"
    shape: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "trial", _trials(self.trial))
        least = min(event.noise_multiplier for event in self.leaves)
        if self.noise_multiplier not in (0.0, least):
            raise InputError("the noise of repeated trials is that of their events: pass trial=")
        object.__setattr__(self, "noise_multiplier", least)
        super().__post_init__()
        shape, rate = self._plain("shape"), self._plain("rate")
        if self.distribution == "negative-binomial":
            if not -1 < shape <= LARGEST_SHAPE:
                raise InputError(f"shape={shape!r} must lie above -1 and be at most 100")
            if not SLOWEST_STOP <= rate <= 1:
                raise InputError(f"rate={rate!r} must lie between {SLOWEST_STOP:g} and 1")
        elif self.distribution == "poisson":
            if not 0 < rate <= MOST_TRIALS:
                raise InputError(f"rate={rate!r} must be positive and at most {MOST_TRIALS:g}")
        else:
            raise InputError(
                f"distribution={self.distribution!r:.80} must be 'negative-binomial' or 'poisson'"
            )

    @property
    def leaves(self) -> tuple[Event, ...]:
        return tuple(event for alternative in self.trial for event in alternative)

    def several(self, rows: int) -> Self | None:
        """Trials of several rows: the proof of searches is about any two tables."""
        trial = tuple(tuple(event.several(rows) for event in events) for events in self.trial)
        if any(event is None for events in trial for event in events):
            return None
        return replace(self, trial=trial, noise_multiplier=0.0)  # type: ignore[arg-type]

    @property
    def sampled(self) -> bool:
        return any(event.sampled for event in self.leaves)

    def scaled(self, factor: float) -> Self:
        trial = tuple(tuple(e.scaled(factor) for e in events) for events in self.trial)
        return replace(self, noise_multiplier=0.0, trial=trial)

    def to_dict(self) -> dict[str, Any]:
        numbers = {"count": self.count, "distribution": self.distribution}
        numbers |= {"shape": self.shape, "rate": self.rate}
        trial = [[event.to_dict() for event in events] for events in self.trial]
        return {"kind": self.kind, "parameters": {**numbers, "trial": trial}}


@dataclass(frozen=True)
class Parallel(Event):
    """Several lists of events, each on rows of its own: parallel composition.

    Every unit is in one part at most, and the events of a part look at the rows of its units, and
    at what was released before. All parts run, in any order. The cost is that of the worst part,
    beside all other events: δ(ε) = maxᵢ δ(ε; others, partᵢ), the maximum being taken outside of
    the composition.

    *What is required.* Between two neighbours, (1) every unit that both have is in the same part
    in both, and (2) the unit in which they differ is in one part, the same in both.

    - ``replace_special``, ``replace_one``: the part is decided by the place in the table, or by a
      coin that is drawn without looking at values. Under ``replace_one`` a part by *value* (a
      label, a category) is not covered: the new row may be in another part, so that two parts
      differ, and so do their numbers of rows, which these relations take for public.
    - ``add_or_remove_one``: by a coin of every unit, or by its own values or identifier. By its
      place is not covered: what is behind a removed row moves up, into other parts. The numbers of
      rows in the parts are private, as n is.

    Coins may be drawn by number where the table decides who has which number (rows that come and
    go; people, by their first row): the coins of the units that both neighbours have are then
    independent and of the same law under both, and so is how many of all came up. The proof
    reveals these, each with its unit. What must stay secret is the coins by number, and the key
    that they are drawn with: beside the table of one neighbour they would not be those of (1).

    And (3) nothing carries a unit into other parts by itself: a noiseless stage that was fitted on
    all rows moves those of every part. Fitted on one part, it is that part's drift.

    *Proof.* (McSherry 2009, Theorem 4, has it for pure differential privacy.) Fix two neighbours,
    and the coins if any: hockey-stick divergences are jointly convex, so that coins with the same
    law under both may be revealed. Let j be the part of the odd unit. Given what was released
    before, an event of any other part looks at the same rows under both neighbours, so it has the
    same law: its loss is zero. All that is released is therefore an adaptive composition of the
    other events, those of part j, and kernels that are equal; it is dominated by the pairs of the
    first two (Zhu, Dong & Wang 2022, Theorem 10). Each pair of neighbours has one j, so the
    worst of all pairs is at most the worst of all j. ∎

    The maximum of the parts' own curves, composed with others afterwards, would be too small: it
    need not be the curve of one pair. Nor does the proof say that part j is the same in two
    different splits: repetitions (``count``), and several events of this kind, may each have the
    unit in another part. If a split is used again, list its events in the same part.

    Attributes
    ----------
    parts : tuple of tuples of events
        What each part spends. Parts that nothing looks at need not be listed.
    noise_multiplier : float
        That of the least noisy step, for reading; it is filled in.

    Examples
    --------
    >>> halves = Parallel([[Gaussian(5.0, 10)], [Gaussian(2.0)]])
    >>> halves.noise_multiplier, halves.gaussian
    (2.0, True)
    """

    kind: ClassVar[str] = "parallel"
    noise_multiplier: float = field(default=0.0, init=False)
    count: int = field(default=1, kw_only=True)
    parts: tuple[tuple[Event, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _lists("parts", self.parts, refused=(Parallel,)))
        noise = [e.noise_multiplier for e in self.leaves if not isinstance(e, Failure)]
        if not noise:
            raise InputError("parallel parts have noise: what may fail only needs no parts")
        object.__setattr__(self, "noise_multiplier", min(noise))
        # Parts of Gaussian noise only are dominated by that of the largest μ, whatever is beside.
        object.__setattr__(self, "gaussian", all(e.gaussian for part in self.parts for e in part))
        super().__post_init__()

    @property
    def leaves(self) -> tuple[Event, ...]:
        return tuple(leaf for part in self.parts for event in part for leaf in event.leaves)

    @property
    def sampled(self) -> bool:
        return any(event.sampled for event in self.leaves)

    def several(self, rows: int) -> Self | None:
        """All rows in the worst part: along a path of neighbours, k steps of μ at most have kμ.

        Only for Gaussian noise. The rows of one unit may else be spread over parts in other ways.
        """
        if not self.gaussian:
            return None
        parts = tuple(tuple(event.several(rows) for event in part) for part in self.parts)
        return replace(self, parts=parts)  # type: ignore[arg-type]

    @property
    def failure(self) -> float:
        """Probability that anything fails which some unit is exposed to, rounded up."""
        sums = [math.fsum(getattr(e, "failure", 0.0) for e in part) for part in self.parts]
        return min(self.count * max(sums) * (1 + 1e-15), 1.0)

    def scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(tuple(e.scaled(factor) for e in p) for p in self.parts))

    def to_dict(self) -> dict[str, Any]:
        parts = [[event.to_dict() for event in part] for part in self.parts]
        return {"kind": self.kind, "parameters": {"count": self.count, "parts": parts}}


@dataclass(frozen=True)
class Failure(Event):
    """Something that may reveal everything, with a small probability: δ grows by it.

    A threshold on a noisy histogram is the example: a key that one person has is released with a
    probability of at most p, and what is released otherwise tells nothing of it.

    *What it means.* The law of all that is released is (1 − p)·P′ + p·P″ on the one of two
    neighbours and (1 − p)·Q′ + p·Q″ on the other, where P′ against Q′ is dominated by all other
    events, and P″ and Q″ may be anything (Bun & Steinke 2016, Definition 8.1, say the same of
    Rényi divergences). In words: on each neighbour there is an accident, of probability p at most,
    without which the account of the other events holds.

    *What it costs.* p, not (1 + e^ε)·p, in any composition. With a₊ = max(a, 0),

        ∫((1−p)P′ + pP″ − e^ε·((1−p)Q′ + pQ″))₊ ≤ (1−p)·∫(P′ − e^ε·Q′)₊ + p·∫P″ ≤ δ(ε) + p,

    as Q″ ≥ 0 is subtracted. Several add up: step by step each law is such a mixture, given what
    was released before, so the mixture of the whole has no accident with probability Π(1 − pᵢ) ≥
    1 − Σpᵢ, and then all other events compose as they do (Bun & Steinke 2016, Lemma 8.2). ∎

    *What it does not cover.* A law that lies within total variation p of P′, while the neighbour's
    lies within p of Q′, is no such mixture: mass may be *missing* where Q′ has it, and that costs
    (1 + e^ε)·p (`tacit.mechanisms.lattice.numerical_delta`). Nor is it a private test's failure,
    which δ covers by a maximum (`tacit.privacy.ptr`).

    *Several rows.* A threshold on counts of keys says more (``keys``, ``room``, ``step``). Let
    tables differ in k rows, of c keys each. At most k·c keys take part on one side only; there
    they have up to k − 1 rows more than what takes part at least, and each of them passes with
    probability Φ((k − 1)·s − x) at most, if Gaussian noise must reach x deviations for a key of
    one row, and a row is s of them. So p becomes k·c·Φ((k − 1)·s − x), while the noise on keys
    that both sides have hides k contributions.

    Attributes
    ----------
    probability : float
        p of one time, for one unit.
    noise_multiplier : float
        Always 0: it is no noise.
    keys : int
        c, of one row; 0 if it is not a threshold, or one of which this is not known.
    room : float
        x, how far the threshold is above the count of a key of one row, in deviations.
    step : float
        s, one row in deviations.
    """

    kind: ClassVar[str] = "failure"
    noise_multiplier: float = field(default=0.0, init=False)
    count: int = field(default=1, kw_only=True)
    probability: float = 0.0
    keys: int = field(default=0, kw_only=True)
    room: float = field(default=0.0, kw_only=True)
    step: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 <= self._plain("probability") < 1:
            raise InputError(f"probability must lie in [0, 1), not {self.probability!r}")
        self._require_count()
        keys, room, step = (self._plain(name) for name in ("keys", "room", "step"))
        if not (0 <= keys <= LARGEST_COUNT and keys == int(keys)):
            raise InputError(f"keys must be an integer from 0, not {self.keys!r}")
        object.__setattr__(self, "keys", int(keys))
        if keys and not (0 < room < math.inf and 0 < step < math.inf):
            raise InputError("a threshold has room and step, positive and finite")
        if keys * _above(room) > self.probability * (1 + 1e-6) and keys:
            raise InputError("a threshold with so little room fails with more probability")

    @property
    def sampled(self) -> bool:
        return False

    @property
    def failure(self) -> float:
        """Of all times together, by the union bound, rounded up."""
        return min(self.count * self.probability * (1 + 1e-15), 1.0)

    def scaled(self, factor: float) -> Self:
        return self  # it has no noise

    def several(self, rows: int) -> Self | None:
        """By the law of a threshold, if it is known; else along a path p grows by Σ e^(jε)."""
        if not self.keys:
            return None
        room = self.room - (rows - 1) * self.step * (1 + 1e-15)
        chance = rows * self.keys * _above(room) if room > 0 else 1.0
        most = min(max(chance * (1 + 1e-12), self.probability), math.nextafter(1.0, 0.0))
        return replace(self, probability=most, keys=0, room=0.0, step=0.0)

    def to_dict(self) -> dict[str, Any]:
        numbers = {"count": self.count, "probability": self.probability}
        law = {"keys": self.keys, "room": self.room, "step": self.step} if self.keys else {}
        return {"kind": self.kind, "parameters": {**numbers, **law}}


def _above(deviations: float) -> float:
    """Φ(−x), which Gaussian noise exceeds x deviations with."""
    return math.erfc(deviations / math.sqrt(2)) / 2


def _lists(
    name: str, given: Any, refused: tuple[type[Event], ...]
) -> tuple[tuple[Event, ...], ...]:
    """Lists of events, from objects or from what JSON gave back; what would nest is refused."""

    def read(item: Any) -> Event:
        kind = item.get("kind") if isinstance(item, Mapping) else getattr(item, "kind", None)
        if any(kind == other.kind for other in refused):  # before it is read
            raise InputError(f"a list of {name} cannot itself hold {kind} events")
        return item if isinstance(item, Event) else Event.from_dict(item)

    try:
        if isinstance(given, str | bytes | Mapping):
            raise TypeError
        lists = tuple(tuple(read(event) for event in events) for events in given)
    except (TypeError, AttributeError):
        raise InputError(f"{name} must be lists of events") from None
    if not 0 < len(lists) <= MOST_ALTERNATIVES:
        raise InputError(f"{name} must hold from 1 to {MOST_ALTERNATIVES} lists of events")
    if not all(0 < len(events) <= MOST_IN_TRIAL for events in lists):
        raise InputError(f"each of {name} has from 1 to {MOST_IN_TRIAL} events")
    sampled = {events for events in lists if not all(event.gaussian for event in events)}
    if len(sampled) > MOST_SAMPLED_TRIALS:
        raise InputError(
            f"{name} with noise that is not Gaussian come in {MOST_SAMPLED_TRIALS} kinds at most, "
            f"not {len(sampled)}: give all of them the same steps and batch size"
        )
    return lists


def _trials(given: Any) -> tuple[tuple[Event, ...], ...]:
    lists = _lists("trial", given, refused=(Repeated, Parallel, Failure))
    if any(getattr(event, "failure", 0.0) > 0 for events in lists for event in events):
        raise InputError("a trial whose drift may fail to hold cannot be repeated")
    return lists


def _shifts(given: Any) -> tuple[tuple[float, float], ...]:
    """Pairs of plain numbers, checked: weights that may be believed, shifts that are finite."""
    try:
        if isinstance(given, str | bytes | Mapping):
            raise TypeError
        listed = [tuple(pair) for pair in given]
        if any(isinstance(number, str | bytes | bool) for pair in listed for number in pair):
            raise TypeError
        pairs = tuple((float(weight), float(shift)) for weight, shift in listed)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"drift must be pairs (weight, shift), not {given!r:.80}") from None
    if len(pairs) > MOST_SHIFTS:
        raise InputError(f"drift lists {len(pairs)} shifts; at most {MOST_SHIFTS} are allowed")
    if not all(0 < weight <= 1 and 0 <= shift < math.inf for weight, shift in pairs):
        raise InputError("drift must hold weights in (0, 1] and finite shifts from 0")
    # Accountants give what rounding leaves missing to the largest shift.
    if pairs and not abs(math.fsum(weight for weight, _ in pairs) - 1) <= WEIGHT_ERROR:
        raise InputError("the weights of drift must sum to one")
    return pairs


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        Gaussian,
        PoissonGaussian,
        Selection,
        Gamma,
        Iterated,
        Repeated,
        Parallel,
        Failure,
    )
}
