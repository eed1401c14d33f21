"""Functions of one element: signs, rounding, exponentials, trigonometry, tests, not."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.tensors import FLOATS, INTEGERS, NUMBERS, SIGNED
from seamline_cpu.kernels.broadcast_commands import UNARY, bind_unary
from seamline_cpu.kernels.cast_commands import bind_nan, bind_not
from seamline_cpu.kernels.formulas import ERF, EXP, LOG, TANH
from seamline_cpu.kernels.pointwise import (
    ARITHMETIC_FROM,
    MOVING_FROM,
    Formula,
    bind_ufunc,
)
from seamline_cpu.kernels.recorded import OF_FLOAT32, only
from seamline_cpu.kernels.sine_commands import SINES, bind_sine
from seamline_cpu.table import IN_PYTHON, TABLE

__all__: list[str] = []

_FLOATS_8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
COMPILED = "float32 takes a compiled loop, all else NumPy calls"

_UFUNCS: dict[str, tuple[Any, tuple[str, ...], int]] = {
    "Abs": (np.absolute, NUMBERS, MOVING_FROM),
    "Neg": (np.negative, FLOATS + SIGNED, MOVING_FROM),
    "Sign": (np.sign, NUMBERS, MOVING_FROM),
    "Ceil": (np.ceil, FLOATS, MOVING_FROM),
    "Floor": (np.floor, FLOATS, MOVING_FROM),
    "Round": (np.rint, FLOATS, MOVING_FROM),
    "Sqrt": (np.sqrt, FLOATS, MOVING_FROM),
    "Reciprocal": (np.reciprocal, FLOATS, MOVING_FROM),
    "Sin": (np.sin, FLOATS, ARITHMETIC_FROM),
    "Cos": (np.cos, FLOATS, ARITHMETIC_FROM),
    "Tan": (np.tan, FLOATS, ARITHMETIC_FROM),
    "Asin": (np.arcsin, FLOATS, ARITHMETIC_FROM),
    "Acos": (np.arccos, FLOATS, ARITHMETIC_FROM),
    "Atan": (np.arctan, FLOATS, ARITHMETIC_FROM),
    "Sinh": (np.sinh, FLOATS, ARITHMETIC_FROM),
    "Cosh": (np.cosh, FLOATS, ARITHMETIC_FROM),
    "Asinh": (np.arcsinh, FLOATS, ARITHMETIC_FROM),
    "Acosh": (np.arccosh, FLOATS, ARITHMETIC_FROM),
    "Atanh": (np.arctanh, FLOATS, ARITHMETIC_FROM),
    "Not": (np.logical_not, ("bool",), MOVING_FROM),
    "BitwiseNot": (np.invert, INTEGERS, MOVING_FROM),
}


def _of_ufunc(ufunc: Any, least: int, call: Call) -> Run:
    op, x, out = call.view.op_type, call.inputs[0], call.outputs[0]
    native = bind_unary(op, call, x, out) if op in UNARY else None
    if op == "Not":
        native = bind_not(call, x, out)
    if op in SINES:
        native = bind_sine(op, call, x, out)
    return native or bind_ufunc(call, ufunc, x, least=least)


for _op, (_ufunc, _dtypes, _least) in _UFUNCS.items():
    _recorded = OF_FLOAT32 if _op in UNARY or _op in SINES else IN_PYTHON
    _recorded = only("bool") if _op == "Not" else _recorded
    TABLE.kernel(_op, dtypes=_dtypes, aliases=((0, 0),), not_capturable=_recorded)(
        functools.partial(_of_ufunc, _ufunc, _least)
    )


def _of_formula(formula: Formula, call: Call) -> Run:
    return formula.bind(call)


for _op, _formula in (("Exp", EXP), ("Log", LOG), ("Tanh", TANH), ("Erf", ERF)):
    TABLE.kernel(
        _op,
        dtypes=FLOATS,
        aliases=((0, 0),),
        variant="numba",
        because=COMPILED,
        not_capturable=OF_FLOAT32,
    )(functools.partial(_of_formula, _formula))


@TABLE.kernel("Erf", since=(9, 12), dtypes=INTEGERS, not_capturable=OF_FLOAT32)
def erf_of_integers(call: Call) -> Run:
    """Bind Erf of integers, which opset 9 allows: 0, or the sign, cut to an integer."""
    # erf is below 1 up to 5.9, so it is cut to 0 there, and rounds to 1 from 6 on.
    x, out = call.inputs[0], call.outputs[0]

    def run() -> None:
        np.greater_equal(x, 6, out=out, casting="unsafe")
        if out.dtype.kind == "i":
            np.subtract(out, np.less_equal(x, -6), out=out, casting="unsafe")

    return run


@TABLE.kernel("IsNaN", dtypes=FLOATS + _FLOATS_8, not_capturable=OF_FLOAT32)
def is_nan(call: Call) -> Run:
    """Bind IsNaN."""
    x = call.inputs[0]
    return bind_nan(call, x, call.outputs[0]) or bind_ufunc(call, np.isnan, x)


@TABLE.kernel("IsInf", dtypes=FLOATS + _FLOATS_8)
def is_inf(call: Call) -> Run:
    """Bind IsInf; its attributes choose the signs that count."""
    x, out = call.inputs[0], call.outputs[0]
    above = bool(call.attr("detect_positive", 1))
    below = bool(call.attr("detect_negative", 1))
    if above and below:
        return bind_ufunc(call, np.isinf, x)
    if not above and not below:
        return functools.partial(out.fill, False)

    def run() -> None:
        np.isinf(x, out=out)
        np.logical_and(out, np.signbit(x) == below, out=out)

    return run
