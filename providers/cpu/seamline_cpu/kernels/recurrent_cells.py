"""One step of LSTM, GRU and RNN in NumPy, with every activation and option of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from seamline.provider import NodeView

__all__ = ["Cell", "gru_cell", "lstm_cell", "rnn_cell", "unknown_activation"]

_Array: TypeAlias = np.ndarray[Any, Any]
Activation: TypeAlias = Callable[[_Array], _Array]
#: Takes the inputs' products of one step and the states before it; gives those after.
Cell: TypeAlias = Callable[[_Array, tuple[_Array, ...]], tuple[_Array, ...]]


def _sigmoid(x: _Array) -> _Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: _Array) -> _Array:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


# Name: (parameters, their defaults, function of x and the parameters).
_PLAIN: dict[str, Activation] = {
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": _softplus,
}
_WITH: dict[str, tuple[tuple[float, ...], Callable[..., _Array]]] = {
    "affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "leakyrelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "thresholdedrelu": ((1.0,), lambda x, a: np.where(x > a, x, x.dtype.type(0))),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(x), x)),
}


def unknown_activation(view: NodeView) -> str | None:
    """Name an activation that ONNX does not define, or None."""
    for name in view.attributes.get("activations", ()):
        if name.lower() not in _PLAIN and name.lower() not in _WITH:
            known = ", ".join(sorted((*_PLAIN, *_WITH)))
            return f"its activation {name!r} is not one of {known}"
    return None


def _activations(
    view: NodeView, default: Sequence[str], directions: int
) -> list[Activation]:
    """
    Make the node's functions, those of the second direction after the first's.

    The lists of alphas and betas are used up in order by the functions that take them.
    ``clip`` bounds the gates; onnxruntime, whose reading we take, leaves the cell that
    LSTM's last function sees as it is.
    """
    names = view.attributes.get("activations") or tuple(default) * directions
    alphas = iter(view.attributes.get("activation_alpha") or ())
    betas = iter(view.attributes.get("activation_beta") or ())
    clip = view.attributes.get("clip", 0.0)
    made: list[Activation] = []
    for name in names:
        function = _PLAIN.get(name.lower())
        if function is None:
            defaults, formula = _WITH[name.lower()]
            given = [
                next(values, one)
                for one, values in zip(defaults, (alphas, betas), strict=False)
            ]
            function = _fixed(formula, given)
        gate = len(default) < 3 or len(made) % 3 < 2
        made.append(_clipped(function, clip) if clip and gate else function)
    return made


def _fixed(formula: Callable[..., _Array], given: Sequence[float]) -> Activation:
    def apply(x: _Array) -> _Array:
        return formula(x, *map(x.dtype.type, given))

    return apply


def _clipped(function: Activation, clip: float) -> Activation:
    return lambda x: function(np.clip(x, -clip, clip))


def lstm_cell(
    view: NodeView, direction: int, directions: int, r: _Array, peepholes: _Array | None
) -> Cell:
    """Give the step of one direction: gates i, o, f, c; states h and c."""
    every = _activations(view, ("Sigmoid", "Tanh", "Tanh"), directions)
    f_of, g_of, h_of = every[3 * direction : 3 * direction + 3]
    turned, size = np.ascontiguousarray(r.T), r.shape[1]
    coupled = view.attributes.get("input_forget", 0)
    p_i, p_o, p_f = (None,) * 3 if peepholes is None else np.split(peepholes, 3)

    def step(gates: _Array, states: tuple[_Array, ...]) -> tuple[_Array, ...]:
        h, c = states
        gates = gates + h @ turned
        i, o, f, g = (gates[:, k * size : (k + 1) * size] for k in range(4))
        i = f_of(i if p_i is None else i + p_i * c)
        f = 1 - i if coupled else f_of(f if p_f is None else f + p_f * c)
        c = f * c + i * g_of(g)
        o = f_of(o if p_o is None else o + p_o * c)
        return o * h_of(c), c

    return step


def gru_cell(
    view: NodeView, direction: int, directions: int, r: _Array, bias: _Array | None
) -> Cell:
    """Give the step of one direction: gates z, r, h; ``bias`` is the recurrence's own."""
    every = _activations(view, ("Sigmoid", "Tanh"), directions)
    f_of, g_of = every[2 * direction : 2 * direction + 2]
    size = r.shape[1]
    both, last = (
        np.ascontiguousarray(r[: 2 * size].T),
        np.ascontiguousarray(r[2 * size :].T),
    )
    b_both, b_last = (
        (r.dtype.type(0), r.dtype.type(0))
        if bias is None
        else (bias[: 2 * size], bias[2 * size :])
    )
    linear = view.attributes.get("linear_before_reset", 0)

    def step(gates: _Array, states: tuple[_Array, ...]) -> tuple[_Array, ...]:
        (h,) = states
        zr = f_of(gates[:, : 2 * size] + h @ both + b_both)
        z, reset = zr[:, :size], zr[:, size:]
        inner = reset * (h @ last + b_last) if linear else (reset * h) @ last + b_last
        new = g_of(gates[:, 2 * size :] + inner)
        return ((1 - z) * new + z * h,)

    return step


def rnn_cell(view: NodeView, direction: int, directions: int, r: _Array) -> Cell:
    """Give the step of one direction."""
    function = _activations(view, ("Tanh",), directions)[direction]
    turned = np.ascontiguousarray(r.T)

    def step(gates: _Array, states: tuple[_Array, ...]) -> tuple[_Array, ...]:
        return (function(gates + states[0] @ turned),)

    return step
