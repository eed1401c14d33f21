"""Pow, and what a constant exponent makes of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS, INTEGERS
from seamline_cpu.binding import filling, same_bytes
from seamline_cpu.kernels.broadcast_commands import bind_unary
from seamline_cpu.kernels.pointwise import ARITHMETIC_FROM, Formula, bind_ufunc
from seamline_cpu.kernels.recorded import OF_FLOAT32, in_python, known
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _square(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.multiply(x, x, out=out)


def _cube(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.multiply(x, x, out=t)
    np.multiply(t, x, out=out)


def _root(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    # pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0; sqrt gives NaN and -0.0.
    lowest = np.equal(x, -np.inf)
    np.sqrt(x, out=out)
    np.add(out, 0.0, out=out)
    np.copyto(out, np.inf, where=lowest)


def _inverse(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.reciprocal(x, out=out)


def _inverse_root(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    _root(x, out, spare, a, b)
    np.reciprocal(out, out=out)


_SIMPLE = {
    2.0: Formula(_square),
    3.0: Formula(_cube),
    0.5: Formula(_root),
    -1.0: Formula(_inverse),
    -0.5: Formula(_inverse_root),
}


#: Exponents whose powers are functions of one element, and no call of ``pow``.
_NAMES = {
    2.0: "Square", 3.0: "Cube", 0.5: "Root", -0.5: "InverseRoot", -1.0: "Reciprocal",
}  # fmt: skip


def _native(call: Call, exponent: float) -> Run | None:
    base, out = call.inputs[0], call.outputs[0]
    if exponent == 0:
        return filling(np.ones((), out.dtype), out)  # of NaN too, by IEEE 754
    if exponent == 1:
        return same_bytes(base, out)
    name = _NAMES.get(exponent)
    return None if name is None else bind_unary(name, call, base, out)


def _unusual(node: NodeView) -> str | None:
    known, usual = node.constant(1), {0.0, 1.0, *_NAMES}
    if known is not None and known.size == 1 and float(known.reshape(())) in usual:
        return None
    return in_python(f"only exponents of {sorted(usual)} have compiled commands")


@TABLE.kernel(
    "Pow",
    since=7,
    dtypes={0: FLOATS, 1: FLOATS + INTEGERS},
    aliases=((0, 0),),
    not_capturable=all_of(OF_FLOAT32, known(1), _unusual),
)
def power(call: Call) -> Run:
    """Bind Pow of a float; the result has the base's type."""
    base, exponent, out = call.inputs[0], call.inputs[1], call.outputs[0]
    known = call.constant(1)
    if known is not None and known.size == 1 and base.shape == out.shape:
        value = float(known.reshape(()))
        native = _native(call, value)
        if native is not None:
            return native
        if (simple := _SIMPLE.get(value)) is not None:
            return simple.bind(call)
    if exponent.dtype == base.dtype:
        return bind_ufunc(call, np.power, base, exponent, least=ARITHMETIC_FROM)

    def run() -> None:
        # float64 holds every exponent that matters: 2**53 is odd no more.
        wide = np.power(base.astype(np.float64), exponent.astype(np.float64))
        np.copyto(out, wide, casting="unsafe")

    return run


def _of_integers(base: Array, exponent: Array) -> Array:
    """
    Give base**exponent in the base's type, wrapping as integer products do.

    A negative exponent gives the fraction cut toward 0: 1 or -1 of those bases, else 0;
    of base 0 as well, where there is no value.
    """
    base, exponent = np.broadcast_arrays(base, exponent)
    negative = np.less(exponent, 0)
    result = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    if not negative.any():
        return np.asarray(result)
    odd = np.bitwise_and(exponent, 1) == 1
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
    return np.asarray(np.where(negative, unit, result).astype(base.dtype))


def _of_fractions(base: Array, exponent: Array) -> Array:
    wide = np.power(base.astype(np.float64), exponent.astype(np.float64))
    return np.asarray(wide.astype(base.dtype))


@TABLE.kernel("Pow", since=12, dtypes={0: ("int32", "int64"), 1: FLOATS + INTEGERS})
def power_of_integer(call: Call) -> Run:
    """Bind Pow of an integer; with a float exponent the power is cut to an integer."""
    base, exponent, out = call.inputs[0], call.inputs[1], call.outputs[0]
    whole = exponent.dtype.kind in "iu"
    function: Callable[[Array, Array], Any] = _of_integers if whole else _of_fractions
    return functools.partial(_store, function, base, exponent, out)


def _store(
    function: Callable[[Array, Array], Any], base: Array, exponent: Array, out: Array
) -> None:
    np.copyto(out, function(base, exponent))
