"""
What each elementwise operator computes, as an expression over its operands.

``{0}``, ``{1}`` stand for operands in registers. An expression says nothing of memory: the
generated kernel loads operands, rounds each result to the node's element type and stores
what is read outside.

NaN goes through Relu, Min, Max and Clip, as ONNX's reference has it; integers divide
towards zero and never pass through float.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from seamline.provider import NodeView
from seamline.tensors import INTEGERS, SIGNED, TensorType
from seamline_cuda.elements import ELEMENTS, FLOATS, converted

__all__ = ["FORMULAS", "Formula"]

_ALL = (*FLOATS, "float64", *INTEGERS)
_FLOATS64 = (*FLOATS, "float64")
_EVERY = (*_ALL, "bool")
_EITHER = (0, 1)
_SMALL = ("int8", "int16", "int32")


@attrs.frozen
class Formula:
    """
    One operator.

    Attributes
    ----------
    since
        First since-version with this meaning.
    dtypes
        Element types that input ``checked`` may have.
    write
        Gives the expression for a node whose operands are ``operands`` many.
    attributes
        Attributes that it implements; a node that carries another is refused.
    alike
        Inputs in whose place the result may be written.
    """

    since: int
    dtypes: tuple[str, ...]
    write: Callable[[NodeView], str]
    attributes: frozenset[str] = frozenset()
    checked: int = 0
    alike: tuple[int, ...] = (0,)


def dtype_of(node: NodeView, index: int = 0) -> str:
    """Give an input's element type."""
    kind = node.inputs[index]
    assert isinstance(kind, TensorType)
    return kind.dtype


def _plain(text: str) -> Callable[[NodeView], str]:
    return lambda node: text


def _product(node: NodeView) -> str:
    name = {"float64": "product64"}.get(dtype_of(node), "product")
    return "{0} * {1}" if dtype_of(node) in INTEGERS else name + "({0}, {1})"


def _quotient(node: NodeView) -> str:
    dtype = dtype_of(node)
    if dtype in _SMALL:
        return "truncated32(np.int32({0}), np.int32({1}))"
    if dtype == "int64":
        return "truncated64({0}, {1})"
    return "{0} // {1}" if dtype in INTEGERS else "{0} / {1}"


def _zero(node: NodeView) -> str:
    return f"np.{ELEMENTS[dtype_of(node)].computed}(0)"


def _relu(node: NodeView) -> str:
    return f"({{0}} if ({{0}} > 0 or {{0}} != {{0}}) else {_zero(node)})"


def _sign(node: NodeView) -> str:
    one = f"np.{ELEMENTS[dtype_of(node)].computed}"
    return f"({one}(1) if {{0}} > 0 else ({one}(-1) if {{0}} < 0 else {{0}}))"


def _within_one(value: str) -> str:
    """Give a float between 0 and 1."""
    return f"greatest(np.float32(0), least(np.float32(1), {value}))"


def _reduced(order: str) -> Callable[[NodeView], str]:
    """Fold Min or Max over any number of operands; the first NaN stays."""

    def write(node: NodeView) -> str:
        found = "{0}"
        for index in range(1, len(node.inputs)):
            found = f"{order}({found}, {{{index}}})"
        return found

    return write


def _sum(node: NodeView) -> str:
    return " + ".join(f"{{{index}}}" for index in range(len(node.inputs)))


def _clip(node: NodeView) -> str:
    found, operand = "{0}", 1
    for index, name in ((1, "greatest"), (2, "least")):
        if node.has_input(index):
            found = f"{name}({found}, {{{operand}}})"
            operand += 1
    return found


def _constant(node: NodeView, name: str, default: float) -> str:
    return f"np.float32({float(node.attributes.get(name, default))!r})"


def _leaky(node: NodeView) -> str:
    return (
        f"({{0}} if {{0}} >= 0 else product({_constant(node, 'alpha', 0.01)}, {{0}}))"
    )


def _elu(node: NodeView) -> str:
    alpha = _constant(node, "alpha", 1.0)
    return f"({{0}} if {{0}} > 0 else product({alpha}, libdevice.expm1f({{0}})))"


def _hard_sigmoid(node: NodeView) -> str:
    alpha, beta = _constant(node, "alpha", 0.2), _constant(node, "beta", 0.5)
    inner = f"(product({alpha}, {{0}}) + {beta})"
    return _within_one(inner)


def _gelu(node: NodeView) -> str:
    if node.attributes.get("approximate", "none") == "tanh":
        # sqrt(2 / pi) = 0.7978845608028654
        cube = "({0} + np.float32(0.044715) * {0} * {0} * {0})"
        inner = f"libdevice.tanhf(np.float32(0.7978845608028654) * {cube})"
    else:
        inner = "libdevice.erff({0} * np.float32(0.7071067811865476))"
    return f"product(np.float32(0.5) * {{0}}, np.float32(1) + {inner})"


