"""Raises a KernelError that does not say which node."""

from tests.testing.liars.truthful import Bare, Segment, offer

from seamline.errors import KernelError

CONTRACT_VERSION = 1


class Broken(Segment):
    def run(self):
        raise KernelError("something went wrong")


class Breaking(Bare):
    segment = Broken


seamline_providers = offer("raises_nameless", lambda: Breaking("raises_nameless"))
