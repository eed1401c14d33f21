"""
Softmax, LogSoftmax, Hardmax, ArgMax and ArgMin: rows along an axis.

Before opset 13 the three maxima flatten their input: a row is everything from the axis on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.folds import Folds, axes_within
from seamline_cuda.reductions import greatest_of
from seamline_cuda.row_programs import Fold, RowProgram, State, summed
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import Work

__all__ = ["add_to", "program_of"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_NUMBERS = (
    *_FLOATS,
    "int32",
    "int64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "uint32",
    "uint64",
)


def _first(wide: Wide, *, largest: bool, last: bool) -> Fold:
    """
    Give the pass that finds where the largest or smallest stands: ``at``.

    NaN comes before all others, and of equals the first, or the last.
    """
    start = wide.least() if largest else wide.greatest()
    order = ">" if largest else "<"
    states = State("best", wide.kind, start), State("where", "int64", "np.int64(-1)")

    def taken(value: str, index: str) -> tuple[str, ...]:
        # Without branches: a row's threads would go apart, and compiling takes long.
        wins, same = f"({value} {order} best)", f"({value} == best)"
        if wide.is_float:
            wins += f" | (({value} != {value}) & (best == best))"
            same = f"({same} | (({value} != {value}) & (best != best)))"
        nearer = f"({index} > where)" if last else f"(({index} < where) | (where < 0))"
        return (
            f"takes = ({index} >= 0) & ({wins} | ({same} & {nearer}))",
            f"best = {value} if takes else best",
            f"where = {index} if takes else where",
        )

    return Fold(states, taken("x{u}", "j{u}"), taken("o_best", "o_where"))


def _softmax(wide: Wide) -> tuple[tuple[Fold, ...], str]:
    power = wide.call("expf", "x{u} - most")
    total = summed("total", wide.kind, power, (f"scale = {wide.number(1.0)} / total",))
    return (greatest_of(wide, "most"), total), f"{power} * scale"


def _log_softmax(wide: Wide) -> tuple[tuple[Fold, ...], str]:
    power = wide.call("expf", "x{u} - most")
    low = f"low = {wide.call('logf', 'total')}"
    total = summed("total", wide.kind, power, (low,))
    return (greatest_of(wide, "most"), total), "(x{u} - most) - low"


def _hardmax(wide: Wide) -> tuple[tuple[Fold, ...], str]:
    one, zero = wide.number(1.0), wide.number(0.0)
    value = f"({one} if j{{u}} == where else {zero})"
    return (_first(wide, largest=True, last=False),), value


_MAXIMA: dict[str, Callable[[Wide], tuple[tuple[Fold, ...], str]]] = {
    "Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax,
}  # fmt: skip


def program_of(op_type: str, dtype: str) -> RowProgram:
    """Give the program of one of the three maxima for an element type."""
    wide = wide_of(dtype)
    folds, value = _MAXIMA[op_type](wide)
    return RowProgram(
        op_type.lower(),
        (("x", wide.pointer), ("y", wide.pointer)),
        (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",),
        folds,
        write=(f"y[at{{u}}] = {wide.store(value)}",),
    )


def _extreme(node: NodeView, dtype: str) -> RowProgram:
    wide, last = wide_of(dtype), bool(node.attributes.get("select_last_index", 0))
    name = f"{node.op_type.lower()}{'_last' if last else ''}"
    return RowProgram(
        name,
        (("x", wide.pointer), ("y", "int64*")),
        (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",),
        (_first(wide, largest=node.op_type == "ArgMax", last=last),),
        result=("y[row] = where",),
    )


# --- nodes --------------------------------------------------------------------------


def _axes(node: NodeView, rank: int) -> tuple[int, ...] | None:
    """Give the axes of a row; None where the attribute is outside of the rank."""
    if node.op_type in ("ArgMax", "ArgMin"):
        return axes_within((int(node.attributes.get("axis", 0)),), rank)
    if node.since_version >= 13:
        axis = int(node.attributes.get("axis", -1))
        return () if not rank and axis in (0, -1) else axes_within((axis,), rank)
    axis = int(node.attributes.get("axis", 1))
    if not -rank <= axis <= rank:
        return None
    return tuple(range(axis + rank if axis < 0 else axis, rank))


def _folds(node: NodeView) -> Folds | None:
    sizes = sizes_of(node, 0)
    axes = _axes(node, len(sizes)) if sizes is not None else None
    return None if sizes is None or axes is None else Folds.of(sizes, axes)


def _unfit(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    kind = node.tensor(0)
    rank = len(kind.shape or ()) if kind is not None else 0
    if _axes(node, rank) is None:
        return f"its axis is outside of rank {rank}"
    return None


def _workspace(node: NodeView) -> int:
    folds = _folds(node)
    return workspace_of(folds, 2) if folds is not None else 0


def _maxima(call: Call) -> Sequence[Work]:
    folds, x, y = _folds(call.view), call.inputs[0], call.outputs[0]
    assert folds is not None
    program = program_of(call.view.op_type, x.kind.dtype)
    return row_work(program, folds, (x.address, y.address), call)


def _arguments(call: Call) -> Sequence[Work]:
    folds, x, y = _folds(call.view), call.inputs[0], call.outputs[0]
    assert folds is not None
    if not folds.length and folds.rows:
        raise ValueError("its axis has no elements, and so no largest or smallest")
    program = _extreme(call.view, x.kind.dtype)
    return row_work(program, folds, (x.address, y.address), call)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type in (*_MAXIMA, "ArgMax", "ArgMin"):
        is_maximum = op_type in _MAXIMA
        table.kernel(
            op_type,
            dtypes=_FLOATS if is_maximum else _NUMBERS,
            when=_unfit,
            aliases=((0, 0),) if is_maximum else (),
            workspace=_workspace,
            variant="rows",
            because="threads that share a row exchange registers",
            not_capturable=None,
        )(_maxima if is_maximum else _arguments)
