"""
LSTM with the usual activations, float32 and small batches: all steps in one command.

Each direction and each row of the batch is on its own, so they are the shares. The
recurrence is a vector times a matrix; its weights lie in panels of one strip's width, so
that a strip of gates stays in registers while the state passes over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from seamline.kernels import Call, Run
from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.kernels.float32_math import sigmoid, tanh
from seamline_cpu.tiles import LANES, tap_strip

if TYPE_CHECKING:
    from seamline_cpu.kernels.recurrent import Steps

__all__ = ["bind_lstm", "suits_native"]

_Array = np.ndarray[Any, Any]
_STRIP = 4 * LANES
_MOST = 8  # rows of a batch above which BLAS, which reuses weights, is faster

(_GATES, _R, _STATES, _Y, _LENGTHS, _SCRATCH, _STRIDE, _OFFSETS, _COUNT, _BATCH, _SIZE,
 _DIRECTIONS, _FIRST_BACK, _Y_TIME, _Y_WAY, _Y_ROW) = range(16)  # fmt: skip


@command
def _lstm(a: Any, share: int, shares: int) -> None:  # noqa: C901 - flat loops
    size, batch, count = a[_SIZE], a[_BATCH], a[_COUNT]
    panels = (4 * size + _STRIP - 1) // _STRIP
    rows = a[_DIRECTIONS] * batch
    gates_at = a[_SCRATCH] + share * a[_STRIDE]
    g = floats(gates_at)
    last = floats(gates_at + 3 * size * 4)
    for row in range(rows * share // shares, rows * (share + 1) // shares):
        way, b = row // batch, row % batch
        back = way == 1 or a[_FIRST_BACK] != 0
        h_at = a[_STATES] + row * size * 4
        h, c = floats(h_at), floats(a[_STATES] + (rows + row) * size * 4)
        weights = a[_R] + way * panels * size * _STRIP * 4
        end = count
        if a[_LENGTHS] != 0:
            end = longs(a[_LENGTHS])[b]
        for step in range(count):
            t = count - 1 - step if back else step
            y = floats(a[_Y] + (t * a[_Y_TIME] + way * a[_Y_WAY] + b * a[_Y_ROW]) * 4)
            if t >= end:
                if a[_Y] != 0:
                    for j in range(size):
                        y[j] = np.float32(0)
                continue
            for p in range(panels):
                tap_strip(
                    weights + p * size * _STRIP * 4, a[_OFFSETS], h_at, size,
                    np.float32(0), gates_at + p * _STRIP * 4,
                )  # fmt: skip
            x = floats(a[_GATES] + ((way * count + t) * batch + b) * 4 * size * 4)
            for j in range(3 * size):
                g[j] = sigmoid(g[j] + x[j])
            x_last = floats(
                a[_GATES] + (((way * count + t) * batch + b) * 4 + 3) * size * 4
            )
            for j in range(size):
                last[j] = tanh(last[j] + x_last[j])
            keep = floats(gates_at + 2 * size * 4)
            for j in range(size):
                last[j] *= g[j]
            for j in range(size):
                c[j] = c[j] * keep[j] + last[j]
            out = floats(gates_at + size * 4)
            for j in range(size):
                h[j] = tanh(c[j])
            for j in range(size):
                h[j] *= out[j]
            if a[_Y] != 0:
                for j in range(size):
                    y[j] = h[j]


def suits_native(call: Call) -> bool:
    """Tell whether a node has the form that the command computes."""
    names = [name.lower() for name in call.attr("activations") or ()]
    batch = call.inputs[0].shape[0 if call.attr("layout", 0) else 1]
    return (
        call.inputs[0].dtype == np.float32
        and batch <= _MOST
        and names in ([], ["sigmoid", "tanh", "tanh"] * call.inputs[2].shape[0])
        and call.input(7) is None
        and not call.attr("clip")
        and not call.attr("input_forget")
    )


def _panels(r: _Array) -> _Array:
    """Lay ``(D, 4 H, H)`` out as ``(D, panels, H, _STRIP)``; the last panel has zeros."""
    ways, rows, size = r.shape
    count = -(-rows // _STRIP)
    whole = np.zeros((ways, count * _STRIP, size), np.float32)
    whole[:, :rows] = r
    return np.ascontiguousarray(
        whole.reshape(ways, count, _STRIP, size).transpose(0, 1, 3, 2)
    )


def _summed(b: _Array) -> _Array:
    half = b.shape[1] // 2
    return np.asarray(b[:, :half] + b[:, half:])


def bind_lstm(call: Call, steps: Steps) -> Run:
    """Bind the product of the inputs and the command that walks the steps."""
    w, r, b = call.inputs[1], call.inputs[2], call.input(3)
    ways, size = r.shape[0], steps.size
    count, batch = steps.x.shape[:2]
    gates = np.empty((ways, count * batch, 4 * size), np.float32)
    states = np.empty((2, ways, batch, size), np.float32)
    packed = call.constant(2)
    panels = (
        np.array(_panels(r))
        if packed is None
        else call.resident(f"strips/{_STRIP}", {2}, lambda: _panels(packed))
    )
    turned = w.transpose(0, 2, 1)
    flat = np.empty((count * batch, w.shape[2]), np.float32)
    straight = steps.x.flags.c_contiguous
    inputs = steps.x.reshape(flat.shape) if straight else flat
    known = call.constant(3)
    bias = None if known is None else call.resident("sum", {3}, lambda: _summed(known))
    lengths = None if steps.lengths is None else np.empty(batch, np.int64)

    def prepare() -> None:
        if packed is None:
            panels[...] = _panels(r)
        if not straight:
            flat.reshape(steps.x.shape)[...] = steps.x
        if lengths is not None:
            lengths[...] = steps.lengths  # pyright: ignore
        for d in range(ways):
            np.matmul(inputs, turned[d], out=gates[d])
            if b is not None:
                np.add(gates[d], (_summed(b) if bias is None else bias)[d], gates[d])
        for state, start in zip(states, steps.initial, strict=True):
            state[...] = 0 if start is None else start

    walk = _bind_walk(call, steps, gates, states, panels, lengths)
    finals = [
        (f, s) for f, s in zip(steps.outputs[1:], states, strict=True) if f is not None
    ]

    def run() -> None:
        prepare()
        walk()
        for final, state in finals:
            final[...] = state

    return run


def _bind_walk(
    call: Call, steps: Steps, gates: _Array, states: _Array, panels: _Array,
    lengths: _Array | None,
) -> Run:  # fmt: skip
    count, batch = steps.x.shape[:2]
    ways, size = panels.shape[0], steps.size
    y = steps.outputs[0]
    threads = call.options.get("num_threads") or 1
    shares = min(threads, ways * batch) if count * size * size > 20_000 else 1
    each = panels.shape[1] * _STRIP
    scratch = np.empty((shares, each), np.float32)
    offsets = np.arange(size, dtype=np.int64) * (4 * _STRIP)
    where = [0, 0, 0] if y is None else [step // 4 for step in y.strides[:3]]
    arguments = [
        gates.ctypes.data, panels.ctypes.data, states.ctypes.data,
        0 if y is None else y.ctypes.data, 0 if lengths is None else lengths.ctypes.data,
        scratch.ctypes.data, each * 4, offsets.ctypes.data, count, batch, size, ways,
        steps.backwards[0], *where,
    ]  # fmt: skip
    kept = (gates, panels, states, y, lengths, scratch, offsets)
    return bind(_lstm, arguments, shares, keep=kept)
