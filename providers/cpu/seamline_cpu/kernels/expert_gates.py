"""
What stands between an expert's two products, and what adds up its tokens' results.

With ``g`` and ``l`` the two halves of the first product, or the first and the third one,

    swiglu(g, l) = G * sigmoid(alpha * G) * (L + beta),  G = min(g, limit), L = clip(l, limit)

and for every other activation ``act(g)``, times ``l`` where there is a third product.
A row's halves lie behind one another, or alternate, the gate first. GELU is by tanh, as
onnxruntime's for experts is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels import float32_math as f32
from seamline_cpu.kernels.expert_routing import Routes
from seamline_cpu.kernels.rows import elementwise, matrix

__all__ = ["ACTIVATIONS", "bind_gate", "bind_sum", "gate_numbers"]

f4 = np.float32
#: Names of activations, by the number that commands know them by.
ACTIVATIONS = ("identity", "relu", "silu", "gelu", "swiglu")
_RELU, _SILU, _GELU, _SWIGLU = 1, 2, 3, 4
_SHARED_FROM = 1 << 14  # elements from which more threads pay
_HALF, _ONE, _ZERO = f4(0.5), f4(1.0), f4(0.0)
_GELU_SCALE, _GELU_CUBIC = f4(0.7978845608028654), f4(0.044715)  # sqrt(2 / pi)
(_ROWS, _WIDTH, _KIND, _G, _G_PITCH, _L, _L_PITCH, _STEP, _OUT, _OUT_PITCH, _NUMBERS
 ) = range(11)  # fmt: skip
_sigmoid, _tanh = f32.sigmoid, f32.tanh


@elementwise
def _swiglu(g: Any, l: Any, out: Any, alpha: Any, beta: Any, limit: Any) -> None:  # noqa: E741
    for i in range(out.size):
        gate = limit if g[i] > limit else g[i]
        linear = limit if l[i] > limit else l[i]
        linear = -limit if linear < -limit else linear
        out[i] = gate * _sigmoid(alpha * gate) * (linear + beta)


@elementwise
def _silu(g: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = g[i] * _sigmoid(g[i])


@elementwise
def _gelu(g: Any, out: Any) -> None:
    for i in range(out.size):
        v = g[i]
        out[i] = _HALF * v * (_ONE + _tanh(_GELU_SCALE * (v + _GELU_CUBIC * v * v * v)))


@elementwise
def _relu(g: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = _ZERO if g[i] < _ZERO else g[i]


@elementwise
def _times(out: Any, l: Any) -> None:  # noqa: E741
    for i in range(out.size):
        out[i] = out[i] * l[i]


@jit
def _one(kind: int, g: Any, out: Any) -> None:
    """Write an activation of one argument."""
    if kind == _RELU:
        _relu(g, out)
    elif kind == _SILU:
        _silu(g, out)
    elif kind == _GELU:
        _gelu(g, out)
    else:
        out[:] = g


@command
def _gate(a: Any, share: int, shares: int) -> None:
    width, step, kind, numbers = a[_WIDTH], a[_STEP], a[_KIND], floats(a[_NUMBERS])
    rows = a[_ROWS]
    for row in range(rows * share // shares, rows * (share + 1) // shares):
        g = matrix(floats(a[_G] + row * a[_G_PITCH]), width, step)[:, 0]
        out = matrix(floats(a[_OUT] + row * a[_OUT_PITCH]), 1, width)[0]
        if a[_L] == 0:
            _one(kind, g, out)
            continue
        l = matrix(floats(a[_L] + row * a[_L_PITCH]), width, step)[:, 0]  # noqa: E741
        if kind == _SWIGLU:
            _swiglu(g, l, out, numbers[0], numbers[1], numbers[2])
        else:
            _one(kind, g, out)
            _times(out, l)


def gate_numbers(alpha: float, beta: float, limit: float | None) -> Array:
    """Give alpha, beta and the limit, infinite where there is none, as commands take them."""
    return np.array([alpha, beta, np.inf if limit is None else limit], f4)


def bind_gate(
    kind: str, g: Array, linear: Array | None, out: Array, numbers: Array, threads: int
) -> Run:
    """
    Bind the activation of rows.

    Parameters
    ----------
    g, linear
        float32 of equal strides: a row for each, with steps of one or two elements;
        ``linear`` is None where there is only ``g``.
    out
        float32, rows whose elements lie together.
    """
    rows, width = g.shape
    other = (0, 0) if linear is None else (linear.ctypes.data, linear.strides[0])
    arguments = [
        rows, width, ACTIVATIONS.index(kind), g.ctypes.data, g.strides[0], *other,
        g.strides[1] // 4, out.ctypes.data, out.strides[0], numbers.ctypes.data,
    ]  # fmt: skip
    shares = min(threads, rows) if g.size >= _SHARED_FROM else 1
    return bind(_gate, arguments, shares, keep=(g, linear, out, numbers))


@elementwise
def _add_scaled(x: Any, factor: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] += factor * x[i]


@command
def _sum(a: Any, share: int, shares: int) -> None:
    """Add up each token's rows by their factors, in the order of its choices."""
    tokens, k, width = a[0], a[1], a[2]
    for token in range(tokens * share // shares, tokens * (share + 1) // shares):
        factors, places = floats(a[3] + 4 * k * token), longs(a[4] + 8 * k * token)
        out = matrix(floats(a[6] + 4 * width * token), 1, width)[0]
        out[:] = _ZERO
        for j in range(k):
            row = floats(a[5] + 4 * width * places[j])
            _add_scaled(matrix(row, 1, width)[0], factors[j], out)


def bind_sum(routes: Routes, rows: Array, out: Array, threads: int) -> Run:
    """Bind each token's sum of its experts' rows; ``rows`` and ``out`` are float32."""
    tokens, k = routes.places.shape
    arguments = [
        tokens, k, out.shape[1], routes.factors.ctypes.data, routes.places.ctypes.data,
        rows.ctypes.data, out.ctypes.data,
    ]  # fmt: skip
    shares = min(threads, tokens) if rows.size >= _SHARED_FROM else 1
    return bind(_sum, arguments, shares, keep=(routes, rows, out))
