"""
The operators that the device runs, and what each of their claims tests.

A kernel of this table gives no function to call. An elementwise one says by which formula,
and the segment joins neighbours; any other gives work over the node's places, as
:mod:`seamline_cuda.works` has it. So claims are made, and groups formed, without a device.
"""

from __future__ import annotations

import math

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda import cutting, reductions, reshaping, scattering, softmax, spreading
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.elementwise import LIMIT
from seamline_cuda.formulas import FORMULAS, Formula
from seamline_cuda.works import LIBRARY

__all__ = ["LIBRARY", "TABLE", "is_elementwise"]

TABLE = KernelTable("cuda", variant="generated")
_OPERANDS = 12  #: of Max, Min and Sum


def is_elementwise(node: NodeView) -> bool:
    """Tell whether a node that was claimed is a formula over its operands."""
    return not node.domain and node.op_type in FORMULAS


def _described(call: Call) -> Formula:
    return FORMULAS[call.view.op_type]


def _refused(node: NodeView) -> str | None:
    """Give a reason not to run a node whose first element type was accepted."""
    formula = FORMULAS[node.op_type]
    unknown = sorted(set(node.attributes) - formula.attributes)
    if unknown:
        return f"attribute {unknown[0]!r} is not implemented"
    if len(node.inputs) > _OPERANDS:
        return f"{len(node.inputs)} operands are more than {_OPERANDS}"
    if node.op_type == "Cast" and node.attributes.get("round_mode", "up") != "up":
        return "rounding other than 'up' is for types that the device has not"
    return _unfit(node)


def _unfit(node: NodeView) -> str | None:
    kinds = [k for k in (*node.inputs, *node.outputs) if k is not None]
    for kind in kinds:
        if not isinstance(kind, TensorType):
            return f"a {kind} is no tensor"
        if kind.dtype not in ELEMENTS:
            return f"it makes or reads {kind.dtype}, which the device has not"
        if kind.is_sized and math.prod(kind.sizes) >= LIMIT:
            return f"{kind} has {LIMIT} elements or more"
    return None


for _op, _formula in FORMULAS.items():
    TABLE.kernel(
        _op,
        since=_formula.since,
        dtypes={_formula.checked: _formula.dtypes},
        when=_refused,
        aliases=tuple((0, index) for index in _formula.alike),
        because="one kernel is generated for neighbouring elementwise nodes",
        not_capturable=None,
    )(_described)

# Families of operators; each module adds its own kernels.
for _add in (
    reshaping.add_to,
    scattering.add_to,
    cutting.add_to,
    spreading.add_to,
    reductions.add_to,
    softmax.add_to,
):
    _add(TABLE)
