"""Devices that lie about their memory and their recordings; the twin, each with a fault."""

from __future__ import annotations

import attrs
import numpy as np

from seamline.hookspecs import hookimpl
from seamline.provider import ProviderSpec
from seamline_testing.twin.memory import TwinMemory
from seamline_testing.twin.provider import Twin

CONTRACT_VERSION = 1


class Around:
    """A segment of the twin, and a recording of its own making."""

    def __init__(self, inner, memory):
        self.inner, self.memory, self.views, self.places = inner, memory, {}, None

    def bind(self, views, workspaces, host=None):
        self.views, self.places = views, (views, workspaces, host)
        self.inner.bind(*self.places)

    def run(self):
        return self.inner.run()

    def record(self):
        raise NotImplementedError

    def close(self):
        self.inner.close()


class Replay:
    def __init__(self, replay):
        self.replay = replay

    def close(self):
        pass


class Bakes(Around):
    """Keeps what came out when it was recorded."""

    def record(self):
        kept = {}
        for name in self.inner.spec.outputs:
            view = self.views[name]
            kept[name] = np.empty(view.shape, view.kind.dtype)
            self.memory.read(view, kept[name])

        def replay():
            for name, value in kept.items():
                self.memory.write(self.views[name], value)

        return Replay(replay)


class RunsToRecord(Around):
    """Runs once while it records, and lets that count."""

    def record(self):
        made = self.inner.record()
        self.inner.run()
        return made


class ReplaysThere(Around):
    """Replays over the places that it was recorded over, whoever has them now."""

    def record(self):
        then = self.places

        def replay():
            self.inner.bind(*then)
            self.inner.run()
            self.inner.bind(*self.places)

        return Replay(replay)


class Lossy(TwinMemory):
    """Copies whole pairs of elements."""

    def write(self, target, source):
        sent = source.copy()
        if sent.size % 2:
            sent.reshape(-1)[-1:].view(np.uint8)[...] ^= 1
        super().write(target, sent)


class Leaky(TwinMemory):
    """Holds on to every buffer that it ever gave."""

    ever = 0

    def allocate(self, nbytes):
        self.ever += nbytes
        return super().allocate(nbytes)

    def gauges(self):
        return attrs.evolve(super().gauges(), content=self.ever)


def liar(called, *, segment=None, memory=TwinMemory):
    class Lying(Twin):
        def __init__(self, options):
            super().__init__(options)
            self.name, self._memory = called, memory(self.machine)

        def build(self, spec, context):
            made = super().build(spec, context)
            return segment(made, self._memory) if segment else made

    return ProviderSpec(called, Lying)


@hookimpl
def seamline_providers():
    return [
        liar("bakes", segment=Bakes),
        liar("runs_to_record", segment=RunsToRecord),
        liar("replays_there", segment=ReplaysThere),
        liar("lossy", memory=Lossy),
        liar("leaky", memory=Leaky),
    ]
