"""What experiments on the theorems of Song et al. 2021 share: descent as printed, and rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import as_rows
from tacit.engine.engine import Engine, LatticeSum
from tacit.mechanisms.random_streams import Key
from tacit.research.instances import Instance
from tacit.research.reproduce.claim import Measured
from tacit.research.reproduce.work import Work
from tacit.trainers import DPGD, GradientTrainer
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PLAIN_STEPS, PublicFacts

MARGIN = 0.25  # by which errors may differ and pass for the same
UNTRAINED = "an untrained model: all weights zero"
FULL_RANK = "as many directions as columns"
APART = 500  # seeds from here on are for comparing numbers of columns
MORE_RUNS = "2026-11-18: on 40 instances of its own; ten or fifteen left no room for two errors"


def printed_noise(steps: int, epsilon: float, delta: float) -> float:
    """Noise of a step's sum, in units of L, by Theorem 2.6: n·σ/L = √(2T·log(1/δ))/ε."""
    return math.sqrt(2 * steps * math.log(1 / delta)) / epsilon


def printed_rate(n: int, rank: int, steps: int, norm: float, noise: float) -> float:
    """η that makes (6) least, for L = 1: N/√(T(1 + rank·σ²)), the noise being n·σ."""
    sigma = noise / n
    return norm / math.sqrt(steps * (1 + rank * sigma**2))


def printed_bound(n: int, rank: int, epsilon: float, delta: float, norm: float) -> float:
    """Theorem 3.1, for L = 1."""
    return norm * math.sqrt(1 + 2 * rank * math.log(1 / delta)) / (epsilon * n)


def descend(
    made: Instance,
    *,
    steps: int,
    rate: float,
    noise: float,
    runs: int,
    seed: int,
    clip: float = 1.0,
    trainer: type[GradientTrainer] = DPGD,
    sparse: bool = False,
    visit: Callable[[np.ndarray, LatticeSum], None] | None = None,
    **settings: Any,
) -> np.ndarray:
    """Algorithm 1 by the library's trainer, several runs at once: weights of shape (runs, d)."""
    assert made.loss is not None
    n, d = made.rows.shape
    given = {"steps": steps, "learning_rate": rate, "clip": clip, **PLAIN_STEPS, **settings}
    each = [trainer(**given) for _ in range(runs)]
    facts = PublicFacts(n, d, 1, 1.0, 1.0, task=made.loss.task)
    targets = made.loss.targets(made.labels, 1)
    rows: Any = sp.csr_array(made.rows) if sparse else made.rows
    engine = Engine(as_rows(rows, bound=1.0), targets, made.loss, arithmetic="fast")
    tokens = rehearsal(each, [noise] * runs, facts, Key.from_seed(seed))
    return train_together(engine, each, tokens, facts, visit=visit)[:, :, 0]


def over_instances(
    work: Work,
    experiment: Callable[..., dict[str, Any]],
    settings: Sequence[dict[str, Any]],
    times: int,
) -> list[list[dict[str, Any]]]:
    """Results of each setting on several instances for each run that was asked for."""
    seeds = work.run_seeds(work.seeds if work.quick else times * work.seeds)
    flat = work.map(experiment, [{**each, "seed": seed} for each in settings for seed in seeds])
    return [flat[i * len(seeds) : (i + 1) * len(seeds)] for i in range(len(settings))]


def same_part(
    work: Work,
    experiment: Callable[..., dict[str, Any]],
    arms: Sequence[dict[str, Any]],
    name: str = "excess",
) -> list[Measured]:
    """What is left over in each arm, on many instances that serve nothing else.

    That two means are the same takes more runs to say than that they differ.
    """
    first = work.first_seed + APART
    seeds = range(first, first + (1 if work.quick else 8) * work.seeds)
    flat = work.map(experiment, [{**arm, "seed": seed} for arm in arms for seed in seeds])
    cut = [flat[i * len(seeds) : (i + 1) * len(seeds)] for i in range(len(arms))]
    return [left_over(results, name) for results in cut]


def fresh(seed: int, *parts: int) -> int:
    """A seed for one setting of one run, so that no two settings share their draws."""
    return int(np.random.SeedSequence([seed, *parts]).generate_state(1)[0])


def pooled(results: Sequence[dict[str, Any]], name: str, digits: int = 4) -> Measured:
    """Mean and spread over the means of each seed: runs on one instance are not independent."""
    return Measured.of([float(np.mean(result[name])) for result in results], digits)


def left_over(results: Sequence[dict[str, Any]], name: str = "excess") -> Measured:
    """The part of what zero weights lose that is still lost."""
    return Measured.of([float(np.mean(each[name])) / each["zero"] for each in results], 3)


def least(choices: Sequence[float], outcomes: Sequence[Sequence[float]]) -> float:
    """The choice with the least mean outcome."""
    return choices[int(np.argmin([np.mean(outcome) for outcome in outcomes]))]


# Rules that checks put to measurements


def error_of(found: Measured) -> float:
    """Standard error of the mean."""
    return found.spread / math.sqrt(found.runs)


def below(pairs: Sequence[tuple[Measured, float]]) -> tuple[bool, str]:
    """Whether means, with two standard errors, stay below their bounds."""
    parts = [(found.mean + 2 * error_of(found)) / bound for found, bound in pairs]
    return max(parts) <= 1, f"{min(parts):.0%} to {max(parts):.0%} of the bound"


def above(pairs: Sequence[tuple[Measured, float]]) -> tuple[bool, str]:
    """Whether means, less two standard errors, stay above their bounds."""
    parts = [(found.mean - 2 * error_of(found)) / bound for found, bound in pairs]
    return min(parts) >= 1, f"{min(parts):.3g} to {max(parts):.3g} times the bound"


def no_matter(rank: int, few: int, many: int) -> str:
    """The statement that `unchanged` tests of what is left over."""
    return f"at rank {rank}, {many} columns leave as much unlearnt as {few} do, within a quarter"


def unchanged(pair: tuple[Measured, Measured]) -> tuple[bool, str]:
    """Whether the second mean is the first, within the margin and two standard errors."""
    one, other = pair
    ratio = other.mean / one.mean
    error = ratio * math.hypot(error_of(one) / one.mean, error_of(other) / other.mean)
    return abs(ratio - 1) + 2 * error < MARGIN, f"{ratio:.2f} ± {error:.2f} times as large"


def larger(pair: tuple[Measured, Measured]) -> tuple[bool, str]:
    """Whether the second mean exceeds the first by more than two standard errors."""
    one, other = pair
    lead, error = other.mean - one.mean, one.error_beside(other)
    return lead > 2 * error, f"{one.mean:.3g} to {other.mean:.3g}, {lead:+.3g} ± {error:.2g}"


def power(at: Sequence[float], found: Sequence[Measured]) -> tuple[float, float]:
    """The exponent of a power law through means, and its standard error."""
    x = np.log(np.asarray(at, dtype=float))
    y = np.log(np.maximum([each.mean for each in found], 1e-300))
    off = np.array([error_of(each) / max(each.mean, 1e-300) for each in found])
    leverage = (x - x.mean()) / np.square(x - x.mean()).sum()
    return float(leverage @ y), float(np.sqrt(np.square(leverage * off).sum()))
