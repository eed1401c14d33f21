"""Uses its input as scratch."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Scratched(Segment):
    def run(self):
        super().run()
        for name in self.spec.inputs[:1]:
            self.views[name][...] = 1


class Scratching(Bare):
    segment = Scratched


seamline_providers = offer("mutates_input", lambda: Scratching("mutates_input"))
