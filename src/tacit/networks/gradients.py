"""Clipped gradient sums of a PyTorch module, in the place of an engine.

Weights are what is added to the module's parameters, so descent starts at zero, which is the
module as it is: an anchor or a radius hold it near there.

In *exact* arithmetic what becomes of a row depends on the row and the parameters only. Rows that
run together share matrix products, whose blocking, and with it the last bits of a row, depends on
the shape of the group and on the place in it: so groups are filled up to one size, and a row's
place is a checksum of its values. Each row is cut to integers, and sums are exact
(`tacit.networks.sums`). In *fast* arithmetic rows run together as they come.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from zlib import crc32

import numpy as np

from tacit.engine.engine import LatticeSum
from tacit.engine.storage import checked_batch
from tacit.exceptions import InputError
from tacit.networks.factors import RowGradients, load_torch
from tacit.networks.sums import BITS, ExactSum, FastSum
from tacit.privacy.unit import ROW, Unit

__all__ = ["ModuleEngine"]

TOGETHER = 1 << 26  # numbers in the gradients of the rows that run together
GROUP = 128  # places of the rows that run together in exact arithmetic,
MOST_ROWS = 32  # and how many these are at most
PIECE = 1 << 16  # parameters that are moved together


class ModuleEngine:
    """Sums of clipped gradients of a module's parameters, over all rows or a batch of them.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode. It is shown every row as a batch of one.
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
        Each row by its own values only and in integers, or in floating point.
    """

    split: int | None = None
    unit: Unit = ROW

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
        zeros = [torch.zeros_like(part[0]) for part in (*self.inputs, targets)]
        with self:
            self._gradients = RowGradients(module, loss, self._fixed, self._chosen, tuple(zeros))
        places = self._gradients.places or GROUP  # rows run one by one if there are none
        self._together = max(1, TOGETHER // self._gradients.numbers)
        self._group = max(1, min(MOST_ROWS, GROUP // places, self._together))
        self._places: np.ndarray | None = None
        # Made when they are needed, and used again: fresh memory of that size costs more than sums.
        self._now: dict[str, Any] | None = None
        self._sum: Any = None

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

    def _moved(self, weights: np.ndarray) -> dict[str, Any]:
        """The same as `parameters`, in tensors that are overwritten by the next call."""
        torch = load_torch()
        if self._now is None:
            self._now = {n: torch.zeros(v.shape, dtype=v.dtype) for n, v in self._chosen.items()}
        flat, start = torch.from_numpy(np.ascontiguousarray(weights).reshape(-1)), 0
        for name, value in self._chosen.items():
            parts = flat[start : start + value.numel()], value.reshape(-1), self._now[name].view(-1)
            # Pieces that fit the cache: types differ, and their conversions are held.
            for part, old, new in zip(*(whole.split(PIECE) for whole in parts), strict=True):
                torch.add(old, part, out=new)
            start += value.numel()
        return self._now

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
        if not self._entered:
            stack.enter_context(_steady(self.arithmetic == "exact"))
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
        chosen = self._moved(weights)
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
        round down by 2^-53; rows are shortened by more than that.
        """
        if not 2.0**-300 <= clip <= 2.0**300:
            raise InputError(f"clip={clip!r} must lie between 2**-300 and 2**300")
        torch = load_torch()
        total = self._sum = self._sum or ExactSum(chosen, self._gradients.others)
        total.start(clip)
        for members in self._groups(index):
            some = torch.from_numpy(members)
            present = some >= 0
            rows = [part[some.clamp_min(0)] for part in (*self.inputs, self.targets)]
            for part in rows:
                part[~present] = 0
            total.add(self._gradients(chosen, tuple(rows[:-1]), rows[-1]), present)
        return total.total(), math.ldexp(clip, -BITS)

    def _groups(self, index: np.ndarray) -> Iterator[np.ndarray]:
        """Rows that run together, each at its own place in a group; -1 where there is none."""
        if self._places is None:
            sums = np.zeros(self.n, dtype=np.uint32)
            for part in (*self.inputs, self.targets) if self._group > 1 else ():
                plain = part.reshape(self.n, -1).contiguous().view(load_torch().uint8).numpy()
                for i, row in enumerate(plain):
                    sums[i] = crc32(row, int(sums[i]))
            self._places = sums % self._group
        places = self._places[index]
        order = np.argsort(places, kind="stable")
        counts = np.bincount(places, minlength=self._group)
        groups = np.full((counts.max(initial=0), self._group), -1)
        turn = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        groups[turn, places[order]] = index[order]
        yield from groups

    def _fast_sum(self, chosen: dict[str, Any], index: np.ndarray, clip: float) -> np.ndarray:
        torch = load_torch()
        total = self._sum = self._sum or FastSum(chosen, self._gradients.others)
        total.start(clip)
        for start in range(0, len(index), self._together):
            some = torch.from_numpy(index[start : start + self._together])
            rows = tuple(part[some] for part in self.inputs)
            total.add(self._gradients(chosen, rows, self.targets[some]))
        return np.asarray(total.total())


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


@contextmanager
def _steady(exact: bool) -> Iterator[None]:
    """In exact arithmetic, no algorithm that is left to chance, as long as it lasts."""
    torch = load_torch()
    fixed, quick = torch.are_deterministic_algorithms_enabled(), torch.backends.mha
    fused = quick.get_fastpath_enabled()
    torch.use_deterministic_algorithms(fixed or exact)
    quick.set_fastpath_enabled(False)  # it would hide where parameters are used
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")
            yield
    finally:
        torch.use_deterministic_algorithms(fixed)
        quick.set_fastpath_enabled(fused)
