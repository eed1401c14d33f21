"""
QLinearAveragePool and QLinearGlobalAveragePool of onnxruntime's domain.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamline.fitting import all_of, dims
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline.windows_fitting import unfit_pool
from seamline_cpu.atomics import bytes_at, floats
from seamline_cpu.binding import nothing
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.linear_commands import point_of
from seamline_cpu.kernels.linear_elementwise import BYTES, single
from seamline_cpu.kernels.pooling import divisors_of, pool_window
from seamline_cpu.kernels.pooling_bytes import bind_byte_pool
from seamline_cpu.kernels.quantize_loops import code_of
from seamline_cpu.kernels.recorded import OF_BYTES
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN = "com.microsoft"
_SHARED_FROM = 131_072  # bytes from which more threads pay
f4, i4 = np.float32, np.int32


def _channels_last(view: NodeView) -> str | None:
    given = view.attributes.get("channels_last", 0)
    return "its attribute channels_last is 1, not 0" if given else None


def _too_many_axes(view: NodeView) -> str | None:
    shape = dims(view, 0)
    many = shape is not None and not 3 <= len(shape) <= 5
    return f"its input has {len(shape or ())} axes, not 3 to 5" if many else None


def _no_pixels(view: NodeView) -> str | None:
    shape = dims(view, 0)
    none = shape is not None and 0 in shape[2:]
    return f"its input is {list(shape or ())}, which has no pixels" if none else None


_points = single(1, 2, 3, 4, needed=(1, 3))


@TABLE.kernel(
    "QLinearAveragePool", domain=_DOMAIN, dtypes=BYTES,
    when=all_of(_channels_last, _too_many_axes, unfit_pool, _points), variant="commands",
    because="float32 folds between two passes over bytes", not_capturable=OF_BYTES,
)  # fmt: skip
def qlinear_average_pool(call: Call) -> Run:
    """Bind the mean of each window of bytes, over its pixels or its padding too."""
    x, out = call.inputs[0], call.outputs[0]
    if not out.size:
        return nothing
    window = pool_window(call)
    divisors = divisors_of(window, bool(call.attr("count_include_pad", 0)))
    given = (call.inputs[1], call.input(2))
    last = (call.inputs[3], call.input(4))
    return bind_byte_pool(
        x, given, out, last, window, divisors, threads_of(call.options)
    )


@command
def _means(a: Any, share: int, shares: int) -> None:
    """Arguments: rows, pixels, addresses of input, scale and point, and of the output; sign."""
    rows, n, sign = a[0], a[1], a[8]
    scale, last = floats(a[3])[0], floats(a[6])[0]
    less, zero = np.int64(point_of(a[4], 0, sign)), point_of(a[7], 0, sign)
    out = bytes_at(a[5])
    for r in range(rows * share // shares, rows * (share + 1) // shares):
        x = bytes_at(a[2] + r * n)
        total = i4(0)
        for i in range(n):
            total = i4(total + i4(i4(x[i]) ^ i4(sign)))
        whole = np.int64(total) - n * (less + sign)
        mean = f4(np.float64(whole) * np.float64(scale) / np.float64(n))
        out[r] = code_of(mean, last, zero, i4(-sign), i4(255 - sign))


@TABLE.kernel(
    "QLinearGlobalAveragePool", domain=_DOMAIN, dtypes=BYTES,
    when=all_of(_channels_last, _no_pixels, _points), variant="commands",
    because="a channel's codes are added as integers", not_capturable=OF_BYTES,
)  # fmt: skip
def qlinear_global_average_pool(call: Call) -> Run:
    """Bind the mean of each channel of bytes."""
    x, out = call.inputs[0], call.outputs[0]
    if not x.size:
        return nothing
    rows = x.shape[0] * x.shape[1]
    given = [x, call.inputs[1], call.input(2), out, call.inputs[3], call.input(4)]
    at = [0 if one is None else one.ctypes.data for one in given]
    shares = min(threads_of(call.options), rows) if x.size >= _SHARED_FROM else 1
    arguments = [rows, x.size // rows, *at, 128 if x.dtype == np.int8 else 0]
    return bind(_means, arguments, shares, keep=given)


@TABLE.infer("QLinearGlobalAveragePool", domain=_DOMAIN)
def infer_global(node: NodeView) -> list[ValueType | None]:
    """Give one pixel a channel."""
    x = node.tensor(0)
    if x is None or x.shape is None:
        return [x]
    return [TensorType(x.dtype, (*x.shape[:2], *(1,) * (len(x.shape) - 2)))]


@TABLE.infer("QLinearAveragePool", domain=_DOMAIN)
def infer_average(node: NodeView) -> list[ValueType | None]:
    """Give AveragePool's sizes."""
    x, given = node.tensor(0), node.attributes
    if x is None or x.shape is None:
        return [x]
    rank = len(x.shape) - 2
    kernel = tuple(given.get("kernel_shape") or ())
    strides = tuple(given.get("strides") or (1,) * rank)
    pads = tuple(given.get("pads") or (0,) * (2 * rank))
    if rank < 1 or {len(kernel), len(strides), len(pads) / 2} != {rank}:
        return [
            TensorType(x.dtype, None)
        ]  # its kernel refuses such a node, and says why
    mode, up = given.get("auto_pad", "NOTSET"), bool(given.get("ceil_mode", 0))
    sizes: list[Dim] = []
    for i, size in enumerate(x.shape[2:]):
        around = pads[i] + pads[i + rank] if mode == "NOTSET" else 0
        begin = pads[i] if mode == "NOTSET" else 0
        same = mode.startswith("SAME")
        sizes.append(_extent(size, (kernel[i], strides[i]), (begin, around), same, up))
    return [TensorType(x.dtype, (*x.shape[:2], *sizes))]


def _extent(
    size: Dim, window: tuple[int, int], pads: tuple[int, int], same: bool, up: bool
) -> Dim:
    if not isinstance(size, int):
        return None
    (kernel, stride), (begin, around) = window, pads
    if same:
        return -(-size // stride)
    steps = (size + around - kernel) / stride
    count = (math.ceil(steps) if up else math.floor(steps)) + 1
    # A window that would begin in the padding after the end is left out.
    return count - 1 if up and (count - 1) * stride >= size + begin else count
