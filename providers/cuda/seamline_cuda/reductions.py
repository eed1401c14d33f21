"""
The ten Reduce operators, at every version, and the pools over a whole channel.

Axes are an attribute first and an input later (ReduceSum from 13, the others from 18), read
on the host, where the model may compute it; until then the scratch is that of whichever axes
take most. No axes means all of them, unless ``noop_with_empty_axes`` says none; what is
not the reduction (the square, the logarithm) is carried out even then. An empty set gives
what the fold starts with: 0, 1, the least or the greatest value, minus infinity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import Array, NodeView
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import elements_fit, sizes_of
from seamline_cuda.folds import Folds, axes_within
from seamline_cuda.limits import rank_of
from seamline_cuda.row_programs import Fold, RowProgram, State, summed
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import Work

__all__ = ["REDUCTIONS", "add_to", "greatest_of", "program_of"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_NUMBERS = (*_FLOATS, "int32", "int64", "uint32", "uint64")
_ORDERED = (*_NUMBERS, "int8", "uint8", "bool")
_FRACTIONS = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _sum(wide: Wide, term: str, result: str = "s") -> Fold:
    return summed("s", wide.kind, term, (f"found = {result}",))


def _mean(wide: Wide) -> Fold:
    if wide.is_float:
        return _sum(wide, "x{u}", f"s / np.{wide.kind}(n)")
    if wide.kind == "uint64":
        return _sum(wide, "x{u}", "s // np.uint64(max(n, 1))")
    return _sum(wide, "x{u}", "truncated64(s, max(n, 1))")


def _prod(wide: Wide) -> Fold:
    state = State("s", wide.kind, f"np.{wide.kind}(1)")
    return Fold((state,), ("s *= x{u}",), ("s *= o_s",), ("found = s",))


def _least(wide: Wide) -> Fold:
    state = State("s", wide.kind, wide.greatest())
    return Fold(
        (state,), ("s = least(s, x{u})",), ("s = least(s, o_s)",), ("found = s",)
    )


def _magnitude(wide: Wide) -> str:
    if wide.is_float:
        return wide.call("fabsf", "x{u}")
    return "x{u}" if wide.kind == "uint64" else "abs(x{u})"


def greatest_of(wide: Wide, name: str, after: tuple[str, ...] = ()) -> Fold:
    """Give the pass that finds the greatest element; the first NaN stays."""
    return Fold(
        (State(name, wide.kind, wide.least()),),
        (f"{name} = greatest({name}, x{{u}})",),
        (f"{name} = greatest({name}, o_{name})",),
        after,
    )


def _log_sum_exp(wide: Wide) -> tuple[Fold, ...]:
    """Subtract the greatest first, unless it is infinite: ``inf - inf`` is no number."""
    finite = f"most > {wide.least()} and most < {wide.greatest()}"
    shift = f"shift = most if {finite} else {wide.number(0.0)}"
    found = f"found = {wide.call('logf', 'total')} + shift"
    term = wide.call("expf", "x{u} - shift")
    return greatest_of(wide, "most", (shift,)), summed(
        "total", wide.kind, term, (found,)
    )


#: By operator, the passes that make ``found``.
REDUCTIONS: dict[str, Callable[[Wide], tuple[Fold, ...]]] = {
    "ReduceSum": lambda w: (_sum(w, "x{u}"),),
    "ReduceMean": lambda w: (_mean(w),),
    "ReduceMax": lambda w: (greatest_of(w, "s", ("found = s",)),),
    "ReduceMin": lambda w: (_least(w),),
    "ReduceProd": lambda w: (_prod(w),),
    "ReduceL1": lambda w: (_sum(w, _magnitude(w)),),
    "ReduceL2": lambda w: (_sum(w, "x{u} * x{u}", w.call("fsqrt_rn", "s")),),
    "ReduceLogSum": lambda w: (_sum(w, "x{u}", w.call("logf", "s")),),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda w: (_sum(w, "x{u} * x{u}"),),
}


def program_of(name: str, wide: Wide, folds: tuple[Fold, ...]) -> RowProgram:
    """Give the program that stores one result, ``found``, for each row."""
    return RowProgram(
        name.lower(),
        (("x", wide.pointer), ("y", wide.pointer)),
        (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",),
        folds,
        result=(f"y[row] = {wide.store('found')}",),
    )


# --- nodes --------------------------------------------------------------------------


def _by_input(node: NodeView) -> bool:
    return node.since_version >= (13 if node.op_type == "ReduceSum" else 18)


def _computes_axes(node: NodeView) -> bool:
    return _by_input(node) and node.has_input(1) and node.constant(1) is None


def _axes(node: NodeView, rank: int, given: Array | None) -> tuple[int, ...] | None:
    """Give the axes to reduce, or None where one is outside of the rank."""
    named = node.attributes.get("axes")
    if _by_input(node):
        named = (
            tuple(int(axis) for axis in given.reshape(-1)) if given is not None else ()
        )
        if not named and node.attributes.get("noop_with_empty_axes", 0):
            return ()
    return axes_within(named, rank) if named else tuple(range(rank))


def _unfit(node: NodeView) -> str | None:
    reason, rank = elements_fit(node), rank_of(node)
    if reason or rank is None or _computes_axes(node):
        return reason
    if _axes(node, rank, node.constant(1)) is None:
        return f"an axis is outside of rank {rank}"
    return None


def _workspace(node: NodeView) -> int:
    sizes, states = sizes_of(node, 0), 2 if node.op_type == "ReduceLogSumExp" else 1
    if sizes is None:
        return 0
    rank = len(sizes)
    if _computes_axes(node):
        counts = range(rank + 1)
        found = [c for n in counts for c in itertools.combinations(range(rank), n)]
    else:
        found = [_axes(node, rank, node.constant(1)) or ()]
    return max(workspace_of(Folds.of(sizes, axes), states) for axes in found)


def _reduced(call: Call) -> Sequence[Work]:
    node, x, y = call.view, call.inputs[0], call.outputs[0]
    given = call.inputs[1] if _by_input(node) and node.has_input(1) else None
    axes = _axes(node, len(x.shape), given)
    if axes is None:
        raise ValueError(f"an axis of {given} is outside of rank {len(x.shape)}")
    folds = Folds.of(x.shape, axes)
    wide = wide_of(x.kind.dtype, floats=node.op_type in _FRACTIONS)
    program = program_of(node.op_type, wide, REDUCTIONS[node.op_type](wide))
    return row_work(program, folds, (x.address, y.address), call)


def add_to(table: KernelTable) -> None:
    """Add the Reduce operators."""
    for op_type in REDUCTIONS:
        ordered = op_type in ("ReduceMax", "ReduceMin")
        table.kernel(
            op_type,
            dtypes=_ORDERED if ordered else _NUMBERS,
            when=_unfit,
            host_inputs={1},
            workspace=_workspace,
            variant="rows",
            because="threads that share a row exchange registers",
            not_capturable=None,
        )(_reduced)
