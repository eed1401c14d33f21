"""Have a provider build one segment of a program, and say where a failure came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seamline.checked_calls import built
from seamline.errors import BuildError, RunError, SeamlineError
from seamline.graph import Node
from seamline.planned import Segment

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["build_segment"]


def build_segment(program: Program, step: Segment, nodes: Mapping[str, Node]) -> None:
    """
    Build a segment and give it its places.

    Raises
    ------
    BuildError
        The provider could not; names provider and segment, and the nodes.
    """
    choices = program.plan.choices
    if step.sizes_at_run and not choices[step.nodes[0]].claim.sizes_at_run:
        return  # built when its sizes are known, from what it reads
    spec = program.spec(step, nodes)
    try:
        executable = built(program.engine, step.provider, spec)
        program.defer(executable.close)
        program.executables[step.id] = executable
        program.bind(executable, spec, choices)
    except BuildError as error:
        error.nodes = step.nodes
        if error.provider and error.segment:
            raise
        raise _located(step, error) from error
    except Exception as error:
        raise _located(step, error) from error


def _located(step: Segment, error: Exception) -> BuildError:
    """Name provider and segment; the node too, where it is known."""
    node = step.nodes[0] if len(step.nodes) == 1 else ""
    node = error.node or node if isinstance(error, RunError) else node
    said = "" if isinstance(error, SeamlineError) else f"{type(error).__name__}: "
    located = BuildError(
        f"{said}{error}", provider=step.provider, segment=step.id, node=node
    )
    located.nodes = step.nodes
    return located
