"""Does not come back."""

import threading

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Stopped(Segment):
    def run(self):
        threading.Event().wait()


class Stopping(Bare):
    segment = Stopped


seamline_providers = offer("hangs", lambda: Stopping("hangs"))
