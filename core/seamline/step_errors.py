"""Steps taken in order, and where an error came from that names nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from seamline.errors import KernelError, SeamlineError
from seamline.excursions import Chain
from seamline.planned import Segment, Step

__all__ = ["located", "refuse_given", "taken"]


def taken(actions: Sequence[tuple[Step, Callable[[], object]]]) -> None:
    """
    Take steps in order, and say where an error came from.

    Raises
    ------
    KernelError
        One failed; names its provider, segment and node, where known.
    """
    step: Step | None = None
    try:
        for step, action in actions:
            if action() is not None:
                refuse_given(step)
    except SeamlineError:
        raise
    except Exception as error:
        raise located(step, error) from error


def refuse_given(step: Step | Chain) -> NoReturn:
    """Refuse values that a segment gives: the plan has a place for each, and reads that."""
    said = "its run() gave values, and all sizes are known; it is to give None"
    if not isinstance(step, Segment):
        raise KernelError(said, segment=step.id)
    raise KernelError(said, provider=step.provider, segment=step.id, node=step.nodes[0])


def located(step: Step | Chain | None, error: Exception) -> KernelError:
    """Say where an error came from that names nothing; None: inputs or outputs moved."""
    said = f"{type(error).__name__}: {error}"
    if step is None:
        return KernelError(f"moving values in or out of the program: {said}")
    if not isinstance(step, Segment):
        return KernelError(said, segment=step.id)
    node = step.nodes[0] if len(step.nodes) == 1 else ""
    return KernelError(said, provider=step.provider, segment=step.id, node=node)
