"""One pass over the rows in their order, stopped at random: privacy by iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np

from tacit.engine.engine import Engine, LatticeSum
from tacit.exceptions import InputError
from tacit.losses import Loss, Softmax
from tacit.losses.base import MarginLoss
from tacit.mechanisms.release import BoundedSum, Releases, Token
from tacit.privacy.events import Event, Iterated
from tacit.trainers.base import Training, is_auto, is_positive
from tacit.trainers.descent import train_together
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import INTERCEPT_FRACTION, PublicFacts

MOST_STEPS = 1000


@dataclass
class IteratedSGD(GradientTrainer):
    """Descent that meets every row once and hides all iterates but one (Hu et al. 2024, A.2.2).

    Rows are cut into ``steps`` groups in their order. Step t moves by the noisy gradient of group
    t; after a number of steps drawn uniformly from 1 to ``steps`` the weights are released, and
    nothing else (Feldman, Mironov, Talwar & Thakurta 2018).

    Notes
    -----
    *What it costs.* Steps of rate at most 2/β on convex, β-smooth losses bring no two weights
    farther apart. So if a run stops k steps after a row was met, its trace has been through the
    noise of k steps: it is as hard to see as through Gaussian noise of √k·z clips, ``z`` being that
    of a step (Bok, Su & Altschuler 2024, with shifts of equal size; Feldman et al. have it for
    Rényi divergences). Which k it is may be known: `Iterated` averages over it. That is worst for
    the first row.

    Convexity survives clipping where a gradient is one number times the row: one output, or
    one-versus-rest with ``clipping="per-class"``. Gradients of softmax, once clipped, are those of
    no function (Song et al. 2021, Theorem 5.3), so its clip must be out of reach.

    Momentum, averages and falling rates break the argument and are refused; so is exact
    arithmetic, since rounding may bring weights farther apart; and noiseless stages, after which
    many rows differ: Hu et al.'s account of that asks for rows that moved to be consecutive.

    Examples
    --------
    >>> IteratedSGD(steps=100).momentum
    'auto'
    """

    takes_drift: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    contracts: ClassVar[bool] = True
    relations: ClassVar[tuple[str, ...]] = ("replace_special", "replace_one")
    arithmetics: ClassVar[tuple[str, ...]] = ("fast",)

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("momentum", lambda v: v == 0, "0: a heavy ball does not contract")
        self._check("average", lambda v: v == "last", "last: only one iterate is covered")
        self._check("schedule", lambda v: v == "constant", "constant")
        if not is_auto(self.steps) and self.steps > facts.size:
            raise InputError(
                f"{self.name}(steps={self.steps!r}): there are {facts.size} rows, of which every "
                "step needs one of its own"
            )
        if facts.loss is not None:
            self._require_contraction(facts.loss, facts)

    def _require_contraction(self, loss: Loss, facts: PublicFacts) -> None:
        if not (loss.convex and math.isfinite(loss.smoothness)):
            raise InputError(
                f"{self.name} is private for convex and smooth losses only, such as 'logistic' or "
                f"'huber-hinge', not {loss.name!r}"
            )
        if facts.outputs > 1 and not is_auto(self.clip):
            apart = isinstance(loss, MarginLoss) and self.clipping == "per-class"
            norm = _length(facts, self.intercept_fraction)
            reach = loss.lipschitz(facts.outputs) * norm * (1 + 2.0**-15)
            if not apart and float(self.clip) < reach:
                raise InputError(
                    f"{self.name}: clipped gradients of {facts.outputs} outputs are those of no "
                    f"convex loss; pass clip={reach:.6g} or more"
                    + ("" if isinstance(loss, Softmax) else ", or clipping='per-class'")
                )
        if not (is_auto(self.learning_rate) or is_auto(self.steps)):
            most = self.largest_rate(loss, facts, int(self.steps), self.intercept_fraction)
            if not self.learning_rate <= most:
                raise InputError(
                    f"{self.name}(learning_rate={self.learning_rate!r}): steps may bring weights "
                    f"farther apart, and nothing is private then; at most {most:.6g}"
                )

    def largest_rate(self, loss: Loss, facts: PublicFacts, steps: int, fraction: Any) -> float:
        """2/β of a step's mean loss and pulls; groups differ by a row, the normaliser does not.

        Parameters
        ----------
        loss : Loss
            Of smoothness β in the score.
        facts : PublicFacts
            Rows, and the norm that they are taken for.
        steps : int
            Of a pass, each of which takes a group of rows.
        fraction : float
            Size of the constant feature, in norms of a row.

        Returns
        -------
        float
            Up to which a step brings no two weights farther apart.
        """
        uneven = math.ceil(facts.size / steps) / (facts.size / steps)
        beta = loss.smoothness * _length(facts, fraction) ** 2 * uneven + float(
            self.alpha + self.anchor
        )
        return 2 / beta * (1 - 1e-9)

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        # The bound on the rate rests on the size of the constant feature (`_length`).
        own = {
            "momentum": 0.0,
            "average": "last",
            "schedule": "constant",
            "intercept_fraction": INTERCEPT_FRACTION,
            **given,
        }
        own.setdefault("steps", min(facts.size, MOST_STEPS))
        found = super().suggest(facts, own)
        if facts.loss is None:
            return found
        length = _length(facts, own.get("intercept_fraction", "auto"))
        slope = facts.loss.lipschitz(facts.outputs)
        if "clip" not in own:  # half of what gradients reach is seldom cut; softmax needs it all
            most = slope * length if math.isfinite(slope) else facts.typical_norm
            found["clip"] = most * (1.001 if facts.outputs > 1 else 0.5)
        if "learning_rate" not in own:
            most = self.largest_rate(
                facts.loss, facts, int(own["steps"]), own.get("intercept_fraction", "auto")
            )
            found["learning_rate"] = most / 2
        return found

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        return Iterated(noise_multiplier, steps=int(self.steps))

    def draws(self, features: int, outputs: int) -> int:
        return 0  # none of them exact

    def members(self, step: int, n: int) -> np.ndarray | None:
        steps = int(self.steps)
        return np.arange(step * n // steps, (step + 1) * n // steps)

    def normaliser(self, facts: PublicFacts) -> float:
        return facts.size / int(self.steps)

    def sampled(self, facts: PublicFacts) -> str:
        return f"{facts.size / int(self.steps):.4g} rows each, in their order"

    def noisy(self, total: BoundedSum, token: Token, step: int, rows: int) -> np.ndarray:
        """Not released: the account covers nothing but the weights at the end."""
        return token.hidden(total)

    def assumptions(self) -> tuple[str, ...]:
        return (
            "the order of the rows does not depend on them, and no iterate but the released one "
            "is ever seen",
        )

    def remark(self) -> str:
        return (
            f"Weights are released after a number of steps drawn from 1 to {self.steps}; all "
            "others stay hidden, and their noise hides the rows."
        )

    def train(
        self, engine: Engine, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        token = run.token(self.name)
        stop = token.at("stop").stop()
        seen: list[np.ndarray] = []

        def visit(weights: np.ndarray, total: LatticeSum) -> None:
            seen.append(weights[0])

        # To the end, whenever it stops: so the time that it takes says nothing.
        how["init"] = None
        last = train_together(engine, [self], [token], facts, visit=visit, **how)
        # What noise leaves in the weights, about: steps hardly draw them back.
        deviation = self.deviation(token.noise_multiplier, 0.0, how.get("moves"))
        step = float(self.learning_rate) * deviation
        noise = math.sqrt(stop) * step / self.normaliser(facts)
        return token.iterate([*seen, last[0]][stop], noise)


def _length(facts: PublicFacts, fraction: Any) -> float:
    """Norm that no row exceeds, its constant feature included."""
    limit = facts.typical_norm if facts.limit is None else facts.limit
    size = float(fraction) if is_positive(fraction) else INTERCEPT_FRACTION
    return math.hypot(limit, size * facts.typical_norm)
