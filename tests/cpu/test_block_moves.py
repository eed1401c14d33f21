"""Blocks of rows, copied and thinned out: every length around a vector's, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from seamline_cpu.block_moves import copy_block, fill_floats, thin_block, thin_rows

ROWS, PITCH, TARGET = 3, 64, 40


@pytest.mark.parametrize("count", [*range(1, 19), 24, 31])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_rows_are_moved_and_what_lies_beside_them_is_left(count, step):
    source = np.full((ROWS, PITCH), np.nan, np.float32)
    width = (count - 1) * step + 1
    if width > PITCH:
        source = np.full((ROWS, width), np.nan, np.float32)
    given = np.random.default_rng(count).normal(size=(ROWS, count)).astype(np.float32)
    source[:, :width:step] = given
    target = np.zeros((ROWS, TARGET), np.float32)
    places = source.ctypes.data, source.strides[0], target.ctypes.data + 4, 4 * TARGET
    if step == 1:
        copy_block(*places, ROWS, count)
    elif step == 2:
        thin_block(*places, ROWS, count)
    else:
        thin_rows(*places, ROWS, count, step)
    want = np.zeros_like(target)
    want[:, 1 : 1 + count] = given
    np.testing.assert_array_equal(target, want)


@pytest.mark.parametrize("move", [copy_block, thin_block], ids=["copied", "thinned"])
def test_no_rows_are_none(move):
    target = np.ones(8, np.float32)
    move(target.ctypes.data, 4, target.ctypes.data, 4, 0, 8)
    np.testing.assert_array_equal(target, 1)


def test_a_fill_writes_as_many_floats_as_it_says():
    target = np.zeros(9, np.float32)
    fill_floats(target.ctypes.data, 7, np.float32(-np.inf))
    np.testing.assert_array_equal(target, [-np.inf] * 7 + [0] * 2)
