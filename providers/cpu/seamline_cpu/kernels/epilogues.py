"""
What a product or a convolution does to its own output, while it is still in the cache.

A fused node names an activation as ONNX names it, with its numbers, and may add a
residual first. The activation is the C function that also runs as a node's own command:
a share of the larger command calls it over the runs of floats that it has just written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.atomics import call_at, floats, longs
from seamline_cpu.folds import copy_floats
from seamline_cpu.jit import jit
from seamline_cpu.kernels import activation_loops as loops
from seamline_cpu.kernels.activation_commands import address_of, bind_loop
from seamline_cpu.kernels.rows import elementwise, matrix
from seamline_cpu.tiles import LANES

__all__ = [
    "PLAIN",
    "Epilogue",
    "bind_after",
    "epilogue_of",
    "finish",
    "finish_rows",
    "unknown_activation",
]

_INF = float("inf")
_UNROLLED = 4 * LANES  # floats that a loop takes at once
_Loop = Callable[..., None]
#: Loop of each activation, and the two numbers that it takes where a node names none.
_LOOPS: Mapping[str, tuple[_Loop, tuple[float, float]]] = {
    "Clip": (loops.clip, (-_INF, _INF)),
    "FastGelu": (loops.gelu_tanh, (0.0, 0.0)),
    "Gelu": (loops.gelu, (0.0, 0.0)),
    "HardSigmoid": (loops.hard_sigmoid, (0.2, 0.5)),
    "HardSwish": (loops.hard_swish, (1 / 6, 0.5)),
    "LeakyRelu": (loops.leaky_relu, (0.01, 0.0)),
    "QuickGelu": (loops.swish, (1.702, 0.0)),
    "Relu": (loops.clip, (0.0, _INF)),
    "Sigmoid": (loops.sigmoid, (0.0, 0.0)),
    "Tanh": (loops.tanh, (0.0, 0.0)),
}


@attrs.frozen(eq=False)
class Epilogue:
    """
    What follows a product; nothing, as :data:`PLAIN`.

    Attributes
    ----------
    loop
        The activation's loop.
    numbers
        Its two float32.
    residual
        Added before; of the output's shape.
    bias
        Of a product: added to each row.
    """

    loop: _Loop | None = None
    numbers: Array = attrs.field(factory=lambda: np.zeros(2, np.float32))
    residual: Array | None = None
    bias: Array | None = None

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Give what :func:`finish` takes first; 0 for what is not there."""
        address = 0 if self.loop is None else address_of(self.loop)
        return address, self.numbers.ctypes.data, _address(self.residual)

    @property
    def of_rows(self) -> tuple[int, int, int, int]:
        """Give what :func:`finish_rows` takes first."""
        return (_address(self.bias), *self.arguments)

    @property
    def is_there(self) -> bool:
        """Tell whether anything follows."""
        parts = (self.loop, self.residual, self.bias)
        return any(part is not None for part in parts)


def _address(array: Array | None) -> int:
    return 0 if array is None else array.ctypes.data


PLAIN = Epilogue()


def unknown_activation(view: NodeView) -> str | None:
    """Refuse a node whose activation has no loop here."""
    name = view.attributes.get("activation", "")
    if name and name not in _LOOPS:
        return f"its activation is {name!r}, and there are {', '.join(_LOOPS)}"
    given = view.attributes.get("activation_params", ())
    if len(given) > 2:
        return f"its activation_params are {list(given)}, and no activation takes three"
    return None


def epilogue_of(call: Call, residual: int, bias: Array | None = None) -> Epilogue:
    """Read a node's epilogue; ``residual`` is the index of the input to add."""
    name, more = call.attr("activation", ""), call.input(residual)
    if not name:
        return Epilogue(residual=more, bias=bias)
    loop, numbers = _LOOPS[name]
    given = tuple(call.attr("activation_params", ()))
    both = np.array([*given, *numbers[len(given) :]], np.float32)
    return Epilogue(loop, both, more, bias)


@elementwise
def _add_onto(x: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = out[i] + x[i]


@jit
def _activate(function: int, numbers: int, at: int, n: int, block: int) -> None:
    """Activate ``n`` floats in place; ``block`` is room for four words."""
    words = longs(block)
    words[0], words[1], words[2], words[3] = n, at, at, numbers
    call_at(function, block, 0, 1)


@jit
def _activate_rows(
    function: int, numbers: int, y: int, rows: int, n: int, pitch: int, block: int, room: int
) -> None:  # fmt: skip
    """
    Activate runs apart, several at once: laid side by side behind the block, and back.

    A loop does what is left of its whole vectors one by one, which costs more than to copy
    a run twice.
    """
    held = max(1, min(rows, room // n))
    if held == 1 or n % _UNROLLED == 0:
        for r in range(rows):
            _activate(function, numbers, y + r * pitch * 4, n, block)
        return
    side = block + 64
    for first in range(0, rows, held):
        count = min(held, rows - first)
        for r in range(count):
            copy_floats(y + (first + r) * pitch * 4, side + r * n * 4, n)
        _activate(function, numbers, side, count * n, block)
        for r in range(count):
            copy_floats(side + r * n * 4, y + (first + r) * pitch * 4, n)


@jit
def finish(
    function: int, numbers: int, more: int, y: int, rows: int, n: int, pitch: int, block: int,
    room: int,
) -> None:  # fmt: skip
    """
    Add and activate ``rows`` runs of ``n`` floats at ``y``, ``pitch`` floats apart.

    ``more`` is what is added to the first of them, or 0. ``block`` is scratch: 64 bytes, and
    behind them ``room`` floats.
    """
    if n == pitch:
        n, rows = n * rows, 1
    if more != 0:
        for r in range(rows):
            here = matrix(floats(y + r * pitch * 4), 1, n)[0]
            _add_onto(matrix(floats(more + r * pitch * 4), 1, n)[0], here)
    if function != 0:
        _activate_rows(function, numbers, y, rows, n, pitch, block, room)


@jit
def finish_rows(
    bias: int, function: int, numbers: int, more: int, y: int, rows: int, n: int, pitch: int,
    block: int, room: int,
) -> None:  # fmt: skip
    """As :func:`finish`, after ``n`` floats at ``bias`` were added to each run."""
    if bias != 0:
        for r in range(rows):
            here = matrix(floats(y + r * pitch * 4), 1, n)[0]
            _add_onto(matrix(floats(bias), 1, n)[0], here)
    finish(function, numbers, more, y, rows, n, pitch, block, room)


def bind_after(epilogue: Epilogue, out: Array, threads: int) -> list[Run]:
    """Give the runs that do an epilogue over a whole output, made by something else."""
    runs: list[Run] = []
    if (bias := epilogue.bias) is not None:
        runs.append(lambda: np.add(out, bias, out))
    if (more := epilogue.residual) is not None:
        runs.append(lambda: np.add(out, more, out))
    if epilogue.loop is not None:
        flat, (a, b) = out.reshape(-1), epilogue.numbers
        runs.append(bind_loop(epilogue.loop, flat, flat, float(a), float(b), threads))
    return runs
