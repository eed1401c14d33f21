"""Arrays that results are read into: NumPy's own, or what a memory says is quicker to fill."""

from __future__ import annotations

from typing import Protocol, cast

from seamline.devices import Array
from seamline.tensors import TensorType

__all__ = ["GivesArrays", "giving"]


class GivesArrays(Protocol):
    """
    What a memory has beside the contract where it says which arrays to read into.

    Memory of the host that a device copies to by itself, for example. Where a provider's
    memory has nothing of the kind, results are read into NumPy's own arrays.
    """

    @property
    def gives_arrays(self) -> bool:
        """Say that it has the other; a memory without this has not."""
        ...

    def array(self, kind: TensorType) -> Array:
        """Give a C-contiguous array that can be written, the caller's for as long as it likes."""
        ...


def giving(memory: object) -> GivesArrays | None:
    """Give a memory as one that gives arrays to read into; None where it is not."""
    if not getattr(memory, "gives_arrays", False):
        return None
    return cast("GivesArrays", memory)
