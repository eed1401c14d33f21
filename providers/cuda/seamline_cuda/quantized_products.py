"""
QLinearMatMul and QLinearConv: sums of bytes, exact in the workspace, then codes of them.

The sums are those of MatMulInteger and ConvInteger. A second kernel multiplies each by
``a_scale * b_scale / y_scale`` in float32, rounds it to even, moves it by the zero point and
saturates. The scales are read on the device: one for all, or one for each row of A, column
of B or channel of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.fitting import all_of, unlike
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, nbytes_of
from seamline.windows_fitting import unfit_convolution
from seamline_cuda.convolution_integer import convolve_integers, unfit_zeros
from seamline_cuda.convolution_sizes import unfit
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.integer_products import multiply_bytes, unfit_bytes, unfit_each
from seamline_cuda.matmul import matrices_of, unfit_sizes
from seamline_cuda.quantizing_formulas import code_text
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "codes_kernel", "convolve_linear", "multiply_linear"]

_BYTES = ("int8", "uint8")
_A, _B = (0, 2), (3, 5)  #: inputs of both factors: codes, and their zero point


@attrs.frozen
class _Sums:
    """Where the sums lie: the workspace, as an output of whole numbers."""

    address: int
    kind: TensorType

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.kind)


def _sums_of(view: NodeView) -> NodeView:
    """Give the node as MatMulInteger or ConvInteger would have it."""
    order = (_A[0], _B[0], _A[1], _B[1])
    made = view.outputs[0]
    summed = TensorType("int32", made.shape) if isinstance(made, TensorType) else None
    return attrs.evolve(
        view, inputs=tuple(view.inputs[index] for index in order), outputs=(summed,)
    )


def _summing(call: Call) -> Call:
    order = (_A[0], _B[0], _A[1], _B[1])
    place = _Sums(
        call.workspace.address, TensorType("int32", call.outputs[0].kind.shape)
    )
    return Call(
        _sums_of(call.view), tuple(call.inputs[index] for index in order), (place,),
        call.context, call.options,
    )  # fmt: skip


def codes_kernel(dtype: str, has_bias: bool) -> DeviceKernel:
    """Give the kernel that makes codes of sums, after a bias of whole numbers."""
    added = " + bias[channel - quotient32(channel, biases) * biases]" * has_bias
    code = code_text("product(np.float32(total), factor)", "np.float32(zero[0])", dtype)
    text = f"""def linear_codes(sums, bias, a_scale, b_scale, scale, zero, out, n, a_each, a_many, b_each, b_many, biases):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        row = quotient32(np.uint32(i), a_each)
        row = row - quotient32(row, a_many) * a_many
        channel = quotient32(np.uint32(i), b_each)
        column = channel - quotient32(channel, b_many) * b_many
        total = np.int32(sums[i]{added})
        factor = product(a_scale[row], b_scale[column]) / scale[0]
        out[i] = np.{dtype}({code})
        i += step
"""
    pointers = ("int32*", "int32*", *["float32*"] * 3, f"{dtype}*", f"{dtype}*")
    return DeviceKernel("linear_codes", text, (*pointers, "int64", *["uint32"] * 5))


def _coded(call: Call, a_each: int, b_each: int) -> KernelWork:
    """
    Give the work that makes codes of the sums.

    Parameters
    ----------
    a_each, b_each
        Results from one scale of the first factor, and of the second, to the next.
    """
    bias, out = call.input(8), call.outputs[0]
    scales = call.inputs[1], call.inputs[4]
    count = math.prod(out.kind.sizes)
    biases = math.prod(bias.kind.sizes) if bias is not None else 1
    many = [max(1, math.prod(scale.kind.sizes)) for scale in scales]
    arguments = (
        call.workspace.address, bias.address if bias is not None else 0,
        scales[0].address, scales[1].address, call.inputs[6].address,
        call.inputs[7].address, out.address, count, a_each, many[0], b_each, many[1],
        biases,
    )  # fmt: skip
    return KernelWork(codes_kernel(out.kind.dtype, bias is not None), arguments, count)


def multiply_linear(call: Call) -> Sequence[Work]:
    """Multiply codes."""
    found = matrices_of(_sums_of(call.view))
    assert found is not None, "sizes are known when a segment is bound"
    if found.is_empty:
        return []
    return [*multiply_bytes(_summing(call)), _coded(call, found.columns, 1)]


def convolve_linear(call: Call) -> Sequence[Work]:
    """Convolve codes."""
    sizes = call.outputs[0].kind.sizes
    if not math.prod(sizes):
        return []
    works = convolve_integers(_summing(call))
    return [*works, _coded(call, 1, math.prod(sizes[2:]))]


def _unfit_scales(node: NodeView) -> str | None:
    """Refuse scales that are no float32, and results with more than one scale."""
    for index in (1, 4, 6):
        kind = node.tensor(index)
        if kind is None or kind.dtype != "float32" or not kind.is_sized:
            return f"scale {index} is {kind}; float32 of known size is accepted"
    for index in (6, 7):
        if reason := unlike(node, index, f"input {index}", (), (1,)):
            return reason
    made, zero = node.outputs[0], node.tensor(7)
    if not isinstance(made, TensorType) or made.dtype not in _BYTES:
        return f"it gives {made}; {', '.join(_BYTES)} are accepted"
    if zero is None or zero.dtype != made.dtype:
        return f"it gives {made}, and its zero point is {zero}"
    return None


def _unfit_product(node: NodeView) -> str | None:
    summed = _sums_of(node)
    if reason := unfit_sizes(summed) or unfit_bytes(summed):
        return reason
    found = matrices_of(summed)
    if found is None:
        return None
    for index, is_left in ((1, True), (4, False)):
        scale = node.tensor(index)
        if scale is not None and (why := unfit_each(scale, found, is_left=is_left)):
            return f"a scale is {scale}; {why}"
    return None


def _unfit_convolution(node: NodeView) -> str | None:
    summed, w = _sums_of(node), node.tensor(3)
    if reason := unfit(summed) or unfit_zeros(summed):
        return reason
    if reason := unlike(node, 1, "the input's scale", (), (1,)):
        return reason
    channels = w.shape[:1] if w is not None and w.shape is not None else (None,)
    return unlike(node, 4, "the weights' scale", (), (1,), channels)


def _workspace(node: NodeView) -> int:
    made = _sums_of(node).outputs[0]
    sized = isinstance(made, TensorType) and made.is_sized
    return nbytes_of(made) if sized and isinstance(made, TensorType) else 0


def add_to(table: KernelTable) -> None:
    """Add both operators."""
    for op_type, when, function in (
        ("QLinearMatMul", all_of(_unfit_scales, _unfit_product), multiply_linear),
        (
            "QLinearConv",
            all_of(_unfit_scales, unfit_convolution(3, 8), _unfit_convolution),
            convolve_linear,
        ),
    ):
        table.kernel(
            op_type,
            since=10,
            dtypes={0: _BYTES, 3: _BYTES},
            when=when,
            workspace=_workspace,
            variant="integers",
            because="sums are exact in whole numbers, and rounded once to codes",
            not_capturable=None,
        )(function)
