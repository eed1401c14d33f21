"""Attention of ONNX's own domain (23, 24, 25), and under Seamline's for older opsets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.attention_fitting import unfit_attention
from seamline.attention_forms import refused_attention
from seamline.attention_types import attention_types
from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.attention_caches import joined
from seamline_cuda.attention_places import (
    WIDEST,
    Operand,
    aligned,
    broadcast_bias,
    operand,
)
from seamline_cuda.attention_scores import scores_work
from seamline_cuda.attention_spans import FIXED, Span
from seamline_cuda.attention_works import BECAUSE, Attended, room_of
from seamline_cuda.elements import FLOATS
from seamline_cuda.works import Work

__all__ = ["add_to", "attention", "unfit"]

_OWN = "seamline"
_DOUBLE = 11  #: TensorProto.DOUBLE
_MASKS = ("bool", *FLOATS)


@attrs.frozen
class _Sizes:
    batch: int
    heads: int
    kv: int
    rows: int
    before: int
    new: int
    depth: int
    width: int

    @property
    def keys(self) -> int:
        return self.before + self.new


def _sizes(node: NodeView) -> _Sizes | None:
    """Give the sizes of a node whose types are sized, else None."""
    given = [node.tensor(i) for i in (0, 1, 2, 4)]
    if any(kind is None or not kind.is_sized for kind in given[:3]):
        return None
    q, k, v = (kind.sizes for kind in given[:3] if kind is not None)
    past = given[3]
    if node.has_input(4) and (past is None or not past.is_sized):
        return None
    before = past.sizes[2] if past is not None else 0
    if len(q) == 4:
        return _Sizes(q[0], q[1], k[1], q[2], before, k[2], q[3], v[3])
    heads, kv = (int(node.attributes[f"{n}_num_heads"]) for n in ("q", "kv"))
    return _Sizes(q[0], heads, kv, q[1], before, k[1], q[2] // heads, v[2] // kv)


def unfit(node: NodeView) -> str | None:
    """Give a reason to refuse a node whose form is right."""
    if node.attributes.get("softmax_precision") == _DOUBLE:
        return "softmax_precision is double, and scores are made in float32"
    mask = node.inputs[3] if node.has_input(3) else None
    if node.has_input(3):
        if not isinstance(mask, TensorType) or mask.dtype not in _MASKS:
            return f"its mask is {mask}, not of {', '.join(_MASKS)}"
        if mask.shape == ():
            return "its mask is a scalar, not a number for each key"
    sizes = _sizes(node)
    if sizes is None:
        return None
    if not (0 < sizes.depth <= WIDEST and sizes.width <= WIDEST):
        wide = f"{sizes.depth} and {sizes.width}"
        return f"its heads have {wide} values, and 1 to {WIDEST} are what a tile holds"
    return None


def _joined_bytes(node: NodeView, sizes: _Sizes) -> tuple[int, int]:
    """Give the bytes of keys and values that are joined in the workspace."""
    found = []
    for index, width in ((1, sizes.depth), (2, sizes.width)):
        kind = node.tensor(index)
        asked = node.has_output(index) or not sizes.before
        whole = sizes.batch * sizes.kv * sizes.keys * width
        item = 4 if kind is not None and kind.dtype == "float32" else 2
        found.append(0 if asked else aligned(whole * item))
    return found[0], found[1]


def _room(sizes: _Sizes) -> int:
    group = sizes.heads // sizes.kv
    return room_of(
        sizes.batch, sizes.kv, group, sizes.rows, sizes.keys, sizes.depth, sizes.width
    )


def _bounded(node: NodeView) -> tuple[int, ...]:
    """Give keys and values where tiles end with the lengths; scores given out do not."""
    return (1, 2) if node.has_input(6) and not node.has_output(3) else ()


def _workspace(node: NodeView) -> int:
    sizes = _sizes(node)
    return sum(_joined_bytes(node, sizes)) + _room(sizes) if sizes is not None else 0


def _cached(
    call: Call, sizes: _Sizes, index: int, workspace: int, works: list[Work]
) -> Operand:
    """Give where all keys (1) or values (2) lie; what brings them there is added."""
    now, past, present = call.inputs[index], call.input(3 + index), call.output(index)
    width = sizes.depth if index == 1 else sizes.width
    where = present.address if present is not None else workspace if sizes.before else 0
    many = (sizes.batch, sizes.kv, sizes.before, sizes.new, width)
    before = Operand.first(past) if past is not None else None
    return joined(operand(now, width), before, where, many, works)


def attention(call: Call) -> Sequence[Work]:
    """Join the caches, where there are any, and attend."""
    sizes = _sizes(call.view)
    assert sizes is not None, "types are sized when a kernel is made"
    works: list[Work] = []
    first = call.workspace.address if call.workspace is not None else 0
    rooms = _joined_bytes(call.view, sizes)
    keys = _cached(call, sizes, 1, first, works)
    values = _cached(call, sizes, 2, first + rooms[0], works)
    attended = _attended(call, sizes, keys, values)
    works += attended.works(first + sum(rooms))
    scores = call.output(3)
    if scores is not None:
        mode = int(call.attr("qk_matmul_output_mode", 0))
        works += scores_work(attended, scores, mode)
    return works


def _attended(call: Call, sizes: _Sizes, keys: Operand, values: Operand) -> Attended:
    mask, lengths, scale = call.input(3), call.input(6), call.attr("scale")
    # A mask that is shorter than the keys hides the rest.
    limit = sizes.keys if mask is None else min(sizes.keys, mask.shape[-1])
    given: dict[str, float] = {"before": sizes.before, "limit": limit}
    span = FIXED
    if lengths is not None:
        span = Span("filled", lengths.kind.dtype)
        given["lengths"] = lengths.address
    return Attended(
        q=operand(call.inputs[0], sizes.depth), k=keys, v=values,
        y=operand(call.outputs[0], sizes.width), batch=sizes.batch, heads=sizes.kv,
        group=sizes.heads // sizes.kv, rows=sizes.rows, keys=sizes.keys,
        depth=sizes.depth, width=sizes.width, span=span, given=given,
        scale=1.0 / math.sqrt(sizes.depth) if scale is None else float(scale),
        biases=() if mask is None else (broadcast_bias(mask),),
        cap=float(call.attr("softcap", 0.0)), causal=bool(call.attr("is_causal", 0)),
        left=int(call.attr("left_window_size", -1)),
        right=int(call.attr("right_window_size", -1)),
    )  # fmt: skip


def add_to(table: KernelTable) -> None:
    """Add Attention of both domains."""
    for domain, since in (("", 23), (_OWN, 1)):
        table.kernel(
            "Attention",
            domain=domain,
            since=since,
            dtypes={0: FLOATS, 1: FLOATS, 2: FLOATS, 6: ("int64", "int32")},
            when=all_of(refused_attention, unfit_attention, unfit),
            workspace=_workspace,
            bounded=_bounded,
            variant="tiles",
            because=f"{BECAUSE}; lengths are read on the device",
            not_capturable=None,
        )(attention)
    table.infer("Attention", domain=_OWN)(attention_types)
