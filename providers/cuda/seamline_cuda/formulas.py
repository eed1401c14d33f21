"""
The elementwise operators, and what each of them computes; see :mod:`seamline_cuda.formula`.

NaN goes through Relu, Min, Max and Clip, as ONNX's reference has it; integers divide
towards zero and never pass through float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seamline.provider import NodeView
from seamline.tensors import INTEGERS, UNSIGNED, TensorType
from seamline_cuda.activations import ACTIVATIONS
from seamline_cuda.elements import ELEMENTS, converted
from seamline_cuda.formula import (
    ALL,
    EITHER,
    EVERY,
    FLOATS64,
    SIGNED64,
    Formula,
    attribute,
    computed,
    dtype_of,
    number,
    of_float,
    product,
)
from seamline_cuda.integer_formulas import INTEGER_FORMULAS
from seamline_cuda.powers import POWER
from seamline_cuda.quantizing_formulas import QUANTIZING

__all__ = ["FORMULAS", "Formula", "formula_of"]

_SMALL = ("int8", "int16", "int32")


def _magnitude(node: NodeView) -> str:
    return "{0}" if dtype_of(node) in UNSIGNED else "abs({0})"


def _product(node: NodeView) -> str:
    return "{0} * {1}" if dtype_of(node) in INTEGERS else product(node, "{0}", "{1}")


def _quotient(node: NodeView) -> str:
    dtype = dtype_of(node)
    if dtype in _SMALL:
        return "truncated32(np.int32({0}), np.int32({1}))"
    if dtype == "int64":
        return "truncated64({0}, {1})"
    return "{0} // {1}" if dtype in INTEGERS else "{0} / {1}"


def _sign(node: NodeView) -> str:
    one = f"np.{computed(node)}"
    return f"({one}(1) if {{0}} > 0 else ({one}(-1) if {{0}} < 0 else {{0}}))"


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


def _mean(node: NodeView) -> str:
    return f"({_sum(node)}) / {number(node, len(node.inputs))}"


def _clip(node: NodeView) -> str:
    found, operand = "{0}", 1
    for index, name in ((1, "greatest"), (2, "least")):
        if node.has_input(index):
            found = f"{name}({found}, {{{operand}}})"
            operand += 1
    return found


def _clip_by_attributes(node: NodeView) -> str:
    found = "{0}"
    for given, name in (("min", "greatest"), ("max", "least")):
        if given in node.attributes:
            found = f"{name}({found}, {attribute(node, given, 0.0)})"
    return found


def _root(node: NodeView) -> str:
    name = "dsqrt_rn" if computed(node) == "float64" else "fsqrt_rn"
    return f"libdevice.{name}({{0}})"


def _cast(node: NodeView) -> str:
    target = node.outputs[0]
    assert isinstance(target, TensorType)
    return converted("{0}", ELEMENTS[dtype_of(node)], ELEMENTS[target.dtype])


def _rounds_up(node: NodeView) -> str | None:
    if node.attributes.get("round_mode", "up") != "up":
        return "rounding other than 'up' is for types that the device has not"
    return None


def _is_inference(node: NodeView) -> str | None:
    if node.has_output(1):
        return "a mask is drawn in training only"
    training = node.constant(2)
    if node.has_input(2) and (training is None or training.any()):
        return "training_mode is not known to be false"
    return None


_CAST = ("to", "saturate", "round_mode")
_BASIC: dict[str, Formula] = {
    "Abs": Formula.of(6, ALL, _magnitude),
    "Acos": of_float("acos", 7),
    "Acosh": of_float("acosh", 9),
    "Add": Formula.of(7, ALL, "{0} + {1}", alike=EITHER),
    "And": Formula.of(7, ("bool",), "({0} and {1})", alike=EITHER),
    "Asin": of_float("asin", 7),
    "Asinh": of_float("asinh", 9),
    "Atan": of_float("atan", 7),
    "Atanh": of_float("atanh", 9),
    "Cast": Formula.of(6, EVERY, _cast, *_CAST, when=_rounds_up),
    "CastLike": Formula.of(15, EVERY, _cast, *_CAST[1:], reads=1, when=_rounds_up),
    "Ceil": of_float("ceil", 6),
    "Clip": Formula.of(11, ALL, _clip),
    "Cos": of_float("cos", 7),
    "Cosh": of_float("cosh", 9),
    "Div": Formula.of(7, ALL, _quotient, alike=EITHER),
    "Dropout": Formula.of(
        7, FLOATS64, "{0}", "ratio", "seed", reads=1, when=_is_inference
    ),
    "Equal": Formula.of(7, EVERY, "({0} == {1})", alike=EITHER),
    "Erf": of_float("erf", 9),
    "Exp": of_float("exp", 6),
    "Floor": of_float("floor", 6),
    "Greater": Formula.of(7, ALL, "({0} > {1})", alike=EITHER),
    "GreaterOrEqual": Formula.of(12, ALL, "({0} >= {1})", alike=EITHER),
    "Identity": Formula.of(1, EVERY, "{0}"),
    "Less": Formula.of(7, ALL, "({0} < {1})", alike=EITHER),
    "LessOrEqual": Formula.of(12, ALL, "({0} <= {1})", alike=EITHER),
    "Log": of_float("log", 6),
    "Max": Formula.of(6, ALL, _reduced("greatest")),
    "Mean": Formula.of(6, FLOATS64, _mean),
    "Min": Formula.of(6, ALL, _reduced("least")),
    "Mul": Formula.of(7, ALL, _product, alike=EITHER),
    "Neg": Formula.of(6, SIGNED64, "-{0}"),
    "Not": Formula.of(1, ("bool",), "(not {0})"),
    "Or": Formula.of(7, ("bool",), "({0} or {1})", alike=EITHER),
    "Pow": POWER,
    "Reciprocal": Formula.of(6, FLOATS64, lambda node: f"{number(node, 1)} / {{0}}"),
    "Round": of_float("rint", 11),
    "Sign": Formula.of(9, ALL, _sign),
    "Sin": of_float("sin", 7),
    "Sinh": of_float("sinh", 9),
    "Sqrt": Formula.of(6, FLOATS64, _root),
    "Sub": Formula.of(7, ALL, "{0} - {1}", alike=EITHER),
    "Sum": Formula.of(6, FLOATS64, _sum),
    "Tan": of_float("tan", 7),
    "Tanh": of_float("tanh", 6),
    "Where": Formula.of(9, EVERY, "({1} if {0} else {2})", checked=1, alike=(1, 2)),
    "Xor": Formula.of(7, ("bool",), "({0} != {1})", alike=EITHER),
}

#: By operator, ``domain::Op`` outside ONNX's own; of several the first that has the version.
FORMULAS: dict[str, Sequence[Formula]] = {
    name: (formula,)
    for name, formula in {
        **_BASIC,
        **ACTIVATIONS,
        **INTEGER_FORMULAS,
        **QUANTIZING,
    }.items()
}
FORMULAS["Clip"] = (
    *FORMULAS["Clip"],
    Formula((6, 10), FLOATS64, _clip_by_attributes, frozenset({"min", "max"})),
)


def formula_of(node: NodeView) -> Formula | None:
    """Give the formula of a node, or None where it is no elementwise operator."""
    for formula in FORMULAS.get(node.node.qualified_op, ()):
        first, last = formula.since
        if first <= node.since_version <= last:
            return formula
    return None
