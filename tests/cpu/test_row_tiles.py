"""Register tiles over rows at a constant pitch, against float64, cut at every edge."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.test_vectors import assembly

from seamline_cpu.jit import jit
from seamline_cpu.row_tiles import HEIGHTS, WIDEST, emit_row_tile, height, row_tile
from seamline_cpu.tiles import LANES
from seamline_cpu.vectors import REGISTER

PITCH = 4 * 80
R = np.random.default_rng(7)


def compiled(variant, rows, wide, lines=0):
    tile = row_tile(variant, rows, wide, PITCH, lines)
    return jit(lambda a, b, c, d, e, f, g, h, i: tile(a, b, c, d, e, f, g, h, i, b))


def checked(code, rows, columns, depth, high, there, given, pitch):
    """Run a tile; the rest of the output must stay as it was."""
    x = R.standard_normal((rows, PITCH // 4)).astype(np.float32)
    right = R.standard_normal((depth, columns)).astype(np.float32)
    y = np.full((rows + 2, columns + 5), 7, np.float32)
    start = given[:high, :there].astype(float) if pitch else given[0, :there]
    want = start + x[:high, :depth].astype(float) @ right[:, :there]
    code(
        x.ctypes.data, right.ctypes.data, depth, given.ctypes.data, pitch, y.ctypes.data,
        y.strides[0], high, there,
    )  # fmt: skip
    np.testing.assert_allclose(y[:high, :there], want, rtol=1e-5, atol=1e-5)
    assert (y[high:] == 7).all()
    assert (y[:, there:] == 7).all()


@pytest.mark.parametrize("rows", sorted(HEIGHTS[LANES]))
def test_a_tile_is_a_product_wherever_it_is_cut(rows):
    columns = 2 * LANES
    code = compiled(WIDEST, rows, 2, lines=4)
    given = R.standard_normal((rows, columns)).astype(np.float32)
    for high in sorted({1, rows - 1, rows}):
        for there in (1, LANES - 1, LANES, LANES + 3, columns):
            for depth in (1, 4, 31):
                # Exactly what is there may be read, and nothing past it.
                cut = np.ascontiguousarray(given[:high, :there])
                checked(code, rows, columns, depth, high, there, cut, cut.strides[0])
                checked(code, rows, columns, depth, high, there, cut[:1], 0)


def test_tiles_of_four_registers_of_four_lanes_are_products_too():
    (rows,) = HEIGHTS[4]
    code = compiled("portable", rows, 4)
    given = np.zeros((1, 16), np.float32)
    for high, there, depth in ((rows, 16, 40), (1, 5, 7), (2, 16, 3)):
        checked(code, rows, 16, depth, high, there, given[:, :there], 0)


def test_rows_that_fill_a_tile_up_are_not_seen_where_they_are_not_finite():
    rows = max(HEIGHTS[LANES])
    x = np.full((rows, PITCH // 4), np.nan, np.float32)
    x[0] = 1
    right = np.ones((8, 2 * LANES), np.float32)
    y = np.zeros((rows, 2 * LANES), np.float32)
    zeros = np.zeros(2 * LANES, np.float32)
    compiled(WIDEST, rows, 2)(
        x.ctypes.data, right.ctypes.data, 8, zeros.ctypes.data, 0, y.ctypes.data,
        y.strides[0], 1, 2 * LANES,
    )  # fmt: skip
    assert (y[0] == 8).all()
    assert (y[1:] == 0).all()


@pytest.mark.parametrize(
    ("variant", "cpu", "rows"),
    [("avx512vnni", "sapphirerapids", h) for h in HEIGHTS[16]]
    + [("avx2", "haswell", h) for h in HEIGHTS[8]],
)
def test_sums_stay_in_registers_from_the_first_multiplication_to_the_last(
    variant, cpu, rows
):
    text = assembly(
        variant, cpu, lambda v, *a: emit_row_tile(v, rows, 2, PITCH, a, 2), 10
    )
    lines = text.splitlines()
    multiply = [i for i, line in enumerate(lines) if "vfmadd" in line]
    # Four of K in a turn, and one in the turns of what is left.
    assert len(multiply) == 5 * 2 * rows
    loop = lines[multiply[0] : multiply[4 * 2 * rows - 1]]
    assert not [line for line in loop if "%rsp" in line]
    assert text.count("prefetcht1") == 2
    assert "call" not in text


@pytest.mark.parametrize("lanes", sorted(HEIGHTS))
def test_heights_waste_little_of_any_number_of_rows(lanes):
    for rows in range(1, 600):
        h = height(rows, lanes)
        assert h in HEIGHTS[lanes]
        least = min(-(-rows // other) * other for other in HEIGHTS[lanes])
        assert -(-rows // h) * h <= 1.06 * least
    assert set(REGISTER.values()) == set(HEIGHTS)
