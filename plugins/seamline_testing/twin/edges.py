"""Copies that a recording of the twin begins and ends with, from and to the host's memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import numpy as np

from seamline.provider import Array
from seamline.tensors import numpy_dtype
from seamline_testing.twin.machine import Machine
from seamline_testing.twin.memory import TwinView
from seamline_testing.twin.streams import Operation

__all__ = ["Edges", "copied", "like"]


@attrs.define(eq=False)
class Edges:
    """
    Copies at a recording's beginning and end, between places and arrays of the host.

    Attributes
    ----------
    rooms_in, rooms_out
        What stands on the host for the places that are filled first, and read last.
    """

    name: str
    machine: Machine
    views_in: tuple[TwinView, ...]
    views_out: tuple[TwinView, ...]
    rooms_in: tuple[Array, ...] = attrs.field(init=False)
    rooms_out: tuple[Array, ...] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rooms_in = tuple([like(view) for view in self.views_in])
        self.rooms_out = tuple([like(view) for view in self.views_out])

    def first(self) -> Sequence[Operation]:
        """Give what the stream does before anything else."""
        if not self.views_in:
            return ()
        writes = tuple(view.place for view in self.views_in)
        act = partial(
            copied, self.machine, self.views_in, self.rooms_in, to_device=True
        )
        return (Operation(f"edge into {self.name!r}", act, writes=writes),)

    def last(self) -> Sequence[Operation]:
        """Give what the stream does in the end."""
        if not self.views_out:
            return ()
        reads = tuple(view.place for view in self.views_out)
        act = partial(
            copied, self.machine, self.views_out, self.rooms_out, to_device=False
        )
        return (Operation(f"edge out of {self.name!r}", act, reads),)


def like(view: TwinView) -> Array:
    """Give an array of the host for a place's value."""
    return np.empty(view.kind.sizes, numpy_dtype(view.kind.dtype))


def copied(
    machine: Machine,
    views: Sequence[TwinView],
    arrays: Sequence[Array],
    *,
    to_device: bool,
) -> None:
    """Copy between places and arrays, and count the bytes; the device is open."""
    for view, near in zip(views, arrays, strict=True):
        far = machine.array(view.place, view.kind)
        np.copyto(*((far, near) if to_device else (near, far)))
        machine.counts["bytes in" if to_device else "bytes out"] += view.place.nbytes
