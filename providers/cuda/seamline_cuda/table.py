"""
The operators that the device runs, and what each of their claims tests.

A kernel of this table gives no function to call. An elementwise one says by which formula,
and the segment joins neighbours; any other gives work over the node's places, as
:mod:`seamline_cuda.works` has it. So claims are made, and groups formed, without a device.
"""

from __future__ import annotations

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cuda import (
    attention,
    attention_contrib,
    attention_packed,
    attention_projected,
    convolution,
    convolution_integer,
    convolution_transposed,
    cumulating,
    cutting,
    dynamic_quantizing,
    filling,
    fused_products,
    gathering,
    group_query,
    integer_products,
    local_response,
    masking,
    matmul,
    matvec,
    normalizing,
    normalizing_axes,
    normalizing_channels,
    padding,
    pooling,
    quantized_products,
    ranking,
    reductions,
    refusing,
    reshaping,
    resizing,
    rotary,
    scattering,
    softmax,
    spreading,
    updating,
)
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.formulas import FORMULAS, Formula, formula_of
from seamline_cuda.limits import unfit
from seamline_cuda.works import LIBRARY

__all__ = ["LIBRARY", "TABLE", "is_elementwise"]

TABLE = KernelTable("cuda", variant="generated")
_OPERANDS = 12  #: of Max, Min and Sum


def is_elementwise(node: NodeView) -> bool:
    """Tell whether a node that was claimed is a formula over its operands."""
    return formula_of(node) is not None


def _described(call: Call) -> Formula | None:
    return formula_of(call.view)


def _refused(node: NodeView) -> str | None:
    """Give a reason not to run a node whose first element type was accepted."""
    formula = formula_of(node)
    assert formula is not None, "the table has its since-version"
    unknown = sorted(set(node.attributes) - formula.attributes)
    if unknown:
        return f"attribute {unknown[0]!r} is not implemented"
    if len(node.inputs) > _OPERANDS:
        return f"{len(node.inputs)} operands are more than {_OPERANDS}"
    return _unfit(node) or formula.when(node)


def _unfit(node: NodeView) -> str | None:
    for kind in (*node.inputs, *node.outputs):
        if isinstance(kind, TensorType) and kind.dtype not in ELEMENTS:
            return f"it makes or reads {kind.dtype}, which the device has not"
    return unfit(node)


def _first_kind(node: NodeView) -> list[ValueType | None]:
    return [node.inputs[0]]


for _name, _formulas in FORMULAS.items():
    _domain, _, _op = _name.rpartition("::")
    if _domain:
        TABLE.infer(_op, domain=_domain)(_first_kind)
    for _formula in _formulas:
        TABLE.kernel(
            _op,
            domain=_domain,
            since=_formula.since,
            dtypes={_formula.checked: _formula.dtypes},
            when=_refused,
            aliases=tuple((0, index) for index in _formula.alike),
            because="one kernel is generated for neighbouring elementwise nodes",
            not_capturable=None,
        )(_described)

# Families of operators; each module adds its own kernels.
for _family in (
    attention,
    attention_contrib,
    attention_packed,
    attention_projected,
    convolution,
    convolution_integer,
    convolution_transposed,
    cumulating,
    cutting,
    dynamic_quantizing,
    filling,
    fused_products,
    gathering,
    group_query,
    integer_products,
    local_response,
    masking,
    matvec,  # where it takes a product, matmul is not asked
    matmul,
    normalizing,
    normalizing_axes,
    normalizing_channels,
    padding,
    pooling,
    quantized_products,
    ranking,
    reductions,
    refusing,
    reshaping,
    resizing,
    rotary,
    scattering,
    softmax,
    spreading,
    updating,
):
    _family.add_to(TABLE)
