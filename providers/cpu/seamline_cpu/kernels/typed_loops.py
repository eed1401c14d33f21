"""
Loops over integers, truth values and comparisons, for any element type that Numba has.

``elementwise`` compiles one for the types that it is called with. A number beside a row
has a loop of its own, as in :mod:`.broadcast_commands`; which of both comes first is part
of the operation. Integers wrap as C's do, and dividing by 0 gives 0.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.jit import jit
from seamline_cpu.kernels.rows import elementwise

__all__ = [
    "ADD", "DIV", "EQUAL", "FLIPPED", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "MAX",
    "MIN", "MUL", "SUB", "arithmetic", "arithmetic_by_number", "compare",
    "compare_by_number",
]  # fmt: skip

EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = range(5)
ADD, SUB, MUL, DIV, MAX, MIN, SUB_FROM, DIV_INTO = range(8)
#: What an operation is with its operands exchanged.
FLIPPED = {
    EQUAL: EQUAL, LESS: GREATER, LESS_EQUAL: GREATER_EQUAL, GREATER: LESS,
    GREATER_EQUAL: LESS_EQUAL,
}  # fmt: skip


@elementwise
def compare(op: int, x: Any, y: Any, out: Any) -> None:
    """Write 1 where the comparison holds, else 0."""
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] == y[i]
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] < y[i]
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] <= y[i]
    elif op == 3:
        for i in range(out.size):
            out[i] = x[i] > y[i]
    else:
        for i in range(out.size):
            out[i] = x[i] >= y[i]


@elementwise
def compare_by_number(op: int, x: Any, y: Any, out: Any) -> None:
    """Compare each element with one number."""
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] == y
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] < y
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] <= y
    elif op == 3:
        for i in range(out.size):
            out[i] = x[i] > y
    else:
        for i in range(out.size):
            out[i] = x[i] >= y


@jit
def _quotient(a: Any, b: Any) -> Any:
    """Divide toward zero; by zero gives 0, and by -1 wraps."""
    if b == 0:
        return b
    if b == -1:
        return -a
    whole = a // b
    if whole < 0 and whole * b != a:
        whole += 1
    return whole


@elementwise
def arithmetic(op: int, x: Any, y: Any, out: Any) -> None:  # noqa: C901 - flat loops
    """Write ``x op y``."""
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] + y[i]
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] - y[i]
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] * y[i]
    elif op == 3:
        for i in range(out.size):
            out[i] = _quotient(x[i], y[i])
    elif op == 4:
        for i in range(out.size):
            out[i] = max(x[i], y[i])
    else:
        for i in range(out.size):
            out[i] = min(x[i], y[i])


@elementwise
def arithmetic_by_number(  # noqa: C901 - flat loops
    op: int, x: Any, y: Any, out: Any
) -> None:
    """Write ``x op y`` for one y; the last two operations have y first."""
    if op == 0:
        for i in range(out.size):
            out[i] = x[i] + y
    elif op == 1:
        for i in range(out.size):
            out[i] = x[i] - y
    elif op == 2:
        for i in range(out.size):
            out[i] = x[i] * y
    elif op == 3:
        for i in range(out.size):
            out[i] = _quotient(x[i], y)
    elif op == 4:
        for i in range(out.size):
            out[i] = max(x[i], y)
    elif op == 5:
        for i in range(out.size):
            out[i] = min(x[i], y)
    elif op == 6:
        for i in range(out.size):
            out[i] = y - x[i]
    else:
        for i in range(out.size):
            out[i] = _quotient(y, x[i])
