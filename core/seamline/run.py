"""
Run a program: a loop that decides nothing.

Feeds are written to their places, the actions are called in order, results are copied
out. What the caller gets is the caller's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from seamline.device_tensor import DeviceTensor
from seamline.errors import SeamlineError
from seamline.excursions import Chain
from seamline.kernels import KernelSegment
from seamline.moves import fetched, take
from seamline.planned import HostStep, Segment, Step, Transfer
from seamline.program import Action, Program
from seamline.step_errors import located, refuse_given
from seamline.timings import Profile

__all__ = ["run"]

Values: TypeAlias = Mapping[str, Any]
_clock = time.perf_counter_ns


def run(
    program: Program, inputs: Values, objects: Values, profile: Profile | None = None
) -> dict[str, Any]:
    """
    Run a program once.

    Parameters
    ----------
    inputs
        The region's inputs by name: arrays of the signature's sizes, lists, None.
    objects
        Captures that are no tensors at fixed places.

    Returns
    -------
    dict
        The region's outputs by name, none of them shared with anything.

    Raises
    ------
    KernelError
        A kernel failed; names provider, segment and node.
    """
    program.profile = profile
    held = program.objects
    held.clear()
    held.update(objects)
    step: Step | Chain | None = None
    try:
        _feed(program, inputs)
        if profile is None:
            for step, action in program.actions:
                if action() is not None:
                    refuse_given(step)
        else:
            for step, action in program.actions:
                _profiled(program, step, action, profile)
        step = None
        results: dict[str, Any] = {}
        if program.rest is not None:
            region = program.rest.region
            given = {name: held[name] for name in region.inputs}
            results = program.rest.run(given, held, profile)
        return _collect(program, inputs, results)
    except SeamlineError:
        raise
    except Exception as error:
        raise located(step, error) from error


def _feed(program: Program, inputs: Values) -> None:
    for name, writes in program.feeders:
        value = inputs[name]
        if isinstance(value, DeviceTensor):
            take(program, name, value)
        elif not writes or not isinstance(value, np.ndarray):
            program.objects[name] = value
        else:
            for write in writes:
                write(value)


def _collect(program: Program, inputs: Values, late: dict[str, Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    objects = program.objects
    for name, fetch in program.fetchers:
        if fetch is not None:
            results[name] = fetch()
        elif name in late:
            results[name] = late[name]
        elif name in inputs:
            results[name] = _copied(inputs[name], program)
        else:
            results[name] = _copied(objects[name], program)
    return results


def _copied(value: Any, program: Program) -> Any:
    if isinstance(value, list):
        return [_copied(item, program) for item in value]
    if isinstance(value, DeviceTensor):
        return fetched(program, value)
    return np.array(value) if isinstance(value, np.ndarray) else value


def _profiled(
    program: Program, step: Step | Chain, action: Action, profile: Profile
) -> None:
    """Run one step and report it, and its nodes where they can be told apart."""
    if isinstance(step, Chain):
        _profiled_chain(program, step, action, profile)
        return
    executable = program.executables.get(step.id) if isinstance(step, Segment) else None
    start = _clock()
    if (
        isinstance(executable, KernelSegment)
        and isinstance(step, Segment)
        and not step.sizes_at_run
    ):
        captured = program.captured.get(step.id)
        if captured is not None:  # it is run, not replayed
            captured.edges.apart()
        executable.timed(_clock, _reporter(program, step, profile))
    elif action() is not None:
        refuse_given(step)
    if isinstance(step, Segment):
        # On a device the work is only submitted so far, and its time is asked for.
        program.engine.memories[step.device].synchronize()
    end = _clock()
    if isinstance(step, Transfer):
        args = {"value": step.value, "nbytes": step.nbytes, "to": str(step.target)}
        profile.event(step.id, "Transfer", start, end, args)
    elif isinstance(step, HostStep):
        op = program.plan.choices[step.node]
        profile.event(
            f"{step.node}_kernel_time", "Node", start, end, {"provider": op.provider}
        )
    else:
        args = {
            "provider": step.provider,
            "nodes": len(step.nodes),
            "device": str(step.device),
        }
        profile.event(step.id, "Segment", start, end, args)


def _profiled_chain(
    program: Program, chain: Chain, action: Action, profile: Profile
) -> None:
    """Report a recorded chain as one; the steps of one that is not, one by one."""
    captured = program.chains[chain.id]
    if captured.state == "eager":
        for step, alone in captured.actions:
            _profiled(program, step, alone, profile)
        return
    start = _clock()
    if action() is not None:
        refuse_given(chain)
    program.engine.memories[chain.device].synchronize()
    args = {
        "provider": chain.provider,
        "first": chain.steps[0].id,
        "segments": len(chain.segments),
        "excursions": len(chain.excursions),
        "device": str(chain.device),
    }
    profile.event(chain.id, "Chain", start, _clock(), args)


def _reporter(program: Program, step: Segment, profile: Profile) -> Callable[..., None]:
    ops = {node.name: node for node in program.plan.region.nodes}

    def report(
        name: str, start: int, end: int, facts: Mapping[str, object] | None = None
    ) -> None:
        node = ops[name]
        shapes = [str(program.plan.types.get(n)) for n in node.writes]
        args = {
            "provider": step.provider,
            "op_name": node.op_type,
            "output_type": shapes,
            **(facts or {}),
        }
        profile.event(f"{name}_kernel_time", "Node", start, end, args)

    return report