def _cast(node: NodeView) -> str:
    target = node.outputs[0]
    assert isinstance(target, TensorType)
    return converted("{0}", ELEMENTS[dtype_of(node)], ELEMENTS[target.dtype])


_SIGMOID = "np.float32(1) / (np.float32(1) + libdevice.expf(-{0}))"
_SOFTPLUS = (
    "greatest({0}, np.float32(0))"
    " + libdevice.log1pf(libdevice.expf(-libdevice.fabsf({0})))"
)
_SIXTH = "product(np.float32(0.16666667163372040), {0}) + np.float32(0.5)"
_HARD_SWISH = f"product({{0}}, {_within_one(_SIXTH)})"


def _of_float(function: str, since: int) -> Formula:
    return Formula(since, FLOATS, _plain(f"libdevice.{function}({{0}})"))


FORMULAS: dict[str, Formula] = {
    "Abs": Formula(6, (*_FLOATS64, *SIGNED), _plain("abs({0})")),
    "Add": Formula(7, _ALL, _plain("{0} + {1}"), alike=_EITHER),
    "And": Formula(7, ("bool",), _plain("({0} and {1})"), alike=_EITHER),
    "Cast": Formula(6, _EVERY, _cast, frozenset({"to", "saturate", "round_mode"})),
    "Ceil": _of_float("ceilf", 6),
    "Clip": Formula(11, _ALL, _clip),
    "Cos": _of_float("cosf", 7),
    "Div": Formula(7, _ALL, _quotient, alike=_EITHER),
    "Elu": Formula(6, FLOATS, _elu, frozenset({"alpha"})),
    "Equal": Formula(7, _EVERY, _plain("({0} == {1})"), alike=_EITHER),
    "Erf": _of_float("erff", 9),
    "Exp": _of_float("expf", 6),
    "Floor": _of_float("floorf", 6),
    "Gelu": Formula(20, FLOATS, _gelu, frozenset({"approximate"})),
    "Greater": Formula(7, _ALL, _plain("({0} > {1})"), alike=_EITHER),
    "GreaterOrEqual": Formula(12, _ALL, _plain("({0} >= {1})"), alike=_EITHER),
    "HardSigmoid": Formula(6, FLOATS, _hard_sigmoid, frozenset({"alpha", "beta"})),
    "HardSwish": Formula(14, FLOATS, _plain(_HARD_SWISH)),
    "Identity": Formula(1, _EVERY, _plain("{0}")),
    "LeakyRelu": Formula(6, FLOATS, _leaky, frozenset({"alpha"})),
    "Less": Formula(7, _ALL, _plain("({0} < {1})"), alike=_EITHER),
    "LessOrEqual": Formula(12, _ALL, _plain("({0} <= {1})"), alike=_EITHER),
    "Log": _of_float("logf", 6),
    "Max": Formula(8, _ALL, _reduced("greatest")),
    "Min": Formula(8, _ALL, _reduced("least")),
    "Mul": Formula(7, _ALL, _product, alike=_EITHER),
    "Neg": Formula(6, (*_FLOATS64, *SIGNED), _plain("-{0}")),
    "Not": Formula(1, ("bool",), _plain("(not {0})")),
    "Or": Formula(7, ("bool",), _plain("({0} or {1})"), alike=_EITHER),
    "Reciprocal": Formula(6, FLOATS, _plain("np.float32(1) / {0}")),
    "Relu": Formula(6, (*_FLOATS64, *SIGNED), _relu),
    "Round": _of_float("rintf", 11),
    "Sigmoid": Formula(6, FLOATS, _plain(_SIGMOID)),
    "Sign": Formula(9, _ALL, _sign),
    "Sin": _of_float("sinf", 7),
    "Softplus": Formula(1, FLOATS, _plain(_SOFTPLUS)),
    "Softsign": Formula(
        1, FLOATS, _plain("{0} / (np.float32(1) + libdevice.fabsf({0}))")
    ),
    "Sqrt": Formula(6, FLOATS, _plain("libdevice.fsqrt_rn({0})")),
    "Sub": Formula(7, _ALL, _plain("{0} - {1}"), alike=_EITHER),
    "Sum": Formula(8, _FLOATS64, _sum),
    "Tanh": _of_float("tanhf", 6),
    "Where": Formula(
        9, _EVERY, _plain("({1} if {0} else {2})"), checked=1, alike=(1, 2)
    ),
    "Xor": Formula(7, ("bool",), _plain("({0} != {1})"), alike=_EITHER),
}  #: by operator of ai.onnx
