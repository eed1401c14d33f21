"""ConvInteger and QLinearConv: exact sums in int32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline_cpu.commands import joined
from seamline_cpu.integer_tiles import VARIANT
from seamline_cpu.kernels.convolution import compact, in_order
from seamline_cpu.kernels.convolution_dense import bind_dense, scratch_bytes
from seamline_cpu.kernels.convolution_tiles import pack_bias, pack_words
from seamline_cpu.kernels.convolution_transformed import (
    bind_transformed,
    transformed_bytes,
)
from seamline_cpu.kernels.convolution_words import (
    bind_words,
    pack_pairs,
    suits_words,
    words_bytes,
)
from seamline_cpu.kernels.fitting import Check, all_of, dims, unlike
from seamline_cpu.kernels.scaled_commands import bind_requantized
from seamline_cpu.kernels.transformed_blocks import (
    pack_transformed,
    packed_shape,
    suits_transformed,
    sums_fit,
)
from seamline_cpu.kernels.windows import (
    Window,
    scratch_of,
    sized,
    threads_here,
    window_of,
)
from seamline_cpu.kernels.windows_fitting import unfit_convolution
from seamline_cpu.table import TABLE

__all__: list[str] = []

_Array = np.ndarray[Any, Any]
_BYTES = ("uint8", "int8")


def _too_many_axes(view: NodeView) -> str | None:
    x = view.tensor(0)
    if x is not None and x.shape is not None and not 3 <= len(x.shape) <= 5:
        return f"its input has {len(x.shape)} axes, not 3, 4 or 5"
    return None


def _unfit_points(*indices: int, weights: int) -> Check:
    """Give the check of scales and zero points: one, or one a channel of weights."""

    def check(view: NodeView) -> str | None:
        w = dims(view, weights)
        channels = None if w is None else (w[0],)
        for index in indices:
            many = index in (weights + 1, weights + 2)
            forms = ((), (1,), channels) if many else ((), (1,))
            if reason := unlike(view, index, f"input {index}", *forms):
                return reason
        return None

    return check


_refuse = all_of(
    _too_many_axes, unfit_convolution(1, None), _unfit_points(2, 3, weights=1)
)
_refuse_linear = all_of(
    _too_many_axes, unfit_convolution(3, 8),
    _unfit_points(1, 2, 4, 5, 6, 7, weights=3),
)  # fmt: skip


def _sizes(view: NodeView, weights: int) -> tuple[Window, int, int, int]:
    """Give the window, channels of a group, groups, and elements of the output."""
    kinds = (view.inputs[0], view.inputs[weights], view.outputs[0])
    x, w, y = (kind.sizes for kind in kinds)  # type: ignore[union-attr]
    window = compact(window_of(view, x[2:], y[2:], w[2:]))
    return window, w[1], view.attributes.get("group", 1), int(np.prod(y))


def _integer_bytes(view: NodeView) -> int:
    return _sum_bytes(view, 1)[0] if sized(view, 0, 1) else 0


def _linear_bytes(view: NodeView) -> int:
    return sum(_sum_bytes(view, 3)) + 128 if sized(view, 0, 3) else 0


def _sum_bytes(view: NodeView, weights: int) -> tuple[int, int]:
    """Give the scratch of the sums, and of the sums themselves with what scales them."""
    window, channels, groups, size = _sizes(view, weights)
    each = view.inputs[weights].sizes[0] // groups  # type: ignore[union-attr]
    threads = threads_here()
    if not suits_words(window):
        return scratch_bytes(window, channels, threads, words=True), 4 * size
    need = words_bytes(window, channels, each, threads)
    if suits_transformed(window, channels, each):
        need = max(need, transformed_bytes(window, channels, each, threads))
    return need, 4 * size


def _resident(weights: int, view: NodeView) -> int:
    """Give the bytes of packed weights: int16, or several a weight where transformed."""
    w = view.constant(weights)
    if w is None or not sized(view, 0, weights):
        return 0
    window, channels, groups, _ = _sizes(view, weights)
    if suits_transformed(window, channels, len(w) // groups):
        return 2 * int(np.prod(packed_shape(len(w), channels, groups, window)))
    return 2 * w.size


def _centred(w: _Array, zero: _Array | None) -> _Array:
    """Give weights as int16 with the zero point, one or one a channel, taken off."""
    wide = w.astype(np.int16)
    if zero is None:
        return wide
    shape = (-1, *(1,) * (w.ndim - 1)) if zero.size > 1 else (1,) * w.ndim
    return np.asarray(wide - zero.astype(np.int16).reshape(shape), np.int16)


def _packed(
    call: Call, index: int, zero: int, tag: str, pack: Callable[[_Array], _Array]
) -> tuple[_Array, Run | None]:
    """Give packed weights, and what packs them again where they may change."""
    weights, point = call.constant(index), call.constant(zero)
    if weights is not None and _is_constant(call, index, zero):
        indices = {index} if call.input(zero) is None else {index, zero}
        return call.resident(tag, indices, lambda: pack(_centred(weights, point))), None
    w, point = call.inputs[index], call.input(zero)
    laid = pack(_centred(w, point))

    def lay() -> None:
        laid[...] = pack(_centred(w, point))

    return laid, lay


def _is_constant(call: Call, index: int, zero: int) -> bool:
    given = call.input(zero) is None or call.constant(zero) is not None
    return call.constant(index) is not None and given


def _form(call: Call, weights: int, window: Window) -> str:
    """Choose how the sums are made; weights must be known for the transform's bound."""
    w, zero = call.inputs[weights], weights + 2
    if not suits_words(window):
        return "dense"
    each = w.shape[0] // call.attr("group", 1)
    if not suits_transformed(window, w.shape[1], each):
        return "words"
    known = call.constant(weights)
    if known is None or not _is_constant(call, weights, zero):
        return "words"
    indices = {weights} if call.input(zero) is None else {weights, zero}
    fit = call.resident(
        f"sums fit {window.kernel}", indices,
        lambda: sums_fit(_centred(known, call.constant(zero)), window),
    )  # fmt: skip
    return "transformed" if fit else "words"


