"""What all programs of a session share: providers, memories, and constants on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import attrs
import numpy as np

from seamline.closing import close_all
from seamline.constants import Constants
from seamline.excursions import AUTO
from seamline.placement import Placement
from seamline.provider import Array, Buffer, Device, Memory, Provider, View
from seamline.state_store import States
from seamline.tensors import type_of_array

__all__ = ["Capture", "Engine", "Kept"]


@attrs.frozen
class Capture:
    """
    What a session records.

    Attributes
    ----------
    record
        Record the segments of providers that can.
    verify
        Replays of each recording that are compared with a run, from the first on.
    form
        How excursions to the host are made from a recording; see
        :mod:`seamline.excursions`.
    """

    record: bool = True
    verify: int = 0
    form: str = AUTO


@attrs.define(eq=False)
class Engine:
    """
    What all programs of a session share.

    Attributes
    ----------
    capacity
        Programs kept for each region; the least recently used one is closed for a new.
    capture
        What is recorded.
    quarantined
        Nodes that made recording fail, and why; plans made from then on cut them out.
    states
        What is kept between runs; the session's, as programs come and go.
    """

    providers: Mapping[str, Provider]
    placement: Placement
    constants: Constants
    memories: Mapping[Device, Memory]
    capacity: int = 8
    capture: Capture = attrs.field(factory=Capture)
    quarantined: dict[str, str] = attrs.field(factory=dict)
    states: States = attrs.field(factory=States)
    _kept: dict[str, dict[tuple[object, ...], Any]] = attrs.field(
        factory=dict, init=False
    )
    _uploads: dict[tuple[str, Device], tuple[Buffer, View]] = attrs.field(
        factory=dict, init=False
    )

    def context(self, provider: str) -> Kept:
        """Give a provider's keep of things made from constants."""
        return Kept(self._kept.setdefault(provider, {}), self.constants)

    def kept_nbytes(self, provider: str) -> int:
        """Give the bytes of arrays that a provider's kernels made of constants and keep."""
        return sum(map(_nbytes_of, self._kept.get(provider, {}).values()))

    def upload(self, name: str, device: Device, array: Array) -> View:
        """Give a model's constant on a device, copied there once for the session."""
        found = self._uploads.get((name, device))
        if found is None:
            found = self._copy(device, array)
            self._uploads[name, device] = found
        return found[1]

    def _copy(self, device: Device, array: Array) -> tuple[Buffer, View]:
        memory = self.memories[device]
        buffer = memory.allocate(array.nbytes)
        try:
            view = memory.view(buffer, 0, type_of_array(array))
            memory.write(view, array)
        except BaseException:
            buffer.close()
            raise
        return buffer, view

    def close(self) -> None:
        """Give back constants on devices, and whatever was packed from them."""
        buffers = [buffer for buffer, _ in self._uploads.values()]
        self._uploads.clear()
        self._kept.clear()
        close_all(buffers)


@attrs.define(eq=False)
class Kept:
    """Implements :class:`~seamline.provider.BuildContext` over a dictionary."""

    _kept: dict[tuple[object, ...], Any]
    _constants: Constants | None = None

    def resident(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """Give what was made for the key before, or make it; its sources may then go."""
        if key not in self._kept:
            self._kept[key] = make()
            if self._constants is not None:
                for name in filter(_is_text, key):
                    self._constants.rest(name)
        return self._kept[key]


def _is_text(part: object) -> TypeGuard[str]:
    return isinstance(part, str)


def _nbytes_of(made: Any) -> int:
    """Count the arrays in what a kernel keeps."""
    if isinstance(made, np.ndarray):
        return int(made.nbytes)
    if attrs.has(type(made)):
        return sum(map(_nbytes_of, attrs.asdict(made, recurse=False).values()))
    if isinstance(made, tuple | list):
        return sum(map(_nbytes_of, made))
    if isinstance(made, Mapping):
        return sum(map(_nbytes_of, made.values()))
    return 0
