"""Loses its device for the whole process, as some errors of a driver do, at int8."""

import numpy as np

from seamline.errors import RunError
from seamline.hookspecs import hookimpl
from seamline.provider import ProviderSpec
from seamline_testing.twin.memory import TwinMemory
from seamline_testing.twin.provider import Twin

CONTRACT_VERSION = 1
lost = []


class Losing(TwinMemory):
    def write(self, target, source):
        if source.dtype == np.int8:
            lost.append(source)
        self.synchronize()
        super().write(target, source)

    def synchronize(self):
        if lost:
            raise RunError("the device is lost")
        super().synchronize()


class Loses(Twin):
    def __init__(self, options):
        super().__init__(options)
        self.name, self._memory = "loses", Losing(self.machine)


@hookimpl
def seamline_providers():
    return [ProviderSpec("loses", Loses)]
