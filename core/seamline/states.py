"""
What a session keeps between runs: a state is an input and an output in one fixed place.

A decoder's cache is fed by the run before. Declared as a state it is fed by nobody: the
output is written over the input, at addresses that the session holds for its life, so one
program and one recording serve every length. Its type is that of its whole room; only
what has been written, and what the next run writes, needs memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from seamline.errors import PlanError, RunError, near
from seamline.geometry import Geometry
from seamline.graph import Graph
from seamline.tensors import TensorType, numpy_dtype

__all__ = ["Settled", "State", "StateError", "settle"]

_INTEGERS = ("int32", "int64")


class StateError(RunError):
    """
    A state cannot hold what a run would write, or has no place; nothing was run.

    Attributes
    ----------
    state
        Its input.
    nbytes
        Bytes that it lacks; 0 where it is no matter of memory.
    free
        Bytes that its device had left; None where not known.
    """

    def __init__(
        self, state: str, why: str, *, nbytes: int = 0, free: int | None = None
    ) -> None:
        self.state = state
        self.nbytes = nbytes
        self.free = free
        super().__init__(f"state {state!r}: {why}")


def _grows(owner: State, field: attrs.Attribute[int | None], value: int | None) -> None:
    if (owner.axis is None) != (owner.room is None):
        raise ValueError(f"state {owner.input!r}: axis and room come together")
    if owner.room is not None and (type(owner.room) is not int or owner.room < 1):
        raise ValueError(
            f"state {owner.input!r}: room is 1 or more, not {owner.room!r}"
        )
    if owner.axis is None and owner.lengths is not None:
        why = "lengths say how far an axis is live, and no axis is given"
        raise ValueError(f"state {owner.input!r}: {why}")


@attrs.frozen
class State:
    """
    An input whose next value is an output.

    Attributes
    ----------
    input, output
        Names in the model.
    axis
        The axis that grows; None for a state of one size.
    room
        Size of that axis: the most that it can grow to.
    lengths
        The integer input that says, for each sequence or for all, how far the axis is
        live; with :attr:`plus` added it is how far the run reads or writes. Without it
        the whole room has memory.
    plus
        A number, or (input, axis): the size of that axis.

        ====================================  ===============  ==================
        operator that writes the state        lengths          plus
        ====================================  ===============  ==================
        ``TensorScatter``                     write_indices    (the tokens, 1)
        with ``Attention``'s                  nonpad_kv_seqlen 0
        ``GroupQueryAttention``               seqlens_k        1
        ====================================  ===============  ==================
    shape
        Sizes of the whole room, where the model leaves some open.

    Examples
    --------
    >>> State("past", "present", axis=2, room=4096, lengths="position", plus=1).room
    4096
    """

    input: str
    output: str
    axis: int | None = attrs.field(default=None, validator=_grows)
    room: int | None = None
    lengths: str | None = None
    plus: int | tuple[str, int] = 0
    shape: tuple[int, ...] | None = None


@attrs.frozen
class Settled:
    """
    A state with its sizes.

    Attributes
    ----------
    kind
        Type of the whole room.
    geometry
        How it lies; a state of one size grows along an axis that is always full.
    """

    state: State
    kind: TensorType
    geometry: Geometry

    @property
    def source(self) -> tuple[str | None, int | tuple[str, int]]:
        """Give what says how far it is live; states that share it grow together."""
        return self.state.lengths, self.state.plus


def settle(
    states: Sequence[State], graph: Graph, dims: Mapping[str, int]
) -> tuple[Settled, ...]:
    """
    Give declared states their sizes.

    Parameters
    ----------
    dims
        Sizes of symbols.

    Raises
    ------
    PlanError
        A name that the model has not, a type that cannot be kept, or a size that is open.
    """
    names = [name for state in states for name in (state.input, state.output)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PlanError(f"{min(twice)!r} is named by two states, or as both its ends")
    return tuple(_settled(state, graph, dims) for state in states)


def _settled(state: State, graph: Graph, dims: Mapping[str, int]) -> Settled:
    _known(state, "input", state.input, graph.inputs)
    _known(state, "output", state.output, graph.outputs)
    if state.input in graph.overridable:
        raise _wrong(state, "it has a value in the model; only an input can be a state")
    _sources(state, graph)
    kind = graph.types.get(state.input)
    if not isinstance(kind, TensorType) or kind.dtype == "string":
        raise _wrong(
            state, f"it is {kind or 'of unknown type'}, and no tensor of numbers"
        )
    sizes = _sizes(state, kind, dims)
    axis = 0 if state.axis is None else state.axis % len(sizes)
    geometry = Geometry(sizes or (1,), axis, numpy_dtype(kind.dtype).itemsize)
    return Settled(state, TensorType(kind.dtype, sizes), geometry)


def _sources(state: State, graph: Graph) -> None:
    """Check what says how far it is live."""
    if state.lengths is not None:
        _known(state, "lengths", state.lengths, graph.inputs)
        kind = graph.types.get(state.lengths)
        if state.lengths in graph.overridable:
            said = f"lengths {state.lengths!r} have a value in the model, and may not be fed"
            raise _wrong(state, said)
        if isinstance(kind, TensorType) and kind.dtype not in _INTEGERS:
            said = f"lengths {state.lengths!r} are {kind.dtype}, not int32 or int64"
            raise _wrong(state, said)
    if isinstance(state.plus, tuple):
        _known(state, "plus", state.plus[0], graph.inputs)


def _sizes(state: State, kind: TensorType, dims: Mapping[str, int]) -> tuple[int, ...]:
    shape = state.shape if kind.shape is None else kind.shape
    if shape is None:
        raise _wrong(state, "the model does not say its rank; give shape=")
    rank = len(shape)
    if state.shape is not None and len(state.shape) != rank:
        raise _wrong(state, f"shape {list(state.shape)} is none of rank {rank}")
    if state.axis is not None and not -rank <= state.axis < rank:
        raise _wrong(state, f"axis {state.axis} is none of rank {rank}")
    axis = None if state.axis is None else state.axis % rank
    sizes: list[int] = []
    for index, declared in enumerate(shape):
        asked = None if state.shape is None else state.shape[index]
        asked = state.room if index == axis else asked
        size = dims.get(declared) if isinstance(declared, str) else declared
        sizes.append(_size(state, index, size, asked, declared or "?"))
    return tuple(sizes)


def _size(
    state: State, axis: int, size: int | None, asked: int | None, symbol: object
) -> int:
    """Give the size of an axis, from the model and from the state."""
    if size is not None and asked is not None and size != asked:
        said = f"axis {axis} is {size} in the model and {asked} in the state"
        raise _wrong(state, said)
    found = asked if size is None else size
    if found is None:
        said = f"axis {axis} ({symbol}) has no size; give shape=, or fix "
        raise _wrong(state, f"{said}the free dimension")
    return found


def _known(state: State, what: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        known = ", ".join(names) or "none"
        said = f"{what} {name!r} is not in the model{near(name, names)}"
        raise _wrong(state, f"{said} (there are: {known})")


def _wrong(state: State, why: str) -> PlanError:
    return PlanError(f"state {state.input!r}: {why}")
