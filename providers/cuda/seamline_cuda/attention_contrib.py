"""
onnxruntime's MultiHeadAttention.

A key that the mask excludes gets ``mask_filter_value`` (-10000) added to its score, as
onnxruntime does; a key after its query is excluded outright.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.attention_fitting import unfit_projected
from seamline.attention_forms import refused_multi_head
from seamline.attention_types import ATTENTION_TYPES
from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView, View
from seamline_cuda.attention_caches import joined
from seamline_cuda.attention_places import (
    WIDEST,
    WIDTHS,
    Operand,
    aligned,
    broadcast_bias,
    operand,
)
from seamline_cuda.attention_rows import RowsForm, rows_work
from seamline_cuda.attention_scores import scores_work
from seamline_cuda.attention_spans import ENDS, Bias
from seamline_cuda.attention_works import BECAUSE, Attended, room_of
from seamline_cuda.elements import FLOATS
from seamline_cuda.works import Work

__all__ = [
    "CONTRIB",
    "Sizes",
    "add_to",
    "attended_of",
    "multi_head_attention",
    "unfit_mask",
]

CONTRIB = "com.microsoft"
_FILLER = -10000.0


@attrs.frozen
class Sizes:
    """Entries, heads, rows of queries, of the past and new ones of keys, values of heads."""

    batch: int
    heads: int
    rows: int
    before: int
    new: int
    depth: int
    width: int

    @property
    def keys(self) -> int:
        """Give all keys that there are."""
        return self.before + self.new

    def room(self) -> int:
        """Give the bytes that parts of keys take."""
        return room_of(
            self.batch, self.heads, 1, self.rows, self.keys, self.depth, self.width
        )

    def unfit(self) -> str | None:
        """Give a reason to refuse heads of these sizes."""
        if 0 < self.depth <= WIDEST and self.width <= WIDEST:
            return None
        wide = f"{self.depth} and {self.width}"
        return f"its heads have {wide} values, and 1 to {WIDEST} are what a tile holds"


def _sizes(node: NodeView) -> Sizes | None:
    """Give the sizes of a node whose types are sized, else None."""
    given = [node.tensor(i) for i in range(3)]
    if any(kind is None or not kind.is_sized for kind in given):
        return None
    q, k, v = (kind.sizes for kind in given if kind is not None)
    past = node.tensor(6) if node.has_input(6) else None
    if node.has_input(6) and (past is None or not past.is_sized):
        return None
    heads = int(node.attributes["num_heads"])
    before = past.sizes[2] if past is not None else 0
    new = k[1] if len(k) == 3 else k[2]
    width = v[2] // heads if len(v) == 3 else v[3]
    return Sizes(q[0], heads, q[1], before, new, q[2] // heads, width)


def unfit_mask(node: NodeView, index: int, sizes: Sizes) -> str | None:
    """Give a reason to refuse a mask of onnxruntime's forms, or the sizes of heads."""
    mask = node.tensor(index) if node.has_input(index) else None
    extra = node.tensor(5) if node.has_input(5) else None
    if mask is not None and mask.is_sized:
        forms: list[tuple[int, ...]] = [(sizes.batch,), (2 * sizes.batch,)]
        forms.append((sizes.batch, sizes.keys))
        forms.append((sizes.batch, sizes.rows, sizes.keys))
        if mask.sizes not in forms:
            wanted = " or ".join(str(list(form)) for form in forms)
            return f"its mask is {list(mask.sizes)}, not {wanted}"
    if extra is not None and extra.is_sized:
        scores = (sizes.batch, sizes.heads, sizes.rows, sizes.keys)
        if len(extra.sizes) != 4 or any(
            n not in (1, m) for n, m in zip(extra.sizes, scores, strict=True)
        ):
            return f"its attention_bias is {list(extra.sizes)}, and scores are {list(scores)}"
    return sizes.unfit()


def _unfit(node: NodeView) -> str | None:
    extra = node.tensor(5) if node.has_input(5) else None
    others = [node.tensor(i) for i in (1, 2, 3, 6, 7) if node.has_input(i)]
    query = node.tensor(0)
    for kind in others:
        if query is not None and kind is not None and kind.dtype != query.dtype:
            return f"an input is {kind.dtype}, and the query {query.dtype}"
    if extra is not None and extra.dtype not in FLOATS:
        return f"its attention_bias is {extra.dtype}, not {', '.join(FLOATS)}"
    sizes = _sizes(node)
    return unfit_mask(node, 4, sizes) if sizes is not None else None


def _mask(mask: View, batch: int, filler: float) -> Bias:
    """View onnxruntime's masks: ends (and starts) of keys, (batch, keys), or by query."""
    if len(mask.shape) == 1:
        starts = batch if mask.shape[0] > batch else 0
        return Bias(ENDS, mask.address, filler=filler, starts=starts)
    keys = mask.shape[-1]
    entry = math.prod(mask.shape[1:])
    row = keys if len(mask.shape) == 3 else 0
    return Bias(mask.kind.dtype, mask.address, (entry, 0, row, 1), filler)


