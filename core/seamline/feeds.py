"""
What a caller feeds, checked against a model's inputs and brought into plain form.

The values count, not the layout: an array of any strides, alignment or byte order is
good, and is copied only where it is not plain already. Nothing that was fed is written to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from seamline.device_tensor import DeviceTensor, lent
from seamline.devices import Device, Memory
from seamline.errors import FeedError, near
from seamline.foreign import as_array
from seamline.ortvalue import OrtValue, plain
from seamline.tensors import (
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    dtype_name,
    numpy_dtype,
)

__all__ = ["FeedCheck", "with_sizes"]


@attrs.frozen
class _Input:
    """One input, and what a plain array for it looks like."""

    where: str
    kind: ValueType | None
    dtype: np.dtype[Any] | None  #: of a tensor that needs no conversion
    symbols: tuple[tuple[int, str], ...]  #: axes whose size has a name


class FeedCheck:
    """
    The check for one model's inputs; made once, called before every run.

    Parameters
    ----------
    inputs
        Declared types in the order of the model; None where unknown.
    overridable
        Inputs that have a value of their own when they are not fed.
    memories
        The session's; a tensor that lies in one that takes them is passed on as a
        :class:`~seamline.device_tensor.DeviceTensor`.

    Examples
    --------
    >>> check = FeedCheck({"x": TensorType("float32", ("N", 3))})
    >>> check({"x": [[1, 2, 3]]})["x"].dtype
    dtype('float32')
    """

    def __init__(
        self,
        inputs: Mapping[str, ValueType | None],
        *,
        overridable: Collection[str] = (),
        memories: Mapping[Device, Memory] = MappingProxyType({}),
    ) -> None:
        self._memories = memories
        self._inputs = {
            name: _input(f"input {name!r} (index {index})", kind)
            for index, (name, kind) in enumerate(inputs.items())
        }
        self._shared = _shared_symbols(self._inputs)
        self._may_miss = frozenset(overridable) | {
            name for name, kind in inputs.items() if isinstance(kind, OptionalType)
        }
        self._overridable = frozenset(overridable)

    def __call__(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """
        Check feeds.

        Returns
        -------
        dict
            By input name: a plain array, a list of them for a sequence, None for an
            absent optional. Arrays that were plain are passed on, not copied.

        Raises
        ------
        FeedError
            Names every input that is missing, unknown, or does not fit, and what would.
        """
        self._check_names(feeds)
        checked: dict[str, Any] = {}
        problems: list[str] = []
        for name, declared in self._inputs.items():
            if name in feeds:
                try:
                    checked[name] = _read(declared, feeds[name], self._memories)
                except FeedError as error:
                    problems.append(str(error))
            elif name not in self._overridable:
                checked[name] = None
        if self._shared:
            problems += self._symbols_that_disagree(checked)
        if problems:
            raise FeedError("\n".join(problems))
        return checked

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        if not isinstance(feeds, Mapping):
            raise FeedError(
                f"feeds are a mapping from input names to values, not {type(feeds).__name__}"
            )
        if feeds.keys() == self._inputs.keys():
            return
        problems = []
        missing = [
            n for n in self._inputs if n not in feeds and n not in self._may_miss
        ]
        if missing:
            kinds = "; ".join(
                f"{name}: {self._inputs[name].kind or '?'}" for name in missing
            )
            problems.append(
                f"Required inputs ({missing}) are missing from input feed ({list(feeds)}). "
                f"To fix: feed {kinds}"
            )
        for name in feeds:
            if name not in self._inputs:
                known = ", ".join(self._inputs) or "none"
                guess = near(str(name), self._inputs)
                problems.append(
                    f"Invalid input name: {name!r}{guess} (there are: {known})"
                )
        if problems:
            raise FeedError("\n".join(problems))

    def _symbols_that_disagree(self, checked: Mapping[str, Any]) -> list[str]:
        bound: dict[str, tuple[int, tuple[str, int]]] = {}
        problems = []
        for name, symbols in self._shared.items():
            value = checked.get(name)
            if value is None:
                continue
            for axis, symbol in symbols:
                size = value.shape[axis]
                first, by = bound.setdefault(symbol, (size, (name, axis)))
                if first != size:
                    where = f"{self._inputs[by[0]].where} dimension {by[1]}"
                    problems.append(
                        f"{self._inputs[name].where}: dimension {axis} is {size}, but "
                        f"{symbol!r} is already {first} by {where}; the model gives both one "
                        "size"
                    )
        return problems


def _input(where: str, kind: ValueType | None) -> _Input:
    inner = kind.element if isinstance(kind, OptionalType) else kind
    shape = inner.shape if isinstance(inner, TensorType) else None
    symbols = tuple(
        (a, dim) for a, dim in enumerate(shape or ()) if isinstance(dim, str)
    )
    if not isinstance(kind, TensorType) or kind.dtype == "string":
        return _Input(where, kind, None, symbols)
    return _Input(where, kind, numpy_dtype(kind.dtype), symbols)


def _shared_symbols(
    inputs: Mapping[str, _Input],
) -> Mapping[str, tuple[tuple[int, str], ...]]:
    """Give the axes whose size has a name that another axis has too, by input."""
    counts = Counter(s for one in inputs.values() for _, s in one.symbols)
    found = {
        name: tuple((axis, s) for axis, s in one.symbols if counts[s] > 1)
        for name, one in inputs.items()
    }
    return {name: symbols for name, symbols in found.items() if symbols}


def _read(declared: _Input, value: Any, memories: Mapping[Device, Memory]) -> Any:
    """Give a value in plain form; most are, and are told by the first line."""
    array: Any
    if type(value) is np.ndarray and value.dtype == declared.dtype:
        array = plain(value)
    elif (
        memories
        and declared.dtype is not None
        and (found := lent(value, memories, dtype_name(declared.dtype), declared.where))
    ):
        array = found
    else:
        array = _convert(value, declared.kind, declared.where)
    if isinstance(declared.kind, TensorType):
        _check_shape(array, declared.kind, declared.where)
    return array


def _convert(value: Any, kind: ValueType | None, where: str) -> Any:
    if isinstance(value, OrtValue):
        value = value.value
    if isinstance(kind, OptionalType):
        if value is None:
            return None
        inner = _convert(value, kind.element, where)
        if isinstance(kind.element, TensorType):
            _check_shape(inner, kind.element, where)
        return inner
    if isinstance(kind, SequenceType):
        return _sequence(value, kind, where)
    if value is None:
        raise FeedError(f"{where}: None was fed; only an optional may be absent")
    return plain(as_array(value, kind, where))


def _sequence(value: Any, kind: SequenceType, where: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise FeedError(
            f"{where}: {type(value).__name__} was fed, a {kind} takes a list of values"
        )
    items = []
    for index, item in enumerate(value):
        place = f"{where}, element {index}"
        read = _convert(item, kind.element, place)
        if isinstance(kind.element, TensorType):
            _check_shape(read, kind.element, place)
        items.append(read)
    return items


def _check_shape(
    array: np.ndarray[Any, Any] | DeviceTensor, kind: TensorType, where: str
) -> None:
    """Compare rank and fixed sizes; a negative size, as some exporters write, is unknown."""
    shape, declared = array.shape, kind.shape
    if declared is None or shape == declared:
        return
    if len(shape) == len(declared):
        for size, dim in zip(shape, declared, strict=True):
            if size != dim and type(dim) is int and dim >= 0:
                break
        else:
            return
    raise _wrong_shape(array, kind, where)


def _wrong_shape(
    array: np.ndarray[Any, Any] | DeviceTensor, kind: TensorType, where: str
) -> FeedError:
    declared = kind.shape or ()
    fed = f"fed {dtype_name(array.dtype)}{list(array.shape)}, declared {kind}"
    if array.ndim != len(declared):
        return FeedError(
            f"{where}: rank is {array.ndim}, {len(declared)} expected ({fed})"
        )
    wrong = [
        f"dimension {axis} is {size}, {dim} expected"
        for axis, (size, dim) in enumerate(zip(array.shape, declared, strict=True))
        if isinstance(dim, int) and dim >= 0 and size != dim
    ]
    return FeedError(f"{where}: {'; '.join(wrong)} ({fed})")


def with_sizes(kind: ValueType | None, sizes: Mapping[str, int]) -> ValueType | None:
    """
    Put sizes in the place of symbols.

    Examples
    --------
    >>> print(with_sizes(TensorType("int64", ("B", "T")), {"T": 4}))
    int64[B, 4]
    """
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    shape = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in kind.shape]
    return TensorType(kind.dtype, tuple(shape))
