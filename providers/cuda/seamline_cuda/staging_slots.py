"""Pinned pieces of the host's memory that copies pass through, each with the events of its copy."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cuda.driver import call
from seamline_cuda.streams import Event

__all__ = ["Slot", "opened_slots"]


@attrs.define(eq=False)
class Slot:
    """
    Pinned bytes, and the copy that uses them.

    Attributes
    ----------
    way
        Which way the copy goes that may be under way; empty where there is none.
    nbytes
        Its bytes, where it is timed; else 0.
    """

    address: int
    bytes: Array
    begun: Event
    done: Event
    way: str = ""
    nbytes: int = 0


def opened_slots(count: int, nbytes: int, stack: ExitStack) -> list[Slot]:
    """
    Pin memory for so many slots; the stack gives it back.

    Raises
    ------
    CudaError
        The driver has no more, of memory or events.
    """
    start = int(call("cuMemHostAlloc", count * nbytes, 0))
    stack.callback(call, "cuMemFreeHost", start)
    slots = []
    for index in range(count):
        place = start + index * nbytes
        raw = (ctypes.c_uint8 * nbytes).from_address(place)
        begun = Event.open(timed=True)
        stack.callback(begun.close)
        done = Event.open(timed=True)
        stack.callback(done.close)
        slots.append(Slot(place, np.ctypeslib.as_array(raw), begun, done))
    return slots
