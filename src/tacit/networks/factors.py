"""What the gradients of single rows are made of, for many rows at a time.

The gradient of a row with respect to a matrix W that is used in products x W is a sum of outer
products, Σ_t b_t a_tᵀ over the places t at which the row meets W: a_t is what comes in, b_t the
gradient with respect to what comes out. Norms and sums follow from those factors, and no row's
gradient has to be held (Goodfellow 2015; Li, Tramèr, Liang & Hashimoto 2022; Bu, Wang, Zha &
Karypis 2023). An embedding is the same with unit vectors a_t. The factors are found by adding
zeros to what comes out, and differentiating with respect to those.

Several rows run together under ``torch.func.vmap``, which shows the module each of them as a
batch of one: no module can mix rows. Where it cannot (control flow that depends on values, random
numbers, changes in place), rows run one by one, and their gradients are held whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import InputError

SIGNATURES = {
    "linear": ("input", "weight", "bias"),
    "embedding": (
        "input",
        "weight",
        "padding_idx",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "sparse",
    ),
}


def load_torch() -> Any:
    """PyTorch, or an error that says where it comes from."""
    try:
        import torch
    except ImportError:
        raise InputError('this needs PyTorch: pip install "tacit[torch]"') from None
    return torch


@dataclass(frozen=True)
class Factors:
    """The gradients Σ_t b_t a_tᵀ of some rows with respect to one matrix.

    Attributes
    ----------
    a : tensor of shape (rows, T, K)
        What comes in; or which of the K rows of an embedding, of shape (rows, T).
    b : tensor of shape (rows, T, N)
        Gradients with respect to what comes out.
    """

    a: Any
    b: Any

    @property
    def embedding(self) -> bool:
        return bool(self.a.ndim == 2)


@dataclass(frozen=True)
class Gradients:
    """The gradients of some rows.

    Attributes
    ----------
    factors : dict of str to Factors
        With respect to matrices, by the name of the parameter.
    whole : tensor of shape (rows, p), or None
        With respect to all other parameters, one after another.
    """

    factors: dict[str, Factors]
    whole: Any


class RowGradients:
    """Finds the gradients of rows of a module's loss.

    Parameters
    ----------
    module : torch.nn.Module
        In evaluation mode.
    loss : callable
        Of outputs and targets, for a batch of one row.
    fixed : dict of str to tensor
        Parameters and buffers that are not trained.
    chosen : dict of str to tensor
        Parameters that are.
    example : tuple of tensors
        A public row and its target, of the shape of any: they show where which parameter is used.

    Attributes
    ----------
    matrices : tuple of str
        Parameters whose gradients are found as factors.
    others : tuple of str
        All other parameters.
    places : int
        Largest number of places at which a row meets a matrix; 0 if rows run one by one.
    numbers : int
        How many there are in the gradients of a row, factors or whole.
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        fixed: dict[str, Any],
        chosen: dict[str, Any],
        example: tuple[Any, ...],
    ) -> None:
        torch = load_torch()
        *row, target = example
        self._module, self._loss, self._fixed = module, loss, fixed
        self._calls: list[_Call] = []
        self.matrices: tuple[str, ...] = ()
        self.others: tuple[str, ...] = tuple(chosen)
        try:
            self._calls = self._trace(chosen, tuple(row), target)
            self.matrices = tuple(n for n in chosen if any(n == c.name for c in self._calls))
            self.others = tuple(name for name in chosen if name not in self.matrices)
            self._together = torch.func.vmap(self._of_one(), in_dims=(0, None, None, 0, 0))
            pair = tuple(torch.stack([part, part]) for part in row)
            self(chosen, pair, torch.stack([target, target]))
            self.places = max((call.places for call in self._calls), default=1)
        except Exception:  # whatever hinders it
            self._calls, self.matrices, self.others = [], (), tuple(chosen)
            self._together = None
            self.places = 0
        whole = sum(chosen[name].numel() for name in self.others)
        self.numbers = whole + sum(call.numbers for call in self._calls)

    def __call__(self, chosen: dict[str, Any], rows: tuple[Any, ...], targets: Any) -> Gradients:
        """Gradients at these parameters of rows (in the first dimension) and their targets."""
        torch = load_torch()
        matrices = {name: chosen[name] for name in self.matrices}
        others = {name: chosen[name] for name in self.others}
        count = len(targets)
        zeros = [call.zeros.expand(count, *call.shape) for call in self._calls]
        if self._together is None:
            parts = [
                self._of_one()([], matrices, others, tuple(part[i] for part in rows), targets[i])
                for i in range(count)
            ]
            slopes, inputs = [], []
            whole = {name: torch.stack([found[0][1][name] for found in parts]) for name in others}
        else:
            (slopes, whole), inputs = self._together(zeros, matrices, others, rows, targets)
        factors: dict[str, list[Factors]] = {}
        for call, a, b in zip(self._calls, inputs, slopes, strict=True):
            b = b.reshape(count, call.places, -1)
            if call.padding is not None:
                b = b.masked_fill((a.reshape(count, -1) == call.padding)[..., None], 0.0)
            a = a.reshape(count, call.places, *([] if call.embedding else [-1]))
            factors.setdefault(call.name, []).append(Factors(a, b))
        flat = [whole[name].reshape(count, -1) for name in self.others]
        return Gradients(
            {name: _joined(parts) for name, parts in factors.items()},
            torch.cat(flat, dim=1) if flat else None,
        )

    def _of_one(self) -> Callable[..., Any]:
        """Of zeros, parameters, a row and a target: the gradients, and what comes in."""
        torch = load_torch()

        def value(zeros: Any, others: Any, matrices: Any, row: Any, target: Any) -> Any:
            watch = _watch({id(tensor): name for name, tensor in matrices.items()}, zeros)
            with watch:
                parameters = {**self._fixed, **matrices, **others}
                answer = torch.func.functional_call(
                    self._module, parameters, tuple(part[None] for part in row)
                )
                return self._loss(answer, target[None]), [call.input for call in watch.calls]

        slopes = torch.func.grad(value, argnums=(0, 1), has_aux=True)
        return lambda zeros, matrices, others, row, target: slopes(
            zeros, others, matrices, row, target
        )

    def _trace(self, chosen: dict[str, Any], row: tuple[Any, ...], target: Any) -> list[_Call]:
        """Uses of matrices whose every use is a product or a look-up, and always the same."""
        torch = load_torch()
        own = {name: value.detach().requires_grad_() for name, value in chosen.items()}
        watch = _watch({id(value): name for name, value in own.items()}, None)
        with torch.enable_grad(), watch:
            answer = torch.func.functional_call(
                self._module, {**self._fixed, **own}, tuple(part[None] for part in row)
            )
            value = self._loss(answer, target[None])
        ends = [call.zeros for call in watch.calls]
        if not ends:
            return []
        # What the products do not account for: other uses of the same parameter.
        slopes = torch.autograd.grad(value, [*own.values(), *ends], allow_unused=True)
        kinds: dict[str, set[bool]] = {}
        for call in watch.calls:
            kinds.setdefault(call.name, set()).add(call.embedding)
        clear = {
            name
            for name, slope in zip(own, slopes, strict=False)
            if slope is None and len(kinds.get(name, ())) == 1
        }
        for call in watch.calls:
            call.zeros, call.input = torch.zeros((), dtype=call.zeros.dtype), None
        return [call for call in watch.calls if call.name in clear]


