"""
onnxruntime's GroupQueryAttention: causal attention over a cache that it keeps itself.

A cache is either as long as all tokens may become, and then given back in that length, or
as long as the past, and then given back longer by the new rows. Both are one rule: the
present has ``max(past rows, total_sequence_length)`` rows.

It is a list of commands: lengths are read and checked, the past is copied where the present
is not its own memory, new rows are normalised, rotated and put in their places, and then
attention reads the present.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from seamline.attention_fitting import unfit_group_query
from seamline.attention_forms import refused_group_query
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import INDICES
from seamline_cpu.binding import nothing
from seamline_cpu.commands import Command, bind, checked, joined
from seamline_cpu.kernels.attention_floats import KINDS, padded
from seamline_cpu.kernels.attention_inputs import widened
from seamline_cpu.kernels.attention_native import Bias, Form, bind_attention
from seamline_cpu.kernels.group_query_cache import spans
from seamline_cpu.kernels.group_query_commands import (
    KEEP,
    LENGTHS,
    ROWS,
    keep_past_rows,
    measure,
    place_rows,
)
from seamline_cpu.kernels.group_query_fitting import Heads, heads_of
from seamline_cpu.kernels.recorded import only
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DTYPES = tuple(KINDS)
_SHARED_FROM = 1 << 18  #: bytes of a cache from which more threads copy it
_ROWS_FROM = 1 << 14  #: elements of new rows from which more threads place them


@attrs.define(eq=False)
class _Plan:
    """What the commands of one node share, and the commands so far."""

    call: Call
    heads: Heads
    keys: Array
    values: Array
    runs: list[Run] = attrs.field(factory=list)
    table: Array = attrs.field(init=False)
    places: Array = attrs.field(init=False)
    wrong: Array = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        batch, rows = self.heads.query.shape[:2]
        self.table = np.zeros((batch, 3), np.int64)
        self.places = np.zeros((batch, max(rows, 1)), np.int64)
        self.wrong = np.zeros(1, np.int64)

    @property
    def threads(self) -> int:
        return threads_of(self.call.options)

    @property
    def before(self) -> int:
        past = self.call.input(3)
        return 0 if past is None else int(past.shape[2])

    def add(
        self, what: Command, names: Sequence[str], values: dict[str, int], shares: int,
        keep: object,
    ) -> None:  # fmt: skip
        """Bind a command by its arguments' names; what is not named is 0."""
        arguments = [int(values.get(name, 0)) for name in names]
        kept = (self.table, self.places, self.wrong, keep)
        self.runs.append(bind(what, arguments, max(shares, 1), keep=kept))


def _measure(plan: _Plan, widest: int) -> None:
    call, (batch, rows) = plan.call, plan.heads.query.shape[:2]
    lengths, counts, positions = (call.input(i) for i in (5, 16, 9))
    values = {
        "batch": batch, "rows": rows, "before": plan.before, "capacity": plan.keys.shape[2],
        "widest": widest, "table": plan.table.ctypes.data,
        "places": plan.places.ctypes.data, "wrong": plan.wrong.ctypes.data, "tables": -1,
    }  # fmt: skip
    named = {"lengths": lengths, "counts": counts, "total": call.input(6)}
    if call.attr("do_rotary", 0):
        named["positions"] = positions
        values["tables"] = len(call.input(7))
    for name, x in named.items():
        if x is not None:
            values |= {name: x.ctypes.data, f"{name}_bytes": x.itemsize}
            values |= {"positions_size": x.size} if name == "positions" else {}
    plan.add(measure, LENGTHS, values, 1, tuple(named.values()))


def _keep(plan: _Plan, past: Array | None, present: Array) -> None:
    """Take over the past of a cache that is not the present's own memory."""
    if past is not None and past.ctypes.data == present.ctypes.data:
        return
    batch, heads, capacity, size = present.shape
    values = {
        "batch": batch, "heads": heads, "table": plan.table.ctypes.data,
        "present": present.ctypes.data, "present_batch": present.strides[0],
        "present_head": present.strides[1], "capacity": capacity,
        "row_bytes": size * present.itemsize, "wrong": plan.wrong.ctypes.data,
    }  # fmt: skip
    if past is not None:
        values |= {"past": past.ctypes.data, "past_batch": past.strides[0],
                   "past_head": past.strides[1]}  # fmt: skip
    shares = plan.threads if present.nbytes >= _SHARED_FROM else 1
    plan.add(keep_past_rows, KEEP, values, min(shares, batch * heads), (past, present))


