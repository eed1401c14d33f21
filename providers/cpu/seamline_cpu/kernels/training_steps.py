"""
Steps of training, ``ai.onnx.preview.training``: Adagrad, Adam and Momentum.

Each takes a rate, the number of updates so far, and then values, gradients and states for
any number of tensors; it gives new values and new states. All is in the tensors' type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seamline.provider import Array, NodeView
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"
_FLOATS = ("float32", "float64")
_MODES = ("standard", "nesterov")


def _groups(tensors: tuple[Array, ...], count: int) -> list[tuple[Array, ...]]:
    """Give, for each tensor, its value, gradient and states."""
    if len(tensors) % count:
        raise ValueError(f"{len(tensors)} tensors do not make groups of {count}")
    each = len(tensors) // count
    return [tuple(tensors[i::each]) for i in range(each)]


def _in_order(results: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Give all new values, then all first states, and so on."""
    return tuple(x for group in zip(*results, strict=True) for x in group)


@TABLE.simple("Adagrad", domain=_DOMAIN, dtypes={0: _FLOATS, 2: _FLOATS})
def adagrad(
    rate: Array,
    count: Array,
    *tensors: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Array, ...]:
    """Divide the gradient by the root of the sum of its squares so far."""
    r = rate / (1 + count * decay_factor)
    made = []
    for x, gradient, squares in _groups(tensors, 3):
        g = norm_coefficient * x + gradient
        total = squares + g * g
        new = x - r * g / (np.sqrt(total) + epsilon)
        made.append((new.astype(x.dtype), total.astype(x.dtype)))
    return _in_order(made)


@TABLE.simple("Adam", domain=_DOMAIN, dtypes={0: _FLOATS, 2: _FLOATS})
def adam(
    rate: Array,
    count: Array,
    *tensors: Array,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Array, ...]:
    """Step along the mean gradient over the root of its mean square, both decaying."""
    t = float(count)
    r = rate * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else rate
    made = []
    for x, gradient, mean, square in _groups(tensors, 4):
        g = norm_coefficient * x + gradient
        v = alpha * mean + (1 - alpha) * g
        h = beta * square + (1 - beta) * g * g
        new = (1 - norm_coefficient_post) * (x - r * v / (np.sqrt(h) + epsilon))
        made.append((new.astype(x.dtype), v.astype(x.dtype), h.astype(x.dtype)))
    return _in_order(made)


def _refuse_mode(node: NodeView) -> str | None:
    missing = [
        a
        for a in ("alpha", "beta", "mode", "norm_coefficient")
        if a not in node.attributes
    ]
    if missing:
        return f"the attribute {missing[0]!r} is missing"
    mode = node.attributes["mode"]
    return None if mode in _MODES else f"mode is {mode!r}, not {' or '.join(_MODES)}"


@TABLE.simple(
    "Momentum", domain=_DOMAIN, dtypes={0: _FLOATS, 2: _FLOATS}, when=_refuse_mode
)
def momentum(
    rate: Array,
    count: Array,
    *tensors: Array,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Array, ...]:
    """Step along a decaying sum of gradients; Nesterov's looks one step ahead."""
    fresh = beta if count > 0 else 1.0  # the first gradient is taken whole
    made = []
    for x, gradient, sum_so_far in _groups(tensors, 3):
        g = norm_coefficient * x + gradient
        v = alpha * sum_so_far + fresh * g
        step = g + alpha * v if mode == "nesterov" else v
        made.append(((x - rate * step).astype(x.dtype), v.astype(x.dtype)))
    return _in_order(made)
