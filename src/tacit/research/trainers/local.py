"""Descent on reports that rows have randomised themselves: nobody else is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit.exceptions import InputError
from tacit.mechanisms.release import BoundedSum, Token
from tacit.privacy.events import Event, Gaussian
from tacit.trainers.base import OrAuto, is_auto, is_whole
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import PublicFacts

BLOCK = 1 << 20  # noise values drawn at a time


@dataclass
class LocalDPGD(GradientTrainer):
    """Noisy descent without a curator: local differential privacy (Song et al. 2021, section 3).

    In a step a row is sent the weights and sends back its own clipped gradient with noise on every
    coordinate; whoever adds the reports up sees nothing else of it. The sum then has √m times the
    noise of one report, for m rows, where a curator would add the noise once.

    Parameters
    ----------
    reports : int
        In how many steps a row takes part. Rows are dealt into groups by their position, which is
        public, and steps take the groups in turn. More reports ask for more noise in each: on the
        mean gradient the noise of all steps is the same, so one is enough as a rule.

    Notes
    -----
    *What it costs.* A report is a vector of norm at most C with Gaussian noise of z·C. Whatever two
    values the row may have, its reports lie within 2C: `Gaussian` (z, count=reports) for
    ``neighbors="replace_one"``, of which the guarantee is not that of a sum but of every report. It
    holds against the server and everybody who listens, whatever weights they send: reports of other
    rows depend on the row only by way of its own (composition is adaptive).

    Here the rows are all in one place and their owners are played: every row's noise is drawn by
    itself, since sums of discrete Gaussians are not discrete Gaussians.

    Examples
    --------
    >>> LocalDPGD(steps=50, reports=1).reports
    1
    """

    reports: OrAuto = "auto"
    takes_drift: ClassVar[bool] = False
    local: ClassVar[bool] = True
    relations: ClassVar[tuple[str, ...]] = ("replace_one",)

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("reports", lambda v: is_whole(v) and v >= 1, "an integer from 1")
        reports = 1 if is_auto(self.reports) else int(self.reports)
        if not is_auto(self.steps) and self.steps > facts.size * reports:
            raise InputError(
                f"{self.name}: {self.steps} steps of {reports} reports a row leave steps without "
                f"any of {facts.size} rows; take fewer steps or more reports"
            )

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        # The mean of n noisy reports has √n times the noise of a noisy mean.
        own = {"reports": 1, **given}
        found = super().suggest(replace(facts, mu=facts.mu / math.sqrt(facts.size)), own)
        if "steps" not in given:  # every step needs a row
            found["steps"] = min(int(found["steps"]), facts.size * int(found["reports"]))
        return found

    @property
    def groups(self) -> int:
        """Into how many groups rows are dealt."""
        return max(1, math.ceil(int(self.steps) / int(self.reports)))

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        # The first group is met in steps 0, G, 2G, …: none is met more often.
        return Gaussian(noise_multiplier, count=math.ceil(int(self.steps) / self.groups))

    def draws(self, features: int, outputs: int) -> int:
        """Of one row, whose guarantee it is: the others' noise is none of its business."""
        return math.ceil(int(self.steps) / self.groups) * features * outputs

    def members(self, step: int, n: int) -> np.ndarray | None:
        return None if self.groups == 1 else np.arange(step % self.groups, n, self.groups)

    def normaliser(self, facts: PublicFacts) -> float:
        return facts.size / self.groups

    def noise(self, noise_multiplier: float, facts: PublicFacts) -> float:
        return noise_multiplier * math.sqrt(facts.size / self.groups)

    def signal(self, facts: PublicFacts) -> float:
        return math.sqrt(facts.size) * facts.mu

    def rows_for(self, times: float) -> float:
        return times**2

    def sampled(self, facts: PublicFacts) -> str:
        return "all rows" if self.groups == 1 else f"one of {self.groups} groups of rows"

    def noisy(self, total: BoundedSum, token: Token, step: int, rows: int) -> np.ndarray:
        return token.reports(total, rows, step // self.groups)

    def assumptions(self) -> tuple[str, ...]:
        return (
            "local: every row's report is (epsilon, delta)-private before it leaves its owner, "
            "whatever two values the row may have; no curator is trusted",
        )

    def remark(self) -> str:
        return (
            "Every row adds noise to its own gradient before anybody sees it, and takes part in "
            f"{math.ceil(int(self.steps) / self.groups)} of the steps."
        )
