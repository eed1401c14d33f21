"""
Operators whose result is their first input's bytes under another shape.

The plan puts the result where the input lies, and then nothing runs. Where it cannot (the
input is somebody else's, or both are results) the bytes are copied on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from seamline.provider import NodeView
from seamline.tensors import ANY
from seamline_cuda.driver import SUCCESS, check, prepared

__all__ = ["DTYPES", "RESHAPING", "Copy", "is_reshaping"]

DTYPES = tuple(name for name in ANY if name != "string")

#: Operator -> since-versions, and the inputs that are read on the host.
RESHAPING: dict[str, tuple[tuple[tuple[int, int], frozenset[int]], ...]] = {
    "Flatten": (((1, 10_000), frozenset()),),
    "Reshape": (((5, 10_000), frozenset({1})),),
    "Squeeze": (((1, 11), frozenset()), ((13, 10_000), frozenset({1}))),
    "Unsqueeze": (((1, 11), frozenset()), ((13, 10_000), frozenset({1}))),
}


def is_reshaping(node: NodeView) -> bool:
    """Tell whether a node that was claimed moves no bytes, or all of them."""
    return not node.domain and node.op_type in RESHAPING


@attrs.define(eq=False)
class Copy:
    """A copy on the device, over fixed addresses, submitted like a launch."""

    kernel: str
    target: int
    source: int
    nbytes: int
    stream: Any
    _driver: Callable[..., Any] = attrs.field(
        factory=lambda: prepared("cuMemcpyDtoDAsync"), init=False
    )

    def __call__(self) -> None:
        """
        Submit it.

        Raises
        ------
        CudaError
            The driver refused it, or earlier work failed.
        """
        given = self._driver(self.target, self.source, self.nbytes, self.stream)
        if given[0] != SUCCESS:
            check("cuMemcpyDtoDAsync", given)
