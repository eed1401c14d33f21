"""
onnxruntime's GroupQueryAttention: causal attention over a cache that it keeps itself.

New rows are normalised, rotated and put behind what each entry has, in the past's own
memory where the plan puts the present there; then the present is read. All lengths and
positions are read on the device, by every kernel for itself, so that one recording serves
every step. An entry whose lengths do not fit gets no row and gives zeros, and whoever waits
next is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.attention_fitting import unfit_group_query
from seamline.attention_forms import refused_group_query
from seamline.attention_types import ATTENTION_TYPES
from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.tensors import INDICES
from seamline_cuda.attention_caches import kept
from seamline_cuda.attention_places import (
    Operand,
    broadcast_bias,
)
from seamline_cuda.attention_rows import Rotation, RowsForm, rows_work
from seamline_cuda.attention_spans import Bias, Span
from seamline_cuda.attention_works import Attended
from seamline_cuda.elements import FLOATS
from seamline_cuda.group_query_sizes import (
    GroupedSizes,
    grouped_rooms,
    grouped_sizes,
    grouped_workspace,
    queries_change,
    unfit_grouped,
)
from seamline_cuda.works import Complaint, Work

__all__ = ["add_to", "group_query_attention"]

_CONTRIB = "com.microsoft"


@attrs.define(eq=False)
class _Plan:
    """What the launches of one node share, and the launches so far."""

    call: Call
    sizes: GroupedSizes
    span: Span = attrs.field(init=False)
    given: dict[str, float | Complaint] = attrs.field(init=False)
    works: list[Work] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        lengths, counts, bias = (self.call.input(i) for i in (5, 16, 10))
        limit = self.sizes.capacity
        if bias is not None:
            limit = min(limit, bias.shape[3])
        counted = counts.kind.dtype if counts is not None else ""
        self.span = Span("grouped", lengths.kind.dtype, counted)
        self.given = {
            "lengths": lengths.address, "before": self.sizes.before, "limit": limit,
            "rows": self.sizes.rows,
            "counts": counts.address if counts is not None else 0,
        }  # fmt: skip

    def place(self, source: Operand, target: Operand, which: int) -> None:
        """Put new rows of queries (0), keys (1) or values (2) where they are read."""
        call, sizes, given = self.call, self.sizes, dict(self.given)
        heads = sizes.kv if which else sizes.heads
        weight = call.input(14 + which) if which < 2 else None
        if weight is not None:
            epsilon = float(call.attr("qk_norm_epsilon", 1e-6))
            name = ("q_norm_epsilon", "k_norm_epsilon")[which]
            given["epsilon"] = float(call.attr(name, epsilon))
            given["weight"] = weight.address
        rotation = None
        if which < 2 and call.attr("do_rotary", 0):
            rotation = self._rotation(given)
        if which == 1:
            why = f"seqlens_k or query_seqlens do not fit {sizes.rows} new rows behind"
            given["misfit"] = Complaint(
                f"{why} {sizes.before} of the past, {self.given['limit']} together"
            )
        form = RowsForm(
            source.kind, target.kind, self.span, rotation,
            weight=weight.kind.dtype if weight is not None else "",
            behind=which > 0, told=which == 1,
        )  # fmt: skip
        width = sizes.width if which == 2 else sizes.depth
        many = (sizes.batch, heads, sizes.rows, width)
        if math.prod(many):
            self.works.append(rows_work(form, source, target, many, given))

    def _rotation(self, given: dict[str, float | Complaint]) -> Rotation:
        call = self.call
        cos, sin, positions, total = (call.input(i) for i in (7, 8, 9, 6))
        tables = cos.shape[0]
        given |= {
            "cos": cos.address, "sin": sin.address, "half": cos.shape[1], "tables": tables,
            "interleaved": int(call.attr("rotary_interleaved", 0)),
            "outside": Complaint(
                f"a position is outside [0, {tables}) of the rotary tables"
            ),
        }  # fmt: skip
        if positions is None:
            return Rotation(cos.kind.dtype, starts="past")
        given |= {"positions": positions.address, "places": math.prod(positions.shape)}
        kind = positions.kind.dtype
        if total is None or call.input(16) is not None:
            return Rotation(cos.kind.dtype, kind)
        given["together"] = total.address
        return Rotation(cos.kind.dtype, kind, "first", total.kind.dtype)


def _inputs(call: Call, sizes: GroupedSizes) -> list[Operand]:
    """View new queries, keys and values by head; a packed query has them all."""
    query, key, value = (call.input(i) for i in range(3))
    depth = sizes.depth
    if key is None:
        ends = (0, sizes.heads * depth, (sizes.heads + sizes.kv) * depth)
        return [Operand.behind(query, depth, start) for start in ends]
    return [
        Operand.behind(query, depth),
        Operand.behind(key, depth),
        Operand.behind(value, sizes.width),
    ]


def group_query_attention(call: Call) -> Sequence[Work]:
    """Put new rows into the cache, and attend to it."""
    sizes = grouped_sizes(call.view)
    assert sizes is not None, "types are sized when a kernel is made"
    plan, rooms = _Plan(call, sizes), grouped_rooms(call.view, sizes)
    room = call.workspace.address if call.workspace is not None else 0
    q, k, v = _inputs(call, sizes)
    caches, at = [], room + rooms[0]
    for index, width in ((1, sizes.depth), (2, sizes.width)):
        present, past = call.output(index), call.input(2 + index)
        where = present.address if present is not None else at
        at += rooms[index]
        steps = (sizes.kv * sizes.capacity * width, sizes.capacity * width, width)
        caches.append(Operand(where, q.kind, steps))
        held = (sizes.batch, sizes.kv, sizes.capacity, width)
        before = past.address if past is not None else 0
        plan.works += kept(before, where, q.kind, held, plan.span, plan.given)
    plan.place(k, caches[0], 1)
    plan.place(v, caches[1], 2)
    if queries_change(call.view):
        hidden = sizes.heads * sizes.depth
        turned = Operand(room, "float32", (sizes.rows * hidden, sizes.depth, hidden))
        plan.place(q, turned, 0)
        q = turned
    plan.works += _attended(plan, q, caches).works(at)
    return plan.works


def _attended(plan: _Plan, q: Operand, caches: list[Operand]) -> Attended:
    call, sizes = plan.call, plan.sizes
    y, bias, sinks = call.outputs[0], call.input(10), call.input(11)
    biases: tuple[Bias, ...] = (broadcast_bias(bias),) if bias is not None else ()
    sink = sinks.kind.dtype if sinks is not None else ""
    if sinks is None and call.attr("smooth_softmax", 0) == 1:
        sink = "zero"
    window = int(call.attr("local_window_size", -1))
    given = {n: v for n, v in plan.given.items() if not isinstance(v, Complaint)}
    return Attended(
        q=q, k=caches[0], v=caches[1], y=Operand.behind(y, sizes.width),
        batch=sizes.batch, heads=sizes.kv, group=sizes.heads // sizes.kv,
        rows=sizes.rows, keys=sizes.capacity, depth=sizes.depth, width=sizes.width,
        scale=float(call.attr("scale", 0.0)) or 1.0 / math.sqrt(sizes.depth),
        span=plan.span, given=given, biases=biases, cap=float(call.attr("softcap", 0.0)),
        causal=True, left=window - 1 if window > 0 else -1, sink=sink,
        sinks=sinks.address if sinks is not None else 0,
    )  # fmt: skip


def add_to(table: KernelTable) -> None:
    """Add GroupQueryAttention, and the types of its outputs."""
    op = "GroupQueryAttention"
    table.infer(op, domain=_CONTRIB)(ATTENTION_TYPES[op])
    table.kernel(
        op, domain=_CONTRIB, dtypes={0: FLOATS, 5: INDICES, 6: INDICES, 9: INDICES},
        when=all_of(refused_group_query, unfit_group_query, unfit_grouped),
        aliases=((1, 3), (2, 4)), workspace=grouped_workspace, variant="tiles",
        because="lengths and positions are read on the device, so one recording serves every step",
        not_capturable=None,
    )(group_query_attention)  # fmt: skip
