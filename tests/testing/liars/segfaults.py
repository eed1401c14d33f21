"""Reads where nothing is."""

import ctypes

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Faulted(Segment):
    def run(self):
        ctypes.string_at(0)


class Faulting(Bare):
    segment = Faulted


seamline_providers = offer("segfaults", lambda: Faulting("segfaults"))
