"""
Programs of one region, one for each shape signature, the least recently used closed first.

A session has a runner for its graph. A program has one for each body of control flow in
it and one for its rest, and closes them with itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from seamline.closing import close_all
from seamline.device_tensor import DeviceTensor
from seamline.engine import Engine
from seamline.plan import Plan, Region, partition
from seamline.program import Program, build
from seamline.provider import Array
from seamline.run import run
from seamline.tensors import ValueType, type_of_array
from seamline.timings import Profile

__all__ = ["Runner"]


@attrs.define(eq=False)
class Runner:
    """
    Plans, builds and keeps programs of a region, and runs them.

    Attributes
    ----------
    outer
        The program whose values the region captures; None for a main graph.
    check
        Looks at a new plan and those around it, and raises to refuse it, before it is
        built; bodies and rests are held to it as well.
    built
        Programs built so far, closed ones included.
    """

    engine: Engine
    region: Region
    outer: Program | None = None
    check: Callable[[Plan, Sequence[Plan]], None] | None = None
    built: int = 0
    profile: Profile | None = None
    _programs: OrderedDict[tuple[object, ...], Program] = attrs.field(
        factory=OrderedDict
    )

    def run(
        self,
        inputs: Mapping[str, Any],
        objects: Mapping[str, Any],
        profile: Profile | None = None,
    ) -> dict[str, Any]:
        """Run the program for inputs of these sizes; give outputs by name."""
        program = self.program(inputs)
        if not program.plan.states:
            return run(program, inputs, objects, profile)
        reaches = self.engine.states.prepare(program.plan, inputs)
        results = run(program, inputs, objects, profile)
        for reach in reaches:
            reach.ended()
        return results

    def program(self, inputs: Mapping[str, Any]) -> Program:
        """Give the program for inputs of these sizes, building it if there is none."""
        key = tuple([_signature(inputs[name]) for name in self.region.inputs])
        found = self._programs.get(key)
        if found is not None and found.stale:
            self._programs.pop(key).close()
        elif found is not None:
            self._programs.move_to_end(key)
            return found
        plan = self.plan(inputs)
        if self.check is not None:
            self.check(plan, tuple(_around(self.outer)))
        program = build(plan, self.engine, self._body, self.outer)
        self.built += 1
        self._programs[key] = program
        while len(self._programs) > self.engine.capacity:
            self._programs.popitem(last=False)[1].close()
        return program

    def plan(self, inputs: Mapping[str, Any]) -> Plan:
        """Plan for inputs of these sizes; allocates nothing."""
        static = self.engine.placement.claims.types
        types: dict[str, ValueType | None] = {}
        for name in self.region.inputs:
            value = inputs[name]
            if isinstance(value, DeviceTensor):
                types[name] = value.kind
                continue
            is_array = isinstance(value, np.ndarray)
            types[name] = type_of_array(value) if is_array else static.get(name)
        known: dict[str, Array] = {}
        where = {}
        for name in self.region.captures:
            types[name], array = _outside(self.outer, name, static)
            if array is not None:
                known[name] = array
            elif self.outer is not None:
                where[name] = self.outer.places(name)
        engine = self.engine
        return partition(
            self.region,
            engine.placement,
            engine.providers,
            engine.constants,
            types,
            known=known,
            where=where,
            quarantined=engine.quarantined,
            states=engine.states.settled,
            form=engine.capture.form,
            never="" if engine.capture.record else "the session records nothing",
        )

    def latest(self) -> Program | None:
        """Give the program that ran last, if any."""
        return next(reversed(self._programs.values()), None)

    def close(self) -> None:
        """Close every program."""
        programs = list(self._programs.values())
        self._programs.clear()
        close_all(programs)

    def _body(self, region: Region, program: Program) -> Runner:
        return Runner(self.engine, region, program, self.check)


def _around(outer: Program | None) -> Iterator[Plan]:
    while outer is not None:
        yield outer.plan
        outer = outer.outer


def _signature(value: Any) -> object:
    if isinstance(value, (np.ndarray, DeviceTensor)):
        return value.shape
    return None if value is None else type(value)


def _outside(
    outer: Program | None, name: str, static: Mapping[str, ValueType | None]
) -> tuple[ValueType | None, Array | None]:
    """Give what the programs around know of a captured value."""
    while outer is not None:
        if name in outer.plan.known:
            array = outer.plan.known.get(name)
            if array is not None and name in outer.plan.known.values:
                return type_of_array(array), array
        if name in outer.plan.types:
            return outer.plan.types[name], None
        outer = outer.outer
    return static.get(name), None
