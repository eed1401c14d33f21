"""Raises what the contract does not name."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class OddError(Exception):
    """No error of seamline's."""


class Broken(Segment):
    def run(self):
        raise OddError("the driver is upset")


class Breaking(Bare):
    segment = Broken


seamline_providers = offer("raises", lambda: Breaking("raises"))
