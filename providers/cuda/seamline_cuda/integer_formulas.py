"""
Bits, remainders and tests of numbers: expressions that never pass through a wider float.

A remainder has the divisor's sign, or with ``fmod`` the dividend's, as C has it.
"""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import INTEGERS, SIGNED, UNSIGNED
from seamline_cuda.formula import (
    ALL,
    EITHER,
    FLOATS64,
    Formula,
    called,
    computed,
    dtype_of,
    number,
)
from seamline_cuda.limits import bytes_of

__all__ = ["INTEGER_FORMULAS"]


def _remainder(node: NodeView) -> str:
    if dtype_of(node) not in INTEGERS:
        cut = called(node, "fmod", "{0}, {1}")
        if node.attributes.get("fmod", 0):
            return cut
        zero = called(node, "copysign", f"{number(node, 0)}, {{1}}")
        crosses = f"({cut} < 0) != ({{1}} < 0)"
        return f"({zero} if {cut} == 0 else ({cut} + {{1}} if {crosses} else {cut}))"
    if dtype_of(node) in SIGNED and node.attributes.get("fmod", 0):
        return "np.int64({0}) - truncated64(np.int64({0}), np.int64({1})) * {1}"
    return "{0} % {1}"


def _shifted(node: NodeView) -> str:
    # More places than there are leave nothing; a processor would take them modulo.
    bits, zero = 8 * bytes_of(dtype_of(node)), f"np.{computed(node)}(0)"
    left = node.attributes["direction"] == "LEFT"
    if dtype_of(node) in UNSIGNED:
        how = "<<" if left else ">>"
        return f"({{0}} {how} {{1}} if {{1}} < {bits} else {zero})"
    inside, last = f"{{1}} >= 0 and {{1}} < {bits}", f"np.int64({bits - 1})"
    if left:
        return f"(np.int64({{0}}) << np.int64({{1}}) if {inside} else np.int64(0))"
    # What is left of a negative number is its sign.
    return f"np.int64({{0}}) >> (np.int64({{1}}) if {inside} else {last})"


def _direction(node: NodeView) -> str | None:
    given = node.attributes.get("direction")
    return (
        None
        if given in ("LEFT", "RIGHT")
        else f"direction {given!r} is not LEFT or RIGHT"
    )


def _infinite(node: NodeView) -> str:
    limit = f"np.{computed(node)}(np.inf)"
    tests = []
    if node.attributes.get("detect_positive", 1):
        tests.append(f"{{0}} == {limit}")
    if node.attributes.get("detect_negative", 1):
        tests.append(f"{{0}} == -{limit}")
    return (
        f"({' or '.join(tests)})" if tests else f"({{0}} < {number(node, 0)} < {{0}})"
    )


INTEGER_FORMULAS: dict[str, Formula] = {
    "BitShift": Formula.of(11, INTEGERS, _shifted, "direction", when=_direction),
    "BitwiseAnd": Formula.of(18, INTEGERS, "{0} & {1}", alike=EITHER),
    "BitwiseNot": Formula.of(18, INTEGERS, "~{0}"),
    "BitwiseOr": Formula.of(18, INTEGERS, "{0} | {1}", alike=EITHER),
    "BitwiseXor": Formula.of(18, INTEGERS, "{0} ^ {1}", alike=EITHER),
    "IsInf": Formula.of(
        10, FLOATS64, _infinite, "detect_positive", "detect_negative", alike=()
    ),
    "IsNaN": Formula.of(9, FLOATS64, "({0} != {0})", alike=()),
    "Mod": Formula.of(10, ALL, _remainder, "fmod", alike=EITHER),
}  #: by operator
