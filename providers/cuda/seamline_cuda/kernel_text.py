"""
The text of an elementwise kernel: load, compute, store, for one element or a few at a time.

A thread that waits for one element's bytes before it asks for the next has too few under
way to keep memory busy. So the text has the same lines for a few elements, apart by as many
as there are threads: first all their loads, then all that is computed, then all stores.
What is left at the end goes one by one, and so does a result that is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from seamline.provider import NodeView
from seamline_cuda.elements import Element
from seamline_cuda.formulas import formula_of
from seamline_cuda.packing import PACK, joined_text, parts_text

__all__ = ["KernelText", "position"]


@attrs.frozen(eq=False)
class KernelText:
    """
    What a kernel's text is written from.

    Attributes
    ----------
    nodes
        What is computed, in order.
    loads, stores
        Values that are read from memory and written to it.
    elements
        The element type of every value.
    forms
        How each load is stepped through: ``flat``, ``single`` or ``strided``.
    rank
        Dimensions that a position is taken apart into, where a load is strided.
    wide
        Which loads are words of four elements, as all stores are then; empty where
        elements go one by one, see :mod:`seamline_cuda.packing`.
    """

    name: str
    nodes: tuple[NodeView, ...]
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    elements: Mapping[str, Element]
    forms: Sequence[str]
    rank: int
    wide: Sequence[bool] = ()

    def signature(self) -> tuple[str, ...]:
        """Give the type of each parameter."""
        wide = (*(self.wide or [False] * len(self.loads)), *[bool(self.wide)] * len(self.stores))  # fmt: skip
        pointers = [
            "uint64*" if is_word else f"{self.elements[name].stored}*"
            for name, is_word in zip((*self.loads, *self.stores), wide, strict=True)
        ]
        return (*pointers, "int64", *["uint32"] * len(self._numbers()))

    def written(self, at_once: int) -> str:
        """Give the text of the kernel that takes so many elements at a time."""
        parameters = [f"p{i}" for i in range(len(self.loads))]
        parameters += [f"q{i}" for i in range(len(self.stores))]
        parameters += ["n", *self._numbers()]
        lines = [f"def {self.name}({', '.join(parameters)}):"]
        lines += ["    i = cuda.grid(1)", "    step = cuda.gridsize(1)"]
        if at_once > 1:
            places = [f"i{u} = i + {u} * step" for u in range(at_once)]
            lines += self._loop(f"i + {at_once - 1} * step < n", places, at_once)
        lines += self._loop("i < n", ["i0 = i"], 1)
        return "\n".join(lines) + "\n"

    def _numbers(self) -> list[str]:
        found = [f"size{axis}" for axis in range(1, self.rank)]
        for index, form in enumerate(self.forms):
            if form == "strided":
                found += [f"p{index}_step{axis}" for axis in range(self.rank)]
        return found

    def _loop(self, condition: str, places: Sequence[str], at_once: int) -> list[str]:
        body, parts = [*places], range(PACK if self.wide else 1)
        values: list[list[dict[str, str]]] = []
        for u in range(at_once):
            values.append([{} for _ in parts])
            body += self._loaded(u, values[u])
        for u in range(at_once):
            for k in parts:
                mark = f"{u}_{k}" if self.wide else str(u)
                body += self._computed(mark, values[u][k])
        for u in range(at_once):
            for index, name in enumerate(self.stores):
                store = self.elements[name].store
                stored = [store.format(one[name]) for one in values[u]]
                word = joined_text(stored) if self.wide else stored[0]
                body.append(f"q{index}[i{u}] = {word}")
        body.append(f"i += {at_once} * step")
        return [f"    while {condition}:", *(f"        {line}" for line in body)]

    def _loaded(self, u: int, values: Sequence[dict[str, str]]) -> list[str]:
        lines = position(f"i{u}", self.rank, str(u))
        for index, name in enumerate(self.loads):
            place = {"flat": f"i{u}", "single": "0"}.get(self.forms[index])
            if place is None:
                steps = [f"at{a}_{u} * p{index}_step{a}" for a in range(self.rank)]
                place = " + ".join(steps)
            load, value = self.elements[name].load, f"x{index}_{u}"
            if self.wide and self.wide[index]:
                lines.append(f"v{index}_{u} = p{index}[{place}]")
                for k, part in enumerate(parts_text(f"v{index}_{u}")):
                    lines.append(f"{value}_{k} = {load.format(part)}")
                    values[k][name] = f"{value}_{k}"
                continue
            lines.append(f"{value} = {load.format(f'p{index}[{place}]')}")
            for one in values:
                one[name] = value
        return lines

    def _computed(self, mark: str, values: dict[str, str]) -> list[str]:
        lines = []
        for index, node in enumerate(self.nodes):
            formula = formula_of(node)
            assert formula is not None, "only such nodes are joined"
            operands = [values[name] for name in formula.operands(node)]
            text = formula.write(node).format(*operands)
            result = node.node.outputs[0]
            rounded = self.elements[result].rounded.format(text)
            lines.append(f"y{index}_{mark} = {rounded}")
            values[result] = f"y{index}_{mark}"
        return lines


def position(index: str, rank: int, mark: str) -> list[str]:
    """
    Write how an index is taken apart, the innermost size first, into ``at0_MARK``, ...

    The sizes are ``size1``, ``size2``, ...; the outermost is what is left.
    """
    if not rank:
        return []
    lines, left = [], f"np.uint32({index})"
    for axis in range(rank - 1, 0, -1):
        lines.append(f"left{axis}_{mark} = quotient32({left}, size{axis})")
        rest = f"{left} - left{axis}_{mark} * size{axis}"
        lines.append(f"at{axis}_{mark} = np.uint32({rest})")
        left = f"left{axis}_{mark}"
    return [*lines, f"at0_{mark} = {left}"]
