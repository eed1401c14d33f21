"""GlobalAveragePool, GlobalMaxPool, GlobalLpPool, and MaxUnpool."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.tensors import FLOATS
from seamline.windows_fitting import unfit_unpool
from seamline_cpu.atomics import floats
from seamline_cpu.commands import command
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.reduction_rows import last_axes
from seamline_cpu.kernels.rows import bind_rows, matrix, sum_of_row, threads_of
from seamline_cpu.pool import run_shares
from seamline_cpu.table import TABLE

__all__ = ["bind_means"]

_Array = np.ndarray[Any, Any]
_SHARED = 1 << 19  # elements that take longer to add than a thread takes to wake


@command
def _means(a: Any, share: int, shares: int) -> None:
    rows, n = a[0], a[1]
    x, out = matrix(floats(a[2]), rows, n), floats(a[3])
    for i in range(rows * share // shares, rows * (share + 1) // shares):
        out[i] = sum_of_row(x[i]) / np.float32(n)


def _rows(x: _Array) -> _Array:
    """Give each channel's pixels as a row."""
    count = x.shape[0] * x.shape[1]
    return x.reshape(count, x.size // count if count else 0)


def _shared(call: Call, reduce: Any, last: Any = None) -> Run:
    """Reduce rows to the output, on several threads where there is much to read."""
    x, out = call.inputs[0], call.outputs[0]
    rows, results = _rows(x), out.reshape(-1)
    threads = (call.options.get("num_threads") or 1) if x.size >= _SHARED else 1

    def share(index: int, count: int) -> None:
        mine = slice(len(rows) * index // count, len(rows) * (index + 1) // count)
        reduce(rows[mine], results[mine])

    if threads == 1:
        return lambda: reduce(rows, results)
    return lambda: run_shares(share, threads)


def bind_means(call: Call) -> Run:
    """Bind the mean of each channel of a float32 input."""
    x = call.inputs[0]
    count, pixels = _rows(x).shape
    threads = threads_of(call.options)
    return bind_rows(_means, count, pixels, (x, call.outputs[0]), x.size, threads)


@TABLE.kernel(
    "GlobalAveragePool", since=(1, 22), dtypes=FLOATS, not_capturable=OF_FLOAT32
)
def global_average_pool(call: Call) -> Run:
    """Bind the mean of each channel; half precision is added in float32."""
    x = call.inputs[0]
    if x.dtype == np.float32:
        return bind_means(call)
    kind = np.float64 if x.dtype == np.float64 else np.float32
    count = kind(np.prod(x.shape[2:]))
    if x.dtype == kind:

        def reduce(rows: _Array, out: _Array) -> None:
            np.add.reduce(rows, 1, out=out)
            np.divide(out, count, out)

    else:

        def reduce(rows: _Array, out: _Array) -> None:
            out[...] = np.add.reduce(rows.astype(kind), 1) / count

    return _shared(call, reduce)


@TABLE.kernel("GlobalMaxPool", since=(1, 22), dtypes=FLOATS, not_capturable=OF_FLOAT32)
def global_max_pool(call: Call) -> Run:
    """Bind the largest of each channel; of no pixels it is minus infinity."""
    x = call.inputs[0]
    rows = _rows(x)
    if x.dtype == np.float32 and x.size:
        results, threads = call.outputs[0].reshape(-1), threads_of(call.options)
        native = last_axes("Max", rows, results, threads)
        if native is not None:
            return native
    least = x.dtype.type(-np.inf)

    def reduce(rows: _Array, out: _Array) -> None:
        np.maximum.reduce(rows, 1, out=out, initial=least)

    return _shared(call, reduce)


@TABLE.kernel("GlobalLpPool", since=(1, 22), dtypes=FLOATS)
def global_lp_pool(call: Call) -> Run:
    """Bind the p-norm of each channel."""
    x, p = call.inputs[0], call.attr("p", 2)
    kind = np.float64 if x.dtype == np.float64 else np.float32

    def reduce(rows: _Array, out: _Array) -> None:
        out[...] = (np.abs(rows.astype(kind)) ** p).sum(1) ** kind(1 / p)

    return _shared(call, reduce)


@TABLE.kernel(
    "MaxUnpool",
    since=(9, 22),
    dtypes={0: FLOATS, 1: ("int64",)},
    when=unfit_unpool,
    host_inputs={2},
)
def max_unpool(call: Call) -> Run:
    """
    Put each value where MaxPool found it, zeros elsewhere.

    Indices count in the tensor that the attributes imply; a larger ``output_shape``
    leaves the rest zero.
    """
    x, places, out = call.inputs[0], call.inputs[1], call.outputs[0]
    kernel = call.attr("kernel_shape")
    rank = len(kernel)
    strides = call.attr("strides") or (1,) * rank
    pads = call.attr("pads") or (0,) * 2 * rank
    implied = x.shape[:2] + tuple(
        (n - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i]
        for i, n in enumerate(x.shape[2:])
    )
    whole = np.zeros(implied, x.dtype)
    inside = tuple(slice(0, min(n, o)) for n, o in zip(implied, out.shape, strict=True))

    def run() -> None:
        flat = places.reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < whole.size:
            wrong = flat[(flat < 0) | (flat >= whole.size)][0]
            raise IndexError(
                f"index {wrong} is outside the {whole.size} elements unpooled to"
            )
        whole.fill(0)
        whole.reshape(-1)[flat] = x.reshape(-1)
        out.fill(0)
        out[inside] = whole[inside]

    return run