def _place(plan: _Plan, x: Array, out: Array, which: int) -> None:
    """Put new rows (batch, rows, heads, size) to ``out``, heads first; keys behind the past."""
    call, (batch, rows, heads, size) = plan.call, x.shape
    rotates = bool(call.attr("do_rotary", 0)) and which < 2
    weight, both = call.input(14 + which) if which < 2 else None, _epsilon(call, which)
    epsilon = np.array([both], np.float32)
    stride = 6 * int(padded(size)) + 16
    shares = plan.threads if x.size >= _ROWS_FROM else 1
    room = np.empty(shares * stride, np.float32)
    values = {
        "batch": batch, "rows": rows, "heads": heads, "x": x.ctypes.data,
        "x_batch": x.strides[0], "x_row": x.strides[1], "x_head": x.strides[2],
        "out": out.ctypes.data, "out_batch": out.strides[0], "out_head": out.strides[1],
        "out_row": out.strides[2], "size": size, "epsilon": epsilon.ctypes.data,
        "table": plan.table.ctypes.data, "places": plan.places.ctypes.data,
        "kind": KINDS[x.dtype.name], "out_kind": KINDS[out.dtype.name],
        "room": room.ctypes.data, "stride": 4 * stride, "past": int(which > 0),
    }  # fmt: skip
    if weight is not None:
        values["weight"] = weight.ctypes.data
    cos, sin = call.input(7), call.input(8)
    if rotates:
        values |= {"cos": cos.ctypes.data, "sin": sin.ctypes.data, "half": cos.shape[1],
                   "table_pitch": cos.strides[0],
                   "interleaved": call.attr("rotary_interleaved", 0)}  # fmt: skip
    kept = (x, out, room, epsilon, weight, cos, sin)
    plan.add(place_rows, ROWS, values, min(shares, batch * rows), kept)


def _epsilon(call: Call, which: int) -> float:
    both = call.attr("qk_norm_epsilon", 1e-6)
    name = ("q_norm_epsilon", "k_norm_epsilon", "")[which]
    return float(call.attr(name, both)) if name else 0.0


def _attend(plan: _Plan, biases: Sequence[Bias], y: Array) -> None:
    call, x = plan.call, plan.heads.query
    batch, rows, heads, size = x.shape
    query = x.transpose(0, 2, 1, 3)
    if call.attr("do_rotary", 0) or call.input(14) is not None:
        query = np.empty((batch, heads, rows, size), np.float32)
        _place(plan, x, query, 0)
    sinks = call.input(11)
    if sinks is not None:
        sinks = widened(sinks, 1, plan.runs)
    elif call.attr("smooth_softmax", 0) == 1:
        sinks = np.zeros(1, np.float32)
    window = int(call.attr("local_window_size", -1))
    form = Form(
        float(call.attr("scale", 0.0)) or 1.0 / math.sqrt(size or 1),
        float(call.attr("softcap", 0.0)),
        causal=True,
        left=window - 1 if window > 0 else -1,
        sinks=sinks,
    )
    out = y.transpose(0, 2, 1, 3)
    plan.runs.append(
        bind_attention(
            query, plan.keys, plan.values, out, form, plan.table, plan.threads, biases
        )
    )


def _biases(plan: _Plan) -> tuple[list[Bias], int]:
    """Give the attention bias, and how many keys it covers."""
    bias, (batch, rows, heads, _) = plan.call.input(10), plan.heads.query.shape
    if bias is None:
        return [], plan.keys.shape[2]
    sides = zip(bias.shape[:2], (batch, heads), strict=True)
    if (
        bias.ndim != 4
        or bias.shape[2] != rows
        or any(n not in (1, m) for n, m in sides)
    ):
        raise ValueError(
            f"attention_bias is {list(bias.shape)}, and it is added to scores of "
            f"{[batch, heads, rows]} by key"
        )
    return [Bias(widened(bias, plan.threads, plan.runs))], bias.shape[3]


