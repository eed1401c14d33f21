"""ConvTranspose and Col2Im: columns of window values, added where the windows overlap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import FLOATS, NUMBERS
from seamline.windows import Window, sized, transposed_window_of
from seamline.windows_fitting import unfit_columns, unfit_transposed
from seamline_cpu.atomics import floats
from seamline_cpu.binding import copying
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.convolution import as_float32, in_order, wide_bytes
from seamline_cpu.kernels.convolution_dense import bind_dense, scratch_bytes
from seamline_cpu.kernels.convolution_tiles import pack_bias, pack_weights
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.windows import scratch_of, threads_here
from seamline_cpu.table import TABLE

__all__: list[str] = []

_Array = np.ndarray[Any, Any]

(_COLUMNS, _B, _Y, _IMAGES, _M, _D, _H, _W, _OD, _OH, _OW, _KD, _KH, _KW, _SD, _SH, _SW,
 _DD, _DH, _DW, _PD, _PH, _PW) = range(23)  # fmt: skip


@command
def _overlap(a: Any, share: int, shares: int) -> None:  # noqa: C901 - flat loops
    """Fill output planes with the bias and add every tap's column to them."""
    planes = a[_IMAGES] * a[_M]
    pixels = a[_D] * a[_H] * a[_W]
    taps = a[_KD] * a[_KH] * a[_KW]
    size = a[_OD] * a[_OH] * a[_OW]
    bias = floats(a[_B])
    for plane in range(planes * share // shares, planes * (share + 1) // shares):
        out = floats(a[_Y] + plane * size * 4)
        first = bias[plane % a[_M]]
        for i in range(size):
            out[i] = first
        for tap in range(taps):
            kw = tap % a[_KW]
            kh = (tap // a[_KW]) % a[_KH]
            kd = tap // (a[_KW] * a[_KH])
            column = a[_COLUMNS] + (plane * taps + tap) * pixels * 4
            shift = kw * a[_DW] - a[_PW]
            step = a[_SW]
            begin = max(0, (-shift + step - 1) // step)
            end = min(a[_W], (a[_OW] - shift + step - 1) // step)
            for d in range(a[_D]):
                od = d * a[_SD] - a[_PD] + kd * a[_DD]
                if od < 0 or od >= a[_OD]:
                    continue
                for h in range(a[_H]):
                    oh = h * a[_SH] - a[_PH] + kh * a[_DH]
                    if oh < 0 or oh >= a[_OH]:
                        continue
                    source = floats(column + (d * a[_H] + h) * a[_W] * 4)
                    to = floats(
                        a[_Y] + ((plane * a[_OD] + od) * a[_OH] + oh) * a[_OW] * 4
                    )
                    if step == 1:
                        for w in range(begin, end):
                            to[w + shift] += source[w]
                    else:
                        for w in range(begin, end):
                            to[w * step + shift] += source[w]


def _pointwise(window: Window, taps: int) -> Window:
    """Give the product that makes the columns, as a convolution of single pixels."""
    del taps
    ones = (1, 1, 1)
    pixels = (1, 1, int(np.prod(window.sizes)))
    return Window(pixels, pixels, ones, ones, ones, (0, 0, 0), (0, 0, 0))


def _turned(weights: _Array, groups: int) -> _Array:
    """Turn ``(C, M / groups, *kernel)`` into pixel weights ``(M * kernel, C / groups)``."""
    channels = weights.shape[0] // groups
    flat = weights.reshape(groups, channels, -1).transpose(0, 2, 1)
    return pack_weights(flat.reshape(-1, channels), groups)


def _bytes(x: tuple[int, ...], w: tuple[int, ...], window: Window, groups: int) -> int:
    columns = 4 * x[0] * groups * int(np.prod(w[1:])) * int(np.prod(x[2:]))
    inner = scratch_bytes(_pointwise(window, 1), x[1] // groups, threads_here())
    return columns + 64 + inner


def _workspace(view: NodeView) -> int:
    if not sized(view, 0, 1):
        return 0
    kinds = (view.inputs[0], view.inputs[1], view.outputs[0])
    x, w, y = (kind.sizes for kind in kinds)  # type: ignore[union-attr]
    if kinds[0].dtype == "float64" or len(x) > 5:  # type: ignore[union-attr]
        return 0
    window = transposed_window_of(view, x, w, y)
    groups = view.attributes.get("group", 1)
    wide = wide_bytes(kinds[0].dtype, x, y)  # type: ignore[union-attr]
    return wide + _bytes(x, w, window, groups)


@TABLE.kernel(
    "ConvTranspose", since=(1, 22), dtypes=FLOATS, when=unfit_transposed,
    workspace=_workspace, variant="tiles", not_capturable=OF_FLOAT32,
)  # fmt: skip
def conv_transpose(call: Call) -> Run:
    """Bind a product that makes columns and a command that overlaps them."""
    x, w, bias, out = call.inputs[0], call.inputs[1], call.input(2), call.outputs[0]
    window = transposed_window_of(call.view, x.shape, w.shape, out.shape)
    groups = call.attr("group", 1)
    if out.size == 0:
        return lambda: None
    if x.dtype == np.float64 or x.ndim > 5:
        return lambda: _by_numpy(x, w, bias, out, window, groups)
    need = wide_bytes(x.dtype.name, x.shape, out.shape)
    need += _bytes(x.shape, w.shape, window, groups)
    wide_x, wide_out, scratch, widen, narrow = as_float32(
        call, x, out, scratch_of(call, need)
    )
    run = _bind(call, wide_x, wide_out, window, scratch, groups)
    return in_order(widen, run, narrow)


def _bind(
    call: Call, x: _Array, out: _Array, window: Window, scratch: _Array, groups: int
) -> Run:
    w, bias = call.inputs[1], call.input(2)
    threads = call.options.get("num_threads") or 1
    count = w.shape[1] * groups
    rows = count * int(np.prod(w.shape[2:]))
    pixels = int(np.prod(x.shape[2:]))
    columns = scratch[: 4 * x.shape[0] * rows * pixels].view(np.float32)
    columns = columns.reshape(x.shape[0], rows, pixels)
    rest = scratch[columns.nbytes :]
    flat_x = x.reshape(*x.shape[:2], pixels)
    plain = np.zeros(count, np.float32)
    packed, pack = _packed(call, groups)
    product = bind_dense(
        flat_x, packed, pack_bias(None, rows, groups), columns, _pointwise(window, 1), rest,
        min(threads, threads_here()),
    )  # fmt: skip

    set_bias: Run | None = None
    if bias is not None:
        same = bias.dtype == plain.dtype
        set_bias = copying(bias, plain) if same else partial(np.copyto, plain, bias)
    wide = window.in_three()
    arguments = [
        columns.ctypes.data, plain.ctypes.data, out.ctypes.data, x.shape[0], count,
        *wide.sizes, *wide.outs, *wide.kernel, *wide.strides, *wide.dilations, *wide.begins,
    ]  # fmt: skip
    shares = threads if columns.size > 50_000 else 1
    add = bind(_overlap, arguments, shares, keep=(columns, plain, out))
    return in_order(pack, set_bias, product, add)


def _packed(call: Call, groups: int) -> tuple[_Array, Callable[[], None] | None]:
    w = call.inputs[1]
    value = call.constant(1)
    if value is not None:
        return call.resident(
            f"turned/{groups}", {1}, lambda: _turned(value, groups)
        ), None
    laid = _turned(w, groups)

    def lay() -> None:
        laid[...] = _turned(w, groups)

    return laid, lay


def _by_numpy(
    x: _Array, w: _Array, bias: _Array | None, out: _Array, window: Window, groups: int
) -> None:
    kind = np.float64 if x.dtype == np.float64 else np.float32
    parts = x.astype(kind).reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    weights = w.astype(kind).reshape(groups, w.shape[0] // groups, -1)
    columns: _Array = np.matmul(weights.transpose(0, 2, 1), parts)
    shape = (x.shape[0], w.shape[1] * groups, *w.shape[2:], *x.shape[2:])
    whole = overlapped(columns.reshape(shape), window)
    if bias is not None:
        whole += bias.astype(kind).reshape(-1, *(1,) * (x.ndim - 2))
    out[...] = whole


def overlapped(columns: _Array, window: Window) -> _Array:
    """
    Add windows where they overlap, any number of axes.

    Parameters
    ----------
    columns
        ``(N, C, *kernel, *places)``; ``window.sizes`` are the places, ``outs`` the image.
    """
    spans = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(
            window.sizes, window.strides, window.kernel, window.dilations, strict=True
        )
    ]
    room = [
        max(span, b + o)
        for span, b, o in zip(spans, window.begins, window.outs, strict=True)
    ]
    whole = np.zeros((*columns.shape[:2], *room), columns.dtype)
    for tap in np.ndindex(*window.kernel):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(
                tap, window.dilations, window.sizes, window.strides, strict=True
            )
        )
        whole[(slice(None), slice(None), *at)] += columns[
            (slice(None), slice(None), *tap)
        ]
    inside = tuple(
        slice(b, b + o) for b, o in zip(window.begins, window.outs, strict=True)
    )
    return np.asarray(whole[(slice(None), slice(None), *inside)])


@TABLE.kernel(
    "Col2Im", since=(18, 18), dtypes=NUMBERS, when=unfit_columns, host_inputs={1, 2}
)
def col2im(call: Call) -> Run:
    """Bind the sum of overlapping blocks; image and block shapes are known here."""
    x, out = call.inputs[0], call.outputs[0]
    block = tuple(int(n) for n in call.inputs[2])
    image = out.shape[2:]
    rank = len(block)
    strides = tuple(call.attr("strides") or (1,) * rank)
    dilations = tuple(call.attr("dilations") or (1,) * rank)
    pads = tuple(call.attr("pads") or (0,) * 2 * rank)
    places = tuple(
        (n + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1) // strides[i]
        + 1
        for i, n in enumerate(image)
    )
    window = Window(places, image, block, strides, dilations, pads[:rank], pads[rank:])
    shape = (out.shape[0], out.shape[1], *block, *places)
    half = x.dtype.itemsize == 2 and x.dtype.kind not in "iu"

    def run() -> None:
        columns = x.reshape(shape)
        out[...] = overlapped(columns.astype(np.float32) if half else columns, window)

    return run
