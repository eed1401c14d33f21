"""Activation functions, ONNX's and onnxruntime's, as expressions over floats."""

from __future__ import annotations

from collections.abc import Callable

from seamline.provider import NodeView
from seamline.tensors import INTEGERS
from seamline_cuda.formula import (
    ALL,
    FLOATS64,
    SIGNED64,
    Formula,
    attribute,
    called,
    computed,
    dtype_of,
    number,
    product,
    sigmoid,
)

__all__ = ["ACTIVATIONS", "CONTRIB"]

CONTRIB = "com.microsoft"


def _relu(node: NodeView) -> str:
    zero = f"np.{computed(node)}(0)"
    return f"({{0}} if ({{0}} > 0 or {{0}} != {{0}}) else {zero})"


def _within_one(node: NodeView, value: str) -> str:
    """Give a float between 0 and 1."""
    return f"greatest({number(node, 0)}, least({number(node, 1)}, {value}))"


def _leaky(node: NodeView) -> str:
    below = product(node, attribute(node, "alpha", 0.01), "{0}")
    return f"({{0}} if {{0}} >= 0 else {below})"


def _sloped(node: NodeView) -> str:
    below = "{1} * {0}" if dtype_of(node) in INTEGERS else product(node, "{1}", "{0}")
    return f"({{0}} if {{0}} > 0 else {below})"


def _elu(node: NodeView) -> str:
    below = product(node, attribute(node, "alpha", 1.0), called(node, "expm1"))
    return f"({{0}} if {{0}} > 0 else {below})"


def _selu(node: NodeView) -> str:
    alpha = attribute(node, "alpha", 1.67326319217681884765625)
    gamma = attribute(node, "gamma", 1.05070102214813232421875)
    below = product(node, alpha, called(node, "expm1"))
    return product(node, gamma, f"({{0}} if {{0}} > 0 else {below})")


def _celu(node: NodeView) -> str:
    alpha = attribute(node, "alpha", 1.0)
    below = product(node, alpha, called(node, "expm1", f"{{0}} / {alpha}"))
    return f"({{0}} if {{0}} > 0 else {below})"


def _softplus(node: NodeView) -> str:
    # Never the exponential of what is above 0, which may be infinite.
    small = called(node, "exp", f"-{called(node, 'fabs')}")
    return f"greatest({{0}}, {number(node, 0)}) + {called(node, 'log1p', small)}"


def _softsign(node: NodeView) -> str:
    return f"{{0}} / ({number(node, 1)} + {called(node, 'fabs')})"


def _mish(node: NodeView) -> str:
    return product(node, "{0}", called(node, "tanh", _softplus(node)))


def _hard_sigmoid(node: NodeView) -> str:
    alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    return _within_one(node, f"({product(node, alpha, '{0}')} + {beta})")


def _hard_swish(node: NodeView) -> str:
    # The text says a sixth; the function body in the file rounds it to float32.
    sixth = product(node, number(node, 1 / 6), "{0}")
    return product(node, "{0}", _within_one(node, f"{sixth} + {number(node, 0.5)}"))


def _thresholded(node: NodeView) -> str:
    return f"({{0}} if {{0}} > {attribute(node, 'alpha', 1.0)} else {number(node, 0)})"


def _shrink(node: NodeView) -> str:
    bias, edge = attribute(node, "bias", 0.0), attribute(node, "lambd", 0.5)
    above = f"({{0}} - {bias} if {{0}} > {edge} else {number(node, 0)})"
    return f"({{0}} + {bias} if {{0}} < -{edge} else {above})"


def _swish(default: float) -> Callable[[NodeView], str]:
    def write(node: NodeView) -> str:
        inner = product(node, attribute(node, "alpha", default), "{0}")
        return product(node, "{0}", sigmoid(node, inner))

    return write


def _by_error_function(node: NodeView, x: str) -> str:
    inner = called(node, "erf", f"{x} * {number(node, 0.7071067811865476)}")
    half = f"{number(node, 0.5)} * {x}"
    return product(node, half, f"{number(node, 1)} + {inner}")


def _by_tanh(node: NodeView, x: str) -> str:
    cube = f"({x} + {number(node, 0.044715)} * {x} * {x} * {x})"
    # sqrt(2 / pi)
    inner = called(node, "tanh", f"{number(node, 0.7978845608028654)} * {cube}")
    half = f"{number(node, 0.5)} * {x}"
    return product(node, half, f"{number(node, 1)} + {inner}")


def _gelu(node: NodeView) -> str:
    if node.attributes.get("approximate", "none") == "tanh":
        return _by_tanh(node, "{0}")
    return _by_error_function(node, "{0}")


def _biased(node: NodeView) -> str:
    return "({0} + {1})" if node.has_input(1) else "{0}"


def _approximation(node: NodeView) -> str | None:
    how = node.attributes.get("approximate", "none")
    return None if how in ("none", "tanh") else f"approximate {how!r} is not known"


ACTIVATIONS: dict[str, Formula] = {
    "Celu": Formula.of(12, FLOATS64, _celu, "alpha"),
    "Elu": Formula.of(6, FLOATS64, _elu, "alpha"),
    "Gelu": Formula.of(20, FLOATS64, _gelu, "approximate", when=_approximation),
    "HardSigmoid": Formula.of(6, FLOATS64, _hard_sigmoid, "alpha", "beta"),
    "HardSwish": Formula.of(14, FLOATS64, _hard_swish),
    "LeakyRelu": Formula.of(6, FLOATS64, _leaky, "alpha"),
    "Mish": Formula.of(18, FLOATS64, _mish),
    "PRelu": Formula.of(7, ALL, _sloped),
    "Relu": Formula.of(6, SIGNED64, _relu),
    "Selu": Formula.of(6, FLOATS64, _selu, "alpha", "gamma"),
    "Shrink": Formula.of(9, FLOATS64, _shrink, "bias", "lambd"),
    "Sigmoid": Formula.of(6, FLOATS64, lambda node: sigmoid(node, "{0}")),
    "Softplus": Formula.of(1, FLOATS64, _softplus),
    "Softsign": Formula.of(1, FLOATS64, _softsign),
    "Swish": Formula.of(24, FLOATS64, _swish(1.0), "alpha"),
    "ThresholdedRelu": Formula.of(10, FLOATS64, _thresholded, "alpha"),
    f"{CONTRIB}::BiasGelu": Formula.of(
        1, FLOATS64, lambda node: _by_error_function(node, "({0} + {1})")
    ),
    f"{CONTRIB}::FastGelu": Formula.of(
        1, FLOATS64, lambda node: _by_tanh(node, _biased(node))
    ),
    f"{CONTRIB}::Gelu": Formula.of(
        1, FLOATS64, lambda node: _by_error_function(node, "{0}")
    ),
    f"{CONTRIB}::QuickGelu": Formula.of(1, FLOATS64, _swish(1.702), "alpha"),
    "seamline::HardSwish": Formula.of(1, FLOATS64, _hard_swish),  # for older opsets
}  #: by operator
