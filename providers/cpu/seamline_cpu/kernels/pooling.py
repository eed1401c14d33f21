"""MaxPool, AveragePool and LpPool: folds of float32 rows, or NumPy for rare forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.tensors import FLOATS
from seamline.windows import Window, window_of
from seamline.windows_fitting import unfit_pool
from seamline_cpu.kernels.pooling_bytes import bind_byte_pool
from seamline_cpu.kernels.pooling_global import bind_means
from seamline_cpu.kernels.pooling_planes import bind_pool_planes, suits_pool_planes
from seamline_cpu.kernels.pooling_rows import bind_pool
from seamline_cpu.kernels.recorded import OF_FLOAT32, only
from seamline_cpu.kernels.windows import slide
from seamline_cpu.table import TABLE

__all__ = ["divisors_of", "pool_window"]

_Array = np.ndarray[Any, Any]


def _compiled(call: Call, window: Window, divisors: _Array | None) -> Run:
    threads, wide = call.options.get("num_threads") or 1, window.in_three()
    bind = bind_pool_planes if suits_pool_planes(wide) else bind_pool
    return bind(call.inputs[0], call.outputs[0], wide, divisors, threads)


def pool_window(call: Call) -> Window:
    """Give a pool's window over the axes of pixels."""
    x, out = call.inputs[0], call.outputs[0]
    shape = out if out is not None else call.output(1)
    return window_of(
        call.view, x.shape[2:], shape.shape[2:], tuple(call.attr("kernel_shape"))
    )


def _over(window: Window) -> tuple[int, ...]:
    """Give the kernel's axes in what ``slide`` shows."""
    rank = len(window.sizes)
    return tuple(range(2 + rank, 2 + 2 * rank))


@TABLE.kernel(
    "MaxPool",
    since=(1, 22),
    dtypes=(*FLOATS, "int8", "uint8"),
    when=unfit_pool,
    not_capturable=only("float32", "int8", "uint8"),
)
def max_pool(call: Call) -> Run:
    """Bind the largest of each window; NaN, where there is one, is the largest."""
    x, out, places = call.inputs[0], call.output(0), call.output(1)
    window = pool_window(call)
    if x.size == 0 or (out if out is not None else places).size == 0:
        return lambda: None
    if places is not None:
        order = call.attr("storage_order", 0)
        return lambda: _largest_and_places(x, out, places, window, order)
    if x.dtype == np.float32 and x.ndim <= 5:
        return _compiled(call, window, None)
    if x.dtype.itemsize == 1 and x.ndim <= 5:
        out = call.outputs[0]
        one, threads = np.ones(1, np.float32), call.options.get("num_threads") or 1
        as_is = (one, None)
        return bind_byte_pool(x, as_is, out, as_is, window, None, threads)
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else x.dtype.type(-np.inf)

    def run() -> None:
        np.max(slide(x, window, least), axis=_over(window), out=out)

    return run


def _largest_and_places(
    x: _Array, out: _Array | None, places: _Array, window: Window, order: int
) -> None:
    """Find the first largest of each window and its index in the whole input."""
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else x.dtype.type(-np.inf)
    inside = slide(np.ones((1, 1, *window.sizes), bool), window, False)
    seen = slide(x, window, least)
    flat = (*seen.shape[: 2 + len(window.sizes)], -1)
    # A pad must not win over an input that is as small as can be.
    values = seen.reshape(flat)
    real = np.broadcast_to(inside, (1, 1, *seen.shape[2:])).reshape(
        1, 1, *flat[2:-1], -1
    )
    largest = values.max(-1, keepdims=True)
    hit = ((values == largest) | ((largest != largest) & (values != values))) & real
    taps = hit.argmax(-1)
    if out is not None:
        out[...] = largest[..., 0]
    step = np.unravel_index(taps, window.kernel)
    sizes = window.sizes
    found = [
        np.arange(o).reshape([-1 if i == axis else 1 for i in range(len(sizes))]) * s
        - b
        + k * d
        for axis, (o, s, b, k, d) in enumerate(
            zip(
                window.outs,
                window.strides,
                window.begins,
                step,
                window.dilations,
                strict=True,
            )
        )
    ]
    inner = np.zeros_like(taps)
    axes = range(len(sizes)) if order == 0 else reversed(range(len(sizes)))
    for axis in axes:
        inner = inner * sizes[axis] + found[axis]
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(
        *x.shape[:2], *(1,) * len(sizes)
    )
    places[...] = planes * int(np.prod(sizes)) + inner


def divisors_of(window: Window, include: bool) -> _Array:
    """Count, for each place of the window, the pixels that its average is over."""
    counts = np.ones((), np.float32)
    for n, o, k, s, d, b, e in zip(
        window.sizes, window.outs, window.kernel, window.strides, window.dilations,
        window.begins, window.ends, strict=True,
    ):  # fmt: skip
        at = np.arange(o)[:, None] * s - b + np.arange(k) * d
        low, high = (-b, n + e) if include else (0, n)
        seen = ((at >= low) & (at < high)).sum(1)
        counts = counts[..., None] * seen.astype(np.float32)
    return np.ascontiguousarray(counts)


def _is_global(window: Window) -> bool:
    """Tell whether there is one window, and it is all of the input."""
    ones, zeros = (1,) * len(window.outs), (0,) * len(window.outs)
    whole = window.kernel == window.sizes and window.outs == ones
    return whole and window.begins == window.ends == zeros


@TABLE.kernel(
    "AveragePool",
    since=(1, 22),
    dtypes=FLOATS,
    when=unfit_pool,
    not_capturable=OF_FLOAT32,
)
def average_pool(call: Call) -> Run:
    """Bind the mean of each window, over its pixels or its padding too."""
    x, out = call.inputs[0], call.outputs[0]
    window = pool_window(call)
    if out.size == 0:
        return lambda: None
    if x.dtype == np.float32 and _is_global(window):
        return bind_means(call)
    divisors = divisors_of(window, bool(call.attr("count_include_pad", 0)))
    if x.dtype == np.float32 and x.ndim <= 5:
        return _compiled(call, window, divisors)
    kind = np.float64 if x.dtype == np.float64 else np.float32

    def run() -> None:
        total = slide(x.astype(kind, copy=False), window, 0).sum(
            _over(window), dtype=kind
        )
        out[...] = total / divisors

    return run


@TABLE.kernel("LpPool", since=(1, 22), dtypes=FLOATS, when=unfit_pool)
def lp_pool(call: Call) -> Run:
    """Bind the p-norm of each window; ``p`` was a float before opset 2."""
    x, out = call.inputs[0], call.outputs[0]
    window, p = pool_window(call), call.attr("p", 2)
    kind = np.float64 if x.dtype == np.float64 else np.float32

    def run() -> None:
        sizes = np.abs(slide(x.astype(kind, copy=False), window, 0))
        out[...] = (sizes**p).sum(_over(window)) ** kind(1 / p)

    return run
