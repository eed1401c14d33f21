"""Offers whatever is asked for the first time, and refuses it the second."""

from tests.testing.liars.truthful import Bare, offer

from seamline.provider import Refusal

CONTRACT_VERSION = 1


class Changing(Bare):
    def __init__(self, name):
        super().__init__(name)
        self.met = set()

    def claim(self, node):
        said = super().claim(node)
        key = (node.name, node.inputs)
        if key in self.met:
            return Refusal("it is busy")
        self.met.add(key)
        return said


seamline_providers = offer("changing_claim", lambda: Changing("changing_claim"))
