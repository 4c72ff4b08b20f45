"""The multinomial logistic loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.losses.base import Array, Loss, check_classes, class_index, fold, softmax


@dataclass(frozen=True)
class Softmax(Loss):
    """log(sum_k exp(s_k)) - s_y, the multinomial logistic loss."""

    name = "softmax"
    task = "classification"
    smoothness = 0.5  # by `curvature`: 2 p (1 - p) <= 1/2, met by p = (1/2, 1/2); Boehning 1992

    def lipschitz(self, outputs: int) -> float:
        # |p - e_y|^2 = (1 - p_y)^2 + sum_{k != y} p_k^2 <= 2 (1 - p_y)^2, met by p = e_k.
        return math.sqrt(2) if outputs > 1 else 0.0

    def value(self, scores: Array, targets: Array) -> Array:
        shifted = scores - fold(np.maximum, scores)[..., None]
        own = shifted[np.arange(len(targets)), ..., targets]
        return np.log(fold(np.add, np.exp(shifted))) - own

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        out = softmax(scores, out, self._by)
        out[np.arange(len(targets)), ..., targets] -= 1
        return out

    def curvature(self, scores: Array, targets: Array) -> Array:
        # D = 2 diag(p (1 - p)) >= H = diag(p) - p p': each row of D - H has p_k (1 - p_k) on the
        # diagonal and entries p_j p_k >= 0 of that very sum beside it: diagonally dominant.
        p = softmax(scores)
        return 2 * p * (1 - p)

    def outputs(self, classes: int) -> int:
        return check_classes(classes)

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        return class_index(values, outputs)

    def probabilities(self, scores: Array) -> Array:
        return softmax(scores)