@TABLE.kernel(
    "GroupQueryAttention", domain="com.microsoft", dtypes={0: _DTYPES, 5: INDICES},
    when=all_of(refused_group_query, unfit_group_query), host_inputs={6}, aliases=((1, 3), (2, 4)),
    not_capturable=only(*KINDS),
    bounded=(3, 4),
)  # fmt: skip
def group_query_attention(call: Call) -> Run:
    """
    Bind GroupQueryAttention; scores and sums are made in float32.

    Rows of the output that belong to padding are zero, and so are rows of a present cache
    beyond an entry's tokens, unless it is the past's own memory.
    """
    heads = heads_of(call)
    batch, rows = heads.query.shape[:2]
    lengths, counts = call.input(5), call.input(16)
    for x, name in ((lengths, "seqlens_k"), (counts, "query_seqlens")):
        if x is not None and x.size != batch:
            raise ValueError(
                f"{name} is {list(x.shape)}, the batch has {batch} entries"
            )
    _check_tables(call, heads.query.shape[3])
    y = call.output(0).reshape(batch, rows, heads.query.shape[2], heads.value.shape[3])
    if not y.size:
        return nothing
    plan = _Plan(call, heads, *_presents(call, heads))
    biases, widest = _biases(plan)
    _measure(plan, widest)
    for index, present in ((3, plan.keys), (4, plan.values)):
        _keep(plan, call.input(index), present)
    _place(plan, heads.key, plan.keys, 1)
    _place(plan, heads.value, plan.values, 2)
    _attend(plan, biases, y)
    whole = joined(plan.runs)
    assert whole is not None, "all of it is made of commands"
    return checked(whole, lambda: _complain(plan, widest))


def _check_tables(call: Call, size: int) -> None:
    """Refuse arrays that commands would read beyond their ends."""
    cos = call.input(7)
    if call.attr("do_rotary", 0) and 2 * cos.shape[1] > size:
        raise ValueError(f"tables {cos.shape[1]} wide rotate no head of {size} values")
    for index, x in enumerate(call.inputs):
        if x is not None and not x.flags.c_contiguous:
            raise ValueError(f"input {index} does not lie row by row in memory")


def _complain(plan: _Plan, widest: int) -> None:
    """Raise what the first command found wrong; nothing was written then."""
    if not plan.wrong[0]:
        return
    plan.wrong[0] = 0
    call, (batch, rows) = plan.call, plan.heads.query.shape[:2]
    found = spans(
        call.input(5), call.input(16), batch, rows, plan.before,
        min(plan.keys.shape[2], widest),
    )  # fmt: skip
    total = 0 if call.input(6) is None else int(call.input(6).reshape(-1)[0])
    if total > plan.before + rows:
        raise ValueError(
            f"total_sequence_length is {total}, and {plan.before} cached rows and {rows} "
            f"new ones are {plan.before + rows} tokens at most"
        )
    tables, positions = len(call.input(7)), call.input(9)
    if positions is not None and positions.size < batch * rows:
        raise ValueError(
            f"position_ids is {list(positions.shape)} for {batch} entries of {rows} rows"
        )
    for span in found:
        for place in plan.places[span.entry, : span.new].tolist():
            if not 0 <= place < tables:
                raise IndexError(
                    f"position {place} is outside [0, {tables}) of the rotary tables"
                )


def _presents(call: Call, heads: Heads) -> tuple[Array, Array]:
    """Give the present caches, made here where they are not asked for."""
    past = call.input(3)
    before = 0 if past is None else past.shape[2]
    made = []
    for index, x in ((1, heads.key), (2, heads.value)):
        present = call.output(index)
        if present is None:
            batch, new, kv, size = x.shape
            present = np.empty((batch, kv, before + new, size), x.dtype)
        made.append(present)
    return made[0], made[1]
