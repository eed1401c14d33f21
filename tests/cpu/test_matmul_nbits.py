"""MatMulNBits of 2, 4 and 8 bits: blocks, short last blocks, odd packed zero points."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import agrees, give, gives, peer

from seamline.errors import BuildError

R = np.random.default_rng(41)
CONTRIB = "com.microsoft"


def pack(codes, bits):
    """Pack the last axis into bytes, low bits first."""
    each = 8 // bits
    out = np.zeros((*codes.shape[:-1], codes.shape[-1] // each), np.uint8)
    for i in range(each):
        out |= (codes[..., i::each] << (bits * i)).astype(np.uint8)
    return out


def quantized(n, k, block, bits, zeros, dtype=np.float32):
    """Give packed weights, scales, zero points, and the weights; fillers are random."""
    blocks, top = -(-k // block), 1 << bits
    q = R.integers(0, top, (n, blocks, block))
    scale = (R.integers(1, 5, (n, blocks)) / 4).astype(dtype)
    z = np.full((n, blocks), top // 2, np.float64)
    points = None
    if zeros == "packed":
        whole = -(-blocks * bits // 8) * 8 // bits
        every = R.integers(0, top, (n, whole))
        z, points = every[:, :blocks], pack(every, bits)
    elif zeros == "float":
        z = R.integers(0, 4 * top, (n, blocks)) / 4
        points = z.astype(dtype)
    w = (q - z[..., None]) * scale.astype(np.float64)[..., None]
    return pack(q, bits), scale, points, w.reshape(n, -1)[:, :k]


def node(k, n, block, bits, **more):
    return dict(domain=CONTRIB, K=k, N=n, block_size=block, bits=bits, **more)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    ("k", "block"),
    [(96, 32), (40, 32), (33, 16), (20, 16), (100, 64), (130, 128), (7, 16)],
)
@pytest.mark.parametrize("zeros", [None, "packed", "float"])
def test_few_rows_and_many_agree_and_nothing_past_k_is_used(bits, k, block, zeros):
    packed, scale, points, w = quantized(5, k, block, bits, zeros)
    inputs = [packed, scale] + ([] if points is None else [points])
    for rows in (1, 2, 17):
        a = R.integers(-3, 4, (rows, k)).astype(np.float32)
        want = (a @ w.T).astype(np.float32)
        fixed = tuple(range(1, 1 + len(inputs)))
        gives(
            "MatMulNBits",
            [a, *inputs],
            want,
            fixed=fixed,
            atol=1e-3,
            rtol=1e-5,
            **node(k, 5, block, bits),
        )


def test_scales_and_zero_points_may_be_flat():
    packed, scale, points, w = quantized(5, 96, 32, 4, "packed")
    a = R.integers(-3, 4, (2, 96)).astype(np.float32)
    given = [a, packed, scale.ravel(), points.ravel()]
    gives(
        "MatMulNBits",
        given,
        (a @ w.T).astype(np.float32),
        atol=1e-4,
        **node(96, 5, 32, 4),
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, 20])
def test_half_precision_is_summed_in_float32(dtype, rows):
    packed, scale, points, w = quantized(6, 64, 16, 4, "packed", dtype)
    a = R.integers(-3, 4, (rows, 64)).astype(dtype)
    want = (a.astype(np.float64) @ w.T).astype(dtype)
    gives("MatMulNBits", [a, packed, scale, points], want, **node(64, 6, 16, 4))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [None, "packed"])
def test_g_idx_says_whose_scale_each_of_k_has(bits, zeros):
    packed, scale, points, _ = quantized(5, 100, 32, bits, zeros)
    groups = R.integers(0, 4, 100).astype(np.int32)  # blocks of unlike sizes
    each = 8 // bits
    q = (packed[..., None] >> (np.arange(each) * bits)) & ((1 << bits) - 1)
    z = np.full((5, 4), 1 << (bits - 1))
    if points is not None:
        z = (points[..., None] >> (np.arange(each) * bits)) & ((1 << bits) - 1)
        z = z.reshape(5, -1)[:, :4]
    w = (q.reshape(5, -1)[:, :100] - z[:, groups].astype(float)) * scale[:, groups]
    for rows in (1, 9):
        a = R.integers(-3, 4, (rows, 100)).astype(np.float32)
        want = (a @ w.T).astype(np.float32)
        given = [a, packed, scale, points, groups]
        form = node(100, 5, 32, bits)
        gives("MatMulNBits", given, want, fixed=(1, 2, 3, 4), atol=1e-3, **form)


def test_a_g_idx_outside_of_the_blocks_is_an_error_that_names_it():
    packed, scale, _, _ = quantized(5, 64, 32, 4, None)
    groups = np.full(64, 2, np.int32)
    given = [np.ones((1, 64), np.float32), packed, scale, None, groups]
    with pytest.raises(BuildError, match="2 to 2, and there are 2 blocks"):
        give(
            "MatMulNBits", given, np.zeros((1, 5), np.float32),
            constant=(1, 2, 4), **node(64, 5, 32, 4),
        )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 20])
def test_a_bias_is_added_behind_inputs_left_out(rows):
    packed, scale, _, w = quantized(6, 64, 32, 8, None)
    a, bias = (
        R.integers(-3, 4, (rows, 2, 64)).astype(np.float32),
        R.integers(-9, 9, 6).astype(np.float32),
    )
    want = (a @ w.T + bias).astype(np.float32)
    gives(
        "MatMulNBits",
        [a, packed, scale, None, None, bias],
        want,
        atol=1e-2,
        **node(64, 6, 32, 8),
    )


def test_an_omitted_projection_is_its_bias():
    a, bias = np.ones((2, 64), np.float32), np.arange(6, dtype=np.float32)
    b, scale = np.zeros((0, 2, 16), np.uint8), np.zeros(0, np.float32)
    form = node(64, 6, 32, 4)
    gives("MatMulNBits", [a, b, scale, None, None, bias], np.tile(bias, (2, 1)), **form)
    gives("MatMulNBits", [a, b, scale], np.zeros((2, 6), np.float32), **form)


def test_what_is_not_implemented_is_refused_by_name():
    a, b, s = (
        np.ones((1, 64), np.float32),
        np.zeros((6, 2, 16), np.uint8),
        np.ones((6, 2), np.float32),
    )
    y = np.zeros((1, 6), np.float32)
    with pytest.raises(NotImplementedError, match="3 bits"):
        give("MatMulNBits", [a, b, s], y, **node(64, 6, 32, 3))
    with pytest.raises(NotImplementedError, match="blocks of 8"):
        give("MatMulNBits", [a, b, s], y, **node(64, 6, 8, 4))
    with pytest.raises(NotImplementedError, match="another device"):
        give("MatMulNBits", [a, b, s], y, **node(64, 6, 32, 4, weight_prepacked=1))


@pytest.mark.parametrize("zeros", [None, "packed"])
@pytest.mark.parametrize("rows", [1, 30])
def test_onnxruntime_agrees_on_larger_weights(zeros, rows):
    packed, scale, points, _ = quantized(300, 352, 32, 4, zeros)
    a = R.standard_normal((rows, 352)).astype(np.float32)
    inputs = [a, packed, scale] + ([] if points is None else [points])
    form = node(352, 300, 32, 4, accuracy_level=1)
    agrees("MatMulNBits", inputs, rtol=1e-4, atol=1e-2, **form)
    assert peer("MatMulNBits", inputs, opset=23, **form)[0].shape == (rows, 300)
