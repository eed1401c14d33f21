"""
If, Loop and Scan: the host decides, bodies are programs like any other.

Each function takes the program that the node stands in and the node, and gives the node's
outputs as fresh values. A body's captures lie in that program and are read in place; its
inputs and outputs are handed over, so that what one turn gives is what the next one reads
even if a body merely swaps its values.

Operators after ONNX's text: https://onnx.ai/onnx/operators/onnx__Loop.html and its
neighbours Scan and If.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seamline.bodies import BodyRunner
from seamline.graph import Graph, Node
from seamline.program import Program
from seamline.provider import Array
from seamline.tensors import TensorType, numpy_dtype

__all__ = ["CONTROL"]

Outputs = tuple[Any, ...]


def _captured(program: Program, node: Node) -> dict[str, Any]:
    """Give the captures that are no tensors at fixed places."""
    return {
        name: program.objects[name] for name in node.captures if name in program.objects
    }


def _own(value: Any) -> Any:
    """Copy a value that may lie in a program's arena."""
    return value.copy() if isinstance(value, np.ndarray) else value


def run_if(program: Program, node: Node) -> Outputs:
    """Run the branch that a boolean of one element chooses."""
    condition = np.asarray(program.host_value(node.inputs[0]))
    if condition.size != 1:
        raise ValueError(f"its condition has {condition.size} elements, one is needed")
    branch = "then_branch" if bool(condition.reshape(())) else "else_branch"
    runner = program.bodies[node.name][branch]
    found = runner.run({}, _captured(program, node), program.profile)
    return _in_order(found, node.bodies[branch].outputs)


def _in_order(found: Mapping[str, Any], names: Sequence[str]) -> Outputs:
    """Give values by name; one that is asked for twice is copied, not shared."""
    given: list[Any] = []
    for position, name in enumerate(names):
        value = found[name]
        given.append(_own(value) if name in names[:position] else value)
    return tuple(given)


def run_loop(program: Program, node: Node) -> Outputs:
    """Run the body until its count is reached or its condition is false."""
    body, runner = node.bodies["body"], program.bodies[node.name]["body"]
    limit = _scalar(program, node, 0, None)
    going = bool(_scalar(program, node, 1, True))
    carried = [
        _own(program.host_value(name)) if name else None for name in node.inputs[2:]
    ]
    first = _loop_inputs(body, 0, carried)
    stacks: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    captured = _captured(program, node)
    turn = 0
    while going and (limit is None or turn < limit):
        found = _in_order(
            runner.run(_loop_inputs(body, turn, carried), captured, program.profile),
            body.outputs,
        )
        going = bool(np.asarray(found[0]).reshape(()))
        carried = list(found[1 : 1 + len(carried)])
        for stack, row in zip(stacks, found[1 + len(carried) :], strict=True):
            stack.append(row)
        turn += 1
    names = body.outputs[1 + len(carried) :]
    rows = _rows(stacks, [0] * len(stacks), runner, first, names)
    return (*carried, *rows)


def _loop_inputs(body: Graph, turn: int, carried: Sequence[Any]) -> dict[str, Any]:
    fixed = (np.array(turn, np.int64), np.array(True))
    return dict(zip(body.inputs, (*fixed, *carried), strict=True))


def _scalar(program: Program, node: Node, index: int, default: Any) -> Any:
    if index >= len(node.inputs) or not node.inputs[index]:
        return default
    value = np.asarray(program.host_value(node.inputs[index]))
    if value.size != 1:
        raise ValueError(f"input {index} has {value.size} elements, one is needed")
    return value.reshape(()).item()


def _rows(
    stacks: Sequence[list[Any]],
    axes: Sequence[int],
    runner: BodyRunner,
    inputs: Mapping[str, Any],
    names: Sequence[str],
) -> list[Array]:
    """Stack what each turn gave; with no turn, the shape is what the body would give."""
    result: list[Array] = []
    for stack, axis, name in zip(stacks, axes, names, strict=True):
        result.append(
            np.stack(stack, axis) if stack else _no_rows(runner, inputs, name, axis)
        )
    return result


