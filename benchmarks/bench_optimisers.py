"""Ideas for better descent against the default rule, at equal epsilon, on one engine.

    python benchmarks/bench_optimisers.py [--rows 8000] [--seeds 3] [--sets MNIST,Adult] [--json]

Every idea spends the same Gaussian budget: mean, scales, second moment and steps together. What
costs no budget (averages) is read off the run of the default. Rows are cut to a few thousand, so
that all of it takes minutes: noise in a score depends on rows times budget, and the budgets span
the same range. Noise is drawn in floats, since what is compared here is not arithmetic. What won is
in the library; the rest is here, and in docs/decisions/0028-optimisers.md.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from tacit import datasets
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import FileError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import Context, Encode, Normalize, PrivateCenter, PrivateEqualize, Root
from tacit.privacy import Gaussian
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.trainers.settings import PublicFacts, suggest

DELTA, BUDGETS = 1e-5, (0.1, 1.0, 4.0)
SHARE, MOMENT_SHARE = 0.1, 0.3  # parts of mu for a mean or scales, and for a second moment
NEWTON_WIDTH = 120  # columns up to which Newton's steps are tried
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


# Data


def _halves(X: np.ndarray, y: np.ndarray) -> Split:
    order = np.random.default_rng(0).permutation(len(X))
    X, y, cut = X[order], y[order], len(X) * 3 // 4
    return X[:cut], y[:cut], X[cut:], y[cut:]


def adult() -> Split:
    train, test, schema = datasets.load_adult()
    encode, classes = Encode(schema), schema.classes
    labels = [table.match(schema.target, classes) for table in (train, test)]
    return encode.transform(train), labels[0], encode.transform(test), labels[1]


def bank() -> Split:
    table, schema = datasets.load_bank()
    return _halves(Encode(schema).transform(table), table.match(schema.target, schema.classes))


def w8a() -> Split:
    X, y = datasets.load_w8a()
    return _halves(X.toarray(), y)


def cod_rna() -> Split:
    X, y, X_test, y_test = datasets.load_cod_rna()
    scale = np.array([1000.0, 200.0] + 6 * [1.0])  # public: energies, lengths, frequencies
    return X / scale, y, X_test / scale, y_test


def _roots(load: Callable[[], Split]) -> Callable[[], Split]:
    def rooted() -> Split:
        X, y, X_test, y_test = load()
        return Root().apply(X.astype(float)), y, Root().apply(X_test.astype(float)), y_test

    return rooted


SETS: dict[str, Callable[[], Split]] = {
    "Adult": adult,
    "Bank": bank,
    "Cod-RNA": cod_rna,
    "w8a": w8a,
    "MNIST": _roots(datasets.load_mnist),
    "Fashion-MNIST": _roots(datasets.load_fashion_mnist),
    "CIFAR-10 features": datasets.load_cifar10,
}


def few(split: Split, rows: int) -> Split:
    X, y, X_test, y_test = split
    pick = np.random.default_rng(1)
    kept = pick.permutation(len(X))[:rows]
    shown = pick.permutation(len(X_test))[:10_000]
    _, index = np.unique(np.concatenate([y[kept], y_test[shown]]), return_inverse=True)
    index = index.reshape(-1)
    return X[kept], index[: len(kept)], X_test[shown], index[len(kept) :]


# How noise is spread over the steps


def late(steps: int, growth: float = 1.0) -> np.ndarray:
    """Noise multipliers of budgets that grow by e^growth over the run, for mu = 1 in all."""
    budget = np.exp(growth * np.arange(steps) / steps)
    return np.sqrt(budget.sum() / budget)


def root_factor(steps: int) -> tuple[np.ndarray, float]:
    """Square-root factorisation of running sums, and its sensitivity for mu = 1.

    A = C·C with C lower triangular Toeplitz of coefficients binom(2k, k)/4^k. Released is
    C·G + noise, so gradients get C⁻¹·noise. A row takes part in every step with vectors g_t of norm
    at most 1: ‖C·g‖² = Σ⟨(CᵀC)_st g_s, g_t⟩ ≤ Σ(CᵀC)_st as no entry is negative, and equal vectors
    reach it: the sensitivity is ‖C·1‖, whatever the gradients.
    """
    c, inverse = np.ones(steps), np.ones(steps)
    for k in range(1, steps):
        c[k] = c[k - 1] * (2 * k - 1) / (2 * k)
        inverse[k] = inverse[k - 1] * (2 * k - 3) / (2 * k)
    return inverse, float(np.linalg.norm(np.cumsum(c)))


# Training


class Problem:
    """Rows that are ready, with what is left of the budget."""

    def __init__(self, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, mu: float, k: int) -> None:
        self.X, self.y, self.X_test, self.mu = X, y, X_test, mu
        self.n, self.d = X.shape
        self.loss = get_loss("logistic" if k == 2 else "softmax")
        self.outputs = self.loss.outputs(k)
        self.limit = float(np.linalg.norm(X, axis=1).max())
        self.settings = suggest(PublicFacts(self.n, self.d, self.outputs, 1.0, mu), {})

    def engine(self) -> Engine:
        targets = self.loss.targets(self.y, outputs=self.outputs)
        rows = as_rows(self.X, bound=max(self.limit, 1.0))
        bias = self.settings["intercept_fraction"]
        return Engine(rows, targets, self.loss, intercept=bias, arithmetic="fast", threads=1)

    def right(self, weights: np.ndarray, y_test: np.ndarray) -> list[float]:
        """Accuracy in per cent of every setting (S, d, K)."""
        bias = np.full((len(self.X_test), 1), self.settings["intercept_fraction"])
        scores = np.hstack([self.X_test, bias]) @ weights.transpose(1, 0, 2).reshape(self.d + 1, -1)
        scores = scores.reshape(len(y_test), *weights.shape[::2])
        said = scores[..., 0] > 0 if self.outputs == 1 else scores.argmax(axis=2)
        return [100 * float(part) for part in (said == y_test[:, None]).mean(axis=0)]


def descend(
    problem: Problem, kinds: list[str], seeds: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Weights (seeds, d, K) of every kind of noise and average."""
    p = problem.settings
    steps, clip, momentum, n = p["steps"], p["clip"], p["momentum"], problem.n
    inverse, sensitivity = root_factor(steps)
    spread = {"default": np.full(steps, math.sqrt(steps)), "late budget": late(steps)}
    spread["falling rate"] = spread["default"]
    falling = 1 / (1 + (math.e - 1) * np.arange(steps) / steps)  # same travel, less at the end
    W = np.zeros((len(kinds) * seeds, problem.d + 1, problem.outputs))
    V, tail, slow = np.zeros_like(W), np.zeros_like(W), np.zeros_like(W)
    past: list[np.ndarray] = []
    with problem.engine() as engine:
        for t in range(steps):
            G = engine.gradient_sum(W, clip).float()
            for i, kind in enumerate(kinds):
                part = slice(i * seeds, (i + 1) * seeds)
                fresh = rng.normal(size=G[part].shape)
                if kind == "correlated":
                    past.append(fresh)
                    noise = sum(inverse[t - s] * past[s] for s in range(t + 1)) * sensitivity
                else:
                    noise = fresh * spread[kind][t]
                G[part] += noise * clip / problem.mu
            rates = np.full(len(W), p["learning_rate"])
            if "falling rate" in kinds:
                i = kinds.index("falling rate") * seeds
                rates[i : i + seeds] *= falling[t] / falling.mean()
            V = momentum * V + G / n
            W = W - rates[:, None, None] * V
            tail += W * (t >= 3 * steps // 4)
            slow = 0.9 * slow + 0.1 * W
    found = {kind: W[i * seeds : (i + 1) * seeds] for i, kind in enumerate(kinds)}
    if "default" in kinds:
        found["tail average"], found["exponential average"] = tail[:seeds], slow[:seeds]
    return found


def newton(problem: Problem, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Ten steps by the noisy second moment, a quarter of which bounds the logistic Hessian."""
    steps, n, clip = 10, problem.n, 0.5
    X = np.hstack([problem.X, np.full((n, 1), problem.settings["intercept_fraction"])])
    square = 1.02 * problem.limit**2
    moment = X.T @ X / n + _symmetric(X.shape[1], square / (MOMENT_SHARE * problem.mu * n), rng)
    mu = problem.mu * math.sqrt(1 - MOMENT_SHARE**2)
    values, vectors = np.linalg.eigh(moment)
    floor = 2 * square * math.sqrt(X.shape[1] / 2) / (MOMENT_SHARE * problem.mu * n)
    floor = max(floor, clip * math.sqrt(steps) / (mu * n))  # what gradients' noise would blow up
    inverse = vectors @ np.diag(4 / np.maximum(values, floor)) @ vectors.T
    W = np.zeros((seeds, problem.d + 1, 1))
    with problem.engine() as engine:
        for _ in range(steps):
            G = engine.gradient_sum(W, clip).float()
            G += rng.normal(size=G.shape) * clip * math.sqrt(steps) / mu
            W = W - inverse @ G / n
    return W


def perturbed(
    problem: Problem, y_test: np.ndarray, seeds: int, rng: np.random.Generator
) -> list[float]:
    """Output perturbation (Chaudhuri et al. 2011), the strength chosen in hindsight."""
    X = np.hstack([problem.X, np.full((problem.n, 1), problem.settings["intercept_fraction"])])
    sign, best = 2.0 * problem.y - 1, [0.0]
    length = math.hypot(problem.limit, problem.settings["intercept_fraction"])
    for strength in 10.0 ** np.arange(-4.0, 0.0):

        def loss(w: np.ndarray, strength: float = strength) -> tuple[float, np.ndarray]:
            margin = sign * (X @ w)
            value = np.logaddexp(0, -margin).mean() + strength * (w @ w) / 2
            return float(value), -X.T @ (sign * expit(-margin)) / len(X) + strength * w

        w = minimize(loss, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B").x
        # A row that is blanked out moves the optimum by at most L/(n·strength).
        noise = rng.normal(size=(seeds, len(w))) * length / (problem.n * strength * problem.mu)
        found = problem.right((w + noise)[..., None], y_test)
        best = max(best, found, key=np.mean)
    return best


def _symmetric(d: int, deviation: float, rng: np.random.Generator) -> np.ndarray:
    upper = np.triu(rng.normal(size=(d, d)), 1) / math.sqrt(2)
    return deviation * (upper + upper.T + np.diag(rng.normal(size=d)))


def whitened(
    X: np.ndarray, X_test: np.ndarray, mu: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows divided by the root of their noisy second moment, above the level of its noise."""
    n, d = X.shape
    deviation = 1.0 / (MOMENT_SHARE * mu * n)
    short = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    values, vectors = np.linalg.eigh(short.T @ short / n + _symmetric(d, deviation, rng))
    floor = 2 * deviation * math.sqrt(d / 2)
    change = vectors @ np.diag(np.maximum(values / floor, 1.0) ** -0.5) @ vectors.T
    return tuple(Normalize().apply(part @ change) for part in (X, X_test))  # type: ignore[return-value]


def compare(name: str, split: Split, epsilon: float, seeds: int) -> Iterator[dict[str, Any]]:
    X, y, X_test, y_test = split
    k, n, mu = int(y.max()) + 1, len(X), gaussian_mu(epsilon, DELTA)
    rng, key = np.random.default_rng(7), Key.from_seed(7)
    cost, unit = Gaussian(1 / (SHARE * mu)), Normalize()
    X, X_test = unit.apply(np.asarray(X, float)), unit.apply(np.asarray(X_test, float))
    centre = PrivateCenter().fit(as_rows(X, bound=1.0), Context.paid(cost, n, key=key))
    bound = centre.bound(1.0)
    X, X_test = centre.apply(X), centre.apply(X_test)
    even = PrivateEqualize().fit(as_rows(X, bound=bound), Context.paid(cost, n, key=key))
    left = [mu * math.sqrt(1 - spent) for spent in (SHARE**2, 2 * SHARE**2)]
    plain = Problem(X, y, X_test, left[0], k)
    scores = {
        idea: plain.right(weights, y_test)
        for idea, weights in descend(
            plain, ["default", "late budget", "falling rate", "correlated"], seeds, rng
        ).items()
    }
    ready = {
        "unit norm again": (unit.apply(X), unit.apply(X_test), left[0]),
        "equalised, unit norm": (*(unit.apply(even.apply(p)) for p in (X, X_test)), left[1]),
        "whitened, unit norm": (
            *whitened(X, X_test, mu, rng),
            mu * math.sqrt(1 - SHARE**2 - MOMENT_SHARE**2),
        ),
    }
    for idea, (rows, tests, budget) in ready.items():
        problem = Problem(rows, y, tests, budget, k)
        scores[idea] = problem.right(descend(problem, ["default"], seeds, rng)["default"], y_test)
    if k == 2:
        scores["output perturbation"] = perturbed(plain, y_test, seeds, rng)
        if plain.d <= NEWTON_WIDTH:
            scores["Newton"] = plain.right(newton(plain, seeds, rng), y_test)
    for idea, found in scores.items():
        spread = float(np.std(found, ddof=1)) if seeds > 1 else 0.0
        row = {"data": name, "epsilon": epsilon, "idea": idea}
        yield {**row, "accuracy": float(np.mean(found)), "spread": spread}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in options.sets.split(","):
        try:
            split = few(SETS[name](), options.rows)
        except FileError:
            continue
        for epsilon in BUDGETS:
            start = time.process_time()
            rows = list(compare(name, split, epsilon, options.seeds))
            results += rows
            if not options.json:
                print(f"{name}, epsilon {epsilon:g} ({time.process_time() - start:.0f} s)")
                for row in rows:
                    print(f"  {row['idea']:<24}{row['accuracy']:.2f} ± {row['spread']:.2f}")
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
