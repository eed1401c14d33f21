"""
LpNormalization and MeanVarianceNormalization: axes divided by a norm, or by a deviation.

A row of zeros has the norm zero and stays zeros. ONNX adds 1e-9 to a deviation, so that a
row of equal values becomes zeros as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.accumulating import wide_of
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.folds import Folds, axes_within
from seamline_cuda.normalizing import layer_folds
from seamline_cuda.row_programs import Fold, RowProgram, summed
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import Work

__all__ = ["add_to"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")


def _norm_axes(node: NodeView, rank: int) -> tuple[int, ...] | None:
    if node.op_type == "LpNormalization":
        return axes_within((int(node.attributes.get("axis", -1)),), rank)
    return axes_within(tuple(node.attributes.get("axes", (0, 2, 3))), rank)


def _norm_folds(node: NodeView) -> Folds | None:
    sizes = sizes_of(node, 0)
    axes = _norm_axes(node, len(sizes)) if sizes is not None else None
    return None if sizes is None or axes is None else Folds.of(sizes, axes)


def _unfit_norm(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    x = node.tensor(0)
    rank = len(x.shape or ()) if x is not None else 0
    if _norm_axes(node, rank) is None:
        return f"an axis is outside of rank {rank}"
    if node.attributes.get("p", 2) not in (1, 2):
        return f"p is {node.attributes['p']}; 1 and 2 would be accepted"
    return None


def _by_norm(call: Call) -> Sequence[Work]:
    node, folds = call.view, _norm_folds(call.view)
    x, y = call.inputs[0], call.outputs[0]
    assert folds is not None
    wide = wide_of(x.kind.dtype)
    if node.op_type == "LpNormalization":
        one = int(node.attributes.get("p", 2)) == 1
        term = wide.call("fabsf", "x{u}") if one else "x{u} * x{u}"
        norm = "norm = s" if one else f"norm = {wide.call('fsqrt_rn', 's')}"
        passes: tuple[Fold, ...] = (summed("s", wide.kind, term, (norm,)),)
        # Of a row of zeros the norm is zero, and ONNX gives zeros.
        value = f"(x{{u}} / norm if norm != {wide.number(0.0)} else {wide.number(0.0)})"
    else:
        mean = layer_folds(wide)[0]
        root = wide.call("fsqrt_rn", f"s / np.{wide.kind}(n)")
        deviation = f"deviation = {root} + {wide.number(1e-9)}"
        term = "(x{u} - mean) * (x{u} - mean)"
        passes = (mean, summed("s", wide.kind, term, (deviation,)))
        value = "(x{u} - mean) / deviation"
    program = RowProgram(
        node.op_type.lower(), (("x", wide.pointer), ("y", wide.pointer)), (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",), passes,
        write=(f"y[at{{u}}] = {wide.store(value)}",),
    )  # fmt: skip
    return row_work(program, folds, (x.address, y.address), call)


def _space(node: NodeView) -> int:
    folds = _norm_folds(node)
    return workspace_of(folds, 2) if folds is not None else 0


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since in (("LpNormalization", 1), ("MeanVarianceNormalization", 9)):
        table.kernel(
            op_type,
            since=since,
            dtypes=_FLOATS,
            when=_unfit_norm,
            aliases=((0, 0),),
            workspace=_space,
            variant="rows",
            because="threads that share a row exchange registers",
            not_capturable=None,
        )(_by_norm)
