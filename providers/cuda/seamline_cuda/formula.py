"""
What an elementwise operator computes: an expression over its operands.

``{0}``, ``{1}`` stand for operands in registers. An expression says nothing of memory: the
generated kernel loads operands, rounds each result to the node's element type and stores
what is read outside.

An expression is written for the type that is computed in, which is float32 for the 16-bit
floats, so numbers in it are of that type: one of another would make the whole wider.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from seamline.kernel import NEWEST
from seamline.provider import NodeView
from seamline.tensors import INTEGERS, SIGNED, TensorType
from seamline_cuda.elements import ELEMENTS, FLOATS

__all__ = [
    "ALL",
    "EITHER",
    "EVERY",
    "FLOATS64",
    "SIGNED64",
    "Formula",
    "attribute",
    "called",
    "computed",
    "dtype_of",
    "number",
    "of_float",
    "plain",
    "product",
    "sigmoid",
]

FLOATS64 = (*FLOATS, "float64")
SIGNED64 = (*FLOATS64, *SIGNED)
ALL = (*FLOATS64, *INTEGERS)
EVERY = (*ALL, "bool")
EITHER = (0, 1)


def _nothing(node: NodeView) -> str | None:
    return None


@attrs.frozen
class Formula:
    """
    One operator.

    Attributes
    ----------
    since
        First and last since-version with this meaning.
    dtypes
        Element types that input ``checked`` may have.
    write
        Gives the expression for a node.
    attributes
        Attributes that it implements; a node that carries another is refused.
    alike
        Inputs in whose place the result may be written.
    reads
        How many of the inputs are read; the rest say something by their type.
    when
        Gives a reason to refuse a node, or None.
    along
        Gives the axis that operands of one dimension lie along, other than the last.
    """

    since: tuple[int, int]
    dtypes: tuple[str, ...]
    write: Callable[[NodeView], str]
    attributes: frozenset[str] = frozenset()
    checked: int = 0
    alike: tuple[int, ...] = (0,)
    reads: int | None = None
    when: Callable[[NodeView], str | None] = _nothing
    along: Callable[[NodeView], int] | None = None

    @classmethod
    def of(
        cls,
        since: int,
        dtypes: tuple[str, ...],
        write: str | Callable[[NodeView], str],
        *attributes: str,
        alike: tuple[int, ...] = (0,),
        checked: int = 0,
        reads: int | None = None,
        when: Callable[[NodeView], str | None] = _nothing,
        along: Callable[[NodeView], int] | None = None,
    ) -> Formula:
        """Make the formula of all since-versions from one on; a text is its expression."""
        made = plain(write) if isinstance(write, str) else write
        return cls(
            (since, NEWEST), dtypes, made, frozenset(attributes), checked, alike,
            reads, when, along,
        )  # fmt: skip

    def operands(self, node: NodeView) -> list[str]:
        """Give the values that a node reads, in order; one may come twice."""
        return [name for name in node.node.inputs[: self.reads] if name]


def dtype_of(node: NodeView, index: int = 0) -> str:
    """Give an input's element type."""
    kind = node.inputs[index]
    assert isinstance(kind, TensorType)
    return kind.dtype


def computed(node: NodeView, index: int = 0) -> str:
    """Give the type that an input is computed with."""
    return ELEMENTS[dtype_of(node, index)].computed


def number(node: NodeView, value: float) -> str:
    """Write a number of the type that the first input is computed with."""
    return f"np.{computed(node)}({value!r})"


def attribute(node: NodeView, name: str, default: float) -> str:
    """Write a float attribute, which the file holds as float32."""
    return number(node, float(node.attributes.get(name, default)))


def called(node: NodeView, function: str, value: str = "{0}") -> str:
    """Write a call of NVIDIA's function for the type that is computed in."""
    last = "" if computed(node) == "float64" else "f"
    return f"libdevice.{function}{last}({value})"


def product(node: NodeView, a: str, b: str) -> str:
    """Write a product of floats that is rounded by itself."""
    last = "64" if computed(node) == "float64" else ""
    return f"product{last}({a}, {b})"


def sigmoid(node: NodeView, value: str) -> str:
    """Write 1 / (1 + exp(-value))."""
    one = number(node, 1)
    return f"{one} / ({one} + {called(node, 'exp', f'-({value})')})"


def plain(text: str) -> Callable[[NodeView], str]:
    """Give the expression that is the same for every node."""
    return lambda node: text


def of_float(function: str, since: int) -> Formula:
    """Give the formula of one function of NVIDIA's library."""
    return Formula.of(since, FLOATS64, lambda node: called(node, function))
