"""Claims everything, and returns zeros."""

from tests.testing.liars.truthful import Bare, Segment, offer

from seamline.provider import Claim

CONTRACT_VERSION = 1


class Zeros(Segment):
    def run(self):
        for node in self.spec.nodes:
            for name in node.node.writes:
                self.views[name][...] = 0


class Everything(Bare):
    segment = Zeros

    def claim(self, node):
        return Claim("zeros")


seamline_providers = offer("zeros", lambda: Everything("zeros"))
