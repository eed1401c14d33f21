"""Ends its process, as a failed assertion of native code does."""

import os

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Aborted(Segment):
    def run(self):
        os.abort()


class Aborting(Bare):
    segment = Aborted


seamline_providers = offer("aborts", lambda: Aborting("aborts"))
