"""Conv: which of the compiled forms a node takes, and the NumPy form for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Claim, NodeView, Refusal
from seamline.tensors import FLOATS
from seamline.windows import Window, sized, window_of
from seamline.windows_fitting import unfit_convolution
from seamline_cpu import binding
from seamline_cpu.kernels.convolution_float32 import (
    DIRECT,
    FORMS,
    OPTION,
    Shape,
    bind_float32,
)
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, bind_after
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.windows import scratch_of, slide, threads_here
from seamline_cpu.table import TABLE

__all__ = [
    "as_float32",
    "bind_conv",
    "compact",
    "conv_workspace",
    "convolve",
    "convolved",
    "in_order",
    "wide_bytes",
]

_Array = np.ndarray[Any, Any]
_HALVES = ("float16", "bfloat16")


def in_order(*steps: Run | None) -> Run:
    """Give one function that calls those that are there."""
    return binding.in_order([step for step in steps if step is not None])


def as_float32(
    call: Call, x: _Array, out: _Array, scratch: _Array
) -> tuple[_Array, _Array, _Array, Run | None, Run | None]:
    """
    Give float32 stand-ins for arrays of half precision, out of the scratch.

    Returns
    -------
    tuple
        Input, output, the scratch that is left, what fills the input before the run and
        what rounds the output after it; the arrays themselves where they are float32.
    """
    if x.dtype == np.float32:
        return x, out, scratch, None, None
    wide_x = scratch[: 4 * x.size].view(np.float32).reshape(x.shape)
    scratch = scratch[-(-4 * x.size // 64) * 64 :]
    wide_out = scratch[: 4 * out.size].view(np.float32).reshape(out.shape)
    scratch = scratch[-(-4 * out.size // 64) * 64 :]

    def widen() -> None:
        wide_x[...] = x

    def narrow() -> None:
        out[...] = wide_out

    return wide_x, wide_out, scratch, widen, narrow


def wide_bytes(dtype: str, *sizes: tuple[int, ...]) -> int:
    """Give the bytes that ``as_float32`` takes."""
    if dtype not in _HALVES:
        return 0
    return sum(-(-4 * int(np.prod(size)) // 64) * 64 for size in sizes)


def convolve(
    x: _Array, w: _Array, bias: _Array | None, window: Window, groups: int
) -> _Array:
    """Compute a convolution by NumPy alone: any number of axes, in the arrays' type."""
    rank = len(window.sizes)
    places = slide(x, window, 0)
    each = w.shape[0] // groups
    grouped = places.reshape(x.shape[0], groups, -1, *places.shape[2:])
    parts = []
    for g in range(groups):
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        mine = w[g * each : (g + 1) * each]
        parts.append(np.tensordot(grouped[:, g], mine, (axes, [*range(1, 2 + rank)])))
    out = np.moveaxis(np.concatenate(parts, -1), -1, 1)
    return out if bias is None else out + bias.reshape(-1, *(1,) * rank)


def _window(
    view: NodeView, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]
) -> Window:
    return window_of(view, x[2:], y[2:], w[2:])


def compact(window: Window) -> Window:
    """Give three axes of which the last, along which vectors lie, is not of one pixel."""
    wide = window.in_three()
    last = (wide.sizes[2], wide.outs[2], wide.kernel[2])
    if last != (1, 1, 1) or wide.begins[2] or wide.ends[2]:
        return wide
    fields = attrs.astuple(wide)
    return Window(*[(depth, width, height) for depth, height, width in fields])


_unfit = unfit_convolution()


def _shape(view: NodeView, options: Mapping[str, Any]) -> Shape | None:
    """Give what the form depends on; None where sizes are open, or NumPy is the form."""
    if not sized(view, 0, 1):
        return None
    kinds = (view.inputs[0], view.inputs[1], view.outputs[0])
    x, w, y = (kind.sizes for kind in kinds)  # type: ignore[union-attr]
    if kinds[0].dtype == "float64" or len(x) > 5 or 0 in y:  # type: ignore[union-attr]
        return None
    return Shape.of(compact(_window(view, x, w, y)), x, w, view, options)


def conv_workspace(view: NodeView) -> int:
    """Give the scratch bytes of a node of sized types."""
    shape = _shape(view, {})
    if shape is None:
        return 0
    x, y = view.tensor(0), view.outputs[0]
    wide = wide_bytes(x.dtype, x.sizes, y.sizes)  # type: ignore[union-attr]
    return wide + shape.nbytes(threads_here())


def convolved(
    answer: Claim | Refusal, view: NodeView, options: Mapping[str, Any]
) -> Claim | Refusal:
    """Name a convolution's form in its claim, once its sizes are known."""
    if isinstance(answer, Refusal) or view.node.op_type not in ("Conv", "FusedConv"):
        return answer
    shape = _shape(view, options)
    if shape is None:
        return answer
    asked = "; direct sums were asked for" if options.get(OPTION) == DIRECT else ""
    form = shape.form
    return attrs.evolve(answer, variant=form, because=f"{FORMS[form]}{asked}")


@TABLE.kernel(
    "Conv",
    since=(1, 22),
    dtypes=FLOATS,
    when=_unfit,
    workspace=conv_workspace,
    variant="tiles",
    because="Winograd's tiles, windows of padded planes or packed panels; vector code",
    not_capturable=OF_FLOAT32,
)
def conv(call: Call) -> Run:
    """Bind the compiled form, or NumPy's for float64 and more than three axes."""
    return bind_conv(call)


def bind_conv(call: Call, epilogue: Epilogue = PLAIN) -> Run:
    """Bind a convolution, and what follows it where the compiled form is taken."""
    if reason := _unfit(call.view):
        raise ValueError(reason)
    x, w, out = call.inputs[0], call.inputs[1], call.outputs[0]
    window = _window(call.view, x.shape, w.shape, out.shape)
    if out.size == 0:
        return _nothing
    if x.dtype == np.float64 or x.ndim > 5:
        threads = call.options.get("num_threads") or 1
        return in_order(_by_numpy(call, window), *bind_after(epilogue, out, threads))
    window = compact(window)
    shape = Shape.of(window, x.shape, w.shape, call.view, call.options)
    threads = max(threads_here(), call.options.get("num_threads") or 1)
    need = shape.nbytes(threads) + wide_bytes(x.dtype.name, x.shape, out.shape)
    wide_x, wide_out, scratch, widen, narrow = as_float32(
        call, x, out, scratch_of(call, need)
    )
    run = bind_float32(call, shape, wide_x, wide_out, scratch, epilogue)
    return in_order(widen, run, narrow)


def _nothing() -> None:
    """Make an output without elements."""


def _by_numpy(call: Call, window: Window) -> Run:
    x, w, bias, out = call.inputs[0], call.inputs[1], call.input(2), call.outputs[0]
    groups = call.attr("group", 1)
    kind = np.float64 if x.dtype == np.float64 else np.float32

    def run() -> None:
        wide_x, wide_w = x.astype(kind, copy=False), w.astype(kind, copy=False)
        wide_bias = None if bias is None else bias.astype(kind, copy=False)
        out[...] = convolve(wide_x, wide_w, wide_bias, window, groups)

    return run
