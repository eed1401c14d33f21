"""Does not let go of its arrays when it is closed."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Held(Segment):
    def close(self):
        pass


class Holding(Bare):
    segment = Held


seamline_providers = offer("holds_on", lambda: Holding("holds_on"))
