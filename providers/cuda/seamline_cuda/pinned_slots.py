"""Pinned memory in slots of one size, each with the events of the copy that uses it."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cuda.driver import call
from seamline_cuda.streams import Event

__all__ = ["Slot", "open_slots"]


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


def open_slots(stack: ExitStack, count: int, size: int) -> list[Slot]:
    """
    Take pinned memory for ``count`` slots of ``size`` bytes.

    Parameters
    ----------
    stack
        Gets what gives it all back. The device is current, now and then.

    Raises
    ------
    CudaError
        There is none.
    """
    start = int(call("cuMemHostAlloc", count * size, 0))
    stack.callback(call, "cuMemFreeHost", start)
    slots = []
    for place in range(start, start + count * size, size):
        raw = (ctypes.c_uint8 * size).from_address(place)
        begun = Event.open(timed=True)
        stack.callback(begun.close)
        done = Event.open(timed=True)
        stack.callback(done.close)
        slots.append(Slot(place, np.ctypeslib.as_array(raw), begun, done))
    return slots
