"""
Normalization of trailing axes: LayerNormalization, RMSNormalization, and their skip forms.

The mean is made first and the squares of what is left after it second: a sum of squares
minus a square of sums loses the digits of rows far from zero. Statistics are float32, or
float64 for such inputs, which is ``stash_type`` 1; a result is rounded once, when it is
stored.

onnxruntime's SkipLayerNormalization is ``LayerNormalization(input + skip + bias)``, its
SimplifiedLayerNormalization is RMSNormalization; both may give the sum, rounded to its
element type, which is also what is normalized.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline.contrib_types import skip_normalization
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView, View
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.folds import Folds
from seamline_cuda.row_operands import RowOperands
from seamline_cuda.row_programs import Fold, RowProgram, summed
from seamline_cuda.row_works import row_work, workspace_of
from seamline_cuda.works import Work

__all__ = ["Form", "add_to", "layer_folds", "rms_folds"]

CONTRIB = "com.microsoft"
OWN = "seamline"  # ONNX's own for older opsets
_FLOATS = ("float32", "float16", "bfloat16", "float64")


@attrs.frozen
class Form:
    """
    Which inputs and outputs one of the operators has, each -1 where it has none.

    Attributes
    ----------
    centred
        Whether the mean is subtracted.
    epsilon
        Where the node does not say.
    """

    centred: bool
    scale: int = 1
    shift: int = -1
    skip: int = -1
    bias: int = -1
    mean: int = -1
    inverse: int = -1
    total: int = -1
    epsilon: float = 1e-5


#: (domain, operator) -> form.
FORMS = {
    ("", "LayerNormalization"): Form(True, shift=2, mean=1, inverse=2),
    (OWN, "LayerNormalization"): Form(True, shift=2, mean=1, inverse=2),
    ("", "RMSNormalization"): Form(False),
    ("", "SimplifiedLayerNormalization"): Form(False, inverse=1),
    (CONTRIB, "SimplifiedLayerNormalization"): Form(False, inverse=1),
    (CONTRIB, "SkipLayerNormalization"): Form(
        True,
        scale=2,
        shift=3,
        skip=1,
        bias=4,
        mean=1,
        inverse=2,
        total=3,
        epsilon=1e-12,
    ),
    (CONTRIB, "SkipSimplifiedLayerNormalization"): Form(
        False, scale=2, skip=1, bias=3, inverse=2, total=3, epsilon=1e-12
    ),
}


def layer_folds(wide: Wide, value: str = "x{u}") -> tuple[Fold, ...]:
    """Give the passes that make ``mean`` and ``inverse``, for a parameter ``epsilon``."""
    count = f"np.{wide.kind}(n)"
    spread = f"({value} - mean) * ({value} - mean)"
    return (
        summed("sum", wide.kind, value, (f"mean = sum / {count}",)),
        summed("squares", wide.kind, spread, (_inverse(wide, count),)),
    )


def rms_folds(wide: Wide, value: str = "x{u}") -> tuple[Fold, ...]:
    """Give the pass that makes ``inverse``, for a parameter ``epsilon``."""
    count = f"np.{wide.kind}(n)"
    return (
        summed("squares", wide.kind, f"{value} * {value}", (_inverse(wide, count),)),
    )


def _inverse(wide: Wide, count: str) -> str:
    root = wide.call("fsqrt_rn", f"squares / {count} + epsilon")
    return f"inverse = {wide.number(1.0)} / {root}"


def _program(form: Form, call: Call, axis: int) -> tuple[RowProgram, list[float]]:
    """Write a node's program, and give the values of its parameters."""
    node, x, y = call.view, call.inputs[0], call.outputs[0]
    wide = wide_of(x.kind.dtype)
    made = RowOperands(wide)
    made.place("x", x)
    out = made.place("y", y)
    made.added(
        "epsilon", wide.kind, float(node.attributes.get("epsilon", form.epsilon))
    )
    load = [f"x{{u}} = {wide.load('x[at{u}]')}", *_sum(form, call, made)]
    write = _scaled(form, call, made, axis)
    write.append(f"y[at{{u}}] = {out.store('v{u}')}")
    if (total := _asked(call, form.total)) is not None:
        write.append(f"p_total[at{{u}}] = {made.place('p_total', total).store('x{u}')}")
    result = []
    for name, index in (("mean", form.mean), ("inverse", form.inverse)):
        if (asked := _asked(call, index)) is not None:
            stored = made.place(f"p_{name}", asked).store(name)
            result.append(f"p_{name}[row] = {stored}")
    passes = layer_folds(wide) if form.centred else rms_folds(wide)
    program = RowProgram(
        node.op_type.lower(), tuple(made.parameters), (("x", wide.kind),), tuple(load),
        passes, write=tuple(write), result=tuple(result),
    )  # fmt: skip
    return program, made.values


