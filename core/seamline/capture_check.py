"""
Whether a replay does what a run does: both, over the same inputs, and what they wrote.

What the segment reads from outside is kept, since its memory may be written inside: in
place, or because it dies there; of a state it is every byte that has pages, put back
before each side, so that it advances once. Between the run and the replay every output is
poisoned, so that a kernel that is missing from the recording shows. The inputs are tried
twice, as fed and with floating-point ones rotated, so that a value baked in at recording
shows even where a caller always feeds the same. Results are compared bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from seamline.capture_bisect import first_difference
from seamline.errors import CaptureMismatchError, KernelError
from seamline.folding import RANDOM
from seamline.planned import Segment
from seamline.provider import Array, Device, Executable
from seamline.tensors import FLOATS, TensorType, numpy_dtype

if TYPE_CHECKING:
    from seamline.program import Program
    from seamline.state_place import Place as StatePlace

__all__ = ["Both", "Place", "poison_of", "random_node", "rotated", "verified"]

Place: TypeAlias = tuple[str, Device]  #: a value, and where it lies


def verified(
    program: Program,
    step: Segment,
    executable: Executable,
    replay: Callable[[], object],
) -> str:
    """
    Do a run's work by a run and by a replay, and hold them to be equal.

    Returns
    -------
    str
        What was not compared, and why; empty where all was.

    Raises
    ------
    CaptureMismatchError
        They differ; names the first node that does.
    KernelError
        The run itself failed.
    """
    said = random_node(program, step.nodes)
    if said:
        executable.run()
        return f"left out, for {said}"
    return _OfSegment(program, step, executable, replay).verified()


class Both:
    """
    A run and a replay over the same places, held to be equal.

    Attributes
    ----------
    inputs, written, outputs
        Places that are read from outside, written, and compared: a value and a device.
    fed
        What the inputs hold.
    """

    program: Program
    run: Callable[[], object]
    replay: Callable[[], object]
    inputs: list[Place]
    written: list[Place]
    outputs: list[Place]
    fed: dict[Place, Array]

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Place],
        written: Sequence[Place],
        outputs: Sequence[Place],
        run: Callable[[], object],
        replay: Callable[[], object],
    ) -> None:
        self.program, self.run, self.replay = program, run, replay
        self.inputs = [place for place in inputs if self._is_plain(place[0])]
        # What is written into a state is not poisoned: its pages are put back as they were.
        states = program.plan.states
        self.written = [
            place
            for place in written
            if self._is_plain(place[0]) and place not in states
        ]
        self.outputs = [place for place in outputs if self._is_plain(place[0])]
        self.fed = self._read(self.inputs)

    def _is_plain(self, name: str) -> bool:
        kind = self.program.plan.types.get(name)
        return isinstance(kind, TensorType) and kind.dtype != "string"

    def verified(self) -> str:
        """Compare with rotated inputs and as fed; say what was left out, and why."""
        said = self._with_rotated_inputs()
        self._compare(self.fed)
        return said

    def mismatch(
        self, wrong: Sequence[Place], fed: Mapping[Place, Array]
    ) -> CaptureMismatchError:
        """Give the error that names the first node that differs."""
        raise NotImplementedError

    def _with_rotated_inputs(self) -> str:
        """Compare with other inputs than were fed; say why not, where they are refused."""
        other = {place: rotated(array) for place, array in self.fed.items()}
        if all(np.array_equal(other[p], self.fed[p]) for p in other):
            return ""
        try:
            self._compare(other)
        except KernelError as error:
            return f"only as fed, for changed inputs were refused: {error.why}"
        finally:
            self._write(self.fed)
        return ""

    def _compare(self, fed: Mapping[Place, Array]) -> None:
        """Run and replay with these inputs; leave the replay's results."""
        self._write(fed)
        self.run()
        want = self._read(self.outputs)
        poison = {p: poison_of(self.program.plan.tensor(p[0])) for p in self.written}
        self._write(poison)
        self._write(fed)
        self.replay()
        got = self._read(self.outputs)
        wrong = [p for p in self.outputs if want[p].tobytes() != got[p].tobytes()]
        if wrong:
            self._write(fed)
            self.run()
            raise self.mismatch(wrong, fed)

    def _state(self, name: str, device: Device) -> StatePlace | None:
        """Give the state that a value lies in."""
        found = self.program.plan.states.get((name, device))
        return None if found is None else self.program.engine.states.place(found)

    def spread(self, place: Place, array: Array) -> Array:
        """Give the whole of a value that was read."""
        state = self._state(*place)
        return array if state is None else state.spread(array)

    def _read(self, places: Iterable[Place]) -> dict[Place, Array]:
        found = {}
        for name, device in places:
            state = self._state(name, device)
            if state is not None:
                found[name, device] = state.saved()
                continue
            kind = self.program.plan.tensor(name)
            array = np.empty(kind.sizes, numpy_dtype(kind.dtype))
            view = self.program.view(name, device)
            self.program.engine.memories[device].read(view, array)
            found[name, device] = array
        return found

    def _write(self, values: Mapping[Place, Array]) -> None:
        for (name, device), array in values.items():
            state = self._state(name, device)
            if state is not None:
                state.restore(array)
                continue
            view = self.program.view(name, device)
            self.program.engine.memories[device].write(view, array)


class _OfSegment(Both):
    def __init__(
        self,
        program: Program,
        step: Segment,
        executable: Executable,
        replay: Callable[[], object],
    ) -> None:
        self.step = step
        nodes = {node.name: node for node in program.plan.region.nodes}
        self.spec = program.spec(step, nodes)
        views, _ = program.lent(self.spec, program.plan.choices)
        made = [name for node in self.spec.nodes for name in node.node.writes]

        def places(names: Iterable[str]) -> list[Place]:
            return [(n, step.device) for n in dict.fromkeys(names) if n in views]

        super().__init__(
            program, places(step.inputs), places(made), places(step.outputs),
            executable.run, replay,
        )  # fmt: skip

    def mismatch(
        self, wrong: Sequence[Place], fed: Mapping[Place, Array]
    ) -> CaptureMismatchError:
        names = [name for name, _ in wrong]
        given = {place[0]: self.spread(place, array) for place, array in fed.items()}
        node = first_difference(self.program, self.step, self.spec, given)
        alone = "recorded by itself, it differs too"
        if not node:
            node = next(
                n.name for n in self.spec.nodes if set(n.node.writes) & set(names)
            )
            alone = "recorded alone no node differs; this one writes the first of them"
        return CaptureMismatchError(
            f"a replay gives other values of {', '.join(names)} than a run ({alone})",
            provider=self.step.provider,
            segment=self.step.id,
            node=node,
        )


def random_node(program: Program, names: Iterable[str]) -> str:
    """Say which of some nodes is random, so that two runs differ; nothing if none is."""
    nodes = {node.name: node for node in program.plan.region.nodes}
    for name in names:
        if nodes[name].op_type in RANDOM:
            return f"{name!r} ({nodes[name].op_type}) is random"
    return ""


def rotated(array: Array) -> Array:
    """Give floating-point values in another order; others as they are, being indices."""
    names = array.dtype.name
    return np.roll(array, 1) if names in FLOATS and array.size > 1 else array


def poison_of(kind: TensorType) -> Array:
    """Give NaN, or a number that nobody expects."""
    dtype = numpy_dtype(kind.dtype)
    array = np.empty(kind.sizes, dtype)
    array.reshape(-1).view(np.uint8)[...] = 1 if dtype == np.bool_ else 0xFF
    return array
