"""
Operators of the twin's own (domain ``twin``): a cache that grows, and ill manners.

``Append(cache, row, length) -> (cache, length)`` writes a row at a position that is read
from device memory and moves it on, in place: the state of a decoder in its smallest form.

``Rude(x) -> y`` is negation whose launch does what a recording forbids, on its ``at``-th
launch (0: on each): ``act`` is ``allocate``, ``synchronize``, ``read`` or ``raise``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from seamline.kernel import Call, Run
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType

if TYPE_CHECKING:
    from seamline_testing.twin.memory import TwinMemory

__all__ = ["DOMAIN", "Launched", "own_table"]

DOMAIN = "twin"
_ACTS = ("allocate", "synchronize", "read", "raise")


@attrs.frozen(eq=False)
class Launched:
    """Work for the device, and what its launch does on the host before that."""

    run: Run
    launch: Callable[[], None]

    def __call__(self) -> object:
        """Do the device's part."""
        return self.run()


def own_table(memory: TwinMemory, synchronize: Callable[[], None]) -> KernelTable:
    """Make the table of the twin's own operators for one device."""
    table = KernelTable(DOMAIN, variant="twin")
    table.infer("Append", domain=DOMAIN)(_append_types)
    table.infer("Rude", domain=DOMAIN)(_rude_types)
    table.kernel(
        "Append",
        domain=DOMAIN,
        dtypes={0: ("float32",), 1: ("float32",), 2: ("int64",)},
        aliases=((0, 0), (1, 2)),
        not_capturable=None,
    )(lambda call: _append(call, memory))
    acts: dict[str, Callable[[], Any]] = {
        "allocate": lambda: memory.allocate(64).close(),
        "synchronize": synchronize,
        "read": lambda: _read_back(memory),
        "raise": _raise,
    }
    table.kernel(
        "Rude",
        domain=DOMAIN,
        dtypes=("float32",),
        when=_unknown_act,
        not_capturable=None,
    )(lambda call: _rude(call, acts))
    return table


def _append_types(node: NodeView) -> Sequence[ValueType | None]:
    return node.inputs[0], node.inputs[2]


def _rude_types(node: NodeView) -> Sequence[ValueType | None]:
    return (node.inputs[0],)


def _append(call: Call, memory: TwinMemory) -> Run:
    cache, row, length = call.inputs
    grown, longer = call.outputs

    def run() -> None:
        at = int(length[0])
        if not np.may_share_memory(grown, cache):
            grown[...] = cache
        place = grown[at : at + 1]
        if not place.size:
            raise IndexError(f"row {at} is past the {len(grown)} rows of the cache")
        memory.virtual.serials(
            place.ctypes.data, place.nbytes
        )  # refuses, does not crash
        place[...] = row
        longer[...] = at + 1

    return run


def _unknown_act(node: NodeView) -> str | None:
    act = node.attributes.get("act")
    return None if act in _ACTS else f"act {act!r} is none of {', '.join(_ACTS)}"


def _rude(call: Call, acts: dict[str, Callable[[], Any]]) -> Run:
    x, y = call.inputs[0], call.outputs[0]
    act, at = acts[call.attr("act")], call.attr("at", 0)
    launches = 0

    def launch() -> None:
        nonlocal launches
        launches += 1
        if at in (0, launches):
            act()

    return Launched(lambda: np.negative(x, out=y), launch)


def _read_back(memory: TwinMemory) -> None:
    kind = TensorType("uint8", (1,))
    buffer = memory.allocate(1)
    try:
        memory.read(memory.view(buffer, 0, kind), np.empty(1, np.uint8))
    finally:
        buffer.close()


def _raise() -> None:
    raise ZeroDivisionError("a mistake in the kernel's launch")