@dataclass
class _Call:
    """One use of a matrix: by name, with what comes in and the zeros added to what comes out."""

    name: str
    input: Any
    zeros: Any
    shape: tuple[int, ...]
    places: int
    numbers: int
    embedding: bool
    padding: int | None


def _watch(names: dict[int, str], zeros: list[Any] | None) -> Any:
    """A mode in which uses of these matrices (by identity) are noted, and zeros added.

    Without zeros, they are made, and matrices are cut off from what their uses say of them.
    """
    torch = load_torch()
    linear, embedding = torch.nn.functional.linear, torch.nn.functional.embedding
    mode: Any = torch.overrides.TorchFunctionMode

    class Watch(mode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[_Call] = []

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if function is not linear and function is not embedding:
                return function(*args, **kwargs)
            given = {**dict(zip(SIGNATURES[function.__name__], args, strict=False)), **kwargs}
            name = names.get(id(given["weight"]))
            if name is None or given.get("max_norm") or given.get("scale_grad_by_freq"):
                return function(*args, **kwargs)
            if zeros is None:
                given["weight"] = given["weight"].detach()
            out = function(**given)
            if zeros is None:
                added = torch.zeros_like(out).requires_grad_()
            else:
                added = zeros[len(self.calls)]
            padding = given.get("padding_idx")
            if padding is not None and padding < 0:
                padding += len(given["weight"])
            shape = tuple(out.shape)
            self.calls.append(
                _Call(
                    name,
                    given["input"],
                    added,
                    shape,
                    math.prod(shape[:-1]),
                    given["input"].numel() + out.numel(),
                    function is embedding,
                    padding,
                )
            )
            return out + added

    return Watch()


def _joined(parts: list[Factors]) -> Factors:
    """The factors of several uses of one matrix: a sum over all their places."""
    if len(parts) == 1:
        return parts[0]
    torch = load_torch()
    return Factors(
        torch.cat([part.a for part in parts], dim=1), torch.cat([part.b for part in parts], dim=1)
    )
