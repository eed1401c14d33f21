"""
Functions of one element as NumPy calls, each with its compiled loop where it has one.

Every step may write where it reads: ``out`` may be ``x`` itself, so a step writes ``out``
last, or holds what it still needs in ``spare``.
"""

from __future__ import annotations

import math

import numpy as np

from seamline.provider import Array
from seamline_cpu.jit import jit
from seamline_cpu.kernels import activation_loops as loops
from seamline_cpu.kernels.pointwise import Formula

__all__ = [
    "CELU",
    "CLIP",
    "ELU",
    "ERF",
    "EXP",
    "GELU",
    "GELU_TANH",
    "HARD_SIGMOID",
    "HARD_SWISH",
    "LEAKY_RELU",
    "LOG",
    "MISH",
    "SELU",
    "SHRINK",
    "SIGMOID",
    "SOFTPLUS",
    "SOFTSIGN",
    "SWISH",
    "TANH",
    "THRESHOLDED_RELU",
]

_TOP = (
    1.1283791462077193,
    0.1904048103678082,
    0.052748407455229004,
    0.003765515097396661,
    0.00028487515362397766,
    2.050033102719238e-06,
)
_LOW = (
    1.0,
    0.5020746120993691,
    0.1141083375138454,
    0.01496902288496049,
    0.0011625006182779628,
    3.809075321627115e-05,
)
_ERF_OF_OBJECTS = np.frompyfunc(math.erf, 1, 1)
# NumPy has no erf: below this many elements some thirty calls are cheaper than compiling.
_ERF_COMPILED_FROM = 4096


@jit
def _erf_float64(x: Array, out: Array) -> None:
    for i in range(x.size):
        out[i] = math.erf(x[i])


def _polynomial(u: Array, coefficients: tuple[float, ...], out: Array) -> None:
    np.multiply(u, coefficients[-1], out=out)
    for c in coefficients[-2:0:-1]:
        np.add(out, c, out=out)
        np.multiply(out, u, out=out)
    np.add(out, coefficients[0], out=out)


def _erf(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    if x.dtype == np.float64:
        if x.size >= _ERF_COMPILED_FROM and x.flags.writeable:
            _erf_float64(x, out)
        else:
            out[...] = _ERF_OF_OBJECTS(x)
        return
    square, top = spare[0], spare[1]
    # The rational function of float32_math: the same values, small arrays or large.
    np.minimum(np.maximum(x, -3.92, out=out), 3.92, out=out)
    np.multiply(out, out, out=square)
    _polynomial(square, _TOP, top)
    np.multiply(out, top, out=out)
    _polynomial(square, _LOW, top)
    np.divide(out, top, out=out)
    np.minimum(np.maximum(out, -1.0, out=out), 1.0, out=out)


def _exp(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.exp(x, out=out)


def _log(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.log(x, out=out)


def _tanh(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.tanh(x, out=out)


def _sigmoid(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1.0, out=out)
    np.reciprocal(out, out=out)


def _swish(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.multiply(x, -a, out=t)
    np.exp(t, out=t)
    np.add(t, 1.0, out=t)
    # By the reciprocal, for -inf / inf would be NaN no more than -inf * 0 is.
    np.divide(x, t, out=out)


def _gelu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[2]
    np.multiply(x, math.sqrt(0.5), out=t)
    _erf(t, t, spare, a, b)
    np.add(t, 1.0, out=t)
    np.multiply(t, 0.5, out=t)
    np.multiply(x, t, out=out)


def _gelu_tanh(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.multiply(x, x, out=t)
    np.multiply(t, 0.044715, out=t)
    np.add(t, 1.0, out=t)
    np.multiply(t, x, out=t)
    np.multiply(t, math.sqrt(2 / math.pi), out=t)
    np.tanh(t, out=t)
    np.add(t, 1.0, out=t)
    np.multiply(t, 0.5, out=t)
    np.multiply(x, t, out=out)


def _clip(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.minimum(np.maximum(x, a, out=out), b, out=out)


def _choose(x: Array, below: Array, out: Array) -> None:
    """Write ``below`` where x is below 0, and x elsewhere."""
    negative = np.less(x, 0)
    if out is not x:
        np.copyto(out, x)
    np.copyto(out, below, where=negative)


def _leaky_relu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.multiply(x, a, out=t)
    if 0.0 < a <= 1.0:
        np.maximum(x, t, out=out)
    else:
        _choose(x, t, out)


def _hard_sigmoid(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.multiply(x, a, out=out)
    np.add(out, b, out=out)
    np.minimum(np.maximum(out, 0.0, out=out), 1.0, out=out)


def _hard_swish(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    _hard_sigmoid(x, t, spare, a, b)
    np.multiply(x, t, out=out)


def _elu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.minimum(x, 0.0, out=t)
    np.expm1(t, out=t)
    np.multiply(t, a, out=t)
    _choose(x, t, out)


def _selu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    _elu(x, out, spare, a, b)
    np.multiply(out, b, out=out)


def _celu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.divide(x, a, out=t)
    np.expm1(t, out=t)
    np.multiply(t, a, out=t)
    np.minimum(t, 0.0, out=t)
    np.maximum(x, 0.0, out=out)
    np.add(out, t, out=out)


def _softplus(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    np.logaddexp(x, 0.0, out=out)


def _softsign(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.absolute(x, out=t)
    np.add(t, 1.0, out=t)
    np.divide(x, t, out=out)


def _mish(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    t = spare[0]
    np.logaddexp(x, 0.0, out=t)
    np.tanh(t, out=t)
    np.multiply(x, t, out=out)


def _thresholded_relu(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    rest = np.logical_not(np.greater(x, a))
    if out is not x:
        np.copyto(out, x)
    np.copyto(out, 0.0, where=rest)


def _shrink(x: Array, out: Array, spare: Array, a: float, b: float) -> None:
    above, below = np.greater(x, b), np.less(x, -b)
    t = spare[0]
    np.copyto(t, 0)
    np.subtract(x, a, out=t, where=above, casting="unsafe")
    np.add(x, a, out=t, where=below, casting="unsafe")
    np.copyto(out, t)


ERF = Formula(_erf, loops.erf, compiled_from=_ERF_COMPILED_FROM, spares=2)
EXP = Formula(_exp, loops.exp)
LOG = Formula(_log, loops.log)
TANH = Formula(_tanh, loops.tanh)
SIGMOID = Formula(_sigmoid, loops.sigmoid)
SWISH = Formula(_swish, loops.swish)
GELU = Formula(_gelu, loops.gelu, compiled_from=_ERF_COMPILED_FROM, spares=3)
GELU_TANH = Formula(_gelu_tanh, loops.gelu_tanh)
CLIP = Formula(_clip, loops.clip)
LEAKY_RELU = Formula(_leaky_relu, loops.leaky_relu)
HARD_SIGMOID = Formula(_hard_sigmoid, loops.hard_sigmoid)
HARD_SWISH = Formula(_hard_swish, loops.hard_swish)
ELU = Formula(_elu, loops.elu)
SELU = Formula(_selu, loops.selu)
CELU = Formula(_celu, loops.celu)
SOFTPLUS = Formula(_softplus, loops.softplus)
SOFTSIGN = Formula(_softsign)
MISH = Formula(_mish, loops.mish)
THRESHOLDED_RELU = Formula(_thresholded_relu)
SHRINK = Formula(_shrink)
