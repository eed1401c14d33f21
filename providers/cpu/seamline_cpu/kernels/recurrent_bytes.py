"""
DynamicQuantizeLSTM of onnxruntime's domain: 8-bit weights, states quantised as they come.

Its weights are transposed beside ONNX's: W is ``(directions, inputs, 4 hidden)`` and R
``(directions, hidden, 4 hidden)``, with one scale and zero point a direction, or one a
column. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.fitting import all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline_cpu.binding import in_order
from seamline_cpu.commands import bind, joined
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.kernels.byte_product import bind_bytes
from seamline_cpu.kernels.quantize_commands import bind_dynamic
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.recurrent_bytes_steps import (
    ARGUMENTS,
    scratch_bytes,
    walk_bytes,
)
from seamline_cpu.kernels.recurrent_fitting import WAYS, within_steps
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_Array = np.ndarray[Any, Any]
_BYTES = ("int8", "uint8")
_SHARED_FROM = 50_000  # multiply-adds of all steps from which more threads pay
#: Weights and their zero points are packed when the session is built.
_PACKED = {1: "W", 2: "R", 9: "W_zero_point", 11: "R_zero_point"}
_NAMES = {8: "W_scale", 10: "R_scale", **_PACKED}


def _unusual(view: NodeView) -> str | None:
    given = view.attributes
    names = [name.lower() for name in given.get("activations", ())]
    if names not in ([], ["sigmoid", "tanh", "tanh"] * (len(names) // 3)):
        return f"its activations are {', '.join(names)}, not Sigmoid, Tanh, Tanh"
    if view.has_input(7):
        return "it has peepholes (input 7)"
    for name in ("clip", "input_forget"):
        if given.get(name):
            return f"its attribute {name} is {given[name]}, not 0"
    for index, name in _PACKED.items():
        if view.has_input(index) and view.constant(index) is None:
            return f"{name} (input {index}) is not constant"
    return None


def _unfit(view: NodeView) -> str | None:
    """Refuse inputs whose sizes differ from what X, R and the direction say."""
    x, r = dims(view, 0), dims(view, 2)
    if x is None or r is None:
        return None
    way = view.attributes.get("direction", "forward")
    if len(x) != 3 or len(r) != 3 or way not in WAYS:
        return f"X has {len(x)} axes and R has {len(r)}, not 3, or its direction is {way!r}"
    ways, size = WAYS[way], r[1]
    if not isinstance(size, int):
        return "the sizes of R are not known"
    state, wide = (ways, x[1], size), 4 * size
    each = ((ways,), (ways, wide))
    return (
        unlike(view, 1, "W", (ways, x[2], wide))
        or unlike(view, 2, "R", (ways, size, wide))
        or unlike(view, 3, "B", (ways, 2 * wide))
        or unlike(view, 4, "sequence_lens", (x[1],))
        or unlike(view, 5, "initial_h", state)
        or unlike(view, 6, "initial_c", state)
        or next(filter(None, (unlike(view, i, _NAMES[i], *each) for i in range(8, 12))), None)
    )  # fmt: skip


def _panels(call: Call, index: int) -> list[BytePanels]:
    weights: Any = call.constant(index)
    return call.resident(  # type: ignore[no-any-return]
        "bytes of each direction", {index}, lambda: [BytePanels.of(w) for w in weights]
    )


def _zeros(call: Call, index: int, panels: list[BytePanels]) -> list[_Array]:
    points: Any = call.constant(index) if call.input(index) is not None else None
    return [
        p.zeros(None if points is None else points[d]) for d, p in enumerate(panels)
    ]


def _scales(call: Call, index: int, wide: int) -> tuple[_Array, Run | None]:
    """Give one scale for each column of each direction, and what reads them anew."""
    scale: Any = call.inputs[index]
    ways = len(scale)
    rows = np.ones((ways, wide), np.float32)

    def read() -> None:
        rows[...] = scale.reshape(ways, -1)

    if call.constant(index) is None:
        return rows, read
    read()
    return rows, None


def _nbytes(view: NodeView) -> int:
    weights = [view.constant(index) for index in (1, 2)]
    return sum(w.nbytes for w in weights if w is not None)


@TABLE.kernel(
    "DynamicQuantizeLSTM",
    domain="com.microsoft",
    since=1,
    dtypes={0: ("float32",), 1: _BYTES, 2: _BYTES},
    when=all_of(_unusual, _unfit),
    resident=_nbytes,
    variant="bytes",
    because="exact products of bytes, one command for all steps of a direction",
    not_capturable=OF_FLOAT32,
)
def dynamic_quantize_lstm(call: Call) -> Run:
    """Quantise all inputs at once and multiply, then walk the steps."""
    x, threads = call.inputs[0], threads_of(call.options)
    count, batch, depth = x.shape
    codes, scale, zero = (
        np.empty(x.shape, np.uint8),
        np.ones(1, np.float32),
        np.zeros(1, np.uint8),
    )
    panels = _panels(call, 1)
    sums = np.empty((len(panels), count * batch, panels[0].columns), np.int32)
    steps: list[Run] = []
    if x.size and sums.size:
        rows = codes.reshape(-1, depth)
        steps.append(bind_dynamic(x, codes, scale, zero, threads))
        points = _zeros(call, 9, panels)
        steps += [
            bind_bytes(rows, zero, p, z, y, threads)
            for p, z, y in zip(panels, points, sums, strict=True)
        ]
    else:
        sums[...] = 0
    steps.append(_bind_walk(call, sums, scale))
    run = joined(steps)
    whole = in_order(steps) if run is None else run
    lengths = call.input(4)
    return in_order([_checked(lengths, count), whole]) if lengths is not None else whole


def _checked(lengths: _Array, count: int) -> Callable[[], None]:
    return lambda: within_steps(lengths, count)


def _bind_walk(call: Call, sums: _Array, x_scale: _Array) -> Run:
    """Bind the steps over the inputs' products."""
    count, batch = call.inputs[0].shape[:2]
    panels = _panels(call, 2)
    ways, size, wide = len(panels), panels[0].depth, panels[0].columns
    codes = call.resident(
        "bytes of all directions", {2}, lambda: np.stack([p.codes for p in panels])
    )
    zeros = np.stack(_zeros(call, 11, panels))
    b = call.input(3)
    bias = np.zeros((ways, wide), np.float32)
    if call.constant(3) is not None:
        bias[...] = b[:, :wide] + b[:, wide:]

    def add_biases() -> None:
        np.add(b[:, :wide], b[:, wide:], bias)

    y, h, c = (call.output(i) for i in range(3))
    h = np.empty((ways, batch, size), np.float32) if h is None else h
    c = np.empty((ways, batch, size), np.float32) if c is None else c
    work = count * batch * size * wide
    shares = min(ways, threads_of(call.options)) if work >= _SHARED_FROM else 1
    stride = scratch_bytes(batch, size)
    scratch = np.zeros(shares * stride, np.uint8)
    (w_scale, read_w), (r_scale, read_r) = (_scales(call, i, wide) for i in (8, 10))
    arrays = [
        sums, x_scale, w_scale, r_scale, codes, zeros,
        bias, call.input(5), call.input(6), h, c, y, call.input(4), scratch,
    ]  # fmt: skip
    backwards = call.attr("direction", "forward") == "reverse"
    arguments = [
        *[0 if array is None else array.ctypes.data for array in arrays],
        stride, count, batch, size, ways, backwards,
    ]  # fmt: skip
    if len(arguments) != len(ARGUMENTS):
        raise AssertionError(f"{len(arguments)} arguments for {len(ARGUMENTS)} places")
    run = bind(walk_bytes, arguments, shares, keep=arrays)
    changing = add_biases if b is not None and call.constant(3) is None else None
    before = [step for step in (read_w, read_r, changing) if step is not None]
    return in_order([*before, run]) if before else run
