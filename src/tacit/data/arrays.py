"""Rows in arrays of other libraries than NumPy: tensors of PyTorch, and whatever keeps to the
array API standard, on any device.

They stay where they are. Stages read them chunk by chunk, as float64 of NumPy like all rows, and
are none the wiser; training moves the prepared rows back (`tacit.engine.array_api`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.exceptions import InputError


def is_array(data: Any) -> bool:
    """Whether data is an array, but not one of NumPy; nothing is imported to find out."""
    if isinstance(data, np.ndarray | np.generic):
        return False
    return _is_tensor(data) or hasattr(data, "__array_namespace__")


def namespace_of(array: Any) -> tuple[Any, Any]:
    """The functions of the array API standard for an array, and the device that it is on."""
    try:
        import array_api_compat
    except ImportError:
        raise InputError(
            'arrays of other libraries need array-api-compat: pip install "tacit[arrays]", or '
            "pass an array of NumPy"
        ) from None
    try:
        return array_api_compat.array_namespace(array), array_api_compat.device(array)
    except TypeError:
        raise InputError(f"arrays of type {type(array).__name__} are not supported") from None


def to_numpy(array: Any) -> np.ndarray:
    """The array in this machine's memory; without a copy, if it is there already."""
    if _is_tensor(array):
        array = array.cpu().numpy()
    elif hasattr(array, "get") and not isinstance(array, np.ndarray):  # CuPy
        array = array.get()
    return np.asarray(array)


def readable(array: Any, what: str = "X") -> Any:
    """The array, refused if it holds no plain numbers; no value is read."""
    if _is_tensor(array):
        if array.is_nested:
            raise InputError(f"{what} is ragged: pass a tensor whose rows are equally long")
        if array.layout is not sys.modules["torch"].strided:
            raise InputError(f"{what} is a sparse tensor: pass {what}.to_dense(), or SciPy's CSR")
        if array.is_meta:
            raise InputError(f"{what} is on the device 'meta', which holds no numbers")
        if array.requires_grad:
            raise InputError(f"{what} requires a gradient: pass {what}.detach()")
    try:
        numbers = to_numpy(array[:0]).dtype.kind in "fiub"
    except (TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
        numbers = False
    if not numbers:
        given = getattr(array, "dtype", None)
        raise InputError(
            f"{what} of type {given} cannot be read as real numbers: pass float32 or float64"
        )
    return array


def host_view(array: Any) -> list[np.ndarray]:
    """The same memory as an array of NumPy, if it is this machine's; no value is read."""
    try:
        near = _is_tensor(array) and array.device.type == "cpu"
        return [array.detach().numpy()] if near else []
    except (TypeError, RuntimeError):  # nothing that could be fitted to
        return []


def overlap(one: Any, other: Any) -> bool:
    """Whether two tensors may share memory, on whatever device, by where they begin and end."""
    if one is other:
        return True
    if not (_is_tensor(one) and _is_tensor(other)) or one.device != other.device:
        return False
    spans = []
    for each in (one, other):
        if each.is_nested or each.layout is not sys.modules["torch"].strided or 0 in each.shape:
            return False
        last = sum((n - 1) * step for n, step in zip(each.shape, each.stride(), strict=True))
        spans.append((each.data_ptr(), each.data_ptr() + (last + 1) * each.element_size()))
    (a, b), (c, d) = spans
    return a < d and c < b


@dataclass(frozen=True)
class ArraySource:
    """Rows of an array that is not NumPy's."""

    array: Any

    n = property(lambda self: int(self.array.shape[0]))
    d = property(lambda self: int(self.array.shape[1]))
    dtype = property(lambda self: to_numpy(self.array[:0]).dtype)
    sparse = False

    @classmethod
    def of(cls, array: Any) -> ArraySource:
        if readable(array).ndim != 2:
            raise InputError(f"rows must be a table of two dimensions, not {array.ndim}")
        if 0 in array.shape:
            raise InputError(f"there are no rows, or no columns: X has shape {tuple(array.shape)}")
        namespace_of(array)
        return cls(array)

    @property
    def namespace(self) -> tuple[Any, Any]:
        """Functions and device."""
        return namespace_of(self.array)

    def empty(self) -> ArraySource:
        xp, device = self.namespace  # a slice of no rows would still lead to all of them
        return ArraySource(xp.empty((0, self.d), dtype=self.array.dtype, device=device))

    def slice(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(to_numpy(self.array[start:stop, :]), dtype=np.float64)

    def take(self, index: np.ndarray) -> ArraySource:
        """Some rows, in the order of their indices."""
        xp, device = self.namespace
        return ArraySource(xp.take(self.array, xp.asarray(index, device=device), axis=0))


def _is_tensor(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.Tensor)
