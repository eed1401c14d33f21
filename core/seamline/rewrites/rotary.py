"""
Rotary positions written out, as the one operator that they are.

``x * cos + concat(-x2, x1) * sin``, where ``x1`` and ``x2`` are the halves of each head, rotates
pairs that lie half a head apart. ONNX's operator reads each cosine once; the graph has
each twice, for both halves. So it must be seen that they are the same: a ``Concat`` of one
value with itself, or a constant of two equal halves, and what is done to every element
after that. Under an opset that lacks the operator it is Seamline's own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.patterns import search
from seamline.rewriting import OWN, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "rotary"
_SINCE = 23
_PATTERN = ("Add", ("Mul", "x", "cos"), ("Mul", "turned", "sin"))
_EACH = frozenset({"Cos", "Sin", "Cast", "Identity", "Neg", "Mul", "Div"})
_DEPTH = 12


def rotary(work: Rewriting, node: ir.Node) -> bool:
    """Join a rotation of heads that is written out."""
    found = None if node.domain else search(work, node, (_PATTERN,))
    if found is None:
        return False
    x, turned = found.values["x"], found.values["turned"]
    parts = _half_turn(work, x, turned)
    if parts is None:  # the two products stand the other way round
        x, turned = turned, x
        found.values["cos"], found.values["sin"] = (
            found.values["sin"],
            found.values["cos"],
        )
        parts = _half_turn(work, x, turned)
    kind = work.kind(x)
    if parts is None or kind is None or kind.shape is None or len(kind.shape) != 4:
        return False
    if kind.dtype not in ("float32", "float16") or node.name is None:
        return False
    tables = [found.values["cos"], found.values["sin"]]
    if (wrong := _misfit(work, tables, kind)) is not None:
        return work.leave(_RULE, node.name, wrong)
    draft = Draft(work, _RULE, (*found.nodes, *parts))
    given = [_half(draft, table, kind, name) for table, name in zip(tables, ("cos", "sin"), strict=True)]  # fmt: skip
    domain = "" if work.opset() >= _SINCE else OWN
    made = draft.node("RotaryEmbedding", [x, *given], kind, domain=domain)
    return draft.make("together they are RotaryEmbedding", (node.outputs[0], made))


def _half_turn(
    work: Rewriting, x: ir.Value, turned: ir.Value
) -> tuple[ir.Node, ...] | None:
    """Give the nodes of ``concat(-x2, x1)``, or None where a value is something else."""
    join, shape = turned.producer(), work.shape(x)
    if join is None or join.domain or join.op_type != "Concat" or not shape:
        return None
    last, size = len(shape) - 1, shape[-1]
    if work.attribute(join, "axis", 0) not in (-1, last) or len(join.inputs) != 2:
        return None
    if not isinstance(size, int) or size % 2 or join.inputs[0] is None:
        return None
    negated = join.inputs[0].producer()
    if negated is None or negated.domain or negated.op_type != "Neg":
        return None
    upper = _slice(work, negated.inputs[0], x, last, size // 2, size)
    lower = _slice(work, join.inputs[1], x, last, 0, size // 2)
    if upper is None or lower is None:
        return None
    return (upper, lower, negated, join)


def _slice(
    work: Rewriting,
    value: ir.Value | None,
    x: ir.Value,
    last: int,
    start: int,
    end: int,
) -> ir.Node | None:
    """Give the node that cuts a part of the last axis out of ``x``."""
    node = value.producer() if value is not None else None
    if (
        node is None
        or node.domain
        or node.op_type != "Slice"
        or node.inputs[0] is not x
    ):
        return None
    given = [work.number(v) for v in node.inputs[1:]]
    if len(given) < 3 or None in given or given[2] not in (-1, last):
        return None
    if len(given) > 3 and given[3] != 1:
        return None
    first, stop = given[0], given[1]
    if first is None or stop is None:
        return None
    first = first + 2 * max(start, end - start) if first < 0 else first
    whole = stop >= end if start else stop == end
    return node if first == start and whole else None


def _misfit(work: Rewriting, tables: list[ir.Value], kind: TensorType) -> str | None:
    shape = tuple(kind.shape or ())
    for table in tables:
        its = work.kind(table)
        if (
            its is None
            or its.shape != (shape[0], 1, *shape[2:])
            or its.dtype != kind.dtype
        ):
            return f"its table is {its}, and its heads are {kind}"
        if not _doubled(work, table, _DEPTH):
            return "it cannot be seen that both halves of its table are the same"
    return None


def _doubled(work: Rewriting, value: ir.Value | None, depth: int) -> bool:
    """Tell whether the two halves of the last axis are the same."""
    if value is None or depth == 0:
        return False
    if (known := work.constant(value)) is not None:
        return known.ndim > 0 and _halves_alike(known)
    node = value.producer()
    if node is None or node.domain:
        return False
    rank = len(work.shape(value) or ())
    given = list(node.inputs)
    if node.op_type == "Concat":
        axis = work.attribute(node, "axis", 0)
        return axis in (-1, rank - 1) and len(given) == 2 and given[0] is given[1]
    if node.op_type == "Unsqueeze":
        axes = work.attribute(node, "axes", None)
        if axes is None and len(given) > 1:
            array = work.constant(given[1])
            axes = None if array is None else array.ravel().tolist()
        behind = axes is None or any(axis in (-1, rank - 1) for axis in axes)
        return not behind and _doubled(work, given[0], depth - 1)
    if node.op_type == "Gather":
        axis = work.attribute(node, "axis", 0)
        return axis == 0 and _doubled(work, given[0], depth - 1)
    if node.op_type not in _EACH:
        return False
    varying = [v for v in given if v is not None and work.number(v) is None]
    return len(varying) == 1 and _doubled(work, varying[0], depth - 1)


def _halves_alike(array: np.ndarray) -> bool:
    half = array.shape[-1] // 2
    return bool(np.array_equal(array[..., :half], array[..., half:]))


def _half(draft: Draft, table: ir.Value, kind: TensorType, hint: str) -> ir.Value:
    """Draft the first half of a table (batch, 1, rows, size), without its second axis."""
    shape = tuple(kind.shape or ())
    size = shape[3]
    half = size // 2 if isinstance(size, int) else None
    numbers = [
        draft.constant(np.array([number], np.int64), f"{hint}.{name}")
        for name, number in (("start", 0), ("end", half or 0), ("axis", 3))
    ]
    cut = TensorType(kind.dtype, (shape[0], 1, shape[2], half))
    made = draft.node("Slice", [table, *numbers], cut, hint=f"{hint}.half")
    flat = TensorType(kind.dtype, (shape[0], shape[2], half))
    if draft.work.opset() < 13:
        given = {"axes": [1]}
        return draft.node("Squeeze", [made], flat, given, hint=f"{hint}.rows")
    axes = draft.constant(np.array([1], np.int64), f"{hint}.axes")
    return draft.node("Squeeze", [made, axes], flat, hint=f"{hint}.rows")


RULES: Rules = {"Add": (rotary,)}
