"""Operators that move data, on a device: the cases of the emulation, and larger ones."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.held import Case, hold
from tests.cuda.move_cases import indices, padding, resizing, slicing
from tests.cuda.test_moves import CASES

LARGE = {
    "squares": Case(
        "g (float[3,517,263] x) => (float[3,263,517] y) { y = Transpose<perm = [0,2,1]>(x) }"
    ),
    "squares of halves": Case(
        "g (float16[1030,777] x) => (float16[777,1030] y) { y = Transpose(x) }"
    ),
    "squares of bytes": Case(
        "g (int8[333,2,1025] x) => (int8[1025,2,333] y) { y = Transpose(x) }"
    ),
    "heads": Case(
        "g (float16[4,384,12,64] x) => (float16[4,12,384,64] y) { y = Transpose<perm = [0,2,1,3]>(x) }"
    ),
    "columns": slicing("float16", "[1000,999]", "[500,333]", [-1, 0], [-9999, 999], [0, 1], [-2, 3]),
    "rows by index": Case(
        "g (float16[30000,96] x, int64[70,90] i) => (float16[70,90,96] y) { y = Gather(x, i) }",
        indices("i", (70, 90), -30000, 30000),
    ),
    "tuples": Case(
        "g (float[300,40,64] x, int64[5000,2] i) => (float[5000,64] y) { y = GatherND(x, i) }",
        indices("i", (5000, 2), -40, 40),
    ),
    "sums by index": Case(
        'g (float[100,256] x, int64[3000,1] i, float[3000,256] u) => (float[100,256] y) { y = ScatterND<reduction = "add">(x, i, u) }',
        indices("i", (3000, 1), -100, 100),
        rtol=1e-4,
    ),
    "a reflected image": padding(
        "float", "[2,3,200,300]", "[2,3,207,311]", [0, 0, 3, 5, 0, 0, 4, 6], "reflect"
    ),
    "a larger image": resizing(
        "float", "[1,3,120,90]", "[1,3,240,225]", "linear", to=[1, 3, 240, 225]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_move_on_the_device_is_what_the_standard_says(name):
    hold(CASES[name])


@pytest.mark.parametrize("name", LARGE)
def test_a_move_over_many_blocks_is_what_the_standard_says(name):
    _, events = hold(LARGE[name], verify_capture=1)
    assert events == [["recorded", "verified"]]


def test_a_tensor_moved_there_and_back_is_the_same():
    case = Case(
        "g (float16[5,70,3,131] x) => (float16[5,70,3,131] y) "
        "{ t = Transpose<perm = [3,1,0,2]>(x)  y = Transpose<perm = [2,1,3,0]>(t) }",
        want=lambda feeds: {"y": np.array(feeds["x"])},
    )
    hold(case)
