"""
ConvInteger and QLinearConv, and the first scaled to float32: exact sums in int32.

Seamline's ConvIntegerToFloat is what models quantised as they run do after a ConvInteger:
scales, a bias, perhaps a residual and an activation.
"""

from __future__ import annotations

import functools

import numpy as np

from seamline.fitting import Check, all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import ValueType
from seamline.windows_fitting import unfit_convolution
from seamline_cpu.binding import nothing
from seamline_cpu.kernels.convolution_endings import ConvolutionEnding
from seamline_cpu.kernels.convolution_fused import infer_convolution, unlike_output
from seamline_cpu.kernels.convolution_sums import (
    bind_sums,
    integer_bytes,
    linear_bytes,
    packed_bytes,
    sum_bytes,
)
from seamline_cpu.kernels.epilogues import epilogue_of, unknown_activation
from seamline_cpu.kernels.recorded import OF_BYTES, constant
from seamline_cpu.kernels.windows import scratch_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_BYTES = ("uint8", "int8")


def _too_many_axes(view: NodeView) -> str | None:
    x = view.tensor(0)
    if x is not None and x.shape is not None and not 3 <= len(x.shape) <= 5:
        return f"its input has {len(x.shape)} axes, not 3, 4 or 5"
    return None


def _channels_last(view: NodeView) -> str | None:
    given = view.attributes.get("channels_last", 0)
    return "its attribute channels_last is 1, not 0" if given else None


def _unfit_points(*indices: int, weights: int, by_channel: tuple[int, ...]) -> Check:
    """Give the check of scales and zero points: one, or one a channel of weights."""

    def check(view: NodeView) -> str | None:
        w = dims(view, weights)
        channels = None if w is None else (w[0],)
        for index in indices:
            many = index in by_channel
            forms = ((), (1,), channels) if many else ((), (1,))
            if reason := unlike(view, index, f"input {index}", *forms):
                return reason
        return None

    return check


_refuse = all_of(
    _too_many_axes,
    unfit_convolution(1, None),
    _unfit_points(2, 3, weights=1, by_channel=(3,)),
)
_refuse_linear = all_of(
    _too_many_axes, unfit_convolution(3, 8),
    _unfit_points(1, 2, 4, 5, 6, 7, weights=3, by_channel=(4, 5)),
)  # fmt: skip


_BECAUSE = "sums by fewer products where a row has many taps"


#: Weights and their zero points are packed when a node is bound; others in each run.
_WEIGHTS = {1: "weight", 3: "weights' zero point"}
_LINEAR_WEIGHTS = {3: "weight", 5: "weights' zero point"}


@TABLE.kernel(
    "ConvInteger", since=(10, 10), dtypes={0: _BYTES, 1: _BYTES}, when=_refuse,
    workspace=integer_bytes, resident=functools.partial(packed_bytes, 1), variant="packed",
    because=_BECAUSE, not_capturable=all_of(OF_BYTES, constant(_WEIGHTS)),
)  # fmt: skip
def conv_integer(call: Call) -> Run:
    """Bind the sums; zero points are read in each run, as they may be computed."""
    out = call.outputs[0]
    if out.size == 0:
        return nothing
    return bind_sums(call, out, scratch_of(call, sum_bytes(call.view, 1)[0]), 1)


@TABLE.kernel(
    "QLinearConv", since=(10, 10), dtypes={0: _BYTES, 3: _BYTES}, when=_refuse_linear,
    workspace=linear_bytes, resident=functools.partial(packed_bytes, 3), variant="packed",
    because=_BECAUSE, not_capturable=all_of(OF_BYTES, constant(_LINEAR_WEIGHTS)),
)  # fmt: skip
@TABLE.kernel(
    "QLinearConv", domain="com.microsoft", dtypes={0: _BYTES, 3: _BYTES},
    when=all_of(_channels_last, _refuse_linear), workspace=linear_bytes,
    resident=functools.partial(packed_bytes, 3), variant="packed", because=_BECAUSE,
    not_capturable=all_of(OF_BYTES, constant(_LINEAR_WEIGHTS)),
)  # fmt: skip
def qlinear_conv(call: Call) -> Run:
    """Bind the sums, then scale, round half to even, shift and saturate."""
    out = call.outputs[0]
    if out.size == 0:
        return nothing
    inner, outer = sum_bytes(call.view, 3)
    scratch = scratch_of(call, outer + 128 + inner)
    sums = scratch[: 4 * out.size].view(np.int32).reshape(out.shape)
    x_scale, w_scale, y_scale, y_zero = (call.inputs[i] for i in (1, 4, 6, 7))
    ending = ConvolutionEnding(
        out, sums, x_scale, w_scale, call.input(8), last=y_scale, zero=y_zero
    )
    return bind_sums(call, sums, scratch[outer:], 3, ending)


def _unlike_bias(view: NodeView) -> str | None:
    """Refuse biases that are neither vectors nor shaped to be added to the output."""
    w = dims(view, 1)
    if w is None:
        return None
    forms = ((w[0],), (1, w[0], *(1,) * (len(w) - 2)))
    return unlike(view, 6, "bias", *forms) or unlike(view, 7, "bias", *forms)


@TABLE.kernel(
    "ConvIntegerToFloat", domain="seamline", dtypes={0: _BYTES, 1: _BYTES, 4: ("float32",)},
    when=all_of(_refuse, _unfit_points(4, 5, weights=1, by_channel=(5,)), _unlike_bias, unknown_activation,
                unlike_output(8)),
    workspace=integer_bytes, resident=functools.partial(packed_bytes, 1), variant="packed",
    because=f"{_BECAUSE}, scaled to floats while they are in the cache",
    not_capturable=all_of(OF_BYTES, constant(_WEIGHTS)),
)  # fmt: skip
def conv_integer_to_float(call: Call) -> Run:
    """
    Bind ``activation((ConvInteger(x, w, zeros) + added) * (scale * w_scale) + bias + Z)``.

    Inputs are ConvInteger's four, the scale of ``x``, that of ``w``, one or one a channel,
    and, left out or not, int32 ``added``, a float bias, and a Z of the output's shape.
    ``activation`` and ``activation_params`` are those of Seamline's FusedConv.
    """
    out = call.outputs[0]
    if out.size == 0:
        return nothing
    scratch = scratch_of(call, sum_bytes(call.view, 1)[0])
    sums = out.view(np.int32)
    added, bias = call.input(6), call.input(7)
    ending = ConvolutionEnding(
        out, sums, call.inputs[4], call.inputs[5], added, bias,
        epilogue=epilogue_of(call, 8),
    )  # fmt: skip
    return bind_sums(call, sums, scratch, 1, ending)


@TABLE.infer("ConvIntegerToFloat", domain="seamline")
def infer_conv_integer_to_float(node: NodeView) -> list[ValueType | None]:
    """Give a convolution's sizes, of float32."""
    return infer_convolution(node, 1, "float32")


@TABLE.infer("QLinearConv", domain="com.microsoft")
def infer_qlinear_conv(node: NodeView) -> list[ValueType | None]:
    """Give a convolution's sizes, of the zero point's type."""
    zero = node.tensor(7)
    return infer_convolution(node, 3, None if zero is None else zero.dtype)
