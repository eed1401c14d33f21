"""
Turn each step of a plan into the function that a run calls.

A segment's action is its executable's own ``run``. The others are small: a copy between
devices; a node whose size is found only now, which is sized, built and run on the spot;
and the core's own nodes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import numpy as np

from seamline.capture import CapturedSegment, is_captured
from seamline.checked_calls import built, check_found
from seamline.claims import infer_with
from seamline.closing import close_all
from seamline.control_flow import CONTROL
from seamline.errors import KernelError, SeamlineError
from seamline.graph import Node
from seamline.planned import HostStep, Segment, Step, Transfer
from seamline.program import Action, Program
from seamline.provider import (
    HOST,
    Array,
    Buffer,
    Claim,
    Executable,
    NodeView,
    SegmentSpec,
    View,
    view_of,
)
from seamline.sequences import SEQUENCES
from seamline.shapes import resolve
from seamline.tensors import (
    INTEGERS,
    TensorType,
    ValueType,
    nbytes_of,
    numpy_dtype,
)

__all__ = ["action_for"]

_SIZES_KEPT = 4  # programs of a node whose size changes from run to run
_INFERRED_KEPT = 64  # sets of values whose sizes are remembered
_SIZES_LIMIT = 64  # elements of an integer tensor that may hold sizes or axes


def action_for(program: Program, step: Step, nodes: Mapping[str, Node]) -> Action:
    """Give the function that carries out a step of a program being built."""
    if isinstance(step, Transfer):
        return _transfer(program, step)
    if isinstance(step, HostStep):
        return _core(program, nodes[step.node])
    executable = program.executables.get(step.id)
    if executable is None:
        late = _LateSized(program, step, nodes[step.nodes[0]])
        program.defer(late.close)
        return late.run
    if step.sizes_at_run:
        return _producing(program, executable, step)
    provider = program.engine.providers[step.provider]
    if program.engine.capture.record and is_captured(step, provider):
        captured = CapturedSegment(program, step, executable)
        program.captured[step.id] = captured
        program.defer(captured.close)
        return captured.run
    return executable.run


def _transfer(program: Program, step: Transfer) -> Action:
    source, target = (
        program.view(step.value, step.source),
        program.view(step.value, step.target),
    )
    memories = program.engine.memories
    inward = step.source == HOST
    device = step.target if inward else step.source
    staged = program.staged.get((step.value, device, inward))
    if staged is not None and staged.edge.step == step.id:
        return partial(staged.write, source) if inward else partial(staged.read, target)
    if inward:
        return lambda: memories[step.target].write(target, source)
    if step.target == HOST:
        return lambda: memories[step.source].read(source, target)
    kind = program.plan.tensor(step.value)
    staging = np.empty(kind.sizes, numpy_dtype(kind.dtype))

    def through_the_host() -> None:
        memories[step.source].read(source, staging)
        memories[step.target].write(target, staging)

    return through_the_host


def _producing(program: Program, executable: Executable, step: Segment) -> Action:
    def run() -> None:
        found = executable.run()
        if found is None or set(step.outputs) - set(found):
            missing = sorted(set(step.outputs) - set(found or {}))
            raise KernelError(
                f"it claimed sizes_at_run and gave no output {', '.join(missing)}",
                provider=step.provider,
                segment=step.id,
                node=step.nodes[0],
            )
        check_found(found, step, program.plan.types)
        program.objects.update(found)

    return run


def _core(program: Program, node: Node) -> Action:
    function: Callable[[Program, Node], tuple[object, ...]]
    function = CONTROL.get(node.op_type) or SEQUENCES[node.op_type]

    def run() -> None:
        try:
            results = function(program, node)
        except SeamlineError:
            raise
        except Exception as error:
            raise KernelError(
                f"{node.op_type}: {error}", provider="core", node=node.name
            ) from error
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                program.objects[name] = value

    return run


@attrs.define(eq=False)
class _Sized:
    """A node built for one set of output sizes."""

    executable: Executable
    outputs: dict[str, View]
    buffers: list[Buffer]

    def close(self) -> None:
        close_all([*self.buffers, self.executable])


class _LateSized:
    """
    A node whose output sizes follow from *values* that it reads, such as a new shape.

    At each run the values are looked at, the sizes inferred, and the node built for them;
    what was built for the last few sizes is kept.
    """

    def __init__(self, program: Program, step: Segment, node: Node) -> None:
        self.program, self.step, self.node = program, step, node
        self._built: OrderedDict[tuple[object, ...], _Sized] = OrderedDict()
        self._inferred: OrderedDict[tuple[object, ...], dict[str, ValueType | None]]
        self._inferred = OrderedDict()

    def run(self) -> None:
        """Size, build where needed, run, and hand over fresh arrays."""
        types = self._types()
        key = tuple(types.get(name) for name in self.node.writes)
        sized = self._built.get(key)
        if sized is None:
            sized = self._built[key] = self._build(types)
            if len(self._built) > _SIZES_KEPT:
                self._built.popitem(last=False)[1].close()
        self._built.move_to_end(key)
        found = sized.executable.run()
        objects = self.program.objects
        if found:
            check_found(found, attrs.evolve(self.step, outputs=tuple(found)), types)
            objects.update(found)
        memory = self.program.engine.memories[self.step.device]
        for name in self.node.writes:
            if found and name in found:
                continue
            kind = types[name]
            if name not in sized.outputs or not isinstance(kind, TensorType):
                raise self._sizeless(name, kind)
            target = np.empty(kind.sizes, numpy_dtype(kind.dtype))
            memory.read(sized.outputs[name], target)
            objects[name] = target

    def _sizeless(self, name: str, kind: ValueType | None) -> KernelError:
        return KernelError(
            f"the size of output {name!r} ({kind or 'type unknown'}) cannot be found from "
            "its inputs, and its kernel did not find it",
            provider=self.step.provider,
            segment=self.step.id,
            node=self.node.name,
        )

    def close(self) -> None:
        """Close what was built."""
        built = list(self._built.values())
        self._built.clear()
        close_all(built)

    def _types(self) -> dict[str, ValueType | None]:
        """Infer from the values that decide sizes; the same values were inferred before."""
        values = self._values()
        key = tuple((v.shape, v.tobytes()) for v in values.values())
        types = self._inferred.get(key)
        if types is None:
            program = self.program
            given = {n: program.plan.types[n] for n in filter(None, self.node.inputs)}
            infer = infer_with(list(program.engine.providers.values()))
            known = program.plan.known.constants.with_known(
                {**program.plan.known.values, **values}
            )
            found = resolve(program.plan.region.graph, [self.node], given, known, infer)
            types = self._inferred[key] = dict(found.types)
            if len(self._inferred) > _INFERRED_KEPT:
                self._inferred.popitem(last=False)
        return types

    def _values(self) -> dict[str, Array]:
        """Read what a claim says is read on the host, or else what may be sizes or axes."""
        declared = self.program.plan.choices[self.node.name].claim.host_inputs
        values: dict[str, Array] = {}
        for index, name in enumerate(self.node.inputs):
            if not name or name in values or (declared and index not in declared):
                continue
            kind = self.program.plan.types.get(name)
            if not isinstance(kind, TensorType) or not kind.is_sized:
                continue
            if kind.dtype == "string":
                continue
            if declared or (
                kind.dtype in INTEGERS and math.prod(kind.sizes) <= _SIZES_LIMIT
            ):
                values[name] = self._read(name, kind)
        return values

    def _read(self, name: str, kind: TensorType) -> Array:
        known = self.program.plan.known.get(name)
        if known is not None:
            return known
        if self.step.device == HOST or self.program.holds(name, HOST):
            value: Array = self.program.view(name, HOST)
            return value.copy()
        array = np.empty(kind.sizes, numpy_dtype(kind.dtype))
        memory = self.program.engine.memories[self.step.device]
        memory.read(self.program.view(name, self.step.device), array)
        return array

    def _build(self, types: Mapping[str, ValueType | None]) -> _Sized:
        program, step = self.program, self.step
        memory = program.engine.memories[step.device]
        view = view_of(self.node, types, program.plan.known.get)
        opsets = program.plan.region.graph.opsets
        spec = SegmentSpec(step.id, (view,), step.inputs, step.outputs, opsets)
        sized = _Sized(built(program.engine, step.provider, spec), {}, [])
        try:
            places: dict[str, View] = {}
            on_host = program.plan.choices[self.node.name].claim.host_inputs
            for index, name in enumerate(self.node.inputs):
                if name and (index not in on_host or step.device == HOST):
                    places[name] = program.view(name, step.device)
            for name in self.node.writes:
                kind = types[name]
                if isinstance(kind, TensorType) and kind.is_sized:
                    buffer = memory.allocate(nbytes_of(kind))
                    sized.buffers.append(buffer)
                    sized.outputs[name] = memory.view(buffer, 0, kind)
            scratch = self._workspace(view, sized)
            sized.executable.bind({**places, **sized.outputs}, scratch, self._host())
        except BaseException:
            sized.close()
            raise
        return sized

    def _workspace(self, view: NodeView, sized: _Sized) -> dict[str, View]:
        claim = self.program.engine.providers[self.step.provider].claim(view)
        if not isinstance(claim, Claim) or not claim.workspace_nbytes:
            return {}
        memory = self.program.engine.memories[self.step.device]
        buffer = memory.allocate(claim.workspace_nbytes)
        sized.buffers.append(buffer)
        kind = TensorType("uint8", (claim.workspace_nbytes,))
        return {self.node.name: memory.view(buffer, 0, kind)}

    def _host(self) -> dict[str, View]:
        claim = self.program.plan.choices[self.node.name].claim
        inputs = self.node.inputs
        return {
            inputs[i]: self.program.view(inputs[i], HOST)
            for i in claim.host_inputs
            if i < len(inputs) and inputs[i]
        }
