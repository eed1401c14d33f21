"""
Operators whose result is their first input's bytes under another shape, or another type.

The plan puts the result where the input lies, and then nothing runs. Where it cannot (the
input is somebody else's, or both are results) the bytes are copied on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, onnx_dtype
from seamline_cuda.elements import MOVED
from seamline_cuda.works import CopyWork, Work

__all__ = ["RESHAPING", "add_to", "same_bytes"]

#: Operator -> since-versions, and the inputs that are read on the host.
RESHAPING: dict[str, tuple[tuple[tuple[int, int], frozenset[int]], ...]] = {
    "BitCast": (((26, 10_000), frozenset()),),
    "Flatten": (((1, 10_000), frozenset()),),
    "Reshape": (((5, 10_000), frozenset({1})),),
    "Squeeze": (((1, 11), frozenset()), ((13, 10_000), frozenset({1}))),
    "Unsqueeze": (((1, 11), frozenset()), ((13, 10_000), frozenset({1}))),
}


def same_bytes(call: Call) -> Sequence[Work]:
    """Copy the first input to the result, where they do not lie together."""
    source, target = call.inputs[0], call.outputs[0]
    if source.address == target.address or not target.nbytes:
        return []
    return [CopyWork(target.address, source.address, target.nbytes)]


def _other_width(node: NodeView) -> str | None:
    """Refuse to show bytes as a type of another width."""
    given, made = node.inputs[0], node.outputs[0]
    if not isinstance(given, TensorType) or not isinstance(made, TensorType):
        return f"it shows {given} as {made}; tensors are accepted"
    widths = [onnx_dtype(kind.dtype).bitwidth for kind in (given, made)]
    if node.op_type == "BitCast" and widths[0] != widths[1]:
        return (
            f"it shows {given.dtype} as {made.dtype}; types of one width are accepted"
        )
    return None


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type, versions in RESHAPING.items():
        for since, on_host in versions:
            table.kernel(
                op_type,
                since=since,
                dtypes=MOVED,
                when=_other_width,
                host_inputs=on_host,
                views=((0, 0),),
                because="the result is its input's bytes",
                not_capturable=None,
            )(same_bytes)
