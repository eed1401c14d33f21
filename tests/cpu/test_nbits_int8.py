"""Dots of packed codes by the word: what memory a tile asks for ahead of its reading."""

from __future__ import annotations

import pytest

from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.kernels import nbits_int8
from seamline_cpu.kernels.nbits_tiles import AHEAD
from seamline_cpu.vectors import Vectors

RECORD = 320


def ahead_of(groups):
    def asked(context, at, across):
        def generate(context, builder, signature, args):
            return nbits_int8._ahead(Vectors(builder, "portable"), *args, groups)

        return types.int64(types.int64, types.int64), generate

    asked = native(asked)

    @jit
    def ahead(at, across):
        return asked(at, across)

    return ahead


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("blocks", [5, 28, 128])
def test_a_panel_asks_for_its_own_records_then_for_the_next_panels_and_no_others(
    groups, blocks
):
    across, ahead = blocks * RECORD, ahead_of(groups)
    asked = [
        group * across + at + ahead(at, across)
        for group in range(groups)
        for at in range(0, across, RECORD)
    ]
    own = range(groups * across)
    beside = set(range(0, groups * across, RECORD)) - set(asked)
    # Only a group's first records are not asked for: the panel before this one has done so.
    assert {at % across for at in beside} == set(range(0, min(AHEAD, across), RECORD))
    next_ones = sorted(at for at in asked if at not in own)
    assert next_ones == sorted(
        (groups + group) * across + at
        for group in range(groups)
        for at in range(0, min(AHEAD, across), RECORD)
    )