def _no_rows(
    runner: BodyRunner, inputs: Mapping[str, Any], name: str, axis: int
) -> Array:
    kind = runner.plan(inputs).types.get(name)
    if not isinstance(kind, TensorType):
        raise TypeError(
            f"it ran no turn, and the type of {name!r} is not known without one"
        )
    sizes = [d if isinstance(d, int) else 0 for d in kind.shape or ()]
    sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
    return np.empty(sizes, numpy_dtype(kind.dtype))


def run_scan(program: Program, node: Node) -> Outputs:
    """Run the body over slices of its scanned inputs (opset 9 and later; 8 by batch)."""
    if node.since_version == 8:
        return _scan_batches(program, node)
    given = [program.host_value(name) for name in node.inputs]
    return tuple(_scan(program, node, given, node.attributes))


def _scan_batches(program: Program, node: Node) -> Outputs:
    """Scan of opset 8: one scan for each entry of a leading batch dimension."""
    given = [program.host_value(name) for name in node.inputs[1:]]
    lengths = program.host_value(node.inputs[0]) if node.inputs[0] else None
    forward = {
        "num_scan_inputs": node.attributes["num_scan_inputs"],
        "scan_input_directions": node.attributes.get("directions", ()),
    }
    scanned = len(given) - forward["num_scan_inputs"]
    batch = given[0].shape[0]
    results = []
    for entry in range(batch):
        values = [value[entry, ...] for value in given]
        if lengths is not None:
            values[scanned:] = [v[: int(lengths[entry])] for v in values[scanned:]]
        results.append(_scan(program, node, values, forward))
    longest = [
        max(r[i].shape[:1] for r in results) for i in range(scanned, len(results[0]))
    ]
    for result in results:
        for i, length in enumerate(longest, scanned):
            missing = length[0] - result[i].shape[0]
            result[i] = np.pad(
                result[i], [(0, missing)] + [(0, 0)] * (result[i].ndim - 1)
            )
    return tuple(np.stack(column) for column in zip(*results, strict=True))


def _scan(
    program: Program, node: Node, given: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Any]:
    body, runner = node.bodies["body"], program.bodies[node.name]["body"]
    scanned = attributes["num_scan_inputs"]
    states = [_own(value) for value in given[: len(given) - scanned]]
    sources = _sources(given[len(given) - scanned :], attributes)
    lengths = {len(source) for source in sources}
    if len(lengths) != 1:
        raise ValueError(
            f"its scanned inputs have different lengths: {sorted(lengths)}"
        )
    names = body.outputs[len(states) :]
    stacks: list[list[Any]] = [[] for _ in names]
    captured = _captured(program, node)
    length = lengths.pop()
    for turn in range(length):
        # The ellipsis keeps an array where plain indexing would give a scalar.
        slices = [source[turn, ...] for source in sources]
        inputs = dict(zip(body.inputs, (*states, *slices), strict=True))
        found = _in_order(runner.run(inputs, captured, program.profile), body.outputs)
        states = list(found[: len(states)])
        for stack, row in zip(stacks, found[len(states) :], strict=True):
            stack.append(row)
    for stack, back in zip(
        stacks, attributes.get("scan_output_directions", ()), strict=False
    ):
        if back:
            stack.reverse()
    axes = list(attributes.get("scan_output_axes", ())) or [0] * len(names)
    empty = {}
    if not length:
        slices = [np.empty(source.shape[1:], source.dtype) for source in sources]
        empty = dict(zip(body.inputs, (*states, *slices), strict=True))
    return [*states, *_rows(stacks, axes, runner, empty, names)]


def _sources(given: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """Turn each scanned input so that its slices come along the first axis, in order."""
    axes = attributes.get("scan_input_axes", ()) or (0,) * len(given)
    backwards = attributes.get("scan_input_directions", ()) or (0,) * len(given)
    sources = []
    for value, axis, back in zip(given, axes, backwards, strict=True):
        turned = np.moveaxis(value, axis, 0)
        sources.append(turned[::-1] if back else turned)
    return sources


#: The core's control flow by operator.
CONTROL: Mapping[str, Callable[[Program, Node], Outputs]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
}