_FORMS: dict[str, tuple[Callable[..., Run], Callable[..., _Array]]] = {
    "dense": (bind_dense, lambda w, groups, _: pack_words(w, groups)),
    "words": (bind_words, lambda w, groups, _: pack_pairs(w, groups)),
    "transformed": (bind_transformed, pack_transformed),
}


@TABLE.kernel(
    "ConvInteger",
    since=(10, 10),
    dtypes={0: _BYTES, 1: _BYTES},
    when=_refuse,
    workspace=_integer_bytes,
    resident=functools.partial(_resident, 1),
    variant="int16-pairs",
    because=f"exact products of 16-bit pairs, fewer by transforms where a row has three "
    f"taps or more; {VARIANT.because}",
)
def conv_integer(call: Call) -> Run:
    """Bind the sums; zero points are read in each run, as they may be computed."""
    out = call.outputs[0]
    if out.size == 0:
        return lambda: None
    return _sums(call, out, scratch_of(call, _sum_bytes(call.view, 1)[0]), 1, None)


def _sums(
    call: Call, out: _Array, scratch: _Array, weights: int, bias: int | None
) -> Run:
    """Bind int32 sums; weights, their zero point and the bias may change between runs."""
    window, _, groups, _ = _sizes(call.view, weights)
    form = _form(call, weights, window)
    bind, pack = _FORMS[form]
    tag = f"{form}/{groups}/{window.kernel}"
    packed, lay = _packed(
        call, weights, weights + 2, tag, lambda w: pack(w, groups, window)
    )
    given = None if bias is None else call.input(bias)
    laid = pack_bias(given, out.shape[1], groups, np.int32)

    def set_bias() -> None:
        laid[...] = pack_bias(given, out.shape[1], groups, np.int32)

    changing = bias is not None and given is not None and call.constant(bias) is None
    threads = min(call.options.get("num_threads") or 1, threads_here())
    x, zero = call.inputs[0], call.input(2)
    run = bind(x, packed, laid, out, window, scratch, threads, zero)
    return in_order(lay, set_bias if changing else None, run)


@TABLE.kernel(
    "QLinearConv",
    since=(10, 10),
    dtypes={0: _BYTES, 3: _BYTES},
    when=_refuse_linear,
    workspace=_linear_bytes,
    resident=functools.partial(_resident, 3),
    variant="int16-pairs",
    because=f"exact products of 16-bit pairs, fewer by transforms where a row has three "
    f"taps or more; {VARIANT.because}",
)
def qlinear_conv(call: Call) -> Run:
    """Bind the sums, then scale, round half to even, shift and saturate."""
    out = call.outputs[0]
    if out.size == 0:
        return lambda: None
    inner, outer = _sum_bytes(call.view, 3)
    scratch = scratch_of(call, outer + 128 + inner)
    sums = scratch[: 4 * out.size].view(np.int32).reshape(out.shape)
    multiply = _sums(call, sums, scratch[outer:], 3, 8)
    x_scale, w_scale, y_scale, y_zero = (call.inputs[i] for i in (1, 4, 6, 7))
    rows = out.reshape(out.shape[0] * out.shape[1], -1)
    finish = bind_requantized(
        sums.reshape(rows.shape), (w_scale, x_scale), y_scale, y_zero, rows,
        call.options.get("num_threads") or 1,
    )  # fmt: skip
    return joined([multiply, finish]) or in_order(multiply, finish)
