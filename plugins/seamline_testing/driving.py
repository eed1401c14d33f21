"""
One sample in a provider's hands, driven through the contract alone.

No plan and no pipeline stand between: the kit claims, builds, binds and runs as the core
does, over memory of its own that has canaries around every value and poison in every
output. So what is found here is the provider's, whatever the core would have hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import attrs
import numpy as np

from seamline.engine import Kept
from seamline.errors import BuildError, KernelError
from seamline.provider import (
    HOST,
    Array,
    Claim,
    Executable,
    Memory,
    NodeView,
    Provider,
    SegmentSpec,
    View,
)
from seamline.tensors import TensorType, dtype_name
from seamline_testing.claiming import claims_of
from seamline_testing.guarded import POISONS, Guarded, memory_of, same_bits
from seamline_testing.samples import Sample, far_from
from seamline_testing.verdicts import asked, mismatch, violation

__all__ = [
    "Driven",
    "driven",
    "each_driven",
    "hold_right",
]


@attrs.define(eq=False)
class Driven:
    """A sample that was built; ``bind`` gives it places, ``run`` feeds and reads them."""

    sample: Sample
    provider: Provider
    memory: Memory
    views: tuple[NodeView, ...]
    claims: tuple[Claim, ...]
    executable: Executable
    held: dict[str, Guarded] = attrs.field(factory=dict)
    work: dict[str, Guarded] = attrs.field(factory=dict)
    host: dict[str, Array] = attrs.field(factory=dict)
    _stack: ExitStack = attrs.field(factory=ExitStack)

    # -- places --------------------------------------------------------------------------

    def bind(self, shared: Mapping[str, str] | None = None) -> None:
        """
        Bind to places never used before; those of an earlier call stay open, in no use.

        Parameters
        ----------
        shared
            Outputs that lie where an input lies.
        """
        self.places(shared)
        self.rebind()

    def places(self, shared: Mapping[str, str] | None = None) -> None:
        """Find new places for everything, and bind nothing yet."""
        self.held, self.work, self.host = {}, {}, {}
        inside = self._inside()
        for index, view in enumerate(self.views):
            for name in view.node.reads:
                self._place_input(index, view, name, inside)
            for name in view.node.writes:
                if name not in inside and not self.claims[index].sizes_at_run:
                    self._place(name, (shared or {}).get(name))
            if nbytes := self.claims[index].workspace_nbytes:
                kind = TensorType("uint8", (nbytes,))
                self.work[view.name] = self._open(kind)
        for name, value in self.sample.constants.items():
            if name in self.held:
                self.held[name].write(value)

    def bound(self) -> tuple[dict[str, View], dict[str, View], dict[str, Array]]:
        """Give what ``bind`` takes: values, workspaces, and what is read on the host."""
        views: dict[str, View] = {name: held.view for name, held in self.held.items()}
        spaces = {name: held.view for name, held in self.work.items()}
        return views, spaces, self.host

    def rebind(self) -> None:
        """Bind to the places that it has now."""
        with asked("bind()", BuildError):
            self.executable.bind(*self.bound())

    def _inside(self) -> frozenset[str]:
        if not self.provider.owns_intermediates:
            return frozenset()
        made = {name for view in self.views for name in view.node.writes}
        return frozenset(made - set(self.sample.outputs))

    def _place_input(
        self, index: int, view: NodeView, name: str, inside: frozenset[str]
    ) -> None:
        if name in inside:
            return
        device = self.provider.device
        positions = {i for i, given in enumerate(view.node.inputs) if given == name}
        if positions & self.claims[index].host_inputs:
            kind = self.sample.kind(name)
            value = self.sample.constants.get(name)
            self.host[name] = (
                np.zeros(kind.sizes, kind.dtype) if value is None else value
            )
        if positions - self.claims[index].host_inputs or device == HOST:
            self._place(name, None)
            if name in self.host and device == HOST:
                self.host[name] = self.held[name].view

    def _place(self, name: str, where: str | None) -> None:
        if name not in self.held:
            kind = self.sample.kind(name)
            self.held[name] = self.held[where] if where else self._open(kind)

    def _open(self, kind: TensorType) -> Guarded:
        made = Guarded.open(self.memory, kind)
        self._stack.callback(made.close)
        return made

    # -- running -------------------------------------------------------------------------

    def feed(self, feeds: Mapping[str, Array], poison: int = POISONS[0]) -> None:
        """Poison what a run must write, then write the inputs."""
        for places in (self.held, self.work):
            for name, held in places.items():
                if name not in feeds and name not in self.sample.constants:
                    held.fill(poison)
        for name, value in feeds.items():
            if name in self.held:
                self.held[name].write(value)
            if name in self.host and self.provider.device != HOST:
                self.host[name][...] = value

    def run(self, feeds: Mapping[str, Array], poison: int = POISONS[0]) -> Array:
        """Feed, run, hold every canary and input to its value, and give the output."""
        self.feed(feeds, poison)
        return self.go(feeds)

    def go(self, feeds: Mapping[str, Array]) -> Array:
        """Run over what was fed, and look at everything afterwards."""
        with asked("run()", KernelError), np.errstate(all="ignore"):
            given = self.executable.run()
        self.look(feeds)
        return self.output(given)

    def look(self, feeds: Mapping[str, Array]) -> None:
        """Hold every canary and every unshared input to its value."""
        for what, places in (("", self.held), ("the workspace of ", self.work)):
            for name, held in places.items():
                if trampled := held.trampled():
                    violation(f"{self._who} wrote outside {what}{name!r}: {trampled}")
        written = [
            self.held[n] for v in self.views for n in v.node.writes if n in self.held
        ]
        for name, value in {**feeds, **self.sample.constants}.items():
            held_at = self.held.get(name)
            if held_at is None or held_at in written:
                continue
            if not same_bits(held_at.read(), value):
                violation(f"{self._who} wrote to its input {name!r}")

    def output(self, given: object = None) -> Array:
        """Give the output, read from its place or from what ``run`` gave."""
        name = self.sample.outputs[0]
        if name in self.held:
            return self.held[name].read()
        if not isinstance(given, Mapping) or name not in given:
            violation(f"{self._who} claims sizes_at_run, and run() gave no {name!r}")
        value, kind = np.asarray(given[name]), self.sample.kind(name)
        if value.shape != kind.sizes or dtype_name(value.dtype) != kind.dtype:
            violation(
                f"{self._who} gave {dtype_name(value.dtype)}{list(value.shape)} for {name!r}, "
                f"whose type is {kind}"
            )
        return value.copy()

    @property
    def _who(self) -> str:
        return f"{self.sample.name}: it"

    def close(self) -> None:
        """Close the executable, then give all memory back."""
        self.executable.close()
        self.held, self.work, self.host = {}, {}, {}
        self._stack.close()

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def driven(provider: Provider, sample: Sample, *, bound: bool = True) -> Driven:
    """Build a sample that the provider claims, and bind it; the caller closes it."""
    views = sample.views()
    claims = claims_of(provider, views)
    if isinstance(claims, str):
        violation(f"{sample.name}: claimed before, now refused: {claims}")
    read = {name for view in views for name in view.node.reads}
    inputs = tuple(name for name in sample.inputs if name in read)
    spec = SegmentSpec("sample", views, inputs, sample.outputs, sample.read[0].opsets)
    with asked("build()", BuildError):
        executable = provider.build(spec, Kept({}))
    made = Driven(sample, provider, memory_of(provider), views, claims, executable)
    try:
        if bound:
            made.bind()
    except BaseException:
        made.close()
        raise
    return made


def hold_right(sample: Sample, seed: int, got: Array, when: str) -> None:
    """Hold an output to the definition; ``when`` says in which circumstances."""
    if wrong := far_from(got, sample.expected(sample.feeds(seed))):
        mismatch(f"{sample.name}, {when}: {wrong}")


def each_driven(provider: Provider, samples: tuple[Sample, ...]) -> Iterator[Driven]:
    """Drive samples one after another."""
    for sample in samples:
        with driven(provider, sample) as made:
            yield made
