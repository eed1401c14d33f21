"""QuantizeLinear and DequantizeLinear as formulas: the definition, then onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cuda.emulation import check as session_check
from tests.cuda.emulation import peer
from tests.cuda.plain import groups_of, run
from tests.cuda.test_formulas import refusal

drawn = np.random.default_rng(31)
NAMES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}  # fmt: skip


def spread(values, rank, axis):
    """Lay a scale or zero point along an axis."""
    if np.size(values) == 1:
        return np.reshape(values, ())
    return np.reshape(values, [-1 if at == axis % rank else 1 for at in range(rank)])


def quantized(x, scale, zero, dtype, axis=1):
    """Give codes by the definition; the quotient in the scale's type."""
    low, high = ENDS[dtype]
    quotient = x.astype(scale.dtype) / spread(scale, x.ndim, axis)
    moved = np.rint(quotient.astype(float)) + spread(zero, x.ndim, axis).astype(float)
    return np.clip(np.where(np.isnan(moved), low, moved), low, high).astype(dtype)


SIZES = {
    "a scale for all": ((3, 5, 7), (), 1),
    "a scale for all that has an axis": ((3, 5, 7), (1,), 1),
    "a scale for each of the middle": ((3, 5, 7), (5,), 1),
    "a scale for each of the first": ((3, 5, 7), (3,), 0),
    "a scale for each of the last, from the back": ((3, 5, 7), (7,), -1),
    "a vector, whose axis is the default": ((6,), (6,), 1),
    "a scalar": ((), (), 1),
    "nothing": ((0, 5), (5,), 1),
}


def sizes_text(sizes):
    return f"[{','.join(map(str, sizes))}]" if sizes else ""


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", ENDS)
def test_codes_are_quotients_rounded_to_even_moved_and_saturated(name, dtype):
    sizes, many, axis = SIZES[name]
    text = f"""g (float{sizes_text(sizes)} x, float{sizes_text(many)} s, {dtype}{sizes_text(many)} z)
        => ({dtype}{sizes_text(sizes)} y) {{ y = QuantizeLinear<axis = {axis}>(x, s, z) }}"""
    x = (drawn.standard_normal(sizes) * 50).astype(np.float32)
    scale = (drawn.random(many) + 0.25).astype(np.float32)
    zero = drawn.integers(*ENDS[dtype], many).astype(dtype)
    got = run(text, {"x": x, "s": scale, "z": zero})["y"]
    np.testing.assert_array_equal(got, quantized(x, scale, zero, dtype, axis), strict=True)  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", [*ENDS, "int32"])
def test_values_are_exact_differences_times_the_scale_rounded_once(name, dtype, kind):
    sizes, many, axis = SIZES[name]
    ends = ENDS.get(dtype, (-(2**31), 2**31 - 1))
    text = f"""g ({dtype}{sizes_text(sizes)} x, {kind}{sizes_text(many)} s, {dtype}{sizes_text(many)} z)
        => ({kind}{sizes_text(sizes)} y) {{ y = DequantizeLinear<axis = {axis}>(x, s, z) }}"""
    x = drawn.integers(*ends, sizes).astype(dtype)
    scale = (drawn.random(many) / 2**20 + 2**-20).astype(NAMES[kind])
    zero = drawn.integers(*ends, many).astype(dtype) // (2 if dtype == "int32" else 1)
    got = run(text, {"x": x, "s": scale, "z": zero})["y"]
    whole = x.astype(np.int64) - spread(zero, x.ndim, axis).astype(np.int64)
    want = whole.astype(np.float32) * spread(scale, x.ndim, axis).astype(np.float32)
    np.testing.assert_array_equal(got, want.astype(NAMES[kind]), strict=True)


def test_ties_go_to_even_and_what_is_no_number_to_the_least_code():
    text = "g (float[9] x, float s) => (uint8[9] y) { y = QuantizeLinear(x, s) }"
    x = np.array([0.5, 1.5, 2.5, -3, 254.5, 255.5, np.inf, -np.inf, np.nan], np.float32)
    got = run(text, {"x": x, "s": np.float32(1)})["y"]
    assert got.tolist() == [0, 2, 2, 0, 254, 255, 255, 0, 0]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_quotient_is_rounded_to_the_scales_type_or_the_one_asked_for(kind):
    """The quotient of 16 bits is a tie; in float32 it is not."""
    x, scale = np.array([2049, 301, 7], NAMES[kind]), np.array(3, NAMES[kind])
    text = f"g ({kind}[3] x, {kind} s, int16 z) => (int16[3] y) {{ y = QuantizeLinear(x, s, z) }}"
    feeds = {"x": x, "s": scale, "z": np.int16(5)}
    got = run(text, feeds)["y"]
    assert got.tolist() == quantized(x, scale, np.int16(5), "int16").tolist()
    got = run(text.replace("Linear(", "Linear<precision = 1>("), feeds)["y"]
    wide = quantized(x.astype(np.float32), scale.astype(np.float32), np.int16(5), "int16")  # fmt: skip
    assert got.tolist() == wide.tolist()


def test_neighbours_join_it_and_a_scale_that_is_read_two_ways_parts_them():
    text = """g (int8[4,4] x, float[4] s) => (float[4,4] y)
        { a = DequantizeLinear<axis = 0>(x, s)  b = Relu(a)
          c = DequantizeLinear<axis = 1>(x, s)  y = Add(b, c) }"""
    assert [len(group.nodes) for group in groups_of(text)] == [2, 2]
    x = drawn.integers(-100, 100, (4, 4)).astype(np.int8)
    s = drawn.random(4).astype(np.float32)
    want = np.maximum(x * s[:, None], 0) + x * s
    np.testing.assert_array_equal(run(text, {"x": x, "s": s})["y"], want)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_convolution_between_both_is_right_in_a_session(oracle):
    text = """g (float[1,3,8,8] x) => (float[1,4,6,6] y)
        <float s = {0.05}, int8 z = {3}, float[4] t = {0.01, 0.02, 0.005, 0.03},
         int8[4] o = {0, 0, 0, 0}, float u = {0.5}, uint8 v = {120}>
        { q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)
          w = ConstantOfShape<value = int8[1] {7}>(f)  b = DequantizeLinear<axis = 0>(w, t, o)
          c = Conv(a, b)  d = QuantizeLinear(c, u, v)  y = DequantizeLinear(d, u, v) }"""
    text = text.replace("<float s", "<int64[4] f = {4, 3, 3, 3}, float s")
    x = drawn.standard_normal((1, 3, 8, 8)).astype(np.float32)
    # A sum that falls between two codes may be either: one step.
    session_check(text, {"x": x}, oracle=oracle, opset=21, atol=0.5 + 1e-5)


REFUSED = {
    "blocks": ("g (int8[4,8] x, float[4,2] s) => (float[4,8] y) { y = DequantizeLinear<block_size = 4>(x, s) }", "for each of an axis is accepted"),
    "4 bits": ("g (int4[8] x, float s) => (float[8] y) { y = DequantizeLinear(x, s) }", "int4"),
    "a scale of other places": ("g (int8[4,8] x, float[4] s) => (float[4,8] y) { y = DequantizeLinear(x, s) }", "along axis 1"),
    "float8": ("g (float[8] x, float s, float8e5m2 z) => (float8e5m2[8] y) { y = QuantizeLinear(x, s, z) }", "float8_e5m2"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_what_would_be_accepted(what):
    text, why = REFUSED[what]
    assert why in refusal(text)
