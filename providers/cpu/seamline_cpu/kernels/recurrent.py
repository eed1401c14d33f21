"""LSTM, GRU and RNN: one product for the inputs of all steps, then step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.tensors import FLOATS
from seamline_cpu.kernels.recorded import OF_FLOAT32, known
from seamline_cpu.kernels.recurrent_cells import (
    Cell,
    gru_cell,
    lstm_cell,
    rnn_cell,
    unknown_activation,
)
from seamline_cpu.kernels.recurrent_fitting import unfit_recurrent, within_steps
from seamline_cpu.kernels.recurrent_native import bind_native, suits_native
from seamline_cpu.table import TABLE

__all__: list[str] = []

_Array = np.ndarray[Any, Any]
_REFUSE = all_of(unknown_activation, unfit_recurrent)


@attrs.frozen(eq=False)
class Steps:
    """
    What the three operators share: who runs in which direction, over what.

    Attributes
    ----------
    outputs
        Y and the final states, or None, with the time and direction axes in front.
    backwards
        For each direction, whether it goes from the last step to the first.
    """

    x: _Array
    lengths: _Array | None
    initial: tuple[_Array | None, ...]
    outputs: tuple[_Array | None, ...]
    backwards: tuple[bool, ...]
    size: int
    kind: Any


def _steps(call: Call, states: int) -> Steps:
    """Read the call; batch-first arrays are seen time-first, without a copy."""
    batch_first = bool(call.attr("layout", 0))
    x, r = call.inputs[0], call.inputs[2]
    y = call.output(0)
    finals = tuple(call.output(1 + i) for i in range(states))
    initial = tuple(call.input(5 + i) for i in range(states))
    if batch_first:
        x = x.transpose(1, 0, 2)
        y = None if y is None else y.transpose(1, 2, 0, 3)
        finals = tuple(None if a is None else a.transpose(1, 0, 2) for a in finals)
        initial = tuple(None if a is None else a.transpose(1, 0, 2) for a in initial)
    way = call.attr("direction", "forward")
    backwards = {"forward": (False,), "reverse": (True,)}.get(way, (False, True))
    kind = np.float64 if x.dtype == np.float64 else np.float32
    return Steps(x, call.input(4), initial, (y, *finals), backwards, r.shape[2], kind)


def _inputs(steps: Steps, w: _Array, bias: _Array | None) -> Callable[[], list[_Array]]:
    """Give what multiplies all steps' inputs by each direction's weights."""
    count, batch = steps.x.shape[:2]
    kind = steps.kind

    def multiply() -> list[_Array]:
        flat = np.ascontiguousarray(steps.x, kind).reshape(count * batch, -1)
        given = []
        for d in range(len(steps.backwards)):
            product = flat @ w[d].astype(kind, copy=False).T
            if bias is not None:
                product += bias[d].astype(kind, copy=False)
            given.append(product.reshape(count, batch, -1))
        return given

    return multiply


def _walk(steps: Steps, direction: int, gates: _Array, cell: Cell) -> None:
    """Run one direction through all steps; what ended keeps its state and gives zeros."""
    count, batch = steps.x.shape[:2]
    y, finals = steps.outputs[0], steps.outputs[1:]
    states = tuple(
        np.zeros((batch, steps.size), steps.kind)
        if start is None
        else start[direction].astype(steps.kind)
        for start in steps.initial
    )
    order = range(count)
    for t in reversed(order) if steps.backwards[direction] else order:
        after = cell(gates[t], states)
        if steps.lengths is not None:
            going = (steps.lengths > t)[:, None]
            shown = np.where(going, after[0], 0)
            states = tuple(
                np.where(going, a, b) for a, b in zip(after, states, strict=True)
            )
        else:
            shown, states = after[0], after
        if y is not None:
            y[t, direction] = shown
    for final, state in zip(finals, states, strict=True):
        if final is not None:
            final[direction] = state


def _run_cells(
    call: Call,
    states: int,
    bias_of: Callable[[_Array], _Array],
    make: Callable[..., Cell],
) -> Run:
    """Bind by NumPy; ``make`` gives a direction's cell from weights as they are now."""
    steps = _steps(call, states)
    w: Any = call.inputs[1]
    b: Any = call.input(3)
    multiply: Any = None if b is not None else _inputs(steps, w, None)

    def run() -> None:
        within_steps(steps.lengths, len(steps.x))
        product: Any = multiply or _inputs(steps, w, bias_of(b))  # pyright: ignore
        for direction, gates in enumerate(product()):
            _walk(steps, direction, gates, make(direction))

    return run


def _as(kind: Any, array: _Array | None, direction: int) -> _Array | None:
    return None if array is None else array[direction].astype(kind, copy=False)


@TABLE.kernel(
    "LSTM",
    since=(7, 22),
    dtypes=FLOATS,
    when=_REFUSE,
    not_capturable=all_of(OF_FLOAT32, known(1, 2, 3)),
)
def lstm(call: Call) -> Run:
    """Bind compiled steps for the usual form, else NumPy's."""
    if suits_native(call):
        return bind_native(call, _steps(call, 2))
    r, peepholes = call.inputs[2], call.input(7)
    kind = np.float64 if r.dtype == np.float64 else np.float32
    count = r.shape[0]
    size = 4 * r.shape[2]

    def make(direction: int) -> Cell:
        weights = r[direction].astype(kind, copy=False)
        return lstm_cell(
            call.view, direction, count, weights, _as(kind, peepholes, direction)
        )

    return _run_cells(call, 2, lambda b: b[:, :size] + b[:, size:], make)


@TABLE.kernel(
    "GRU",
    since=(7, 22),
    dtypes=FLOATS,
    when=_REFUSE,
    not_capturable=all_of(OF_FLOAT32, known(1, 2, 3)),
)
def gru(call: Call) -> Run:
    """
    Bind compiled steps for the usual form, else NumPy's.

    The recurrence's bias stays apart, for it may be reset too.
    """
    if suits_native(call):
        return bind_native(call, _steps(call, 1))
    r, b = call.inputs[2], call.input(3)
    kind = np.float64 if r.dtype == np.float64 else np.float32
    count, size = r.shape[0], 3 * r.shape[2]

    def make(direction: int) -> Cell:
        weights = r[direction].astype(kind, copy=False)
        bias = None if b is None else b[direction, size:].astype(kind, copy=False)
        return gru_cell(call.view, direction, count, weights, bias)

    return _run_cells(call, 1, lambda b: b[:, :size], make)


@TABLE.kernel(
    "RNN",
    since=(7, 22),
    dtypes=FLOATS,
    when=_REFUSE,
    not_capturable=all_of(OF_FLOAT32, known(1, 2, 3)),
)
def rnn(call: Call) -> Run:
    """Bind compiled steps of the plain recurrence, or NumPy's for other activations."""
    if suits_native(call):
        return bind_native(call, _steps(call, 1))
    r = call.inputs[2]
    kind = np.float64 if r.dtype == np.float64 else np.float32
    count, size = r.shape[0], r.shape[2]

    def make(direction: int) -> Cell:
        return rnn_cell(
            call.view, direction, count, r[direction].astype(kind, copy=False)
        )

    return _run_cells(call, 1, lambda b: b[:, :size] + b[:, size:], make)
