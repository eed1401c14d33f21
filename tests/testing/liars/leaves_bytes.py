"""Stops one row early and leaves the rest of its output as it was."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Short(Segment):
    def run(self):
        kept = {name: self.views[name][-1].copy() for name in self.spec.outputs}
        super().run()
        for name, row in kept.items():
            self.views[name][-1] = row


class Stopping(Bare):
    segment = Short


seamline_providers = offer("leaves_bytes", lambda: Stopping("leaves_bytes"))
