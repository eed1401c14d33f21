"""Seamline's FusedMatMul: a product, a bias, a residual, and an activation of the sum."""

from __future__ import annotations

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.kernels.epilogues import epilogue_of, unknown_activation
from seamline_cpu.kernels.matmul import bind_fused
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.table import TABLE

__all__: list[str] = []

OWN = "seamline"


def _unfit(view: NodeView) -> str | None:
    b, bias = view.tensor(1), view.tensor(2)
    if b is None or b.shape is None or len(b.shape) != 2:
        return f"its B is {b}, and one matrix is multiplied with"
    width = b.shape[0 if view.attributes.get("transB", 0) else 1]
    if bias is not None and bias.is_sized and bias.shape != (width,):
        return f"its bias is {bias}, and its rows have {width} elements"
    more, kinds = view.tensor(3), view.outputs
    out = kinds[0] if kinds else None
    if more is None or not isinstance(out, TensorType):
        return None
    if more.is_sized and out.is_sized and more.shape != out.shape:
        return f"its residual is {more}, and its output {out}"
    return None


@TABLE.kernel(
    "FusedMatMul", domain=OWN, dtypes={0: ("float32",), 1: ("float32",)},
    when=all_of(_unfit, unknown_activation), variant="tiles",
    because="a product's tiles, added to and activated while they are in the cache",
    not_capturable=OF_FLOAT32,
)  # fmt: skip
def fused_matmul(call: Call) -> Run:
    """
    Bind ``activation(A @ B + bias + residual)``.

    ``A`` has two axes or more and ``B`` two, swapped where ``transB`` is 1; ``bias`` is as
    long as a row of the output, ``residual`` of its shape, and both may be left out.
    ``activation`` and ``activation_params`` are those of Seamline's FusedConv.
    """
    b, out = call.inputs[1], call.outputs[0]
    b = b.T if call.attr("transB", 0) else b
    return bind_fused(call, call.inputs[0], b, out, epilogue_of(call, 3, call.input(2)))


@TABLE.infer("FusedMatMul", domain=OWN)
def infer_fused_matmul(node: NodeView) -> list[ValueType | None]:
    """Give ``A``'s type with rows as long as ``B``'s."""
    a, b = node.tensor(0), node.tensor(1)
    if a is None:
        return [None]
    if not a.shape or b is None or b.shape is None or len(b.shape) != 2:
        return [TensorType(a.dtype, None)]
    width = b.shape[0 if node.attributes.get("transB", 0) else 1]
    return [TensorType(a.dtype, (*a.shape[:-1], width))]
