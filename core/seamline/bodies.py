"""What runs a region inside a program: a body of control flow, or the rest of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from seamline.planned import Plan, Region
from seamline.timings import Profile

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["Bodies", "BodyRunner"]


class BodyRunner(Protocol):
    """Runs a region inside a program: a body of control flow, or the rest of a plan."""

    @property
    def region(self) -> Region:
        """Give the region."""
        ...

    def run(
        self,
        inputs: Mapping[str, Any],
        objects: Mapping[str, Any],
        profile: Profile | None = None,
    ) -> dict[str, Any]:
        """Give the region's outputs by name, as fresh arrays."""
        ...

    def latest(self) -> Program | None:
        """Give the program that ran last, if any."""
        ...

    def plan(self, inputs: Mapping[str, Any]) -> Plan:
        """Plan for inputs like these, without building."""
        ...

    def close(self) -> None:
        """Close every program."""
        ...


#: Makes the runner of a region that reads the given program's values.
Bodies: TypeAlias = "Callable[[Region, Program], BodyRunner]"
