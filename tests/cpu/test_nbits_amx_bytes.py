"""
Products in byte tiles: the same to the byte as those of vector code.

As for bfloat16, the instructions' definition over memory stands in for AMX where there is none.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from tests.cpu.packed_weights import BYTES, FLOATS, MIDDLE, packed
from tests.cpu.test_nbits_amx import TilesInMemory
from tests.cpu.test_vectors import assembly

from seamline_cpu.amx import Tiles
from seamline_cpu.instruction_sets import choose, lacking
from seamline_cpu.kernels import nbits_amx_bytes
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.kernels.nbits_product import Product, padded_bias
from seamline_cpu.vectors import I32, I64, vector


class BytesInMemory(TilesInMemory):
    """Tiles of ``rows`` of activations by a step of K, as they are configured."""

    def __init__(self, v, rows, step):
        super().__init__(v)
        self.rows, self.step = rows, step

    def _shape(self, tile):
        if tile < nbits_amx_bytes._LEFT:
            return self.rows, 16
        if tile == nbits_amx_bytes._LEFT:
            return self.rows, self.step // 4
        return self.step // 4, 16

    def _each(self, count, do):
        self.v.loop(self.v.constant(I64, count), [], lambda i, _: do(i) or [])

    def zero(self, tile):
        height, width = self._shape(tile)
        place, zero = self._place(tile), self.v.constant(vector(I32, width), 0)
        v = self.v
        self._each(height, lambda i: v.store(zero, v.add(place, v.times(i, 64))))

    def _copy(self, source, across, target, along, tile):
        v, (height, width) = self.v, self._shape(tile)
        across, along = (
            v.constant(I64, x) if isinstance(x, int) else x for x in (across, along)
        )

        def row(i):
            value = v.load(vector(I32, width), v.add(source, v.builder.mul(i, across)))
            v.store(value, v.add(target, v.builder.mul(i, along)))

        self._each(height, row)

    def load(self, tile, address, pitch=64):
        self._copy(address, pitch, self._place(tile), 64, tile)

    def store(self, tile, address, pitch=64):
        self._copy(self._place(tile), 64, address, pitch, tile)

    def multiply_bytes(self, sums, a, b):
        v, (height, width) = self.v, self._shape(a)
        left, right, out = (self._place(tile) for tile in (a, b, sums))

        def row(i):
            line = v.times(i, 64)

            def four(k, total):
                signed = v.load(I32, v.add(left, line, v.times(k, 4)))
                codes = v.load(vector(I32, 16), v.add(right, v.times(k, 64)))
                return [v.bytes_dot(total[0], codes, v.splat(signed, 16))]

            place = v.add(out, line)
            start = v.load(vector(I32, 16), place)
            v.store(v.loop(v.constant(I64, width), [start], four)[0], place)

        self._each(height, row)


MISSING = lacking("amx")
VECTORS = choose().variant


def products(weights, x, bias):
    """Multiply in tiles, and by vector code."""
    step = weights.form.step
    rows, _ = nbits_amx_bytes.tile_of(len(x))
    if MISSING is None:
        tiles, threads = ("amx", Tiles), 2
    else:
        stand_in = functools.partial(BytesInMemory, rows=rows, step=step)
        tiles, threads = (VECTORS, stand_in), 1  # its tiles are one thread's
    made = []
    for variant in ("amx", VECTORS):
        y = np.full((len(x), weights.n), np.nan, np.float32)
        added = padded_bias(bias, len(weights.data))
        product = Product(weights, variant, True, threads, tiles, bytes_from=2)
        run = product.bound(x, added, y)
        for _ in range(2):
            run()
        made.append(y)
    return made


@pytest.mark.parametrize(
    ("m", "n", "k", "form"),
    [
        (2, 70, 96, {"bits": 4, "block": 32, "zeros": MIDDLE}),
        (5, 33, 300, {"bits": 4, "block": 64, "zeros": BYTES}),
        (9, 17, 200, {"bits": 4, "block": 128, "zeros": FLOATS, "coarse": True}),
        (16, 40, 40, {"bits": 4, "block": 16, "zeros": BYTES}),
        (3, 65, 257, {"bits": 8, "block": 32, "zeros": BYTES}),
        (8, 20, 48, {"bits": 2, "block": 16, "zeros": MIDDLE}),
    ],
    ids=str,
)
def test_byte_tiles_give_the_bytes_of_vector_code(m, n, k, form):
    weights, w = packed(n, k, **form)
    x = np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)
    bias = np.arange(n, dtype=np.float32)
    tiles, vectors = products(weights, x, bias)
    assert tiles.tobytes() == vectors.tobytes()
    np.testing.assert_allclose(
        tiles, x.astype(float) @ w.T + bias, atol=2e-2 * np.sqrt(k) * np.abs(w).max()
    )


@pytest.mark.parametrize("m", [1, 2, 15, 16, 17, 31, 32, 33, 100])
def test_tiles_are_of_about_one_height_and_no_more_than_sixteen(m):
    rows, groups = nbits_amx_bytes.tile_of(m)
    assert rows <= min(m, 16)
    assert rows * groups <= 16  # sums that stay in registers
    assert -(-m // rows) == -(-m // 16)


def test_the_code_is_a_product_of_bytes_for_each_group_and_spills_nothing():
    def emit(v, *arguments):
        nbits_amx_bytes.emit(v, Tiles(v), Form(4, 32, False, MIDDLE), 8, 2, arguments)

    text = assembly("amx", "sapphirerapids", emit, 16)
    assert text.count("tdpbsud") == 2
    assert "call" not in text
    lines = [line for line in text.splitlines() if "zmm" in line]
    assert not [line for line in lines if "(%rsp)" in line]


def test_what_configures_tiles_says_their_rows_and_bytes():
    made = nbits_amx_bytes.byte_configuration(5, 32)
    assert made[0] == 1
    widths = made[16:32].view(np.uint16)
    assert list(zip(made[48:56], widths, strict=True)) == [
        (5, 64), (5, 64), (5, 64), (5, 64), (5, 32), (8, 64), (8, 64), (8, 64),
    ]  # fmt: skip
