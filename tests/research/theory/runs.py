"""Noisy descent as the theorems have it, several runs at once, in plain NumPy."""

from __future__ import annotations

import numpy as np
from scipy import optimize


def descend(rows, residual, *, steps, rate, noise, runs, seed, clip=None, keep=False):
    """Mean of θ₁…θ_T of every run, (runs, d); all iterates θ₀…θ_T if they are to be kept.

    ``residual(scores)`` has a derivative for each row and run; noise is that of the mean gradient.
    """
    rng = np.random.default_rng(seed)
    n, d = rows.shape
    norms = np.linalg.norm(rows, axis=1)[:, None]
    theta, total, path = np.zeros((d, runs)), np.zeros((d, runs)), []
    for _ in range(steps):
        if keep:
            path.append(theta.copy())
        slopes = residual(rows @ theta)
        if clip is not None:
            size = np.maximum(np.abs(slopes) * norms, 1e-300)
            slopes = slopes * np.minimum(1.0, clip / size)
        theta = theta - rate * (rows.T @ slopes / n + noise * rng.standard_normal((d, runs)))
        total += theta
    return np.stack([*path, theta]) if keep else (total / steps).T


def glm(loss, n, d, rank, *, seed, radius=1.0):
    """Random rows of a rank, noisy labels, and the best weights within their span."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))
    rows *= radius * rng.uniform(0.3, 1.0, (n, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    rows[0] *= radius / np.linalg.norm(rows[0])
    truth = rows.T @ rng.standard_normal(n)
    truth *= 3 / np.linalg.norm(truth) / radius
    scores = rows @ truth
    if loss.task == "regression":
        targets = loss.targets(scores + 0.5 * rng.standard_normal(n), 1)
    else:
        targets = loss.targets((rng.random(n) < 1 / (1 + np.exp(-2 * scores))).astype(int), 1)
    basis = np.linalg.svd(rows, full_matrices=False)[2][:rank]

    def mean(z):
        return float(loss.value((rows @ (basis.T @ z))[:, None], targets).mean())

    def slope(z):
        r = loss.residual((rows @ (basis.T @ z))[:, None], targets)[:, 0]
        return basis @ (rows.T @ r) / n

    found = optimize.minimize(mean, np.zeros(rank), jac=slope, method="BFGS")
    best = basis.T @ found.x
    return rows, targets, best


def excess(loss, rows, targets, weights, best):
    """Mean loss at each of several weights, (runs, d), beyond that at the best."""
    at = [float(loss.value((rows @ w)[:, None], targets).mean()) for w in (*weights, best)]
    return np.array(at[:-1]) - at[-1]
