"""
Products by packed weights against float64, with bounds on both sides for each level.

Bits by block by zero point by element type, with N and K that are no multiple of anything,
for rows that take each kind of tile; in every variant that this processor has.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.packed_weights import BYTES, FLOATS, MIDDLE, error, packed, weights
from tests.cpu.test_vectors import assembly

from seamline_cpu.instruction_sets import lacking
from seamline_cpu.kernels import nbits_int8
from seamline_cpu.kernels.nbits_choice import VARIANTS, choice, is_exact, is_int8
from seamline_cpu.kernels.nbits_held import emit_held
from seamline_cpu.kernels.nbits_int8_held import emit_held_bytes
from seamline_cpu.kernels.nbits_layout import Form, Source, pack
from seamline_cpu.kernels.nbits_many import by_pieces
from seamline_cpu.kernels.nbits_plans import (
    MOST_HELD,
    Plan,
    holds_codes,
    pieces_of,
    plan,
    said_of_bytes,
)
from seamline_cpu.kernels.nbits_product import Product, padded_bias
from seamline_cpu.kernels.nbits_several import by_held_bytes
from seamline_cpu.row_tiles import HEIGHTS
from seamline_cpu.vectors import REGISTER

BF16 = ml_dtypes.bfloat16
BEST = choice(0, None).variant  #: of float32 products, which need no AMX
#: Forms of weights, and sizes whose remainders differ: (n, k, form).
FORMS = [
    (70, 96, {"bits": 4, "block": 32, "zeros": MIDDLE}),
    (33, 100, {"bits": 4, "block": 32, "zeros": BYTES, "coarse": True}),
    (17, 200, {"bits": 4, "block": 64, "zeros": FLOATS}),
    (130, 40, {"bits": 4, "block": 16, "zeros": MIDDLE, "coarse": True}),
    (1, 300, {"bits": 4, "block": 128, "zeros": BYTES}),
    (64, 600, {"bits": 4, "block": 512, "zeros": MIDDLE, "coarse": True}),
    (65, 47, {"bits": 8, "block": 16, "zeros": BYTES}),
    (40, 70, {"bits": 8, "block": 32, "zeros": MIDDLE, "coarse": True}),
    (31, 257, {"bits": 8, "block": 256, "zeros": FLOATS, "coarse": True}),
    (80, 48, {"bits": 2, "block": 16, "zeros": FLOATS, "coarse": True}),
    (49, 90, {"bits": 2, "block": 32, "zeros": BYTES}),
    (16, 128, {"bits": 2, "block": 128, "zeros": MIDDLE}),
]
ROWS = [1, 2, 5, 9]
MATRIX = pytest.mark.parametrize(("n", "k", "form"), FORMS, ids=str)


def here(variant):
    reason = lacking(variant)
    return pytest.param(
        variant, marks=pytest.mark.skipif(bool(reason), reason=str(reason))
    )


EVERY = pytest.mark.parametrize("variant", [here(v) for v in VARIANTS])


def rows_of(m, k, dtype=np.float32, seed=0):
    r = np.random.default_rng(seed + m)
    return r.standard_normal((m, k)).astype(dtype)


def product(weights, x, level, variant=None, bias=None, threads=2):
    """Multiply, twice, which must give the same bytes."""
    variant = variant or choice(level, None).variant
    y = np.frombuffer(bytearray(b"\xa5" * len(x) * weights.n * x.itemsize), x.dtype)
    y = y.reshape(len(x), weights.n)
    added = padded_bias(bias, len(weights.data))
    made = Product(weights, variant, is_int8(level), threads, is_exact(level))
    run = made.bound(x, added, y)
    run()
    first = y.copy()
    run()
    assert first.tobytes() == y.tobytes()
    return y


def in_eight_bits(x, k, block):
    """Give activations as level 4 keeps them: 8 bits for each step of K."""
    step = 32 if block % 32 == 0 else 16
    full = np.zeros((len(x), -(-k // step) * step), np.float32)
    full[:, :k] = x
    parts = full.reshape(len(x), -1, step)
    most = np.abs(parts).max(2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Halves of short floats are common: the product is rounded once, to whole.
        inverse = (np.float32(127) / most).astype(float)
        codes = np.rint(np.where(most > 0, parts.astype(float) * inverse, 0))
    kept = codes * (most.astype(float) / 127)
    return kept.reshape(len(x), -1)[:, :k]


@MATRIX
def test_float32_products_are_as_exact_as_float32(n, k, form):
    made, w = packed(n, k, **form)
    for m in ROWS:
        x = rows_of(m, k)
        got = product(made, x, 0, BEST)
        assert error(got, x.astype(float) @ w.T) < 1e-6, m


@MATRIX
def test_level_4_differs_from_float64_by_its_8_bits_and_no_more(n, k, form):
    made, w = packed(n, k, **form)
    variant = choice(
        0, None, tiles=False
    ).variant  # without AMX, whose error is another
    for m in (1, 2, 5, 9):
        x = rows_of(m, k)
        got = product(made, x, 4, variant)
        assert error(got, in_eight_bits(x, k, form["block"]) @ w.T) < 2e-6, m
        assert 2e-4 < error(got, x.astype(float) @ w.T) < 2e-2, m


@EVERY
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("zeros", [MIDDLE, BYTES])
def test_every_variant_that_is_here_gives_the_product(variant, level, zeros):
    made, w = packed(70, 100, zeros=zeros, coarse=True)
    for m in (1, 3, 7, 50):
        x = rows_of(m, 100)
        got = product(made, x, level, variant)
        assert error(got, x.astype(float) @ w.T) < (1e-6 if level == 0 else 1e-2), m


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("m", [1, 40])
def test_levels_below_4_never_take_activations_of_8_bits(level, m):
    made, w = packed(70, 96)
    x = rows_of(m, 96)
    got = product(made, x, level)
    bound = 4e-3 if level == 3 and choice(3, None).variant == "amx" else 1e-6
    assert error(got, x.astype(float) @ w.T) < bound


@pytest.mark.parametrize("dtype", [np.float16, BF16])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("k", [96, 77])
def test_16_bit_activations_lose_only_what_their_results_do(dtype, level, k):
    made, w = packed(70, k, dtype=dtype)
    ulp = 2.0**-11 if dtype == np.float16 else 2.0**-8
    for m in (1, 5, 9):
        x = rows_of(m, k, dtype)
        got = product(made, x, level, BEST)
        assert got.dtype == dtype
        want = x.astype(float) @ w.T
        if level == 4:
            want = in_eight_bits(x.astype(np.float32), k, 32) @ w.T
        np.testing.assert_allclose(
            got.astype(float), want, rtol=1.01 * ulp, atol=3e-6 * np.abs(want).max()
        )


@pytest.mark.parametrize("zeros", [MIDDLE, FLOATS])
@pytest.mark.parametrize("m", [1, 5, 40])
def test_scales_of_bfloat16_that_float16_has_not_are_kept_in_two_bytes(zeros, m):
    codes, scale, points, _ = weights(70, 96, zeros=zeros, dtype=BF16)
    scale[:, 0], scale[::2, 1] = 1e-9, 3e6
    made = pack(Source(codes, scale, points, 96, 4))
    assert made.form.half == "bfloat16"
    assert made.form.scale_nbytes == 32
    q = np.stack([codes & 15, codes >> 4], -1).reshape(70, 3, 32).astype(float)
    z = 8 if points is None else points.astype(float)[..., None]
    w = ((q - z) * scale.astype(float)[..., None]).reshape(70, 96)
    x = rows_of(m, 96)
    assert error(product(made, x, 0, BEST), x.astype(float) @ w.T) < 1e-6
    assert error(product(made, x, 4, BEST), x.astype(float) @ w.T) < 2e-2


@pytest.mark.parametrize(
    ("scale", "kept"), [(0.02, "float16"), (2.0**-26, "bfloat16"), (2.0**-26 / 3, "")]
)
def test_scales_are_kept_in_the_shortest_type_that_has_all_of_them(scale, kept):
    codes, scales, _, _ = weights(40, 64, coarse=True)
    scales[:] = np.float32(np.float16(scale)) if kept == "float16" else scale
    assert pack(Source(codes, scales, None, 64, 4)).form.half == kept


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("m", [1, 5])
def test_no_zero_point_is_one_of_8_to_the_byte(level, m):
    codes, scale, _, _ = weights(40, 96)
    points = np.full((40, 3), 8, np.uint8)
    x = rows_of(m, 96)
    without, with_8, beside = (
        pack(Source(codes, scale, z, 96, 4)) for z in (None, points, points.copy())
    )
    assert with_8.form == without.form
    points[39, 2] = 9  # one that differs keeps all
    beside = pack(Source(codes, scale, points, 96, 4))
    assert beside.form.zero == BYTES
    got = [product(p, x, level, BEST) for p in (without, with_8, beside)]
    assert got[0].tobytes() == got[1].tobytes()
    assert got[0][:, :39].tobytes() == got[2][:, :39].tobytes()


@pytest.mark.parametrize("m", [1, 2, 6, 20])
@pytest.mark.parametrize("zeros", [MIDDLE, BYTES, FLOATS])
def test_infinity_and_nan_do_what_float_arithmetic_says_at_level_0(m, zeros):
    made, w = packed(40, 80, zeros=zeros)
    x = rows_of(m, 80)
    x[0, 7] = np.inf
    if m > 1:
        x[1, 3], x[1, 70] = np.inf, -np.inf
    if m > 5:
        x[2, 79], x[4, 0] = np.nan, -np.inf
    got = product(made, x, 0, BEST)
    with np.errstate(invalid="ignore"):
        want = (x.astype(float)[:, None, :] * w[None]).sum(2)
    assert (np.isnan(want) | np.isinf(want)).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
    np.testing.assert_array_equal(np.isneginf(got), np.isneginf(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-3, atol=1e-4)


def test_a_nan_at_level_4_is_not_lost_and_stays_in_its_row():
    made, _ = packed(40, 80)
    x = rows_of(5, 80)
    want = product(made, x, 4, BEST)
    x[2, 50] = np.nan
    got = product(made, x, 4, BEST)
    assert np.isnan(got[2]).all()
    assert np.delete(got, 2, 0).tobytes() == np.delete(want, 2, 0).tobytes()
    x[2, 50] = np.inf
    assert not np.isfinite(product(made, x, 4, BEST)[2]).any()


@pytest.mark.parametrize("scale", [1e-35, 1e-30, 1e30])
def test_tiny_and_huge_activations_keep_their_size_at_level_4(scale):
    made, w = packed(40, 64)
    x = (rows_of(1, 64).astype(float) * scale).astype(np.float32)
    got = product(made, x, 4, BEST)
    assert error(got / scale, x.astype(float) / scale @ w.T) < 2e-2


@pytest.mark.parametrize("scale", [0.0, 1e-44, 1e-39, 1e-38, 1e-37])
def test_activations_too_small_for_127_steps_keep_to_the_smallest_there_is(scale):
    made, w = packed(40, 64)
    x = (rows_of(1, 64).astype(float) * scale).astype(np.float32)
    got = product(made, x, 4, BEST)
    step = 3.8e-37 / 127
    bound = (step / 2 * np.abs(w).sum(1) + np.abs(x) @ np.abs(w.T) / 127).max()
    assert np.abs(got - x.astype(float) @ w.T).max() <= bound


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 33), (5, 1), (64, 16)])
@pytest.mark.parametrize("m", [1, 5, 25])
def test_single_rows_and_columns_are_products_too(level, n, k, m):
    made, w = packed(n, k, block=16, bits=8)
    x, bias = rows_of(m, k), np.arange(n, dtype=np.float32)
    got = product(made, x, level, BEST, bias)
    atol = 1e-5 if level == 0 else 2e-2 * np.abs(w).max() * np.sqrt(k)
    np.testing.assert_allclose(got, x.astype(float) @ w.T + bias, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("m", [1, 40])
@pytest.mark.parametrize("level", [0, 4])
def test_the_number_of_threads_changes_no_byte(threads, m, level):
    made, _ = packed(1000, 512)
    x = rows_of(m, 512)
    want = product(made, x, level, BEST, threads=1)
    got = product(made, x, level, BEST, threads=threads)
    assert want.tobytes() == got.tobytes()


def in_pieces(made, x, bias=None, threads=2, variant=BEST, planned=None):
    y = np.full((len(x), made.n), np.nan, np.float32)
    added = padded_bias(bias, len(made.data))
    runs = by_pieces(
        made, x, "float32", added, y, threads, variant=variant, planned=planned
    )
    for _ in range(2):
        for run in runs:
            run()
    return y


@MATRIX
def test_pieces_that_are_unpacked_for_many_rows_give_the_product(n, k, form):
    made, w = packed(n, k, **form)
    bias = np.arange(n, dtype=np.float32)
    for m in (4, 5, 8, 19, 30):  # weights in registers, and unpacked
        x = rows_of(m, k)
        assert error(in_pieces(made, x, bias), x.astype(float) @ w.T + bias) < 1e-6, m


@pytest.mark.parametrize("rows", sorted(HEIGHTS[REGISTER[BEST]]))
def test_tiles_of_every_height_give_the_product_in_turns_of_any_size(rows):
    made, w = packed(75, 600)
    columns = pieces_of(BEST).wide * REGISTER[BEST]
    x = rows_of(2 * rows + 3, 600)
    want = in_pieces(
        made, x, threads=1, planned=Plan(True, rows, columns, 256, 8, 8 * rows)
    )
    assert error(want, x.astype(float) @ w.T) < 1e-6
    for per, high, threads in ((1, rows, 2), (2, 2 * rows, 3), (8, rows, 1)):
        planned = Plan(True, rows, columns, 256, per, high)
        got = in_pieces(made, x, threads=threads, planned=planned)
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("variant", ["avx512vnni", "avx2", "portable"])
def test_plans_divide_all_but_small_products_evenly(variant):
    for m in (6, 17, 64, 100, 128, 512, 2000):
        for n in (16, 64, 100, 576, 896, 4096, 4864):
            for threads in (1, 2, 5):
                made = plan(variant, m, n, 32, threads)
                assert made.high % made.rows == 0
                blocks, panels = -(-m // made.high), -(-n // made.columns)
                turns = blocks * -(-panels // made.per)
                tiles = -(-m // made.rows) * panels
                last = -(-turns // threads) * made.per * made.high // made.rows
                assert last * threads >= tiles
                if tiles >= 200 * threads:
                    assert last * threads <= 1.15 * tiles, (m, n, threads, made)


@pytest.mark.parametrize(
    ("variant", "cpu", "rows", "groups", "dots"),
    [
        ("avx512vnni", "sapphirerapids", 6, 2, 96),
        ("avx512vnni", "sapphirerapids", 1, 4, 32),
        ("avxvnni", "alderlake", 5, 1, 80),
        ("avxvnni", "alderlake", 6, 2, 192),  # more sums than registers
    ],
)
def test_a_tile_with_vnni_is_dots_of_bytes_and_calls_nothing(
    variant, cpu, rows, groups, dots
):
    def emit(v, *arguments):
        nbits_int8.emit(v, Form(4, 32, "", MIDDLE), rows, groups, arguments)

    text = assembly(variant, cpu, emit, 15)
    assert text.count("vpdpbusd") == dots  # 8 for each row and register of weights
    assert "call" not in text


@pytest.mark.parametrize(("rows", "groups"), [(26, 1), (16, 1), (8, 2)])
def test_weights_of_many_rows_are_found_once_and_stay_in_registers(rows, groups):
    def emit(v, *arguments):
        emit_held(v, Form(4, 32, False, MIDDLE), rows, groups, 1088, arguments)

    lines = assembly("avx512vnni", "sapphirerapids", emit, 13).splitlines()
    multiply = [i for i, line in enumerate(lines) if "vfmadd" in line]
    # A word holds eight codes; each is looked up for all rows at once.
    assert len(multiply) == 8 * rows * groups
    found = [line for line in lines if "vperm" in line]
    assert len(found) == 8 * groups
    loop = lines[multiply[0] : multiply[-1]]
    assert not [line for line in loop if "%rsp" in line]
    assert "call" not in "".join(lines)


def held_bytes(made, x, rows, bias=None, threads=2):
    y = np.full((len(x), made.n), np.nan, np.float32)
    added = padded_bias(bias, len(made.data))
    kind = str(x.dtype)
    runs = by_held_bytes(made, x, kind, added, y, threads, variant=BEST, rows=rows)
    for _ in range(2):
        for run in runs:
            run()
    return y


@pytest.mark.parametrize(("n", "k", "form"), [FORMS[i] for i in (1, 2, 3, 6)], ids=str)
def test_codes_that_stay_in_registers_give_what_dots_by_the_word_do(n, k, form):
    made, _ = packed(n, k, **form)
    bias = np.arange(n, dtype=np.float32)
    x = rows_of(7, k)  # two tiles of three, and one that begins earlier
    want = np.concatenate(
        [product(made, x[i : i + 1], 4, BEST, bias) for i in range(7)]
    )
    assert held_bytes(made, x, 3, bias).tobytes() == want.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_rows_that_threads_quantise_together_are_the_same_in_registers(threads, dtype):
    made, _ = packed(40, 6000)  # more than each would quantise for itself
    x = rows_of(11, 6000, dtype)
    wide = x.astype(np.float32)
    want = np.concatenate([product(made, row[None], 4, BEST) for row in wide])
    got = held_bytes(made, x, 3, threads=threads)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("zero", [MIDDLE, BYTES, FLOATS])
@pytest.mark.parametrize(("bits", "step"), [(4, 32), (4, 16), (8, 32), (2, 32)])
def test_codes_for_sixteen_rows_are_unpacked_once_and_stay_in_registers(
    bits, step, zero
):
    def emit(v, *arguments):
        emit_held_bytes(v, Form(bits, step, "", zero), MOST_HELD, arguments)

    target = "avx512vnni", "sapphirerapids"
    lines = assembly(*target, emit, 10, optimised=True).splitlines()
    dots = [i for i, line in enumerate(lines) if "vpdpbusd" in line]
    assert len(dots) == MOST_HELD * step // 4
    # A value goes to all lanes in the instruction that multiplies.
    assert all("{1to16}" in lines[i] for i in dots)
    loop = lines[dots[0] - 30 : dots[-1] + 30]
    assert not [line for line in loop if "%rsp" in line and "zmm" in line]
    assert "call" not in "".join(lines)


def test_codes_stay_in_registers_from_some_rows_on_where_there_are_thirty_two():
    assert [m for m in range(1, 12) if holds_codes("avx512vnni", m)] == [*range(7, 12)]
    assert "from 7 rows" in said_of_bytes("amx")
    for variant in ("avxvnni", "avx2", "portable"):
        assert not holds_codes(variant, 16)
        assert said_of_bytes(variant) == ""
