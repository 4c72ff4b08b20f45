"""What every trainer has in common: it resolves its settings, states its events, and trains.

`tacit.trainers.gradient` descends; `tacit.trainers.sufficient_statistics` solves. A plan knows
neither of them, and asks what a trainer can do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeAlias, TypedDict, Unpack

import numpy as np

from tacit.engine.arithmetic import Arithmetic
from tacit.engine.quantization import LIMIT
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.mechanisms.release import Releases
from tacit.params import Params
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event
from tacit.privacy.relation import Relation
from tacit.progress import Progress
from tacit.trainers.settings import PublicFacts

OrAuto: TypeAlias = Any  # a value, or "auto" until `resolve` replaces it
RANGE = "a positive number within 2**-60 and 2**60"


class Training(TypedDict, total=False):
    """What `Trainer.train` may be told beside its facts: all of it public, none of it needed."""

    progress: Progress
    moves: GradientSensitivity | None
    init: np.ndarray | None


@dataclass
class Trainer(Params, ABC):
    """Rows and targets into weights, with the event that says what it cost.

    Settings are fields of the subclasses, which are data classes; ``"auto"`` is filled by
    `resolve`. What is not stated here is refused: a subclass says what else it can do.
    """

    #: Whether its account covers rows that moved, so that noiseless stages may come first.
    takes_drift: ClassVar[bool] = False
    #: Whether strict arithmetic checks all that it sums.
    takes_strict: ClassVar[bool] = False
    #: Whether a run may begin at given weights instead of zero.
    takes_start: ClassVar[bool] = False
    #: Whether it takes steps along sums of gradients, which an engine gives it.
    descends: ClassVar[bool] = False
    #: What gives it sums of rows in the place of an engine, with the parameters of one.
    source: ClassVar[Callable[..., Any] | None] = None
    #: Whether every row is private before it leaves its owner, so that nobody else may look.
    local: ClassVar[bool] = False
    #: Whether its account needs steps that bring no two weights farther apart.
    contracts: ClassVar[bool] = False
    #: Whether steps are on rows drawn at random, anew for each.
    samples: ClassVar[bool] = False
    #: Whether it moves weights as if a last stage that divides columns had not.
    needs_scales: ClassVar[bool] = False
    #: Relations for which its event is stated, and arithmetic in which it holds.
    relations: ClassVar[tuple[str, ...]] = tuple(Relation)
    arithmetics: ClassVar[tuple[str, ...]] = tuple(Arithmetic)

    @property
    def name(self) -> str:
        """Name of its class, by which plans and certificates call it."""
        return type(self).__name__

    def parameters(self) -> dict[str, Any]:
        """Settings as plain JSON values.

        Returns
        -------
        dict
            Name to value.
        """
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in asdict(self).items()}

    # --- settings ---------------------------------------------------------------------------------

    def resolve(self, facts: PublicFacts) -> Self:
        """The same trainer with every ``"auto"`` replaced, by public facts only.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        Self
            A copy.
        """
        self.check(facts)
        asked = {field.name: getattr(self, field.name) for field in fields(self)}
        filled = self.suggest(facts, {k: v for k, v in asked.items() if not is_auto(v)})
        return replace(self, **{k: filled[k] for k, v in asked.items() if is_auto(v)})

    @property
    def takes_people(self) -> bool:
        """Whether it bounds what a person with several rows counts for."""
        return False

    @property
    def groups(self) -> int:
        """Into how many groups rows are dealt, which steps take in turn."""
        return 1

    @property
    def follows(self) -> bool:
        """Whether settings are chosen again once stages have shown how long rows are.

        Only where its event does not depend on them: clip, rate and the size of the constant.
        """
        return False

    def resolve_again(self, facts: PublicFacts, resolved: Any) -> Trainer:
        """What it would be for other facts, with the event of ``resolved``, if it `follows`.

        Parameters
        ----------
        facts : PublicFacts
            What is known now that stages have released something.
        resolved : Trainer
            Itself, resolved by the facts of before.

        Returns
        -------
        Trainer
            ``resolved`` itself, if it does not follow.
        """
        return resolved

    @abstractmethod
    def check(self, facts: PublicFacts) -> None:
        """Refuse settings that make no sense, naming the one to change.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.
        """

    @abstractmethod
    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        """A value for every setting; those given stay.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.
        given : mapping
            Settings that are not ``"auto"``.

        Returns
        -------
        dict
            Name to value.
        """

    def require_feasible(
        self,
        facts: PublicFacts,
        noise_multiplier: float,
        *,
        intercept_scaling: float,
        arithmetic: str,
    ) -> None:
        """Refuse a run whose numbers are out of range, or that needs more memory than there is.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.
        noise_multiplier : float
            That of the event.
        intercept_scaling : float
            Size of the constant feature; 0 for none.
        arithmetic : str
            Of the engine: exact, strict, rounded or fast.
        """

    @abstractmethod
    def constant(self, bound: float) -> float:
        """Size of the constant feature that carries the intercept, for rows of that norm.

        Parameters
        ----------
        bound : float
            Norm of a typical row.

        Returns
        -------
        float
            What every row has in its last column.
        """

    def split(self, facts: PublicFacts) -> int | None:
        """Column that begins the second part of rows, where there are two.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        int or None
            An index from 0; None if rows are clipped as a whole.
        """
        return None

    @property
    def shared_settings(self) -> tuple[Any, ...]:
        """What settings trained in one product must agree in; empty if each is trained alone."""
        return ()

    # --- events -----------------------------------------------------------------------------------

    @abstractmethod
    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        """What training costs, given its noise.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise, in half distances of neighbouring sums.
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        Event
            As an accountant takes it.
        """

    def events(self, noise_multiplier: float, facts: PublicFacts) -> tuple[tuple[str, Event], ...]:
        """Everything that it spends, by name.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise, in half distances of neighbouring sums.
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        tuple of (str, Event)
            In order.
        """
        return ((self.name, self.event(noise_multiplier, facts)),)

    @abstractmethod
    def draws(self, features: int, outputs: int) -> int:
        """How many noise values it draws, for that many columns, the intercept's included.

        Parameters
        ----------
        features, outputs : int
            Columns of the rows with their constant feature; scores of a row.

        Returns
        -------
        int
            Numbers drawn.
        """

    def account_drift(
        self, facts: PublicFacts, moves: GradientSensitivity, budget: Budget
    ) -> PublicFacts:
        """Facts with all that its event has to say of rows that moved.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.
        moves : GradientSensitivity
            What drift does to sums.
        budget : Budget
            Of the whole plan.

        Returns
        -------
        PublicFacts
            The same, unless the event depends on drift.
        """
        return facts

    def sampling_probability(self, facts: PublicFacts) -> float:
        """Chance of a row to be in a step's batch.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        float
            1 for all rows.
        """
        return 1.0

    @property
    def covers_steps(self) -> bool:
        """Whether its event covers the noisy gradients of all steps, which may then be seen."""
        return False

    @property
    def takes_monotone(self) -> bool:
        """Whether weights can be kept in an order, at every step and at the end."""
        return False

    def takes_moment(self, loss: Loss, outputs: int) -> bool:
        """Whether its steps follow a second moment of the rows, if a stage has released one.

        Parameters
        ----------
        loss : Loss
            What is minimised.
        outputs : int
            Scores of a row.

        Returns
        -------
        bool
            True if so.
        """
        return False

    def inflation(self, norm: float, moves: GradientSensitivity) -> float:
        """How many times more noise rows that moved ask for, at weights of that norm.

        Parameters
        ----------
        norm : float
            Of the weights.
        moves : GradientSensitivity
            What drift does to sums.

        Returns
        -------
        float
            At least 1.

        Raises
        ------
        TypeError
            If it is not analysed for rows that moved.
        """
        raise TypeError(f"{self.name} is not analysed for rows that moved")

    # --- training ---------------------------------------------------------------------------------

    def train(
        self, engine: Any, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        """Weights after a run from ``init``, or from zero.

        Parameters
        ----------
        engine : GradientSource, or what ``source`` makes
            Sums over the private rows, of d columns with their constant feature.
        run : Releases
            What may be drawn.
        facts : PublicFacts
            What is known before any row is read.
        **how : Training
            ``progress`` is told how far it is; ``moves`` says what drift does to sums, and is None
            without noiseless stages; ``init`` are public weights, an ndarray of shape (d, K).

        Returns
        -------
        ndarray of shape (d, K)
            Covered by its events, and so free to be released.
        """
        weights: np.ndarray = self.train_group([], engine, [run], facts, **how)[0]
        return weights

    def train_group(
        self,
        others: Sequence[Any],
        engine: Any,
        runs: Sequence[Releases],
        facts: PublicFacts,
        **how: Any,
    ) -> np.ndarray:
        """Weights of itself and others with its `shared_settings`, each with its own run.

        Parameters
        ----------
        others : sequence of Trainer
            S - 1 of them, resolved.
        engine : GradientSource
            Sums over the private rows, of d columns with their constant feature.
        runs : sequence of Releases
            What may be drawn: first by itself, then by each of the others.
        facts : PublicFacts
            What is known before any row is read.
        **how : optional
            ``progress``, ``moves`` and ``init`` have the meaning that `train` gives them;
            ``watch`` is a function that is shown the noisy mean gradients of every step, of shape
            (S, d, K), which not every event covers (`covers_steps`).

        Returns
        -------
        ndarray of shape (S, d, K)
            Weights, in the order of the runs.

        Raises
        ------
        TypeError
            If it is trained alone.
        """
        raise TypeError(f"{self.name} is trained alone")

    # --- words ------------------------------------------------------------------------------------

    def signal(self, facts: PublicFacts) -> float:
        """What all rows together can say in a score, in units of its noise.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        float
            n·μ, where noise is added to sums over all n rows.
        """
        return facts.size * facts.mu

    def rows_for(self, times: float) -> float:
        """How many times as many rows bring so many times the `signal`.

        Parameters
        ----------
        times : float
            A factor of the signal.

        Returns
        -------
        float
            A factor of the number of rows.
        """
        return times

    def assumptions(self) -> tuple[str, ...]:
        """What its guarantee takes for granted, or gives, beyond what every plan says.

        Returns
        -------
        tuple of str
            Clauses of the certificate.
        """
        return ()

    @abstractmethod
    def explain(self, noise_multiplier: float, facts: PublicFacts) -> list[str]:
        """What is done with the rows, and with how much noise, in words.

        Parameters
        ----------
        noise_multiplier : float
            That of the event.
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        list of str
            Sentences.
        """

    def explain_settings(self, asked: Any, facts: PublicFacts, *, constant: bool) -> list[str]:
        """What the settings that were left open are chosen for, in words.

        Parameters
        ----------
        asked : Trainer
            Itself before it was resolved.
        facts : PublicFacts
            What is known before any row is read.
        constant : bool
            Whether it adds the feature that carries the intercept.

        Returns
        -------
        list of str
            Sentences; none if there is nothing to say.
        """
        return []

    def _check(self, name: str, valid: Callable[[Any], bool], allowed: str) -> None:
        value = getattr(self, name)
        if valid(value):
            return
        may_be_auto = any(f.name == name and f.default == "auto" for f in fields(self))
        if not (may_be_auto and is_auto(value)):
            raise InputError(f"{self.name}({name}={value!r}): {name} must be {allowed}")


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    try:
        real = not isinstance(value, bool) and isinstance(value, int | float | np.number)
        return real and math.isfinite(float(value))
    except (OverflowError, TypeError):
        return False


def is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def is_in_range(value: Any) -> bool:
    """Whether a number is neither so small nor so large that products with it leave the range."""
    return is_positive(value) and 1 / LIMIT <= value <= LIMIT


def is_whole(value: Any) -> bool:
    return is_number(value) and int(value) == value
