"""
Seamline's ProjectedAttention: one product for queries, keys and values, then ONNX's Attention.

Graph optimization makes it of attention whose operands are projected from one input. The
product lies in the workspace, row by row, and heads are read there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cuda.attention_places import (
    WIDEST,
    WIDTHS,
    Operand,
    aligned,
    broadcast_bias,
    operand,
)
from seamline_cuda.attention_projected import projection
from seamline_cuda.attention_works import BECAUSE, Attended, room_of
from seamline_cuda.elements import FLOATS
from seamline_cuda.works import LIBRARY, Work

__all__ = ["add_to", "packed_attention"]

_OWN = "seamline"
_MASKS = ("bool", *FLOATS)


@attrs.frozen
class _Sizes:
    """Entries and rows, heads of queries and of keys, and values of queries, keys, values."""

    batch: int
    rows: int
    heads: int
    kv: int
    parts: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Give the values of a head of keys."""
        return self.parts[1] // self.kv

    @property
    def width(self) -> int:
        """Give the values of a head of values."""
        return self.parts[2] // self.kv


def _heads(node: NodeView) -> tuple[int, int, tuple[int, ...]]:
    """Give heads of queries and of keys, and what each part has; zeros if not said."""
    heads, kv = (int(node.attributes.get(f"{n}_num_heads", 0)) for n in ("q", "kv"))
    parts = tuple(int(n) for n in node.attributes.get("qkv_hidden_sizes", ()))
    return heads, kv, parts


def _sizes(node: NodeView) -> _Sizes | None:
    x = node.tensor(0)
    if x is None or not x.is_sized:
        return None
    return _Sizes(x.sizes[0], x.sizes[1], *_heads(node))


def _unfit(node: NodeView) -> str | None:
    """Give a reason to refuse a node whose first element type was accepted."""
    x, weights = node.tensor(0), node.tensor(1)
    heads, kv, parts = _heads(node)
    if x is None or x.shape is None or len(x.shape) != 3:
        return f"its input is {x}, and three axes are accepted"
    if heads < 1 or kv < 1 or heads % kv or len(parts) != 3:
        return f"it has {heads} heads, {kv} of keys, and parts of {list(parts)}"
    depth, width = parts[1] // kv, parts[2] // kv
    if (parts[0], parts[1], parts[2]) != (depth * heads, depth * kv, width * kv):
        return f"its parts of {list(parts)} do not divide into {heads} and {kv} heads"
    if not (0 < depth <= WIDEST and 0 < width <= WIDEST):
        return f"its heads have {depth} and {width} values; 1 to {WIDEST} are accepted"
    if weights is None or weights.shape != (x.shape[2], sum(parts)) or not x.shape[2]:
        return f"its weights are {weights}, not {x.shape[2]} by {sum(parts)}"
    return _unfit_types(node, x) or _unfit_mask(node, x, heads)


def _unfit_types(node: NodeView, x: TensorType) -> str | None:
    for index in (1, 2):
        kind = node.tensor(index) if node.has_input(index) else None
        if kind is not None and kind.dtype != x.dtype:
            return f"input {index} is {kind.dtype}, and its input {x.dtype}"
    return None


def _unfit_mask(node: NodeView, x: TensorType, heads: int) -> str | None:
    mask = node.tensor(3) if node.has_input(3) else None
    if mask is None:
        return "its mask has no known type" if node.has_input(3) else None
    if mask.dtype not in _MASKS or not mask.shape:
        return f"its mask is {mask}, not an array of {', '.join(_MASKS)}"
    if not (mask.is_sized and x.is_sized):
        return None
    scores = (x.sizes[0], heads, x.sizes[1], x.sizes[1])
    behind = scores[4 - len(mask.sizes) :] if len(mask.sizes) <= 4 else ()
    fits = [n in (1, m) for n, m in zip(mask.sizes, behind, strict=False)]
    if len(fits) != len(mask.sizes) or not all(fits) or mask.sizes[-1] != scores[3]:
        return f"its mask is {mask}, and the scores are {list(scores)}"
    return None


def _product_bytes(sizes: _Sizes, dtype: str) -> int:
    return aligned(sizes.batch * sizes.rows * sum(sizes.parts) * WIDTHS[dtype])


def _workspace(node: NodeView) -> int:
    sizes, x = _sizes(node), node.tensor(0)
    if sizes is None or x is None:
        return 0
    group = sizes.heads // sizes.kv
    many = (sizes.batch, sizes.kv, group, sizes.rows, sizes.rows)
    room = room_of(*many, sizes.depth, sizes.width)
    return _product_bytes(sizes, x.dtype) + room


def _types(node: NodeView) -> list[ValueType | None]:
    x, (heads, kv, parts) = node.tensor(0), _heads(node)
    if x is None or x.shape is None or len(x.shape) != 3 or len(parts) != 3 or not kv:
        return [None]
    return [TensorType(x.dtype, (*x.shape[:2], parts[2] // kv * heads))]


def packed_attention(call: Call) -> Sequence[Work]:
    """Multiply, and attend."""
    sizes = _sizes(call.view)
    assert sizes is not None, "types are sized when a kernel is made"
    if not sizes.batch * sizes.rows:
        return []
    kind, mask = call.inputs[0].kind.dtype, call.input(3)
    room, whole = call.workspace.address, sum(sizes.parts)
    given, start = [], room
    for size, part in zip(
        (sizes.depth, sizes.depth, sizes.width), sizes.parts, strict=True
    ):
        given.append(Operand(start, kind, (sizes.rows * whole, size, whole)))
        start += part * WIDTHS[kind]
    scale = call.attr("scale")
    attended = Attended(
        q=given[0], k=given[1], v=given[2], y=operand(call.outputs[0], sizes.width),
        batch=sizes.batch, heads=sizes.kv, group=sizes.heads // sizes.kv,
        rows=sizes.rows, keys=sizes.rows, depth=sizes.depth, width=sizes.width,
        given={"before": 0, "limit": sizes.rows},
        scale=1.0 / math.sqrt(sizes.depth) if scale is None else float(scale),
        biases=() if mask is None else (broadcast_bias(mask),),
        cap=float(call.attr("softcap", 0.0)), causal=bool(call.attr("is_causal", 0)),
        left=int(call.attr("left_window_size", -1)),
        right=int(call.attr("right_window_size", -1)),
    )  # fmt: skip
    product = _product_bytes(sizes, kind)
    return [*projection(call, room, whole), *attended.works(room + product)]


def add_to(table: KernelTable) -> None:
    """Add ProjectedAttention, and its result's type."""
    table.infer("ProjectedAttention", domain=_OWN)(_types)
    table.kernel(
        "ProjectedAttention", domain=_OWN, dtypes={0: FLOATS}, when=_unfit,
        workspace=_workspace, variant=LIBRARY,
        because=f"cuBLASLt projects once for all; {BECAUSE}",
        not_capturable=None,
    )(packed_attention)  # fmt: skip
