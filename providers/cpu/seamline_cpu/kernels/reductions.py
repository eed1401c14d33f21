"""
The ten Reduce operators, at every version.

Axes are an attribute first and an input later (ReduceSum from 13, the others from 18).
No axes means all of them, unless ``noop_with_empty_axes`` says none; the part of an
operator that is not the reduction (the square, the logarithm) is carried out even then.
An empty set gives the identity: 0, 1, the least or the greatest value, minus infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, NotCapturable, Run
from seamline.provider import Array
from seamline.tensors import FLOATS
from seamline_cpu.binding import same_bytes
from seamline_cpu.kernels.recorded import known, only
from seamline_cpu.kernels.reduction_rows import last_axes, middle_axes, whole_sums
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import IN_PYTHON, TABLE

__all__ = ["REDUCTIONS", "axes_to_reduce"]

Axes = tuple[int, ...]
Reduction = Callable[[Array, Axes], Array]

_WHOLE = ("int32", "int64", "uint32", "uint64")
_NUMBERS = (*FLOATS, *_WHOLE)
_ORDERED = (*_NUMBERS, "int8", "uint8", "bool")
_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _sum(x: Array, axes: Axes) -> Array:
    return np.asarray(np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=True))


def _mean(x: Array, axes: Axes) -> Array:
    count = math.prod(x.shape[a] for a in axes)
    if x.dtype.kind == "f":
        return np.asarray(_sum(x, axes) / x.dtype.type(count))
    total = np.add.reduce(x, axis=axes, keepdims=True)
    # Toward zero, as C divides; floor division of magnitudes never meets a float.
    if x.dtype.kind == "i":
        return np.asarray(np.sign(total) * (np.abs(total) // max(count, 1)))
    return np.asarray(total // max(count, 1))  # fmt: skip


def _bound(dtype: np.dtype[Any], greatest: bool) -> Any:
    if dtype.kind == "f":
        return np.inf if greatest else -np.inf
    if dtype.kind == "b":
        return greatest
    info = np.iinfo(dtype)
    return info.max if greatest else info.min


def _max(x: Array, axes: Axes) -> Array:
    least = _bound(x.dtype, False)
    return np.maximum.reduce(x, axis=axes, keepdims=True, initial=least)


def _min(x: Array, axes: Axes) -> Array:
    greatest = _bound(x.dtype, True)
    return np.minimum.reduce(x, axis=axes, keepdims=True, initial=greatest)


def _prod(x: Array, axes: Axes) -> Array:
    return np.multiply.reduce(x, axis=axes, dtype=x.dtype, keepdims=True)


def _sum_square(x: Array, axes: Axes) -> Array:
    return _sum(np.square(x), axes)


def _l1(x: Array, axes: Axes) -> Array:
    return _sum(np.abs(x), axes)


def _l2(x: Array, axes: Axes) -> Array:
    return np.sqrt(_sum_square(x, axes))


def _log_sum(x: Array, axes: Axes) -> Array:
    return np.log(_sum(x, axes))


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    most = _max(x, axes)
    shift = np.where(np.isfinite(most), most, 0)
    return np.log(_sum(np.exp(x - shift), axes)) + shift


REDUCTIONS: dict[str, Reduction] = {
    "Sum": _sum, "Mean": _mean, "Max": _max, "Min": _min, "Prod": _prod, "L1": _l1,
    "L2": _l2, "LogSum": _log_sum, "LogSumExp": _log_sum_exp, "SumSquare": _sum_square,
}  # fmt: skip


def axes_to_reduce(
    given: Array | tuple[int, ...] | None, rank: int, noop: bool
) -> Axes:
    """
    Give the axes to reduce, counted from the front, in order, each once.

    Raises
    ------
    ValueError
        An axis lies outside the rank.

    Examples
    --------
    >>> axes_to_reduce((-1, 0), 3, False), axes_to_reduce(None, 2, False)
    ((0, 2), (0, 1))
    >>> axes_to_reduce(None, 2, True)
    ()
    """
    axes = [] if given is None else [int(a) for a in np.asarray(given).reshape(-1)]
    if not axes:
        return () if noop else tuple(range(rank))
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is outside rank {rank}")
    return tuple(sorted({axis % rank for axis in axes}))


def _kept(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _apply(kind: Reduction, x: Array, axes: Axes, y: Array) -> None:
    wide = x.astype(np.float32) if x.dtype in _HALVES else x
    # As an array: NumPy refuses to put a scalar that is no number into an integer.
    y[...] = np.asarray(kind(wide, axes)).reshape(y.shape).astype(y.dtype)


def _bind(name: str, call: Call, x: Array, axes: Axes, y: Array) -> Run:
    """Bind a reduction over known axes."""
    kept = _kept(x.shape, axes)
    if math.prod(kept) != y.size:
        raise ValueError(f"reducing {list(x.shape)} over axes {list(axes)} gives "
                         f"{list(kept)}, the plan says {list(y.shape)}")  # fmt: skip
    if name == "Sum" and x.size and (rows := _whole(x, axes)) is not None:
        return whole_sums(rows, y.reshape(len(rows)), threads_of(call.options))
    if x.dtype == np.float32 and x.size and axes:
        fast = _compiled(name, x, axes, y, threads_of(call.options))
        if fast is not None:
            return fast
    out = y.reshape(kept)
    if name in _UFUNCS and x.dtype not in _HALVES:
        ufunc, extra = _UFUNCS[name], {}
        if name in ("Max", "Min"):
            extra = {"initial": _bound(x.dtype, name == "Min")}
        return functools.partial(ufunc.reduce, x, axes, x.dtype, out, True, **extra)
    return functools.partial(_apply, REDUCTIONS[name], x, axes, y)


def _whole(x: Array, axes: Axes) -> Array | None:
    """Give integers as rows to add up, where the axes are the last ones."""
    if x.dtype.kind not in "iu" or x.itemsize < 4 or not x.flags.c_contiguous:
        return None
    long = [i for i, n in enumerate(x.shape) if n != 1]
    last = [i for i in long if i in axes]
    if not last or last != long[len(long) - len(last) :]:
        return None
    return x.reshape(-1, math.prod(x.shape[i] for i in last))


_OF_ONE_THE_SAME = frozenset({"Sum", "Mean", "Max", "Min", "Prod"})
_UFUNCS: dict[str, Any] = {
    "Sum": np.add, "Max": np.maximum, "Min": np.minimum, "Prod": np.multiply,
}  # fmt: skip


def _compiled(name: str, x: Array, axes: Axes, y: Array, threads: int) -> Run | None:
    """Bind a compiled kernel where the axes are one run, last or with more behind."""
    long = [i for i, n in enumerate(x.shape) if n != 1]
    reduced = [i for i in long if i in axes]
    if not reduced and name in _OF_ONE_THE_SAME:
        return same_bytes(x, y)
    if not reduced or reduced != [i for i in long if reduced[0] <= i <= reduced[-1]]:
        return None
    outer = math.prod(x.shape[: reduced[0]])
    n = math.prod(x.shape[reduced[0] : reduced[-1] + 1])
    inner = x.size // (outer * n)
    if inner == 1:
        return last_axes(name, x.reshape(outer, n), y.reshape(outer), threads)
    shapes = x.reshape(outer, n, inner), y.reshape(outer, inner)
    return middle_axes(name, *shapes, threads)


def _recorded(name: str) -> NotCapturable:
    if name in ("Prod", "LogSum", "LogSumExp"):
        return IN_PYTHON
    added = _WHOLE if name == "Sum" else ()
    return all_of(only("float32", *added), known(1))


def _register(name: str, dtypes: tuple[str, ...]) -> None:
    input_from = 13 if name == "Sum" else 18

    def old(call: Call) -> Run:
        x = call.input(0)
        axes = axes_to_reduce(call.attr("axes"), x.ndim, False)
        return _bind(name, call, x, axes, call.output(0))

    def new(call: Call) -> Run:
        x, y, given = call.input(0), call.output(0), call.input(1)
        noop = bool(call.attr("noop_with_empty_axes", 0))
        known = None if given is None else call.constant(1)
        if given is None or known is not None:
            return _bind(name, call, x, axes_to_reduce(known, x.ndim, noop), y)

        def run() -> None:
            _bind(name, call, x, axes_to_reduce(given, x.ndim, noop), y)()

        return run

    old.__doc__ = f"Bind Reduce{name}, its axes an attribute."
    new.__doc__ = f"Bind Reduce{name}, its axes an input."
    op = f"Reduce{name}"
    recorded = _recorded(name)
    TABLE.kernel(op, since=(1, input_from - 1), dtypes=dtypes, not_capturable=recorded)(
        old
    )
    TABLE.kernel(
        op, since=input_from, dtypes=dtypes, host_inputs={1}, not_capturable=recorded
    )(new)


for _name in REDUCTIONS:
    _register(_name, _ORDERED if _name in ("Max", "Min") else _NUMBERS)
