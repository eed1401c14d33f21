"""A small model, and toys that fail where they are told to."""

from __future__ import annotations

import numpy as np
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy

f32 = np.float32
TEXT = """g (float[n] x) => (y) {
    [one] a = Neg(x)
    [two] b = Abs(a)
    [three] y = Add(b, x)
}"""


def wanted(x):
    return np.abs(-x) + x


def cpu(**chosen):
    """Give the provider that fallback turns to, by its name."""
    return Toy(definitions_table("cpu"), **chosen)


def failing_table(name, *, at):
    table = definitions_table(name, ops=("Neg", "Add"))
    switch = {"on": True}

    @table.kernel("Abs")
    def absolute(call):
        if switch["on"] and at == "bind":
            raise OddError("not today")

        def run():
            if switch["on"] and at == "run":
                raise OddError("not today")
            call.output(0)[...] = np.abs(call.input(0))

        return run

    return table, switch


class OddError(Exception):
    """No error of ours."""


class Raw(Toy):
    """Its segments fail with an error that names nothing."""

    fails = "run"

    def build(self, segment, context):
        if self.fails == "build":
            raise OddError("not today")
        made = super().build(segment, context)
        inner = made.run

        def run():
            if self.fails == "run":
                raise OddError("not today")
            return inner()

        made.run = run
        return made
