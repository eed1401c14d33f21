"""One node with its inputs, as a definition reads it; and the table of definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from seamline.provider import Array
from seamline_testing.values import widened

__all__ = ["DEFINITIONS", "Definition", "NotDefinedError", "Operands", "define"]


class NotDefinedError(Exception):
    """The kit has no definition for this node; the reason says what of it."""


@attrs.frozen(eq=False)
class Operands:
    """
    A node's inputs and attributes.

    Attributes
    ----------
    raw
        The inputs as they are fed; None for one left out.
    attributes
        Those that the node carries; strings as text.
    version
        The since-version of the operator.
    outputs
        How many outputs are asked for.
    """

    op_type: str
    raw: tuple[Array | None, ...]
    attributes: Mapping[str, Any]
    version: int
    outputs: int = 1

    def __getitem__(self, index: int) -> Array:
        """Give an input, floats as float64; integers keep their type, and wrap."""
        value = self.raw[index] if index < len(self.raw) else None
        if value is None:
            raise NotDefinedError(f"input {index} is left out")
        return widened(value)

    def maybe(self, index: int) -> Array | None:
        """Give an input, or None where it is left out."""
        value = self.raw[index] if index < len(self.raw) else None
        return None if value is None else widened(value)

    def all(self) -> list[Array]:
        """Give every input that is there."""
        return [widened(value) for value in self.raw if value is not None]

    def get(self, name: str, default: Any) -> Any:
        """Give an attribute, or its default."""
        return self.attributes.get(name, default)

    def ints(self, index: int, name: str) -> list[int] | None:
        """Give integers that are an attribute in old versions and an input in new ones."""
        if name in self.attributes:
            return [int(item) for item in self.attributes[name]]
        value = self.maybe(index)
        return None if value is None else [int(item) for item in value.ravel()]

    @property
    def is_float(self) -> bool:
        """Tell whether the first input holds floats."""
        return bool(self[0].dtype.kind == "f")


Definition: TypeAlias = Callable[[Operands], "Array | Sequence[Array]"]

#: Operator -> its definition; see :func:`define`.
DEFINITIONS: dict[str, Definition] = {}


def define(*names: str) -> Callable[[Definition], Definition]:
    """
    Register a definition for operators of ONNX's own domain.

    It gives one array or several: float64 for floats, else of the exact type. It raises
    :class:`NotDefinedError` for what it does not cover.
    """

    def register(function: Definition) -> Definition:
        DEFINITIONS.update(dict.fromkeys(names, function))
        return function

    return register


def float_only(op: Operands) -> None:
    """Refuse what the standard leaves open for integers."""
    if not op.is_float:
        raise NotDefinedError(f"{op.op_type} of {np.asarray(op[0]).dtype}")
