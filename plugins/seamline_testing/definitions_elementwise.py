"""Definitions of operators that work element by element."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_testing.operands import (
    DEFINITIONS,
    NotDefinedError,
    Operands,
    define,
    float_only,
)

__all__ = ["erf", "sigmoid", "softplus"]

_Float = Callable[[Array], Any]


def sigmoid(x: Array) -> Array:
    """Give 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))  # NaN stays NaN in the divisor
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def softplus(x: Array) -> Array:
    """Give log(1 + exp(x)) without overflow."""
    return np.asarray(np.logaddexp(x, 0))


def erf(x: Array) -> Array:
    """Give the error function by the C library's."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _away_from_zero(op: Operands) -> Array:
    # half to even, as the standard says; NumPy's rint is IEEE's
    float_only(op)
    return np.asarray(np.rint(op[0]))


_UNARY: dict[str, _Float] = {
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh,
    "Atan": np.arctan, "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos,
    "Cosh": np.cosh, "Erf": erf, "Exp": np.exp, "Floor": np.floor, "Log": np.log,
    "Reciprocal": np.reciprocal, "Sigmoid": sigmoid, "Sin": np.sin, "Sinh": np.sinh,
    "Softplus": softplus, "Softsign": lambda x: x / (1 + np.abs(x)), "Sqrt": np.sqrt,
    "Tan": np.tan, "Tanh": np.tanh,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(softplus(x)),
}  # fmt: skip


def _unary(function: _Float, op: Operands) -> Array:
    float_only(op)
    return np.asarray(function(op[0]))


for _name, _function in _UNARY.items():
    DEFINITIONS[_name] = functools.partial(_unary, _function)
DEFINITIONS["Round"] = _away_from_zero

# Activations with attributes: name -> (defaults, formula).
_FORMULAS: dict[str, tuple[dict[str, float], Callable[..., Any]]] = {
    "Elu": ({"alpha": 1.0}, lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x)),
    "Celu": (
        {"alpha": 1.0},
        lambda x, alpha: np.maximum(0, x) + np.minimum(0, alpha * np.expm1(x / alpha)),
    ),
    "HardSigmoid": (
        {"alpha": 0.2, "beta": 0.5},
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    ),
    "LeakyRelu": ({"alpha": 0.01}, lambda x, alpha: np.where(x < 0, alpha * x, x)),
    "Selu": (
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
    ),
    "Swish": ({"alpha": 1.0}, lambda x, alpha: x * sigmoid(alpha * x)),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x, alpha: np.where(x > alpha, x, 0)),
}


def _formula(op: Operands) -> Array:
    float_only(op)
    defaults, formula = _FORMULAS[op.op_type]
    chosen = {name: op.get(name, value) for name, value in defaults.items()}
    return np.asarray(formula(op[0], **chosen))


DEFINITIONS.update(dict.fromkeys(_FORMULAS, _formula))


@define("Gelu")
def _gelu(op: Operands) -> Array:
    x = op[0]
    if op.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


@define("Shrink")
def _shrink(op: Operands) -> Array:
    float_only(op)
    lambd, bias, x = op.get("lambd", 0.5), op.get("bias", 0.0), op[0]
    return np.asarray(np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)))


@define("Abs", "Neg", "Sign", "Relu", "Not", "BitwiseNot", "IsNaN")
def _plain_unary(op: Operands) -> Array:
    x = op[0]
    if op.op_type == "Relu":
        return np.asarray(np.maximum(x, x.dtype.type(0)))
    name = {
        "Abs": "abs", "Neg": "negative", "Sign": "sign", "Not": "logical_not",
        "BitwiseNot": "invert", "IsNaN": "isnan",
    }[op.op_type]  # fmt: skip
    return np.asarray(getattr(np, name)(x))


@define("IsInf")
def _is_inf(op: Operands) -> Array:
    x = op[0]
    up = (x == np.inf) & bool(op.get("detect_positive", 1))
    return np.asarray(up | (x == -np.inf) & bool(op.get("detect_negative", 1)))


_BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "And": np.logical_and,
    "Or": np.logical_or, "Xor": np.logical_xor, "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "Less": np.less, "LessOrEqual": np.less_equal,
    "Equal": np.equal,
}  # fmt: skip


@define(*_BINARY)
def _binary(op: Operands) -> Array:
    if op.version < 7:
        raise NotDefinedError("the broadcasting of versions before 7")
    return np.asarray(_BINARY[op.op_type](op[0], op[1]))


@define("Div")
def _div(op: Operands) -> Array:
    a, b = op[0], op[1]
    if op.is_float:
        return np.asarray(a / b)
    if not b.all():
        raise NotDefinedError("integers divided by zero")
    down = a // b  # toward minus infinity; the standard's is toward zero
    rest = a - down * b
    return np.asarray(down + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


@define("Mod")
def _mod(op: Operands) -> Array:
    a, b = op[0], op[1]
    if not op.is_float and not b.all():
        raise NotDefinedError("integers modulo zero")
    return np.asarray(np.fmod(a, b) if op.get("fmod", 0) else np.mod(a, b))


@define("Pow")
def _pow(op: Operands) -> Array:
    base, exponent = op[0], op[1]
    if base.dtype.kind in "iu":
        if exponent.dtype.kind == "f" or (exponent < 0).any():
            raise NotDefinedError("integers to a power that is no whole number")
        # modulo 2**64, of which every narrower type keeps its low bits
        return np.asarray(np.power(base.astype(np.int64), exponent.astype(np.int64)))
    return np.asarray(np.power(base, exponent.astype(np.float64)))


@define("PRelu")
def _prelu(op: Operands) -> Array:
    x, slope = op[0], op[1]
    return np.asarray(np.where(x < 0, slope * x, x))


@define("BitShift")
def _bit_shift(op: Operands) -> Array:
    x, by = op[0], op[1]
    if (by >= 8 * x.dtype.itemsize).any():
        raise NotDefinedError("a shift by the width or more")
    shift = np.left_shift if op.get("direction", "") == "LEFT" else np.right_shift
    return np.asarray(shift(x, by))


@define("Max", "Min", "Sum", "Mean")
def _variadic(op: Operands) -> Array:
    values = op.all()
    if op.op_type in ("Max", "Min"):
        best = np.maximum if op.op_type == "Max" else np.minimum  # NaN wins in both
        return np.asarray(functools.reduce(best, values))
    total = functools.reduce(np.add, values)
    return np.asarray(total / len(values) if op.op_type == "Mean" else total)


@define("Clip")
def _clip(op: Operands) -> Array:
    x = op[0]
    low, high = op.maybe(1), op.maybe(2)
    if op.version < 11:
        low = np.asarray(op.get("min", np.finfo(np.float32).min))
        high = np.asarray(op.get("max", np.finfo(np.float32).max))
    if low is not None:
        x = np.maximum(x, low)
    return np.asarray(x if high is None else np.minimum(x, high))


@define("Where")
def _where(op: Operands) -> Array:
    return np.asarray(np.where(op[0], op[1], op[2]))
