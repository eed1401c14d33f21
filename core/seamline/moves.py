"""
Values in and out of a program's fixed places: what a run writes first and copies last.

Made once when a program is built, so that a run looks nothing up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from seamline.device_tensor import DeviceTensor, taking
from seamline.errors import FeedError
from seamline.fetched_arrays import giving
from seamline.provider import HOST, Array, Device
from seamline.tensors import numpy_dtype

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["Feeder", "Fetcher", "feeders", "fetched", "fetchers", "take"]

#: An input, and the functions that write an array to its places; none for an object.
Feeder: TypeAlias = tuple[str, tuple[Callable[[Array], object], ...]]
#: An output, and the function that copies it out; None where it lies at no fixed place.
Fetcher: TypeAlias = tuple[str, Callable[[], Any] | None]


def feeders(program: Program) -> tuple[Feeder, ...]:
    """Give what writes each input but states; sequences and absences are kept."""
    return tuple(
        (feed.value, tuple(_write(program, feed.value, d) for d in feed.devices))
        for feed in program.plan.feeds
        if feed.value not in program.engine.states.settled
    )


def _write(program: Program, name: str, device: Device) -> Callable[[Array], object]:
    if (name, device) not in program.plan.slots:

        def keep(value: Array) -> None:
            program.objects[name] = value

        return keep
    staged = program.staged.get((name, device, True))
    if staged is not None:
        return staged.write
    target = program.view(name, device)
    if device == HOST:
        return partial(np.copyto, target)
    return partial(program.engine.memories[device].write, target)


def take(program: Program, name: str, tensor: DeviceTensor) -> None:
    """
    Bring a tensor that was fed on a device to the places of an input.

    On its own device it is copied there; where something else reads it, it goes through
    the host, once.
    """
    host: Array | None = None
    devices = next(f.devices for f in program.plan.feeds if f.value == name)
    for device in devices:
        memory = taking(program.engine.memories[device])
        has_place = (name, device) in program.plan.slots
        if has_place and device == tensor.device and memory is not None:
            program.bar(name, device, "it was fed where it lies on the device")
            memory.take(program.view(name, device), tensor)
            continue
        host = fetched(program, tensor) if host is None else host
        _write(program, name, device)(host)
    if not devices:
        program.objects[name] = tensor


def fetched(program: Program, tensor: DeviceTensor) -> Array:
    """Copy a tensor that was fed on a device to the host."""
    memory = taking(program.engine.memories[tensor.device])
    if memory is None:
        raise FeedError(f"nothing here reads a tensor that lies on {tensor.device}")
    target = np.empty(tensor.shape, numpy_dtype(tensor.kind.dtype))
    memory.fetch(tensor, target)
    return target


def fetchers(program: Program) -> tuple[Fetcher, ...]:
    """Give what copies each output but states to an array of the caller's own."""
    names = dict.fromkeys(program.plan.region.outputs)
    kept = program.engine.states.outputs
    return tuple((name, _fetch(program, name)) for name in names if name not in kept)


def _fetch(program: Program, name: str) -> Callable[[], Any] | None:
    if name in program.plan.region.inputs:
        return None
    known = program.plan.known.get(name)
    if known is not None:
        return partial(np.array, known)
    places = program.places(name)
    device = HOST if HOST in places else places[0]
    if not program.holds(name, device):
        return None
    view = program.view(name, device)
    if device == HOST:
        return partial(_copy, view)
    staged = program.staged.get((name, device, False))
    if staged is not None:
        return staged.fetched
    kind = program.plan.tensor(name)
    memory, dtype = program.engine.memories[device], numpy_dtype(kind.dtype)
    gives = giving(memory)

    def read() -> Array:
        target = np.empty(kind.sizes, dtype) if gives is None else gives.array(kind)
        memory.read(view, target)
        return target

    return read


def _copy(view: Array) -> Array:
    return view.copy()
