"""
One kernel for a group of elementwise nodes, generated as text.

Every thread takes elements of the result in turn, a few at a time: it loads each operand
once, computes all nodes of the group in registers, each rounded to its own element type,
and stores what is read outside the group; see :mod:`seamline_cuda.kernel_text`. So a chain of nodes reads and writes memory once, and gives the
bits that its nodes would give one by one.

An operand is *flat* (it lies like the result), *single* (one element for all), or
*strided*: then its place is found by taking the position apart in 32 bits, by sizes and
steps that are arguments. Sizes are no part of the text, so one kernel serves all.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.broadcasting import Layout
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.formulas import formula_of
from seamline_cuda.kernel_text import KernelText
from seamline_cuda.packing import packed

__all__ = ["Generated", "Group", "generated", "kind_of", "spread_sizes"]

_AT_ONCE = 4  # elements that a thread has under way
_SHORT = (
    6  # nodes; more of them compute for longer than they wait, and take long to compile
)


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
        Elements, or words of them, then sizes and steps.
    forms
        How each load is stepped through.
    """

    kernel: DeviceKernel
    numbers: tuple[int, ...]
    forms: tuple[str, ...]

    @property
    def count(self) -> int:
        """Give the elements of the result, or the words that they are taken by."""
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


def spread_sizes(node: NodeView, name: str) -> tuple[int, ...]:
    """Give an operand's sizes as they broadcast to the result's by ONNX's rules."""
    sizes, formula, made = kind_of(node, name).sizes, formula_of(node), node.outputs[0]
    if formula is None or formula.along is None or not isinstance(made, TensorType):
        return sizes
    rank = len(made.sizes)
    if len(sizes) != 1 or rank < 2:
        return sizes
    return (*sizes, *[1] * (rank - 1 - formula.along(node)))


def generated(
    group: Group, at_once: int | None = None, places: Sequence[int] = ()
) -> Generated:
    """
    Write a group's kernel.

    Parameters
    ----------
    at_once
        Elements that a thread takes at a time; chosen by the group's size where left out.
    places
        Addresses of loads and stores; where left out, elements go one by one.
    """
    shape = kind_of(group.nodes[-1], group.nodes[-1].node.outputs[0]).sizes
    kinds = _kinds(group)
    elements = {name: ELEMENTS[kind.dtype] for name, kind in kinds.items()}
    layout = Layout.of(shape, _operands(group))
    loads = [elements[name] for name in group.loads]
    stores = [elements[name] for name in group.stores]
    words = packed(layout, loads, stores, places) if places else None
    layout = words.layout if words else layout
    forms = tuple(layout.form(index) for index in range(len(group.loads)))
    strided = [index for index, form in enumerate(forms) if form == "strided"]
    numbers = [layout.count]
    if strided:
        numbers += layout.sizes[1:]
    for index in strided:
        numbers += layout.strides[index]
    text = KernelText(
        "elementwise_" + "_".join(n.op_type.lower() for n in group.nodes[:4]),
        group.nodes,
        group.loads,
        group.stores,
        elements,
        forms,
        len(layout.sizes) if strided else 0,
        words.wide if words else (),
    )
    if at_once is None:
        at_once = _under_way(group, text)
    kernel = DeviceKernel(text.name, text.written(at_once), text.signature())
    return Generated(kernel, tuple(numbers), forms)


def _under_way(group: Group, text: KernelText) -> int:
    """Choose how many elements a thread takes; of half the bytes, twice as many."""
    if len(group.nodes) > _SHORT:
        return 1
    if text.wide:
        return 2
    short = all(text.elements[n].stored in ("uint8", "uint16") for n in group.loads)
    return 2 * _AT_ONCE if short and not text.rank else _AT_ONCE


def _operands(group: Group) -> list[tuple[int, ...]]:
    """Give the sizes of each load, as the node has them that reads it."""
    found: dict[str, tuple[int, ...]] = {}
    for node in group.nodes:
        for name in (*node.node.inputs, *node.node.outputs):
            if name:
                found.setdefault(name, spread_sizes(node, name))
    return [found[name] for name in group.loads]


def _kinds(group: Group) -> dict[str, TensorType]:
    found: dict[str, TensorType] = {}
    for node in group.nodes:
        for name in (*node.node.inputs, *node.node.outputs):
            if name:
                found[name] = kind_of(node, name)
    return found
