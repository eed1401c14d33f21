"""
One kernel for a group of elementwise nodes, generated as text.

Every thread takes elements of the result in turn: it loads each operand once, computes all
nodes of the group in registers, each rounded to its own element type, and stores what is
read outside the group. So a chain of nodes reads and writes memory once, and gives the
bits that its nodes would give one by one.

An operand is *flat* (it lies like the result), *single* (one element for all), or
*strided*: then its place is found by taking the position apart in 32 bits, by sizes and
steps that are arguments. Sizes are no part of the text, so one kernel serves all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.broadcasting import Layout
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, Element
from seamline_cuda.formulas import FORMULAS

__all__ = ["LIMIT", "Generated", "Group", "generated", "kind_of"]

LIMIT = 1 << 31  #: elements of a result with a strided operand


@attrs.frozen(eq=False)
class Group:
    """
    Nodes of one result size that run as one kernel.

    Attributes
    ----------
    nodes
        In order.
    loads
        Values that are read from memory.
    stores
        Values that are written to memory.
    """

    nodes: tuple[NodeView, ...]
    loads: tuple[str, ...]
    stores: tuple[str, ...]


@attrs.frozen(eq=False)
class Generated:
    """
    A group's kernel, and what it is launched with beside addresses.

    Attributes
    ----------
    kernel
        Takes the addresses of ``loads``, then of ``stores``, then ``numbers``.
    numbers
        Elements, sizes and steps.
    forms
        How each load is stepped through.
    """

    kernel: DeviceKernel
    numbers: tuple[int, ...]
    forms: tuple[str, ...]

    @property
    def count(self) -> int:
        """Give the elements of the result."""
        return self.numbers[0]


def kind_of(node: NodeView, name: str) -> TensorType:
    """Give the sized type of a node's value."""
    for names, kinds in (
        (node.node.inputs, node.inputs),
        (node.node.outputs, node.outputs),
    ):
        for other, kind in zip(names, kinds, strict=False):
            if other == name and isinstance(kind, TensorType):
                return kind
    raise KeyError(name)


def generated(group: Group) -> Generated:
    """Write a group's kernel."""
    shape = kind_of(group.nodes[-1], group.nodes[-1].node.outputs[0]).sizes
    kinds = _kinds(group)
    layout = Layout.of(shape, [kinds[name].sizes for name in group.loads])
    forms = tuple(layout.form(index) for index in range(len(group.loads)))
    strided = [index for index, form in enumerate(forms) if form == "strided"]
    numbers = [layout.count]
    if strided:
        numbers += layout.sizes[1:]
    for index in strided:
        numbers += layout.strides[index]
    rank = len(layout.sizes) if strided else 0
    elements = {name: ELEMENTS[kind.dtype] for name, kind in kinds.items()}
    name = "elementwise_" + "_".join(n.op_type.lower() for n in group.nodes[:4])
    kernel = DeviceKernel(
        name,
        _text(name, group, elements, forms, rank),
        _signature(group, elements, len(numbers) - 1),
    )
    return Generated(kernel, tuple(numbers), forms)


def _kinds(group: Group) -> dict[str, TensorType]:
    found: dict[str, TensorType] = {}
    for node in group.nodes:
        for name in (*node.node.inputs, *node.node.outputs):
            if name:
                found[name] = kind_of(node, name)
    return found


def _signature(
    group: Group, elements: Mapping[str, Element], more: int
) -> tuple[str, ...]:
    pointers = [f"{elements[n].stored}*" for n in (*group.loads, *group.stores)]
    return (*pointers, "int64", *["uint32"] * more)


def _text(
    name: str,
    group: Group,
    elements: Mapping[str, Element],
    forms: Sequence[str],
    rank: int,
) -> str:
    parameters = [f"p{i}" for i in range(len(group.loads))]
    parameters += [f"q{i}" for i in range(len(group.stores))]
    parameters += ["n", *(f"size{axis}" for axis in range(1, rank))]
    lines: list[str] = []
    if rank:
        lines += _position(rank)
    values: dict[str, str] = {}
    for index, value in enumerate(group.loads):
        place = {"flat": "i", "single": "0"}.get(forms[index])
        if place is None:
            steps = [f"p{index}_step{axis}" for axis in range(rank)]
            parameters += steps
            place = " + ".join(f"at{a} * {step}" for a, step in enumerate(steps))
        values[value] = f"x{index}"
        lines.append(f"x{index} = {elements[value].load.format(f'p{index}[{place}]')}")
    lines += _computed(group.nodes, elements, values)
    for index, value in enumerate(group.stores):
        lines.append(f"q{index}[i] = {elements[value].store.format(values[value])}")
    body = "\n        ".join(lines)
    return (
        f"def {name}({', '.join(parameters)}):\n"
        "    i = cuda.grid(1)\n"
        "    step = cuda.gridsize(1)\n"
        "    while i < n:\n"
        f"        {body}\n"
        "        i += step\n"
    )


def _position(rank: int) -> list[str]:
    """Take the position in the result apart, the innermost size first."""
    lines, left = [], "np.uint32(i)"
    for axis in range(rank - 1, 0, -1):
        lines.append(f"left{axis} = quotient32({left}, size{axis})")
        lines.append(f"at{axis} = np.uint32({left} - left{axis} * size{axis})")
        left = f"left{axis}"
    return [*lines, f"at0 = {left}"]


def _computed(
    nodes: Sequence[NodeView], elements: Mapping[str, Element], values: dict[str, str]
) -> list[str]:
    lines = []
    for index, node in enumerate(nodes):
        operands = [values[name] for name in node.node.inputs if name]
        text = FORMULAS[node.op_type].write(node).format(*operands)
        result = node.node.outputs[0]
        lines.append(f"y{index} = {elements[result].rounded.format(text)}")
        values[result] = f"y{index}"
    return lines
