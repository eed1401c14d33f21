"""
What a quantised operator is made of, in a graph that states it in floats.

Its inputs come from DequantizeLinear nodes (:class:`Codes`), its output goes to one
QuantizeLinear (:class:`Site`), which is drafted as one operator over bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import CONTRIB, Rewriting
from seamline.tensors import TensorType

__all__ = ["RULE", "Codes", "Site", "codes_of", "is_single", "single_of", "zero_of"]

_BYTES = ("int8", "uint8")
RULE = "quantized"  #: what names of these rules begin with


@attrs.frozen(eq=False)
class Codes:
    """
    A tensor of bytes, with what its codes mean.

    Attributes
    ----------
    node
        The DequantizeLinear that makes floats of it.
    point
        None where it is 0.
    alone
        Only one node reads the floats.
    """

    node: ir.Node
    codes: ir.Value
    scale: ir.Value
    point: ir.Value | None
    dtype: str
    alone: bool


def codes_of(work: Rewriting, value: ir.Value | None, *dtypes: str) -> Codes | None:
    """Give what a value was dequantised from, if it is plain: float32, and no blocks."""
    node = value.producer() if value is not None else None
    if (
        value is None
        or node is None
        or node.domain
        or node.op_type != "DequantizeLinear"
    ):
        return None
    codes, scale, point = [*node.inputs, None][:3]
    kind, its = work.kind(codes), work.kind(scale)
    if codes is None or scale is None or kind is None or its is None:
        return None
    if kind.dtype not in (dtypes or _BYTES) or its.dtype != "float32":
        return None
    if work.attribute(node, "block_size", 0) or its.shape is None or len(its.shape) > 1:
        return None
    alone = work.only_reader(value) is not None
    return Codes(node, codes, scale, point, kind.dtype, alone)


def is_single(work: Rewriting, value: ir.Value | None) -> bool:
    """Tell whether a scale or point is one for the whole tensor."""
    return value is None or work.shape(value) in ((), (1,))


def single_of(work: Rewriting, value: ir.Value | None) -> Codes | None:
    """Give what a value was dequantised from by one scale."""
    found = codes_of(work, value)
    return found if found is not None and is_single(work, found.scale) else None


@attrs.frozen(eq=False)
class Site:
    """
    An operator whose output is quantised, and what quantises it.

    Attributes
    ----------
    node, last
        The operator and its QuantizeLinear.
    scale, point
        Of the output.
    kind
        The type of the codes.
    """

    work: Rewriting
    node: ir.Node
    last: ir.Node
    scale: ir.Value
    point: ir.Value | None
    kind: TensorType

    @classmethod
    def of(cls, work: Rewriting, last: ir.Node) -> Site | None:
        """See what a plain QuantizeLinear is the end of; None for any other node."""
        if last.domain or last.op_type != "QuantizeLinear":
            return None
        value, scale, point = [*last.inputs, None][:3]
        node = value.producer() if value is not None else None
        kind, its = work.kind(last.outputs[0]), work.kind(scale)
        if (
            value is None
            or node is None
            or scale is None
            or kind is None
            or its is None
        ):
            return None
        if kind.dtype not in _BYTES or its.dtype != "float32":
            return None
        plain = is_single(work, scale) and not work.attribute(last, "block_size", 0)
        real = work.kind(value)
        if not plain or real is None or real.dtype != "float32":
            return None
        single = work.only_reader(value) is last and len(node.outputs) == 1
        return cls(work, node, last, scale, point, kind) if single else None

    def make(
        self, op_type: str, inputs: Callable[[Draft], Sequence[ir.Value | None]],
        parts: Sequence[Codes], more: Mapping[str, object] | None = None, *,
        domain: str = CONTRIB,
    ) -> bool:  # fmt: skip
        """Draft the operator over bytes; an attribute that is None is left out."""
        between = dict.fromkeys([part.node for part in parts if part.alone])
        rule = f"{RULE}-{self.node.op_type.lower()}"
        draft = Draft(self.work, rule, (self.node, *between, self.last))
        given = {**self.node.attributes, **(more or {})}
        given = {name: value for name, value in given.items() if value is not None}
        made = draft.node(op_type, inputs(draft), self.kind, given, domain=domain)
        return draft.make(
            "it works on bytes, between dequantisation and quantisation",
            (self.last.outputs[0], made),
        )

    def zero(self, draft: Draft) -> ir.Value:
        """Give the output's zero point, drafted where it is left out."""
        return self.point or draft.constant(np.zeros((), self.kind.dtype), "zero")


def zero_of(draft: Draft, part: Codes, hint: str) -> ir.Value:
    """Give the zero point of an input, drafted where it is left out."""
    return part.point or draft.constant(np.zeros((), part.dtype), hint)
