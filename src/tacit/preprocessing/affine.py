"""Stages that subtract a vector and divide columns by another: x → (x − mean_) / scale_."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.data.rows import Chunk
from tacit.mechanisms.additive import Step, compiled_as
from tacit.preprocessing.base import Stage, affine


@dataclass
class AffineStage(Stage):
    """Once fitted, it has ``mean_``, ``scale_``, or both."""

    affine: ClassVar[bool] = True

    def _fitted(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        mean, scale = getattr(self, "mean_", None), getattr(self, "scale_", None)
        if mean is None and scale is None:
            self._require("mean_")
        return mean, scale

    def _step(self) -> Step:
        mean, scale = (_vector(part) for part in self._fitted())
        return Step.affine(np.zeros_like(scale) if mean is None else mean, scale)

    @compiled_as(_step)
    def apply(self, chunk: Chunk) -> Chunk:
        mean, scale = self._fitted()
        return affine(chunk, 0.0 if mean is None else mean, scale)

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, scale = self._fitted()
        scaled = coef if scale is None else coef / scale
        return scaled, intercept if mean is None else intercept - scaled @ mean

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, scale = self._fitted()
        scaled = coef if scale is None else coef * scale
        return scaled, intercept if mean is None else intercept + coef @ mean


def _vector(numbers: np.ndarray | None) -> np.ndarray | None:
    return None if numbers is None else np.ascontiguousarray(numbers, dtype=np.float64)
