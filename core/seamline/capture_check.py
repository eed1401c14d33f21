"""
Whether a replay does what a run does: both, over the same inputs, and what they wrote.

What the segment reads from outside is kept, since its memory may be written inside: in
place, or because it dies there; of a state it is every byte that has pages, put back
before each side, so that a state advances once. Between the run and the replay every output is poisoned,
so that a kernel that is missing from the recording shows. The inputs are tried twice, as
fed and with floating-point ones rotated, so that a value baked in at recording shows even
where a caller always feeds the same. Results are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seamline.capture_bisect import first_difference
from seamline.errors import CaptureMismatchError, KernelError
from seamline.folding import RANDOM
from seamline.planned import Segment
from seamline.provider import Array, Executable, Recording, View
from seamline.tensors import FLOATS, TensorType, numpy_dtype

if TYPE_CHECKING:
    from seamline.program import Program

__all__ = ["poison_of", "rotated", "verified"]


def verified(
    program: Program, step: Segment, executable: Executable, recording: Recording
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
    nodes = {node.name: node for node in program.plan.region.nodes}
    for name in step.nodes:
        if nodes[name].op_type in RANDOM:
            executable.run()
            return f"left out, for {name!r} ({nodes[name].op_type}) is random"
    both = _Both(program, step, executable, recording)
    said = both.with_rotated_inputs()
    both.compare(both.fed)
    return said


class _Both:
    def __init__(
        self,
        program: Program,
        step: Segment,
        executable: Executable,
        recording: Recording,
    ) -> None:
        self.program, self.step = program, step
        self.executable, self.recording = executable, recording
        self.memory = program.engine.memories[step.device]
        nodes = {node.name: node for node in program.plan.region.nodes}
        self.spec = program.spec(step, nodes)
        views, _ = program.lent(self.spec, program.plan.choices)
        self.views = {n: v for n, v in views.items() if self._is_plain(n)}
        self.inputs = [n for n in step.inputs if n in self.views]
        self.outputs = [n for n in step.outputs if n in self.views]
        made = [name for node in self.spec.nodes for name in node.node.writes]
        #: Values in a state's place: what has pages is kept and put back as it is.
        self.states = {
            n: program.engine.states.place(program.plan.states[n, step.device])
            for n in self.views
            if (n, step.device) in program.plan.states
        }
        self.written = [n for n in dict.fromkeys(made) if n in self.views]
        self.written = [n for n in self.written if n not in self.states]
        self.fed = self._read(self.inputs)

    def _is_plain(self, name: str) -> bool:
        kind = self.program.plan.types.get(name)
        return isinstance(kind, TensorType) and kind.dtype != "string"

    def with_rotated_inputs(self) -> str:
        """Compare with other inputs than were fed; say why not, where they are refused."""
        other = {name: rotated(array) for name, array in self.fed.items()}
        if all(np.array_equal(other[n], self.fed[n]) for n in other):
            return ""
        try:
            self.compare(other)
        except KernelError as error:
            return f"only as fed, for changed inputs were refused: {error.why}"
        finally:
            self._write(self.fed)
        return ""

    def compare(self, fed: Mapping[str, Array]) -> None:
        """Run and replay with these inputs; leave the replay's results."""
        self._write(fed)
        self.executable.run()
        want = self._read(self.outputs)
        self._write({n: poison_of(self.program.plan.tensor(n)) for n in self.written})
        self._write(fed)
        self.recording.replay()
        got = self._read(self.outputs)
        wrong = [n for n in self.outputs if want[n].tobytes() != got[n].tobytes()]
        if wrong:
            self._write(fed)
            self.executable.run()
            raise self._mismatch(wrong, fed)

    def _mismatch(
        self, wrong: Sequence[str], fed: Mapping[str, Array]
    ) -> CaptureMismatchError:
        whole = {n: self.states[n].spread(fed[n]) for n in self.states if n in fed}
        node = first_difference(self.program, self.step, self.spec, {**fed, **whole})
        alone = "recorded by itself, it differs too"
        if not node:
            node = next(
                n.name for n in self.spec.nodes if set(n.node.writes) & set(wrong)
            )
            alone = "recorded alone no node differs; this one writes the first of them"
        return CaptureMismatchError(
            f"a replay gives other values of {', '.join(wrong)} than a run ({alone})",
            provider=self.step.provider,
            segment=self.step.id,
            node=node,
        )

    def _read(self, names: Iterable[str]) -> dict[str, Array]:
        found = {}
        for name in names:
            if name in self.states:
                found[name] = self.states[name].saved()
                continue
            kind = self.program.plan.tensor(name)
            found[name] = np.empty(kind.sizes, numpy_dtype(kind.dtype))
            self.memory.read(self.views[name], found[name])
        return found

    def _write(self, values: Mapping[str, Array]) -> None:
        for name, array in values.items():
            if name in self.states:
                self.states[name].restore(array)
                continue
            view: View = self.views[name]
            self.memory.write(view, array)


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
