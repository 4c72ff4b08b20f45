"""Clipped gradient sums of a PyTorch module, in the place of an engine.

Weights are what is added to the module's parameters, so descent starts at zero, which is the
module as it is: an anchor or a radius hold it near there.

In *exact* arithmetic every row is taken by itself, on one thread, so its gradient depends on
nothing but the row and the parameters; it is cut to integers of norm at most 2^BITS
(`tacit.mechanisms.additive`), and sums are exact. Gradients of rows that are computed together
depend on each other in their last bits, however little: that is *fast* arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import numpy as np

from tacit.engine.engine import LatticeSum
from tacit.engine.storage import checked_batch
from tacit.exceptions import InputError
from tacit.mechanisms.additive import BITS, lattice_rows

__all__ = ["ModuleEngine", "load_torch"]

TOGETHER = 1 << 26  # numbers in the gradients of the rows that are worked on together


class ModuleEngine:
    """Sums of clipped gradients of a module's parameters, over all rows or a batch of them.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode. It is shown one row at a time, as a batch of one.
    inputs : tensor or tuple of tensors
        What the module is called with; rows come first.
    targets : tensor
        One for each row.
    loss : callable
        Of the module's outputs and the targets, as in ``torch.nn.functional.cross_entropy``.
    parameters : callable or sequence of str, optional
        Names of the parameters that are trained, or whether a name is one; by default all that
        require a gradient.
    arithmetic : {"exact", "fast"}
        Row by row and in integers, or in floating point.
    """

    split: int | None = None

    def __init__(
        self,
        module: Any,
        inputs: Any,
        targets: Any,
        loss: Callable[[Any, Any], Any],
        *,
        parameters: Callable[[str], bool] | Sequence[str] | None = None,
        arithmetic: str = "exact",
    ) -> None:
        torch = load_torch()
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"module must be a torch.nn.Module, not {type(module).__name__}")
        if any(part.training for part in module.modules()):
            raise InputError(
                "the module is in training mode, in which a row may change what others become: "
                "call module.eval() first"
            )
        if arithmetic not in ("exact", "fast"):
            raise InputError(f"arithmetic={arithmetic!r} must be exact or fast for a module")
        self.inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.targets = targets
        counts = {len(part) for part in (*self.inputs, targets)}
        if len(counts) != 1 or 0 in counts:
            raise InputError("inputs and targets must have the same number of rows, at least one")
        self.module = module
        self.arithmetic = arithmetic
        self.n = counts.pop()
        self._chosen = _choose(module, parameters)
        self._fixed = {
            name: value.detach()
            for name, value in (*module.named_parameters(), *module.named_buffers())
            if name not in self._chosen
        }
        self.d = sum(value.numel() for value in self._chosen.values())
        self._entered: list[ExitStack] = []

        def row_loss(chosen: Any, row: Any, target: Any) -> Any:
            answer = torch.func.functional_call(
                module, {**self._fixed, **chosen}, tuple(part[None] for part in row)
            )
            return loss(answer, target[None])

        self._gradient = torch.func.grad(row_loss)
        self._gradients = torch.func.vmap(self._gradient, in_dims=(None, 0, 0))

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that are trained."""
        return tuple(self._chosen)

    def parameters(self, weights: np.ndarray) -> dict[str, Any]:
        """The trained parameters, by name, with these weights added."""
        torch = load_torch()
        flat = np.asarray(weights, dtype=np.float64).reshape(-1)
        found, start = {}, 0
        for name, value in self._chosen.items():
            part = flat[start : start + value.numel()].reshape(tuple(value.shape))
            found[name] = (value + torch.from_numpy(part)).to(value.dtype)
            start += value.numel()
        return found

    def outputs(self, weights: np.ndarray, inputs: Any, *, together: int = 64) -> Any:
        """What the module answers with these weights, for other rows."""
        torch = load_torch()
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        values = {**self._fixed, **self.parameters(weights)}
        with torch.no_grad():
            return torch.cat(
                [
                    torch.func.functional_call(
                        self.module, values, tuple(part[i : i + together] for part in given)
                    )
                    for i in range(0, len(given[0]), together)
                ]
            )

    def __enter__(self) -> Self:
        stack = ExitStack()
        if not self._entered and self.arithmetic == "exact":
            stack.enter_context(_one_thread())
        self._entered.append(stack)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().close()

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        """Sum over rows of the gradient, clipped row by row, as that of one setting (1, d, 1)."""
        if np.shape(weights) != (1, self.d, 1) or [np.size(c) for c in clips] != [1] or per_class:
            raise InputError("a module is trained in one setting, and its gradients clipped whole")
        clip = float(np.asarray(clips[0], dtype=np.float64).reshape(-1)[0])
        if not 0 < clip < math.inf:
            raise InputError(f"clip={clip!r} must be a positive number")
        index = np.arange(self.n) if batch is None else checked_batch(batch, self.n)
        chosen = self.parameters(weights)
        with self:
            if self.arithmetic == "exact":
                total, lattice = self._exact_sum(chosen, index, clip)
            else:
                total, lattice = self._fast_sum(chosen, index, clip), 1.0
        return [LatticeSum(total.reshape(1, self.d, 1), np.array([lattice]), np.array([clip]))]

    def _exact_sum(
        self, chosen: dict[str, Any], index: np.ndarray, clip: float
    ) -> tuple[np.ndarray, float]:
        """Integers, in units of clip/2^BITS.

        That is no power of two, as it is for other engines. Noise is divided by it, which may
        round down by 2^-53; `lattice_rows` shortens rows by more than that.
        """
        total = np.zeros(self.d, dtype=np.int64)
        for i in index.tolist():
            row, target = tuple(part[i] for part in self.inputs), self.targets[i]
            flat = _flat(self._gradient(chosen, row, target).values())
            total += lattice_rows(flat[None], clip)[0].astype(np.int64)
        return total, math.ldexp(clip, -BITS)

    def _fast_sum(self, chosen: dict[str, Any], index: np.ndarray, clip: float) -> np.ndarray:
        torch = load_torch()
        total = np.zeros(self.d)
        size = max(1, TOGETHER // self.d)
        for start in range(0, len(index), size):
            some = torch.from_numpy(index[start : start + size])
            rows = tuple(part[some] for part in self.inputs)
            found = self._gradients(chosen, rows, self.targets[some])
            squares = sum(value.flatten(1).square().sum(dim=1) for value in found.values())
            norms = squares.sqrt()
            finite = torch.isfinite(norms)  # what is not counts nothing
            factors = torch.where(finite, (clip / norms.clamp_min(1e-30)).clamp(max=1.0), 0.0)
            parts = []
            for value in found.values():
                flat = value.flatten(1)
                if not bool(finite.all()):
                    flat = torch.where(finite[:, None], flat, 0.0)
                parts.append(factors @ flat)
            total += _flat(parts)
        return total


def load_torch() -> Any:
    """PyTorch, or an error that says where it comes from."""
    try:
        import torch
    except ImportError:
        raise InputError('this needs PyTorch: pip install "tacit[torch]"') from None
    return torch


def _choose(module: Any, wanted: Callable[[str], bool] | Sequence[str] | None) -> dict[str, Any]:
    """Parameters to train, detached, in the module's order."""
    every = dict(module.named_parameters())
    if wanted is None:
        chosen = [name for name, value in every.items() if value.requires_grad]
    elif callable(wanted):
        chosen = [name for name in every if wanted(name)]
    else:
        unknown = [name for name in wanted if name not in every]
        if unknown or isinstance(wanted, str):
            raise InputError(f"the module has no parameter {wanted if not unknown else unknown[0]}")
        chosen = [name for name in every if name in set(wanted)]
    if not chosen:
        raise InputError("none of the module's parameters is chosen to be trained")
    return {name: every[name].detach() for name in chosen}


def _flat(values: Any) -> np.ndarray:
    """Tensors as one vector of float64."""
    return np.concatenate([value.detach().reshape(-1).double().numpy() for value in values])


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread and no algorithm that is left to chance, as long as it lasts."""
    torch = load_torch()
    threads, fixed = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(fixed)
