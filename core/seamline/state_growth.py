"""Growth of several states at once: pages for all that a run reaches, or as before."""

from __future__ import annotations

from collections.abc import Sequence

from seamline.devices import Array, Growing, VirtualMemoryError
from seamline.geometry import Mask
from seamline.state_place import Place
from seamline.states import StateError

__all__ = ["grow"]


def grow(wanted: Sequence[tuple[Place, Array]]) -> None:
    """
    Have pages for each place up to its lengths.

    What is new in a state that is read whole is zeroed.

    Raises
    ------
    StateError
        There is no memory for one of them; names it, the bytes that it lacks and what is
        free. All are as before.
    """
    done: list[tuple[Growing, Mask]] = []
    try:
        for place, lengths in wanted:
            _grow(place, lengths, done)
    except BaseException:
        for buffer, before in reversed(done):
            buffer.keep(before)
        raise


def _grow(place: Place, lengths: Array, done: list[tuple[Growing, Mask]]) -> None:
    mask, buffer = place.mask(lengths), place.growing
    if mask is None or buffer is None:
        return
    before = buffer.held()
    lacking = int((mask & ~before).sum())
    if not lacking:
        return
    done.append((buffer, before))
    try:
        parts = buffer.commit(mask)
    except VirtualMemoryError as error:
        done.pop()
        raise _refused(place, lengths, lacking * buffer.granule, error) from error
    if place.whole:
        place.zero(parts)
    buffer.count(place.settled.geometry.live(lengths))


def _refused(
    place: Place, lengths: Array, nbytes: int, error: VirtualMemoryError
) -> StateError:
    free = "an unknown number of" if error.free is None else str(error.free)
    why = (
        f"{int(lengths.max(initial=0))} entries of it take {nbytes} bytes more on "
        f"{place.device}, where {free} bytes are free; nothing was run. To fix: reset() or "
        f"truncate() states, or give the session less room ({error})"
    )
    return StateError(place.name, why, nbytes=nbytes, free=error.free)
