"""
MaxPool, AveragePool and LpPool over one to three spatial axes, and the three global pools.

NaN, where a window has one, is its largest. A mean is over the places of the window that
are in the input, or with ``count_include_pad`` over those in its padding too, but never
over what ``ceil_mode`` adds behind it. A global pool is a reduction of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.windows import Window, window_of
from seamline.windows_fitting import unfit_pool
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.folds import Folds
from seamline_cuda.pooling_text import PER_AXIS, PoolText
from seamline_cuda.reductions import greatest_of, program_of
from seamline_cuda.row_programs import Fold, summed
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "pool_text"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_FIELDS = ("sizes", "outs", "kernel", "strides", "dilations", "begins", "ends")
_BLOCK = 128


# --- windows ------------------------------------------------------------------------


def pool_text(node: NodeView, dtype: str, rank: int) -> PoolText:
    """Give the text of a node's kernel, for an element type and so many spatial axes."""
    wide = wide_of(dtype)
    make = {"MaxPool": _largest, "AveragePool": _mean, "LpPool": _norm}[node.op_type]
    return make(node, wide, rank)


def _largest(node: NodeView, wide: Wide, rank: int) -> PoolText:
    load = wide.load("x[at]")
    start = (f"best = {wide.least()}", "where = np.int64(-1)")
    nan = " or (v != v and best == best)" if wide.is_float else ""
    tap = (f"if where < 0 or v > best{nan}:", "    best = v", "    where = inside")
    places = node.has_output(1)
    parameters, finish, name = [("x", wide.pointer)], [], "maxpool"
    if node.has_output(0):
        parameters.append(("y", wide.pointer))
        finish.append(f"y[i] = {wide.store('best')}")
    if places:
        name = "maxpool_places"
        parameters.append(("places", "int64*"))
        columns = bool(node.attributes.get("storage_order", 0)) and rank > 1
        finish += _by_columns(rank) if columns else []
        whole = " * ".join(f"size{a}" for a in range(rank))
        finish.append(f"places[i] = plane * ({whole}) + where")
    return PoolText(name, rank, tuple(parameters), load, start, tap, tuple(finish))


def _by_columns(rank: int) -> list[str]:
    """Count a place in its plane with the first spatial axis as the innermost."""
    lines, left, turned = [], "where", "np.int64(0)"
    for a in reversed(range(1, rank)):
        over = f"np.int64(quotient32(np.uint32({left}), np.uint32(size{a})))"
        lines += [f"turned{a} = {over}"]
        turned = f"({turned}) * size{a} + ({left} - turned{a} * size{a})"
        left = f"turned{a}"
    return [*lines, f"where = ({turned}) * size0 + {left}"]


def _mean(node: NodeView, wide: Wide, rank: int) -> PoolText:
    padded = bool(node.attributes.get("count_include_pad", 0))
    zero = wide.number(0.0)
    start = (f"total = {zero}", *(() if padded else ("taps = np.int64(0)",)))
    tap = ("total += v", *(() if padded else ("taps += 1",)))
    mean = wide.store(f"total / np.{wide.kind}(taps)")
    return PoolText(
        f"averagepool{'_padded' if padded else ''}", rank, (("x", wide.pointer), ("y", wide.pointer)),
        wide.load("x[at]"), start, tap, (f"y[i] = {mean}",), counted=padded,
    )  # fmt: skip


def _norm(node: NodeView, wide: Wide, rank: int) -> PoolText:
    p = float(node.attributes.get("p", 2))
    term, root = _powers(wide, p, "v")
    return PoolText(
        "lppool", rank, (("x", wide.pointer), ("y", wide.pointer)), wide.load("x[at]"),
        (f"s = {wide.number(0.0)}",), (f"s += {term}",), (f"y[i] = {wide.store(root)}",),
    )  # fmt: skip


