"""Rounds its loop up: writes the four bytes after its output."""

import ctypes

import numpy as np
from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Rounded(Segment):
    def run(self):
        super().run()
        for name in self.spec.outputs:
            y: np.ndarray = self.views[name]
            ctypes.memset(y.ctypes.data + y.nbytes, 0, 4)


class Rounding(Bare):
    segment = Rounded


seamline_providers = offer("writes_outside", lambda: Rounding("writes_outside"))
