"""Arithmetic of two or more tensors that broadcast; powers are in ``powers``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS, INTEGERS, NUMBERS
from seamline_cpu.binding import same_bytes
from seamline_cpu.kernels.broadcast_commands import bind_binary
from seamline_cpu.kernels.pointwise import (
    ARITHMETIC_FROM,
    BLOCK,
    bind_ufunc,
    in_parallel,
    in_sequence,
    share_count,
    shared_out,
)
from seamline_cpu.kernels.recorded import OF_FLOAT32, only
from seamline_cpu.kernels.typed_commands import COUNTED, bind_arithmetic
from seamline_cpu.table import TABLE

__all__ = ["masked_multiply"]

_EITHER = ((0, 0), (0, 1))  # operands whose memory the result may take


def _of_ufunc(ufunc: Any, call: Call) -> Run:
    a, b = call.inputs[0], call.inputs[1]
    return _native(call.view.op_type, call, a, b) or bind_ufunc(call, ufunc, a, b)


def _native(op: str, call: Call, a: Array, b: Array) -> Run | None:
    """Bind ``a op b`` to output 0 as a command, or give None where there is none."""
    out = call.outputs[0]
    return bind_binary(op, call, a, b, out) or bind_arithmetic(op, call, a, b, out)


_TYPED = only("float32", *COUNTED)
_UFUNCS: tuple[tuple[str, Any], ...] = (
    ("Add", np.add),
    ("Sub", np.subtract),
    ("Mul", np.multiply),
)

for _op, _ufunc in _UFUNCS:
    TABLE.kernel(_op, since=7, dtypes=NUMBERS, aliases=_EITHER, not_capturable=_TYPED)(
        functools.partial(_of_ufunc, _ufunc)
    )

TABLE.kernel("Div", since=7, dtypes=FLOATS, aliases=_EITHER, not_capturable=_TYPED)(
    functools.partial(_of_ufunc, np.divide)
)


@TABLE.kernel("Div", since=7, dtypes=INTEGERS, aliases=_EITHER, not_capturable=_TYPED)
def divide_integers(call: Call) -> Run:
    """Bind Div of integers: toward zero, as C divides; by zero gives 0, and no error."""
    a, b, out = call.inputs[0], call.inputs[1], call.outputs[0]
    native = bind_arithmetic("Div", call, a, b, out)
    if native is not None:
        return native
    if out.dtype.kind == "u":
        return bind_ufunc(call, np.floor_divide, a, b)
    exact = np.empty(out.shape, out.dtype)

    def run() -> None:
        # Without the remainder, which has a's sign, the division has nothing to round.
        np.fmod(a, b, out=exact)
        np.subtract(a, exact, out=exact)
        np.floor_divide(exact, b, out=out)

    return run


@TABLE.kernel("Mod", since=10, dtypes=NUMBERS, aliases=_EITHER)
def modulo(call: Call) -> Run:
    """Bind Mod: ``fmod=0`` takes the divisor's sign, ``fmod=1`` the dividend's."""
    ufunc = np.fmod if call.attr("fmod", 0) else np.remainder
    return bind_ufunc(
        call, ufunc, call.inputs[0], call.inputs[1], least=ARITHMETIC_FROM
    )


def _chain(call: Call, ufunc: Any) -> list[Run]:
    """Bind a fold of all inputs into output 0."""
    given = [x for x in call.inputs if x is not None]
    out = call.outputs[0]
    if len(given) == 1:
        return [same_bytes(given[0], out)]
    pairs = [(given[0], given[1]), *[(out, x) for x in given[2:]]]
    return [_folding(call, ufunc, a, b) for a, b in pairs]


def _folding(call: Call, ufunc: Any, a: Array, b: Array) -> Run:
    op = {np.add: "Add", np.maximum: "Max", np.minimum: "Min"}[ufunc]
    return _native(op, call, a, b) or bind_ufunc(call, ufunc, a, b)


def _fold(ufunc: Any, call: Call) -> Run:
    return in_sequence(_chain(call, ufunc))


# NumPy's maximum and minimum give NaN where either operand is NaN, as ONNX asks.
for _op, _ufunc, _dtypes, _recorded in (
    ("Max", np.maximum, NUMBERS, _TYPED),
    ("Min", np.minimum, NUMBERS, _TYPED),
    ("Sum", np.add, FLOATS, OF_FLOAT32),
):
    TABLE.kernel(
        _op, since=6, dtypes=_dtypes, aliases=_EITHER, not_capturable=_recorded
    )(functools.partial(_fold, _ufunc))


@TABLE.kernel(
    "Mean", since=6, dtypes=FLOATS, aliases=_EITHER, not_capturable=OF_FLOAT32
)
def mean(call: Call) -> Run:
    """Bind Mean: the sum of all inputs, divided by their number."""
    runs = _chain(call, np.add)
    out = call.outputs[0]
    if len(runs) == 1 and len(call.inputs) == 1:
        return runs[0]
    count = np.asarray(len(call.inputs), out.dtype)
    divide = bind_binary("Div", call, out, count, out)
    return in_sequence([*runs, divide or bind_ufunc(call, np.divide, out, count)])


def masked_multiply(x: Array, slope: Array, out: Array) -> Run:
    """Bind ``slope x`` where x is below 0, and x elsewhere, row by row of the first axis."""
    rows = max(1, BLOCK * len(out) // max(out.size, 1)) if out.ndim else 1
    pieces = [(x, slope, out)]
    if out.ndim and rows < len(out):
        wide = np.broadcast_to(slope, out.shape)
        cut = [slice(at, at + rows) for at in range(0, len(out), rows)]
        pieces = [(x[s], wide[s], out[s]) for s in cut]

    def run() -> None:
        for value, factor, target in pieces:
            scaled = np.multiply(value, factor)
            negative = np.less(value, 0)
            np.copyto(target, value)
            np.copyto(target, scaled, where=negative)

    return run


@TABLE.kernel(
    "PRelu",
    since=7,
    dtypes=(*FLOATS, "int32", "int64", "uint32", "uint64"),
    aliases=((0, 0),),
    not_capturable=OF_FLOAT32,
)
def prelu(call: Call) -> Run:
    """Bind PRelu; the slope broadcasts to the input."""
    x, slope, out = call.inputs[0], call.inputs[1], call.outputs[0]
    native = bind_binary("PRelu", call, x, slope, out)
    if native is not None:
        return native
    count = share_count(call, out.size, ARITHMETIC_FROM)
    shares = shared_out(out, (x, slope), count)
    return in_parallel([masked_multiply(*share) for share in shares])