def attended_of(
    call: Call, sizes: Sizes, q: Operand, k: Operand, v: Operand, mask: View
) -> Attended:
    """Give the attention that MultiHeadAttention and Attention have in common."""
    filler = float(call.attr("mask_filter_value", _FILLER))
    biases = [] if mask is None else [_mask(mask, sizes.batch, filler)]
    extra = call.input(5)
    if extra is not None:
        biases.append(broadcast_bias(extra))
    scale = call.attr("scale") or 1.0 / math.sqrt(sizes.depth)
    return Attended(
        q=q, k=k, v=v, y=operand(call.outputs[0], sizes.width), batch=sizes.batch,
        heads=sizes.heads, group=1, rows=sizes.rows, keys=sizes.keys, depth=sizes.depth,
        width=sizes.width, scale=float(scale), biases=tuple(biases),
        given={"before": sizes.keys - sizes.rows, "limit": sizes.keys},
        causal=bool(call.attr("unidirectional", 0)),
    )  # fmt: skip


def _rooms(node: NodeView, sizes: Sizes) -> list[int]:
    """Give the bytes of inputs with their bias, then of caches that nobody asked for."""
    kind = node.tensor(0)
    item = WIDTHS[kind.dtype] if kind is not None else 4
    rows = (sizes.rows, sizes.new, sizes.new)
    wide = (sizes.depth, sizes.depth, sizes.width)
    found = []
    for index in range(3):
        given = node.tensor(index)
        adds = node.has_input(3) and given is not None and len(given.sizes) == 3
        count = sizes.batch * rows[index] * sizes.heads * wide[index]
        found.append(aligned(count * item) if adds else 0)
    for index in (1, 2):
        count = sizes.batch * sizes.heads * sizes.keys * wide[index]
        joins = sizes.before and not node.has_output(index)
        found.append(aligned(count * item) if joins else 0)
    return found


def _workspace(node: NodeView) -> int:
    sizes = _sizes(node)
    return sum(_rooms(node, sizes)) + sizes.room() if sizes is not None else 0


def _with_bias(
    call: Call, sizes: Sizes, index: int, room: int, first: int, works: list[Work]
) -> Operand:
    """Give where queries, keys or values lie with their part of the bias added."""
    x, bias = call.inputs[index], call.input(3)
    size = sizes.width if index == 2 else sizes.depth
    given = operand(x, size)
    if bias is None or len(x.shape) == 4:
        return given
    batch, rows, values = x.shape
    made = Operand(room, given.kind, (rows * values, size, values))
    many = (batch, sizes.heads, rows, size)
    if math.prod(many):
        form = RowsForm(given.kind, given.kind, bias=bias.kind.dtype)
        at = bias.address + first * WIDTHS[bias.kind.dtype]
        works.append(rows_work(form, given, made, many, {"bias": at}))
    return made


def multi_head_attention(call: Call) -> Sequence[Work]:
    """Add the bias, join the caches, and attend."""
    sizes = _sizes(call.view)
    assert sizes is not None, "types are sized when a kernel is made"
    works: list[Work] = []
    room = call.workspace.address if call.workspace is not None else 0
    rooms = _rooms(call.view, sizes)
    starts = [room + sum(rooms[:index]) for index in range(6)]
    given, first = [], 0
    for index in range(3):
        given.append(_with_bias(call, sizes, index, starts[index], first, works))
        first += (
            call.inputs[index].shape[2] if len(call.inputs[index].shape) == 3 else 0
        )
    caches = []
    for index, width in ((1, sizes.depth), (2, sizes.width)):
        past, present = call.input(5 + index), call.output(index)
        where = starts[2 + index] if sizes.before else 0
        where = present.address if present is not None else where
        many = (sizes.batch, sizes.heads, sizes.before, sizes.new, width)
        before = Operand.first(past) if past is not None else None
        caches.append(joined(given[index], before, where, many, works))
    attended = attended_of(call, sizes, given[0], caches[0], caches[1], call.input(4))
    works += attended.works(starts[5])
    scores = call.output(3)
    if scores is not None:
        works += scores_work(attended, scores, 0)
    return works


def add_to(table: KernelTable) -> None:
    """Add MultiHeadAttention, and the types of its outputs."""
    op = "MultiHeadAttention"
    table.infer(op, domain=CONTRIB)(ATTENTION_TYPES[op])
    table.kernel(
        op, domain=CONTRIB, dtypes={0: FLOATS, 4: ("int32",)},
        when=all_of(refused_multi_head, unfit_projected, _unfit), workspace=_workspace,
        variant="tiles", because=BECAUSE, not_capturable=None,
    )(multi_head_attention)  # fmt: skip
