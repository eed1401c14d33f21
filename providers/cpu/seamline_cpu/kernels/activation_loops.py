"""
Compiled loops over flat float32 arrays: ``loop(x, out, a, b)``.

All have one signature, so each is compiled once, when a large array first needs it.
``out`` may be ``x``, but they must not overlap otherwise.
Choices are written so that a NaN is kept where the operator keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline_cpu.kernels import float32_math as f32
from seamline_cpu.kernels.rows import elementwise

__all__ = [
    "celu",
    "clip",
    "elu",
    "erf",
    "exp",
    "gelu",
    "gelu_tanh",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "log",
    "mish",
    "selu",
    "sigmoid",
    "softplus",
    "swish",
    "tanh",
]

_ZERO, _HALF, _ONE, _TWO = map(np.float32, (0.0, 0.5, 1.0, 2.0))
_ROOT_HALF = np.float32(0.7071067811865476)
_GELU_SCALE = np.float32(0.7978845608028654)  # sqrt(2 / pi)
_GELU_CUBIC = np.float32(0.044715)
_MISH_TOP = np.float32(20.0)  # tanh(softplus(x)) is 1 from here on, to float32

_exp, _expm1, _erf = f32.exp, f32.expm1, f32.erf
_sigmoid, _tanh, _log1p, _log = f32.sigmoid, f32.tanh, f32.log1p_unit, f32.log


@elementwise
def exp(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write e**x."""
    for i in range(x.size):
        out[i] = _exp(x[i])


@elementwise
def log(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write the natural logarithm."""
    for i in range(x.size):
        out[i] = _log(x[i])


@elementwise
def erf(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write the error function."""
    for i in range(x.size):
        out[i] = _erf(x[i])


@elementwise
def tanh(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write the hyperbolic tangent."""
    for i in range(x.size):
        out[i] = _tanh(x[i])


@elementwise
def sigmoid(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write 1 / (1 + e**-x)."""
    for i in range(x.size):
        out[i] = _sigmoid(x[i])


@elementwise
def swish(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write x times the sigmoid of a x."""
    for i in range(x.size):
        out[i] = x[i] * _sigmoid(a * x[i])


@elementwise
def gelu(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write x (1 + erf(x / sqrt 2)) / 2."""
    for i in range(x.size):
        out[i] = _HALF * x[i] * (_ONE + _erf(x[i] * _ROOT_HALF))


@elementwise
def gelu_tanh(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))) / 2."""
    for i in range(x.size):
        v = x[i]
        inner = _GELU_SCALE * (v + _GELU_CUBIC * v * v * v)
        out[i] = _HALF * v * (_ONE + _tanh(inner))


@elementwise
def clip(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write min(b, max(a, x)); a NaN is kept."""
    for i in range(x.size):
        v = x[i]
        v = a if v < a else v
        out[i] = b if v > b else v


@elementwise
def leaky_relu(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write a x below 0, and x elsewhere."""
    for i in range(x.size):
        out[i] = a * x[i] if x[i] < _ZERO else x[i]


@elementwise
def hard_sigmoid(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write a x + b, kept within 0 and 1."""
    for i in range(x.size):
        v = a * x[i] + b
        v = _ZERO if v < _ZERO else v
        out[i] = _ONE if v > _ONE else v


@elementwise
def hard_swish(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write x times the hard sigmoid of x."""
    for i in range(x.size):
        v = a * x[i] + b
        v = _ZERO if v < _ZERO else v
        v = _ONE if v > _ONE else v
        out[i] = x[i] * v


@elementwise
def elu(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write a (e**x - 1) below 0, and x elsewhere."""
    for i in range(x.size):
        out[i] = a * _expm1(x[i]) if x[i] < _ZERO else x[i]


@elementwise
def selu(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write b a (e**x - 1) up to 0, and b x above."""
    for i in range(x.size):
        v = x[i]
        out[i] = b * (a * _expm1(v)) if v <= _ZERO else b * v


@elementwise
def celu(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write max(0, x) + min(0, a (e**(x / a) - 1))."""
    for i in range(x.size):
        v = x[i]
        low = a * _expm1(v / a)
        low = _ZERO if low > _ZERO else low
        out[i] = (_ZERO if v < _ZERO else v) + low


@elementwise
def softplus(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write ln(1 + e**x), as max(x, 0) + ln(1 + e**-|x|)."""
    for i in range(x.size):
        v = x[i]
        out[i] = (_ZERO if v < _ZERO else v) + _log1p(_exp(-abs(v)))


@elementwise
def mish(x: Any, out: Any, a: Any, b: Any) -> None:
    """Write x tanh(ln(1 + e**x)), which is x n / (n + 2) with n = e**x (e**x + 2)."""
    for i in range(x.size):
        v = _MISH_TOP if x[i] > _MISH_TOP else x[i]
        w = _exp(v)
        n = w * (w + _TWO)
        out[i] = x[i] * (n / (n + _TWO))
