"""
Exact int32 sums of convolutions of bytes: which form makes them, from which weights.

*Transformed* rows take fewer products; *pairs* and *fours* of channels are multiplied as
they are; windows of more axes, or of long strides, are laid out *densely*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.windows import Window, sized, window_of
from seamline_cpu.kernels.convolution import compact, in_order
from seamline_cpu.kernels.convolution_dense import bind_dense, scratch_bytes
from seamline_cpu.kernels.convolution_endings import (
    ENDING_BYTES,
    ConvolutionEnding,
    bind_ending,
)
from seamline_cpu.kernels.convolution_tiles import pack_bias, pack_words
from seamline_cpu.kernels.convolution_transformed import (
    bind_transformed,
    transformed_bytes,
)
from seamline_cpu.kernels.convolution_words import bind_words
from seamline_cpu.kernels.int8_choice import group_of, variant_for
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.kernels.transformed_blocks import (
    pack_transformed,
    packed_shape,
    suits_transformed,
    sums_fit,
)
from seamline_cpu.kernels.windows import threads_here
from seamline_cpu.kernels.word_blocks import pack_channels, suits_words, words_bytes

__all__ = ["bind_sums", "integer_bytes", "linear_bytes", "packed_bytes", "sum_bytes"]

_Array = np.ndarray[Any, Any]


def _sizes(view: NodeView, weights: int) -> tuple[Window, int, int, int]:
    """Give the window, channels of a group, groups, and elements of the output."""
    kinds = (view.inputs[0], view.inputs[weights], view.outputs[0])
    x, w, y = (kind.sizes for kind in kinds)  # type: ignore[union-attr]
    window = compact(window_of(view, x[2:], y[2:], w[2:]))
    return window, w[1], view.attributes.get("group", 1), int(np.prod(y))


def integer_bytes(view: NodeView) -> int:
    """Give the scratch of sums made in place, where weights are input 1."""
    return sum_bytes(view, 1)[0] if sized(view, 0, 1) else 0


def linear_bytes(view: NodeView) -> int:
    """Give the scratch of sums and what makes them, where weights are input 3."""
    return sum(sum_bytes(view, 3)) + 128 if sized(view, 0, 3) else 0


def sum_bytes(view: NodeView, weights: int) -> tuple[int, int]:
    """Give the scratch of the sums, and of the sums themselves with what scales them."""
    window, channels, groups, size = _sizes(view, weights)
    each = view.inputs[weights].sizes[0] // groups  # type: ignore[union-attr]
    threads = threads_here()
    if not suits_words(window):
        return scratch_bytes(window, channels, threads, words=True), 4 * size
    need = max(words_bytes(window, channels, each, threads, group) for group in (2, 4))
    if suits_transformed(window, channels, each):
        need = max(need, transformed_bytes(window, channels, each, threads))
    return need + threads * ENDING_BYTES + 64, 4 * size


def packed_bytes(weights: int, view: NodeView) -> int:
    """Give the bytes of packed weights: at most int16, or several a weight transformed."""
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
        indices = _indices(call, index, zero)
        return call.resident(tag, indices, lambda: pack(_centred(weights, point))), None
    w, point = call.inputs[index], call.input(zero)
    laid = pack(_centred(w, point))

    def lay() -> None:
        laid[...] = pack(_centred(w, point))

    return laid, lay


def _indices(call: Call, weights: int, zero: int) -> set[int]:
    return {weights} if call.input(zero) is None else {weights, zero}


def _is_constant(call: Call, index: int, zero: int) -> bool:
    given = call.input(zero) is None or call.constant(zero) is not None
    return call.constant(index) is not None and given


def _form(call: Call, weights: int, window: Window) -> str:
    """Choose how the sums are made; weights must be known for what bounds them."""
    zero = weights + 2
    if not suits_words(window):
        return "dense"
    w, known = call.inputs[weights], call.constant(weights)
    if known is None or not _is_constant(call, weights, zero):
        return "pairs"
    each = w.shape[0] // call.attr("group", 1)
    fours = group_of(variant_for(call.options)) == 4
    transforms = suits_transformed(window, w.shape[1], each)
    if not transforms and not fours:
        return "pairs"
    short = window.kernel[2] < _TRANSFORMED_FROM

    def suits() -> str:
        wide = _centred(known, call.constant(zero))
        fit = not wide.size or (wide.min() >= -128 and wide.max() <= 127)
        # VNNI's four products an instruction are what a transform of few taps saves.
        if fours and fit and (short or not transforms):
            return "fours"
        if transforms and sums_fit(wide, window):
            return "transformed"
        return "fours" if fours and fit else "pairs"

    tag = f"form of {window.kernel} {window.outs} {fours}"
    return str(call.resident(tag, _indices(call, weights, zero), suits))


_TRANSFORMED_FROM = 6  # taps of a row where four products at once are the alternative
_PACKS: dict[str, Callable[..., _Array]] = {
    "dense": lambda w, groups, _: pack_words(w, groups),
    "pairs": lambda w, groups, _: pack_channels(w, groups, 2),
    "fours": lambda w, groups, _: pack_channels(w, groups, 4),
    "transformed": pack_transformed,
}


def bind_sums(
    call: Call, out: _Array, scratch: _Array, weights: int,
    ending: ConvolutionEnding | None = None,
) -> Run:  # fmt: skip
    """
    Bind int32 sums, and how they end; weights and their zero point may change between runs.

    Parameters
    ----------
    out
        int32; takes the sums.
    weights
        The index of the weights; their zero point's is higher by 2, and input 2 is the
        zero point of input 0.
    """
    window, _, groups, _ = _sizes(call.view, weights)
    form = _form(call, weights, window)
    tag = f"{form}/{groups}/{window.kernel}"
    packed, lay = _packed(
        call, weights, weights + 2, tag, lambda w: _PACKS[form](w, groups, window)
    )
    threads = min(threads_of(call.options), threads_here())
    blank = pack_bias(None, out.shape[1], groups, np.int32)
    given = (
        call.inputs[0],
        packed,
        blank,
        out,
        window,
        scratch,
        threads,
        call.input(2),
    )
    after: Run | None = None
    if form == "dense":
        run: Run = bind_dense(*given)
        after = None if ending is None else bind_ending(ending, threads)
    elif form == "transformed":
        run = bind_transformed(*given, ending)
    else:
        totals = _totals(call, weights, groups) if form == "fours" else None
        run = bind_words(*given, ending, totals, variant_for(call.options))
    return in_order(lay, run, after)


def _totals(call: Call, weights: int, groups: int) -> _Array:
    """Give the sum of each channel's weights, laid out as a bias."""
    known, zero = call.constant(weights), call.constant(weights + 2)

    def added() -> _Array:
        wide = _centred(np.asarray(known), zero)
        sums = wide.reshape(len(wide), -1).sum(1, dtype=np.int32)
        return pack_bias(sums, len(wide), groups, np.int32)

    indices = _indices(call, weights, weights + 2)
    return call.resident(f"totals/{groups}", indices, added)  # type: ignore[no-any-return]
