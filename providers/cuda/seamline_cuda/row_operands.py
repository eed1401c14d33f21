"""What a row's program reads and writes beside its rows: addresses, numbers, scales, biases."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline.provider import View
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.broadcasting import Layout
from seamline_cuda.folds import taken_apart

__all__ = ["RowOperands"]


@attrs.define
class RowOperands:
    """Gathers what a node's program reads and writes: parameters, and their values."""

    wide: Wide
    parameters: list[tuple[str, str]] = attrs.field(factory=list)
    values: list[float] = attrs.field(factory=list)

    def added(self, name: str, kind: str, value: float) -> None:
        """Add a parameter."""
        self.parameters.append((name, kind))
        self.values.append(value)

    def place(self, name: str, view: View) -> Wide:
        """Add the address of a value; give how it is computed with."""
        wide = attrs.evolve(wide_of(view.kind.dtype), kind=self.wide.kind)
        self.added(name, wide.pointer, view.address)
        return wide

    def spread(
        self, name: str, view: View, shape: Sequence[int], index: str
    ) -> list[str]:
        """Give the lines that load, as ``name``, what broadcasts to a shape.

        ``index`` is an expression of where in the shape it is wanted.
        """
        wide = self.place(f"p_{name}", view)
        layout = Layout.of(shape, [view.shape])
        where = {"flat": index, "single": "0"}.get(layout.form(0), f"{name}_at{{u}}")
        lines = []
        if layout.form(0) == "strided":
            sizes, steps = layout.sizes, layout.strides[0]
            for axis, size in enumerate(sizes[1:], 1):
                self.added(f"{name}_size{axis}", "uint32", size)
            for axis, step in enumerate(steps):
                self.added(f"{name}_step{axis}", "int64", step)
            lines = taken_apart(index, name, len(sizes), where, f"_{name}{{u}}")
        return [*lines, f"{name}{{u}} = {wide.load(f'p_{name}[{where}]')}"]
