"""
Normalization of groups of channels, and of channels by statistics that are given.

GroupNormalization has a row for each group: its channels lie together, so a row is one
stretch of memory. InstanceNormalization is that with a group for each channel.
BatchNormalization folds nothing: its mean and variance are inputs (inference).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.folds import Folds
from seamline_cuda.normalizing import layer_folds
from seamline_cuda.row_programs import RowProgram
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import Work

__all__ = ["add_to"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")


def _loaded(wide: Wide, dtype: str, place: str) -> tuple[str, str]:
    """Give the type of the address of a parameter by channel, and what reads it."""
    own = wide_of(dtype)
    return own.pointer, f"np.{wide.kind}({own.load(place)})"


# --- groups of channels -------------------------------------------------------------


def _groups(node: NodeView, channels: int) -> int:
    instance = node.op_type == "InstanceNormalization"
    return channels if instance else int(node.attributes.get("num_groups", 0))


def _group_folds(node: NodeView) -> Folds | None:
    sizes = sizes_of(node, 0)
    if sizes is None:
        return None
    groups = _groups(node, sizes[1])
    each = sizes[1] // max(groups, 1) * math.prod(sizes[2:])
    return Folds.of((sizes[0] * groups, each), (1,))


def _group_program(node: NodeView, wide: Wide, dtypes: Sequence[str]) -> RowProgram:
    """Give the program of a group; ``dtypes`` are those of scale and shift."""
    # Before opset 21 scale and shift are by group.
    by_row = node.op_type == "InstanceNormalization" or node.since_version < 21
    u = "" if by_row else "{u}"
    (scale, scale_load), (shift, shift_load) = (
        _loaded(wide, dtype, f"{name}[at_channel{u}]")
        for name, dtype in zip(("scale", "shift"), dtypes, strict=True)
    )
    over = "np.int64(quotient32(np.uint32(row), np.uint32(groups)))"
    across = "np.int64(quotient32(np.uint32(j{u}), np.uint32(size)))"
    channel = "where" if by_row else f"where * each + {across}"
    lines = (
        f"at_channel{u} = {channel}", f"factor{u} = {scale_load}", f"added{u} = {shift_load}",
    )  # fmt: skip
    value = f"(x{{u}} - mean) * inverse * factor{u} + added{u}"
    return RowProgram(
        node.op_type.lower(),
        (
            ("x", wide.pointer), ("scale", scale), ("shift", shift), ("y", wide.pointer),
            ("epsilon", wide.kind), ("groups", "int64"), ("each", "int64"), ("size", "int64"),
        ),
        (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",),
        layer_folds(wide),
        before=(f"where = row - {over} * groups", *(lines if by_row else ())),
        write=(*(() if by_row else lines), f"y[at{{u}}] = {wide.store(value)}"),
    )  # fmt: skip


def _grouped(call: Call) -> Sequence[Work]:
    node, folds = call.view, _group_folds(call.view)
    x, scale, shift, y = *call.inputs[:3], call.outputs[0]
    assert folds is not None
    dtypes = scale.kind.dtype, shift.kind.dtype
    program = _group_program(node, wide_of(x.kind.dtype), dtypes)
    groups, epsilon = _groups(node, x.shape[1]), float(call.attr("epsilon", 1e-5))
    values = (
        x.address, scale.address, shift.address, y.address, epsilon, groups,
        x.shape[1] // max(groups, 1), math.prod(x.shape[2:]),
    )  # fmt: skip
    return row_work(program, folds, values, call)


def _unfit_groups(node: NodeView) -> str | None:
    if reason := rows_fit(node) or _unfit_stash(node):
        return reason
    x = node.tensor(0)
    shape = x.shape if x is not None and x.shape is not None else ()
    if len(shape) < 2:
        return f"its input has rank {len(shape)}; batch and channels are needed"
    channels = shape[1]
    groups = node.attributes.get("num_groups", 1)
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        return f"{channels} channels do not divide into {groups} groups"
    old = node.op_type == "GroupNormalization" and node.since_version < 21
    return _unfit_parameters(node, groups if old else channels, (1, 2))


def _unfit_stash(node: NodeView) -> str | None:
    stash = int(node.attributes.get("stash_type", 1))
    return (
        None
        if stash == 1
        else f"stash_type {stash}; statistics are made in float32 (1)"
    )


def _unfit_parameters(
    node: NodeView, size: object, indices: Sequence[int]
) -> str | None:
    for index in indices:
        kind = node.tensor(index)
        if kind is None or kind.shape is None:
            return f"the rank of input {index} is not known"
        if len(kind.shape) != 1:
            return f"input {index} is {kind}, not one value for each of {size}"
        own = kind.shape[0]
        if isinstance(own, int) and isinstance(size, int) and own != size:
            return f"input {index} has {own} values for {size}"
    return None


# --- by statistics that are given ---------------------------------------------------


def _unfit_batch(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    if node.attributes.get("training_mode", 0) or any(
        node.has_output(i) for i in range(1, 5)
    ):
        return "training mode; inference would be accepted"
    if not node.attributes.get("spatial", 1):
        return "spatial is 0, statistics for each activation; one for each channel would be accepted"
    x = node.tensor(0)
    shape = x.shape if x is not None and x.shape is not None else ()
    if not shape:
        return "its input is a scalar, which has no channels"
    return _unfit_parameters(node, shape[1] if len(shape) > 1 else 1, range(1, 5))


def _batch_program(wide: Wide, dtypes: Sequence[str]) -> RowProgram:
    """Give the program, all elements one row; ``dtypes`` are of the four parameters."""
    names = ("scale", "shift", "means", "spreads")
    kinds, loads = [], {}
    for name, dtype in zip(names, dtypes, strict=True):
        kind, loads[name] = _loaded(wide, dtype, f"{name}[c{{u}}]")
        kinds.append((name, kind))
    root = wide.call("fsqrt_rn", f"{loads['spreads']} + epsilon")
    factor = f"({loads['scale']} / {root})"
    value = f"(x{{u}} - {loads['means']}) * {factor} + {loads['shift']}"
    return RowProgram(
        "batchnormalization",
        (
            ("x", wide.pointer), *kinds, ("y", wide.pointer), ("epsilon", wide.kind),
            ("channels", "int64"), ("size", "int64"),
        ),
        (("x", wide.kind),),
        (f"x{{u}} = {wide.load('x[at{u}]')}",),
        (),
        write=(
            "plane{u} = quotient32(np.uint32(j{u}), np.uint32(size))",
            "c{u} = np.int64(quotient32(plane{u}, np.uint32(channels)))",
            "c{u} = np.int64(plane{u}) - c{u} * channels",
            f"y[at{{u}}] = {wide.store(value)}",
        ),
    )  # fmt: skip


def _by_batch(call: Call) -> Sequence[Work]:
    x, *given = call.inputs[:5]
    y, count = call.outputs[0], math.prod(x.shape)
    program = _batch_program(wide_of(x.kind.dtype), [v.kind.dtype for v in given])
    channels = x.shape[1] if len(x.shape) > 1 else 1
    values = (
        x.address, *(view.address for view in given), y.address,
        float(call.attr("epsilon", 1e-5)), channels, math.prod(x.shape[2:]),
    )  # fmt: skip
    return row_work(program, Folds.of((count,), (0,)), values, call) if count else []


# --- the table ----------------------------------------------------------------------


def _space(node: NodeView) -> int:
    folds = _group_folds(node)
    return workspace_of(folds, 2) if folds is not None else 0


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, since, function, unfit in (
        ("GroupNormalization", 18, _grouped, _unfit_groups),
        ("InstanceNormalization", 6, _grouped, _unfit_groups),
        ("BatchNormalization", 7, _by_batch, _unfit_batch),
    ):
        batch = op_type == "BatchNormalization"
        table.kernel(
            op_type,
            since=since,
            dtypes=dict.fromkeys(range(5 if batch else 3), _FLOATS),
            when=unfit,
            aliases=((0, 0),),
            workspace=None if batch else _space,
            variant="rows",
            because="threads that share a row exchange registers",
            not_capturable=None,
        )(function)