def _scaled(form: Form, call: Call, made: RowOperands, axis: int) -> list[str]:
    """Write the lines that make ``v`` of an element: normalized, scaled and shifted."""
    value = "(x{u} - mean) * inverse" if form.centred else "x{u} * inverse"
    lines, shape = [], call.inputs[0].shape
    for name, index, line in (
        ("scale", form.scale, f"{value} * scale{{u}}"),
        ("shift", form.shift, "v{u} + shift{u}"),
    ):
        given = call.input(index) if index >= 0 else None
        if given is not None:
            lines += made.spread(name, given, *_under(shape, given.shape, axis))
            lines.append(f"v{{u}} = {line}")
    return lines


def _under(
    shape: Sequence[int], own: Sequence[int], axis: int
) -> tuple[Sequence[int], str]:
    """Give the shape that a scale broadcasts to, and the index over it."""
    inside = tuple(shape[axis:])
    return (inside, "j{u}") if len(own) <= len(inside) else (tuple(shape), "at{u}")


def _sum(form: Form, call: Call, made: RowOperands) -> list[str]:
    """Add what comes before the normalization, and round as the sum's element type does."""
    lines, shape = [], call.inputs[0].shape
    for name, index in (("skip", form.skip), ("bias", form.bias)):
        given = call.input(index) if index >= 0 else None
        if given is not None:
            lines += made.spread(name, given, shape, "at{u}")
            lines.append(f"x{{u}} = {_rounded(made.wide, f'x{{u}} + {name}{{u}}')}")
    return lines


def _rounded(wide: Wide, value: str) -> str:
    return ELEMENTS[wide.name].rounded.format(value)


def _asked(call: Call, index: int) -> View:
    return call.output(index) if index >= 0 else None


# --- nodes --------------------------------------------------------------------------


def _axis(node: NodeView, rank: int) -> int | None:
    """Give the first axis that is normalized, from the front; None outside of the rank."""
    axis = int(node.attributes.get("axis", -1))
    if not -rank <= axis < max(rank, 1):
        return None
    return axis % rank if rank else 0


def _folds(node: NodeView) -> Folds | None:
    sizes = sizes_of(node, 0)
    axis = _axis(node, len(sizes)) if sizes is not None else None
    if sizes is None or axis is None:
        return None
    return Folds.of(sizes, range(axis, len(sizes)))


def _unfit(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    form, x = FORMS[node.domain, node.op_type], node.tensor(0)
    shape = x.shape if x is not None and x.shape is not None else ()
    if _axis(node, len(shape)) is None:
        return f"its axis is outside of rank {len(shape)}"
    if int(node.attributes.get("stash_type", 1)) != 1:
        return f"stash_type {node.attributes['stash_type']}; statistics are made in float32 (1)"
    if not node.has_input(form.scale):
        return "its scale is not given"
    for index in (form.scale, form.shift, form.skip, form.bias):
        kind = node.tensor(index) if index >= 0 else None
        if kind is not None and not _broadcasts(kind.shape, shape):
            return f"input {index} is {kind}, which does not broadcast to {x}"
    return None


def _broadcasts(own: Sequence[object] | None, shape: Sequence[object]) -> bool:
    if own is None or len(own) > len(shape):
        return False
    behind = shape[len(shape) - len(own) :]
    return not any(
        isinstance(size, int) and isinstance(other, int) and size not in (1, other)
        for size, other in zip(own, behind, strict=True)
    )


def _workspace(node: NodeView) -> int:
    folds = _folds(node)
    return workspace_of(folds, 2) if folds is not None else 0


def _normalized(call: Call) -> Sequence[Work]:
    node, folds = call.view, _folds(call.view)
    assert folds is not None
    axis = _axis(node, len(call.inputs[0].shape)) or 0
    program, values = _program(FORMS[node.domain, node.op_type], call, axis)
    return row_work(program, folds, values, call)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for (domain, op_type), form in FORMS.items():
        floats = [form.scale, form.shift, form.skip, form.bias]
        table.kernel(
            op_type,
            domain=domain,
            dtypes=dict.fromkeys([0, *(i for i in floats if i > 0)], _FLOATS),
            when=_unfit,
            aliases=((0, 0),),
            workspace=_workspace,
            variant="rows",
            because="a row is read once where its threads can hold it",
            not_capturable=None,
        )(_normalized)
    for op_type in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        table.infer(op_type, domain=CONTRIB)(skip_normalization)
    table.infer("LayerNormalization", domain=OWN)(lambda node: [node.tensor(0)])
