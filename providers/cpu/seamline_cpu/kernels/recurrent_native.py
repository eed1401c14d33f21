"""
LSTM, GRU and RNN with the usual activations, float32: bound to one compiled command.

The inputs of all steps are multiplied by their weights first, in one product a direction;
:mod:`seamline_cpu.kernels.recurrent_steps` then takes the rows through the steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline_cpu.binding import copying, filling, in_order
from seamline_cpu.commands import bind
from seamline_cpu.kernels.few_rows import few_rows
from seamline_cpu.kernels.packed_product import packed
from seamline_cpu.kernels.panels import pack_panels
from seamline_cpu.kernels.recurrent_fitting import within_steps
from seamline_cpu.kernels.recurrent_steps import (
    ARGUMENTS,
    GRU,
    GRU_LINEAR,
    HEAD,
    LSTM,
    RNN,
    STRIP,
    TILED_ROWS,
    walk,
)
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.tiles import COLUMNS, ROWS

if TYPE_CHECKING:
    from seamline_cpu.kernels.recurrent import Steps

__all__ = ["bind_native", "suits_native"]

_Array = np.ndarray[Any, Any]
_SHARED_FROM = 50_000  # multiply-adds of all steps from which more threads pay
_USUAL = {
    "LSTM": ["sigmoid", "tanh", "tanh"],
    "GRU": ["sigmoid", "tanh"],
    "RNN": ["tanh"],
}


def suits_native(call: Call) -> bool:
    """Tell whether a node has the form that the command computes."""
    names = [name.lower() for name in call.attr("activations") or ()]
    x, r = call.inputs[0], call.inputs[2]
    peepholes = call.input(7) if len(call.inputs) > 7 else None
    return (
        x.dtype == np.float32
        and 0 not in (*x.shape, r.shape[2])
        and names in ([], _USUAL[call.view.op_type] * r.shape[0])
        and peepholes is None
        and not call.attr("clip")
        and not call.attr("input_forget")
    )


@attrs.frozen(eq=False)
class _Form:
    """
    What the command does, and how its rows and weights are divided.

    Attributes
    ----------
    parts
        Rows of R that are multiplied at once; where GRU resets the state before its last
        gate's product, that gate is apart.
    chunks
        Parts of the batch in each direction.
    """

    kind: int
    parts: tuple[slice, slice]
    chunks: int
    shares: int
    tiled: bool

    @property
    def width(self) -> int:
        return COLUMNS if self.tiled else STRIP

    def rows(self, batch: int) -> int:
        """Give the rows of the largest chunk, whole tiles."""
        return -(-batch // self.chunks // ROWS) * ROWS


def _form(call: Call, steps: Steps) -> _Form:
    count, batch = steps.x.shape[:2]
    ways, gates, size = call.inputs[2].shape
    linear = GRU_LINEAR if call.attr("linear_before_reset", 0) else GRU
    kind = {"LSTM": LSTM, "GRU": linear, "RNN": RNN}[call.view.op_type]
    cut = gates - size if kind == GRU else gates
    large = count * batch * ways * gates * size >= _SHARED_FROM
    threads = threads_of(call.options) if large else 1
    chunks = 1 if ways % threads == 0 else min(batch, threads)
    tiled = -(-batch // chunks) >= TILED_ROWS
    shares = min(threads, ways * chunks)
    return _Form(kind, (slice(0, cut), slice(cut, gates)), chunks, shares, tiled)


def _panels(r: _Array, width: int) -> _Array:
    """Lay ``(D, N, H)`` out as ``(D, panels, H, width)``; the last panel has zeros."""
    ways, rows, size = r.shape
    count = -(-rows // width)
    whole = np.zeros((ways, count * width, size), np.float32)
    whole[:, :rows] = r
    return np.ascontiguousarray(
        whole.reshape(ways, count, width, size).transpose(0, 1, 3, 2)
    )


def _biases(b: _Array | None, ways: int, gates: int, size: int, kind: int) -> _Array:
    """
    Give each direction's summed biases, and then all that GRU's reset scales; flat.

    Only where the reset comes after the product is the last gate's own bias apart.
    """
    flat = np.zeros(ways * (gates + size), np.float32)
    if b is not None:
        summed = flat[: ways * gates].reshape(ways, gates)
        summed[...] = b[:, :gates] + b[:, gates:]
        if kind == GRU_LINEAR:
            last = slice(gates - size, gates)
            summed[:, last] = b[:, last]
            flat[ways * gates :].reshape(ways, size)[...] = b[:, gates:][:, last]
    return flat


@attrs.frozen(eq=False)
class _Held:
    """A value made of inputs: once if they are constant, else before every run."""

    value: _Array
    renew: Run | None

    @classmethod
    def of(cls, call: Call, index: int, tag: str, make: Callable[[], _Array]) -> _Held:
        if call.constant(index) is not None:
            return cls(call.resident(tag, {index}, make), None)
        value = make()
        if call.input(index) is None:
            return cls(value, None)
        return cls(value, lambda: np.copyto(value, make()))


def _projection(call: Call, inputs: _Array, gates: _Array, threads: int) -> list[Run]:
    """Bind ``gates[d] = inputs @ w[d].T`` for each direction."""
    w = call.inputs[1]
    if len(inputs) < TILED_ROWS and w.flags.c_contiguous:
        return [
            few_rows(inputs, m.T, y, threads) for m, y in zip(w, gates, strict=True)
        ]
    if call.constant(1) is None:
        return [
            functools.partial(np.matmul, inputs, m.T, y)
            for m, y in zip(w, gates, strict=True)
        ]
    panels = call.resident("panels", {1}, lambda: [pack_panels(m.T) for m in w])
    return [packed(inputs, m, y, threads) for m, y in zip(panels, gates, strict=True)]


def bind_native(call: Call, steps: Steps) -> Run:
    """Bind the products of the inputs and the command that walks the steps."""
    r, b = call.inputs[2], call.input(3)
    ways, wide, size = r.shape
    count, batch, depth = steps.x.shape
    form = _form(call, steps)
    gates = np.empty((ways, count * batch, wide), np.float32)
    states = np.empty((2, ways, batch, size), np.float32)
    straight = steps.x.flags.c_contiguous
    inputs = (steps.x if straight else np.empty(steps.x.shape, np.float32)).reshape(
        count * batch, depth
    )
    held = [
        _Held.of(
            call, 2, f"panels from {part.start} of {form.width}",
            functools.partial(_panels, r[:, part], form.width),
        )
        for part in form.parts
    ]  # fmt: skip
    biases = functools.partial(_biases, b, ways, wide, size, form.kind)
    held.append(_Held.of(call, 3, f"biases {form.kind}", biases))
    lengths = None if steps.lengths is None else np.empty(batch, np.int64)
    before = [one.renew for one in held if one.renew is not None]
    before += _projection(call, inputs, gates, threads_of(call.options))
    taken = _bind_walk(steps, form, gates, states, [h.value for h in held], lengths)
    finals = [
        (f, s) for f, s in zip(steps.outputs[1:], states, strict=False) if f is not None
    ]

    first: list[Run] = (
        [] if straight else [copying(steps.x, inputs.reshape(steps.x.shape))]
    )
    if lengths is not None:
        first.append(functools.partial(_take_lengths, steps, lengths))
    zero = np.zeros((), np.float32)
    for state, start in zip(states, steps.initial, strict=False):
        first.append(filling(zero if start is None else start, state))
    last = [copying(state, final) for final, state in finals]
    return in_order([*first, *before, taken, *last])


def _take_lengths(steps: Steps, lengths: _Array) -> None:
    within_steps(steps.lengths, len(steps.x))
    lengths[...] = steps.lengths  # pyright: ignore


def _bind_walk(
    steps: Steps, form: _Form, gates: _Array, states: _Array, held: list[_Array],
    lengths: _Array | None,
) -> Run:  # fmt: skip
    first, last, biases = held
    count, batch = steps.x.shape[:2]
    ways, size, wide, y = len(first), steps.size, gates.shape[2], steps.outputs[0]
    bias, inner = np.split(biases, [ways * wide])
    panels = [first.shape[1], last.shape[1]]
    rows = form.rows(batch)
    stride = rows * (sum(panels) * form.width + 2 * size) + HEAD
    scratch = np.zeros((form.shares, stride), np.float32)
    offsets = np.arange(size, dtype=np.int64) * (4 * STRIP)
    arrays = [gates, bias, inner, states, y, lengths, scratch, offsets, first, last]
    places = [0, 0, 0] if y is None else [step // 4 for step in y.strides[:3]]
    arguments = [
        *[0 if array is None else array.ctypes.data for array in arrays],
        form.kind, count, batch, size, ways, form.chunks, form.tiled,
        steps.backwards[0], 4 * stride, *panels, *places,
    ]  # fmt: skip
    if len(arguments) != len(ARGUMENTS):
        raise AssertionError(f"{len(arguments)} arguments for {len(ARGUMENTS)} places")
    return bind(walk, arguments, form.shares, keep=arrays)
