"""
The text of a pool's kernel: a thread for each place of the window, beside its neighbours.

The text says how many spatial axes there are and what is made of a window; sizes, strides
and padding are arguments, so that one kernel serves every layer of a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

__all__ = ["PER_AXIS", "PoolText"]

#: What a kernel is told of each axis, the outermost first, in this order.
PER_AXIS = ("size", "out", "kernel", "stride", "dilation", "begin", "end")


@attrs.frozen
class PoolText:
    """
    What is made of each window.

    Attributes
    ----------
    name
        The kernel's name.
    rank
        Spatial axes, 1 to 3.
    parameters
        Name and type of its own arguments, ``x`` first.
    start
        Lines before the window.
    tap
        Lines for ``v``, an element inside of the input, at ``inside`` in its plane.
    finish
        Lines after it, which store at ``i``; ``plane`` is the plane's number.
    counted
        Whether ``taps`` is made: places of the window that are in the input or its padding.
    load
        The expression of an element, read from ``x[at]``.
    """

    name: str
    rank: int
    parameters: tuple[tuple[str, str], ...]
    load: str
    start: tuple[str, ...]
    tap: tuple[str, ...]
    finish: tuple[str, ...]
    counted: bool = False

    def all_parameters(self) -> tuple[tuple[str, str], ...]:
        """Give name and type of every argument: its own, the results, then each axis'."""
        axes = [(f"{what}{a}", "int64") for a in range(self.rank) for what in PER_AXIS]
        return (*self.parameters, ("n", "int64"), *axes)

    def written(self) -> str:
        """Give the text."""
        names = ", ".join(name for name, _ in self.all_parameters())
        body = [*self._place(), *self.start]
        body += self._counted() if self.counted else []
        body += self._window(0)
        body += [*self.finish, "i += step"]
        lines = [
            f"def {self.name}({names}):", "    i = np.int64(cuda.grid(1))",
            "    step = np.int64(cuda.gridsize(1))", "    while i < n:",
            *_inside(body, 2),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _place(self) -> list[str]:
        """Take a result's index apart: its plane, and where its window begins."""
        lines, left = [], "i"
        for a in reversed(range(self.rank)):
            over = f"np.int64(quotient32(np.uint32({left}), np.uint32(out{a})))"
            lines.append(f"over{a} = {over}")
            lines.append(
                f"first{a} = ({left} - over{a} * out{a}) * stride{a} - begin{a}"
            )
            left = f"over{a}"
        whole = " * ".join(f"size{a}" for a in range(self.rank))
        return [*lines, f"plane = {left}", f"base = plane * ({whole})"]

    def _counted(self) -> list[str]:
        """Count places that are in the input or the padding that the node asks for."""
        lines = ["taps = np.int64(1)"]
        for a in range(self.rank):
            behind = f"first{a} + (taps{a} - 1) * dilation{a} >= size{a} + end{a}"
            lines += [f"taps{a} = kernel{a}", f"while taps{a} > 0 and {behind}:",
                      f"    taps{a} -= 1", f"taps *= taps{a}"]  # fmt: skip
        return lines

    def _window(self, axis: int) -> list[str]:
        if axis == self.rank:
            inside = "at0"
            for a in range(1, self.rank):
                inside = f"({inside}) * size{a} + at{a}"
            return [
                f"inside = {inside}",
                "at = base + inside",
                f"v = {self.load}",
                *self.tap,
            ]
        return [
            f"for k{axis} in range(kernel{axis}):",
            f"    at{axis} = first{axis} + k{axis} * dilation{axis}",
            f"    if at{axis} >= 0 and at{axis} < size{axis}:",
            *_inside(self._window(axis + 1), 2),
        ]


def _inside(lines: Sequence[str], deep: int) -> list[str]:
    return ["    " * deep + line for line in lines]