def _powers(wide: Wide, p: float, value: str) -> tuple[str, str]:
    """Give the p-th power of a value's magnitude, and the p-th root of ``s``."""
    magnitude = wide.call("fabsf", value)
    if p == 1:
        return magnitude, "s"
    if p == 2:
        return f"{value} * {value}", wide.call("fsqrt_rn", "s")
    power = wide.call("powf", magnitude, wide.number(p))
    return power, wide.call("powf", "s", wide.number(1 / p))


def _window(call: Call) -> Window:
    x = call.inputs[0].shape
    out = call.output(0) if call.output(0) is not None else call.output(1)
    return window_of(call.view, x[2:], out.shape[2:], tuple(call.attr("kernel_shape")))


def _pooled(call: Call) -> Sequence[Work]:
    x, outs = call.inputs[0], [view for view in call.outputs[:2] if view is not None]
    count = math.prod(outs[0].shape)
    if not count:
        return []
    window = _window(call)
    text = pool_text(call.view, x.kind.dtype, len(window.sizes))
    fields = dict(zip(PER_AXIS, _FIELDS, strict=True))
    axes = [
        getattr(window, fields[what])[a] for a in range(text.rank) for what in PER_AXIS
    ]
    signature = tuple(kind for _, kind in text.all_parameters())
    kernel = DeviceKernel(text.name, text.written(), signature)
    arguments = (x.address, *(view.address for view in outs), count, *axes)
    return [KernelWork(kernel, arguments, count, _BLOCK)]


def _unfit(node: NodeView) -> str | None:
    if reason := rows_fit(node) or unfit_pool(node):
        return reason
    x = node.tensor(0)
    rank = len(x.shape or ()) - 2 if x is not None else 0
    if rank > 3:
        return f"it has {rank} spatial axes; 1 to 3 would be accepted"
    if node.attributes.get("storage_order", 0) not in (0, 1):
        return f"storage_order {node.attributes['storage_order']} is neither 0 nor 1"
    return None


# --- whole channels -----------------------------------------------------------------


def _global_folds(node: NodeView) -> Folds | None:
    sizes = sizes_of(node, 0)
    return Folds.of(sizes, range(2, len(sizes))) if sizes is not None else None


def _global_passes(node: NodeView, wide: Wide) -> tuple[Fold, ...]:
    if node.op_type == "GlobalMaxPool":
        return (greatest_of(wide, "s", ("found = s",)),)
    if node.op_type == "GlobalAveragePool":
        return (summed("s", wide.kind, "x{u}", (f"found = s / np.{wide.kind}(n)",)),)
    term, root = _powers(wide, float(node.attributes.get("p", 2)), "x{u}")
    return (summed("s", wide.kind, term, (f"found = {root}",)),)


def _global(call: Call) -> Sequence[Work]:
    node, folds = call.view, _global_folds(call.view)
    x, y = call.inputs[0], call.outputs[0]
    assert folds is not None
    wide = wide_of(x.kind.dtype)
    program = program_of(node.op_type, wide, _global_passes(node, wide))
    return row_work(program, folds, (x.address, y.address), call)


def _unfit_global(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    x = node.tensor(0)
    if x is None or x.shape is None or len(x.shape) < 3:
        return f"its input is {x}; batch, channels and pixels would be accepted"
    if node.attributes.get("p", 2) <= 0:
        return f"its p is {node.attributes['p']}, which gives no norm"
    return None


def _space(node: NodeView) -> int:
    folds = _global_folds(node)
    return workspace_of(folds, 1) if folds is not None else 0


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type in ("MaxPool", "AveragePool", "LpPool"):
        table.kernel(
            op_type,
            dtypes=(*_FLOATS, "int8", "uint8") if op_type == "MaxPool" else _FLOATS,
            when=_unfit,
            variant="windows",
            because="a thread takes a window, beside its neighbours",
            not_capturable=None,
        )(_pooled)
    for op_type in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"):
        table.kernel(
            op_type,
            dtypes=_FLOATS,
            when=_unfit_global,
            workspace=_space,
            variant="rows",
            because="threads that share a row exchange registers",
            not_capturable=None,
        )(_global)
