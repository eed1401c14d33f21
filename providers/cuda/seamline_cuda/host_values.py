"""
What a segment reads on the host, and whether its launches still hold it.

A shape, an axis or a scale becomes numbers among a launch's arguments. One that is constant
is there for good. One that a run may change is looked at before each run: with another
value the launches are made anew, and a recording of the old ones is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from seamline.errors import ResidencyError
from seamline.kernel_table import Kernel
from seamline.provider import Array, NodeView

__all__ = ["HostValues"]


@attrs.define(eq=False)
class HostValues:
    """
    Arrays on the host, by value.

    Attributes
    ----------
    arrays
        All that kernels read on the host.
    baked
        What the launches hold of those that runs may change; None before the first.
    """

    arrays: Mapping[str, Array] = attrs.field(factory=dict)
    baked: dict[str, bytes | None] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        host: Mapping[str, Any],
        nodes: Sequence[NodeView],
        kernels: Sequence[Kernel],
    ) -> HostValues:
        """
        Take the host inputs of a segment.

        Raises
        ------
        ResidencyError
            One is no array of the host.
        """
        varying = {
            node.node.inputs[index]
            for node, kernel in zip(nodes, kernels, strict=True)
            for index in kernel.host_inputs
            if node.has_input(index) and node.constant(index) is None
        }
        arrays = {name: _on_host(name, value) for name, value in host.items()}
        return cls(arrays, dict.fromkeys(sorted(varying)))

    @property
    def changed(self) -> str:
        """Name a value that is another than the launches hold; empty where none is."""
        for name, held in self.baked.items():
            if held is None or self.arrays[name].tobytes() != held:
                return name
        return ""

    def bake(self) -> None:
        """Remember the values that launches are made from."""
        self.baked = {name: self.arrays[name].tobytes() for name in self.baked}


def _on_host(name: str, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        why = f"host input {name!r} is a {type(value).__name__}, no array of the host"
        raise ResidencyError("cuda", why)
    return value
