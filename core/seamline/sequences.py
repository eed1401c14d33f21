"""
Sequences and optionals: lists and absences that only the host can hold.

A sequence is a Python list of arrays, an optional is its value or None. Operators after
ONNX's text, https://onnx.ai/onnx/operators/index.html; each gives fresh lists, and arrays
that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from seamline.graph import Node
from seamline.program import Program

__all__ = ["SEQUENCES"]

Outputs = tuple[Any, ...]


def _value(program: Program, node: Node, index: int) -> Any:
    """Give an input as something to keep: a copy if it lies in an arena."""
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    value = program.host_value(node.inputs[index])
    return value.copy() if isinstance(value, np.ndarray) else value


def _position(program: Program, node: Node, length: int, *, upto: int) -> int | None:
    """Read a position that may count from the end; None where it is left out."""
    value = _value(program, node, {"SequenceInsert": 2}.get(node.op_type, 1))
    if value is None:
        return None
    position = int(np.asarray(value).reshape(()))
    if not -length <= position <= upto:
        raise IndexError(f"position {position} is outside a sequence of {length}")
    return position + length if position < 0 else position


def construct(program: Program, node: Node) -> Outputs:
    """Make a sequence of the inputs."""
    return ([_value(program, node, index) for index in range(len(node.inputs))],)


def empty(program: Program, node: Node) -> Outputs:
    """Make a sequence of nothing."""
    return ([],)


def at(program: Program, node: Node) -> Outputs:
    """Give the element at a position."""
    items = _value(program, node, 0)
    position = _position(program, node, len(items), upto=len(items) - 1)
    return (items[position].copy(),)


def insert(program: Program, node: Node) -> Outputs:
    """Insert before a position; at the end where it is left out."""
    items = list(_value(program, node, 0))
    position = _position(program, node, len(items), upto=len(items))
    items.insert(len(items) if position is None else position, _value(program, node, 1))
    return (items,)


def erase(program: Program, node: Node) -> Outputs:
    """Leave out the element at a position; the last where it is left out."""
    items = list(_value(program, node, 0))
    position = _position(program, node, len(items), upto=len(items) - 1)
    if not items:
        raise IndexError("the sequence is empty")
    del items[-1 if position is None else position]
    return (items,)


def length(program: Program, node: Node) -> Outputs:
    """Count the elements."""
    return (np.array(len(_value(program, node, 0)), np.int64),)


def concatenate(program: Program, node: Node) -> Outputs:
    """Join the elements along an axis, an existing one or a new one."""
    items = _value(program, node, 0)
    if not items:
        raise ValueError("the sequence is empty: there is nothing to concatenate")
    axis = node.attributes["axis"]
    join = np.stack if node.attributes.get("new_axis", 0) else np.concatenate
    return (join(items, axis=axis),)


def split(program: Program, node: Node) -> Outputs:
    """Cut a tensor along an axis into a sequence."""
    data, sizes = _value(program, node, 0), _value(program, node, 1)
    axis = node.attributes.get("axis", 0)
    extent = data.shape[axis]
    if sizes is None:
        parts = np.split(data, range(1, extent), axis) if extent else []
        if not node.attributes.get("keepdims", 1):
            parts = [part.squeeze(axis) for part in parts]
    elif np.ndim(sizes) == 0:
        if int(sizes) <= 0:
            raise ValueError(f"a part of size {int(sizes)} cannot be made")
        parts = np.split(data, range(int(sizes), extent, int(sizes)), axis)
    else:
        if sizes.sum() != extent or (sizes < 0).any():
            raise ValueError(f"sizes {sizes.tolist()} do not add up to {extent}")
        parts = np.split(data, np.cumsum(sizes)[:-1], axis)
    return ([np.ascontiguousarray(part).reshape(part.shape) for part in parts],)


def optional(program: Program, node: Node) -> Outputs:
    """Wrap a value, or make an absence."""
    return (_value(program, node, 0),)


def optional_get(program: Program, node: Node) -> Outputs:
    """Unwrap a value."""
    value = _value(program, node, 0)
    if value is None:
        raise ValueError("the optional is empty")
    return (value,)


def optional_has(program: Program, node: Node) -> Outputs:
    """Tell whether there is a value."""
    return (np.array(_value(program, node, 0) is not None),)


def sequence_map(program: Program, node: Node) -> Outputs:
    """Run a body on the elements of sequences, in step; tensors go along unchanged."""
    body, runner = node.bodies["body"], program.bodies[node.name]["body"]
    given = [program.host_value(name) for name in node.inputs]
    lengths = {len(value) for value in given if isinstance(value, list)}
    if len(lengths) != 1:
        raise ValueError(f"its sequences have different lengths: {sorted(lengths)}")
    captured = {n: program.objects[n] for n in node.captures if n in program.objects}
    results: list[list[Any]] = [[] for _ in body.outputs]
    for turn in range(lengths.pop()):
        items = [value[turn] if isinstance(value, list) else value for value in given]
        inputs = dict(zip(body.inputs, items, strict=True))
        found = runner.run(inputs, captured, program.profile)
        for result, name in zip(results, body.outputs, strict=True):
            result.append(found[name])
    return tuple(results)


def identity(program: Program, node: Node) -> Outputs:
    """Pass a sequence or an optional on."""
    value = _value(program, node, 0)
    return (list(value) if isinstance(value, list) else value,)


#: The core's sequence and optional operators by name.
SEQUENCES: Mapping[str, Callable[[Program, Node], Outputs]] = {
    "ConcatFromSequence": concatenate,
    "Identity": identity,
    "Optional": optional,
    "OptionalGetElement": optional_get,
    "OptionalHasElement": optional_has,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SequenceMap": sequence_map,
    "SplitToSequence": split,
}
