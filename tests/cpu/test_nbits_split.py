"""
Activations as sums of bfloat16 by codes as bfloat16: float32's own products, on AMX or in memory.

Where there is no AMX the same code is emitted with the instructions' definition in their place.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.packed_weights import BYTES, FLOATS, MIDDLE, error, packed
from tests.cpu.test_nbits_amx import EVERY, TilesInMemory
from tests.cpu.test_vectors import assembly

from seamline_cpu.amx import Tiles
from seamline_cpu.jit import jit
from seamline_cpu.kernels.nbits_choice import choice, is_exact
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.kernels.nbits_product import Product, padded_bias
from seamline_cpu.kernels.nbits_split import (
    FROM_ROWS,
    PARTS,
    emit_codes,
    emit_split,
    order_of,
    splits,
    splitter,
)
from seamline_cpu.kernels.nbits_split_product import PIECE, by_split_tiles
from seamline_cpu.kernels.nbits_split_tile import emit_split_product

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.float32


def product(weights, x, variant, tiles, bias=None, piece=PIECE):
    out = np.full((len(x), weights.n), np.nan, F32)
    added = padded_bias(bias, len(weights.data))
    threads = 1 if tiles is TilesInMemory else 2
    for run in by_split_tiles(
        weights, x, str(x.dtype), added, out, threads, variant=variant, tiles=tiles,
        piece=piece,
    ):  # fmt: skip
        run()
    return out


def rows_of(m, k, dtype=F32):
    return np.random.default_rng(m).standard_normal((m, k)).astype(dtype)


@EVERY
@pytest.mark.parametrize(
    "form",
    [
        {"bits": 4, "block": 32, "zeros": MIDDLE},
        {"bits": 4, "block": 64, "zeros": BYTES, "coarse": True},
        {"bits": 8, "block": 32, "zeros": BYTES},
        {"bits": 8, "block": 128, "zeros": MIDDLE},
        {"bits": 2, "block": 32, "zeros": BYTES},
        {"bits": 2, "block": 64, "zeros": MIDDLE},
    ],
    ids=str,
)
def test_sums_are_as_exact_as_those_of_float32(variant, tiles, form):
    for m, n, k in ((17, 40, 100), (33, 70, 224), (1, 64, 32)):
        weights, w = packed(n, k, **form)
        x, bias = rows_of(m, k), np.arange(n, dtype=F32) / 8
        got = product(weights, x, variant, tiles, bias)
        assert error(got, x.astype(float) @ w.T + bias) < 5e-7, (m, n, k)


@EVERY
def test_values_of_far_apart_sizes_keep_their_last_bits(variant, tiles):
    # Each row has one value whose 24 bits all count, beside zeros.
    weights, w = packed(16, 64)
    r = np.random.default_rng(5)
    x = np.zeros((40, 64), F32)
    values = r.integers(1 << 23, 1 << 24, 40) * 2.0 ** r.integers(-90, 60, 40)
    places = r.integers(0, 64, 40)
    x[np.arange(40), places] = values
    got = product(weights, x, variant, tiles).astype(float)
    want = x.astype(float) @ w.T
    # One rounding when codes are multiplied, one of the scale's product.
    np.testing.assert_allclose(got, want, rtol=2**-23, atol=0)


@EVERY
def test_rows_of_more_than_a_turn_and_k_of_more_than_a_piece(variant, tiles):
    k = 32 * 7 + 5
    weights, w = packed(33, k)
    x = rows_of(270, k)
    for piece in (32, 96, 128):
        got = product(weights, x, variant, tiles, piece=piece)
        assert error(got, x.astype(float) @ w.T) < 5e-7, piece


@EVERY
@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_activations_of_16_bits_have_fewer_parts_and_lose_nothing(
    variant, tiles, dtype
):
    weights, w = packed(40, 96)
    x = rows_of(20, 96, dtype)
    got = product(weights, x, variant, tiles)
    assert error(got, x.astype(float) @ w.T) < 5e-7


@EVERY
def test_infinity_and_nan_stay_in_their_rows_and_columns(variant, tiles):
    weights, w = packed(40, 64)
    x = rows_of(20, 64)
    x[3, 5], x[4, 6], x[5, 7] = np.inf, -np.inf, np.nan
    scales = weights.data[0, 1, -64:].view(F32)
    scales[2] = np.inf
    with np.errstate(invalid="ignore"):
        want = np.delete(x.astype(float) @ w.T, 2, 1)
    for _ in range(2):  # the second time over what the first left behind
        got = product(weights, x, variant, tiles)
        assert not np.isfinite(got[:, 2]).any()
        got = np.delete(got, 2, 1)
        np.testing.assert_array_equal(got[3:6], want[3:6])
        assert np.isfinite(np.delete(got, (3, 4, 5), 0)).all()


def split_rows(x, bits=4):
    """Give the parts of 16 rows by 32 of K, as float64, in the order of K."""
    kind = str(x.dtype)
    cut = splitter("portable", kind, bits)
    code = jit(lambda a, b, c, d, e: cut(a, b, c, d, e))
    out = np.zeros((PARTS[kind], 16, 32), BF16)
    code(x.ctypes.data, x.strides[0], len(x), x.shape[1], out.ctypes.data)
    made = np.zeros(out.shape, np.float64)
    made[:, :, order_of(bits)] = out.astype(np.float64)
    return made[:, : len(x), : x.shape[1]]


@pytest.mark.parametrize("dtype", [F32, np.float16, BF16])
def test_parts_add_up_to_the_value_itself(dtype):
    r = np.random.default_rng(0)
    for shape in ((16, 32), (3, 21)):
        x = (r.standard_normal(shape) * 2.0 ** r.integers(-20, 12, shape)).astype(dtype)
        parts = split_rows(x)
        np.testing.assert_array_equal(parts.sum(0), x.astype(np.float64))
        assert len(parts) == 1 or (parts[1] != 0).any()


def test_the_largest_the_smallest_and_what_is_no_number_are_split_too():
    top = np.finfo(F32).max
    quiet_low = np.array([0x7F800001], np.uint32).view(F32)[0]
    values = [top, -top, 2.0**-102, np.inf, -np.inf, np.nan, quiet_low, 0.0]
    parts = split_rows(np.array([values], F32))
    np.testing.assert_array_equal(parts[:, 0, :3].sum(0), values[:3])
    np.testing.assert_array_equal(parts[0, 0, 3:], [np.inf, -np.inf, *[np.nan] * 2, 0])
    assert (parts[1:, 0, 3:] == 0).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_order_of_k_has_each_once_and_pairs_the_halves_of_a_word(bits):
    order = order_of(bits)
    assert sorted(order) == list(range(32))
    apart = {high - low for low, high in zip(order[::2], order[1::2], strict=True)}
    assert apart == {16 // bits}


def test_what_is_not_a_whole_number_times_a_scale_is_not_split():
    assert splits(Form(4, 32, "", MIDDLE))
    assert splits(Form(8, 32, "float16", BYTES))
    assert not splits(Form(4, 32, "", FLOATS))
    assert not splits(Form(4, 16, "", MIDDLE))
    assert not splits(Form(4, 32, "", "nf4"))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_rows_from_some_on_are_split_where_float32_is_asked_for(level):
    weights, _ = packed(64, 64)
    made = Product(weights, "amx", False, 2, is_exact(level))
    assert made.way(FROM_ROWS) == "split"
    assert made.way(FROM_ROWS - 1) == "pieces"
    assert made.way(16) == "split"
    assert made.way(17) == "pieces"
    assert made.way(1) == "few"
    short, _ = packed(64, 64, block=16)
    assert Product(short, "amx", False, 2, exact=True).way(500) == "pieces"
    assert Product(weights, "avx512vnni", False, 2, exact=True).way(500) == "pieces"
    assert Product(weights, "amx", False, 2, is_exact(3)).way(500) == "tiles"


def test_the_choice_for_float32_says_how_many_rows_are_multiplied():
    because = choice(0, None).because
    assert (
        f"from {FROM_ROWS} rows on, and for 15 and 16, as sums of bfloat16, " in because
    )
    assert "float32 in registers" in because


def test_the_code_for_amx_uses_its_tiles_and_spills_no_sums():
    def emit(v, *args):
        emit_split(v, "float32", order_of(4), args[:5])
        emit_codes(v, Form(4, 32, "", MIDDLE), args[5:11])
        emit_split_product(v, Tiles(v), 3, args[11:])

    text = assembly("amx", "sapphirerapids", emit, 22)
    for name in ("tdpbf16ps", "tileloadd", "tilestored", "vpermw"):
        assert name in text, name
    assert "call" not in text
    # What is scaled comes from memory in the instruction that adds it up.
    scaled = [line for line in text.splitlines() if "vfmadd" in line]
    assert len(scaled) == 16
    assert all("(" in line for line in scaled)
    assert not any("zmm" in line and "(%rsp)" in line for line in text.splitlines())
