"""Products with weights that a DequantizeLinear would have made: every type and layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import give
from tests.cpu.packed_weights import error

from seamline_cpu.instruction_sets import INT8, lacking
from seamline_cpu.kernels.nbits_codebooks import CODEBOOKS, WHOLE
from seamline_cpu.kernels.nbits_layout import Source, pack
from seamline_cpu.kernels.nbits_product import Product, padded_bias

R = np.random.default_rng(3)
F = np.float32
E2M1 = np.array(CODEBOOKS["e2m1"])
RANGES = {"int2": (-2, 2), "uint2": (0, 4), "int4": (-8, 8), "uint4": (0, 16),
          "int8": (-128, 128), "uint8": (0, 256)}  # fmt: skip


def scale_of(shape, dtype):
    if dtype == "float8_e8m0fnu":
        return np.exp2(R.integers(-6, 3, shape)).astype(ml_dtypes.float8_e8m0fnu)
    return R.uniform(0.01, 0.03, shape).astype(
        getattr(np, dtype, None) or ml_dtypes.bfloat16
    )


def weights(
    n, k, kind="int4", block=0, points=False, turned=False, scale="float32", by="column"
):
    """Give codes, scale, zero point, attributes, and the N by K matrix."""
    blocks = -(-k // block) if block else 1
    if kind == "float4_e2m1fn":
        bits = R.integers(0, 16, (n, k))
        q = E2M1[bits]
    else:
        q = R.integers(*RANGES[kind], (n, k)).astype(float)
    shape = (n, blocks) if block else (n,) if by == "column" else ()
    s = scale_of(shape, scale)
    z = R.integers(*RANGES[kind], shape) if points else np.zeros(shape)
    whole = [np.asarray(x).astype(float) for x in (s, z)]
    if block:
        whole = [np.repeat(x, block, axis=1)[:, :k] for x in whole]
    elif by == "column":
        whole = [x[:, None] for x in whole]
    w = (q - whole[1]) * whole[0]
    dtype = np.dtype(getattr(np, kind, None) or getattr(ml_dtypes, kind))
    q, z = q.astype(F).astype(dtype), np.asarray(z).astype(F).astype(dtype)
    if not turned:
        q = np.ascontiguousarray(q.T)
        s, z = (np.ascontiguousarray(x.T) if block else x for x in (s, z))
    axis = (1 if turned else 0) if block else (0 if turned else 1)
    given = {
        "axis": axis,
        "transB": int(turned),
        **({"block_size": block} if block else {}),
    }
    return q, s, z if points else None, given, w


def product(n, k, rows=3, dtype=F, level=0, bias=False, **form):
    """Give what the kernel gives, and the definition's result."""
    q, s, z, given, w = weights(n, k, **form)
    a = R.standard_normal((rows, k)).astype(dtype)
    b = R.standard_normal(n).astype(dtype) if bias else None
    like = np.zeros((rows, n), dtype)
    inputs = [a, q, s, z, b]
    constant = [i for i in (1, 2, 3, 4) if inputs[i] is not None]
    (y,) = give("DequantizedMatMul", inputs, like, constant=constant, domain="seamline",
                accuracy_level=level, **given)  # fmt: skip
    return y, a.astype(float) @ w.T + (0 if b is None else b.astype(float))


@pytest.mark.parametrize("kind", [*RANGES, "float4_e2m1fn"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("block", [0, 32])
def test_weights_of_every_type_and_either_layout(kind, turned, block):
    for points in (False, True) if kind in RANGES else (False,):
        got, want = product(
            40, 96, kind=kind, turned=turned, block=block, points=points
        )
        assert error(got, want) < 2e-6


@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16", "float8_e8m0fnu"])
def test_scales_of_every_type(scale):
    for kind in ("int4", "float4_e2m1fn"):
        got, want = product(70, 64, kind=kind, block=32, scale=scale)
        assert error(got, want) < 2e-6


@pytest.mark.parametrize(
    ("k", "block"), [(100, 32), (70, 16), (33, 64), (47, 0), (16, 16), (600, 48)]
)
@pytest.mark.parametrize("rows", [1, 17])
def test_k_that_is_no_multiple_of_a_block(k, block, rows):
    got, want = product(
        20, k, rows=rows, block=block, points=True, kind="uint4", bias=True
    )
    assert error(got, want) < 2e-6


def test_one_scale_for_all():
    got, want = product(20, 64, kind="int8", by="tensor", points=True)
    assert error(got, want) < 2e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits(dtype):
    got, want = product(40, 96, dtype=dtype, block=32, scale="float16")
    assert error(got, want) < (1e-3 if dtype == np.float16 else 8e-3)


@pytest.mark.parametrize("kind", ["int4", "uint8", "float4_e2m1fn"])
@pytest.mark.parametrize("block", [16, 32])
def test_level_4_quantises_activations(kind, block):
    for rows in (1, 5):
        got, want = product(40, 96, rows=rows, kind=kind, block=block, level=4)
        assert 1e-4 < error(got, want) < 2e-2


VECTORS = [v for v in INT8 if lacking(v) is None]


@pytest.mark.parametrize("variant", VECTORS)
@pytest.mark.parametrize("table", list(CODEBOOKS))
def test_every_variant_looks_every_code_up(variant, table):
    codes = R.integers(0, 256, (70, 3, 16)).astype(np.uint8)
    scale = R.uniform(0.5, 1.5, (70, 3)).astype(F)
    q = np.stack([codes & 15, codes >> 4], -1).reshape(70, 3, 32)
    assert np.unique(q).size == 16
    w = (np.array(CODEBOOKS[table])[q] * scale[..., None].astype(float)).reshape(70, 96)
    packed = pack(Source(codes, scale, None, 96, 4, table=table))
    for rows in (1, 3, 9):
        # Whole numbers up to 127, one of them in each step: nothing is lost in 8 bits.
        x = R.integers(-127, 128, (rows, 96)).astype(F)
        x[:, ::32] = 127
        y = np.empty((rows, 70), F)
        bias = padded_bias(None, len(packed.data))
        for int8 in (False, True) if table in WHOLE else (False,):
            Product(packed, variant, int8, 1).bound(x, bias, y)()
            assert error(y, x.astype(float) @ w.T) < 2e-6


def test_sums_of_the_greatest_bytes_do_not_overflow():
    """Thirty-two products of 12 and 127, of either sign, as 8-bit sums see them."""
    codes = np.tile(np.array([[[0x77] * 16]], np.uint8), (64, 1, 1))
    codes[1::2] = 0xFF
    packed = pack(Source(codes, np.ones((64, 1), F), None, 32, 4, table="e2m1"))
    want = np.where(np.arange(64) % 2, -1, 1) * 6 * 127 * 32
    for variant in VECTORS:
        for sign in (1, -1):
            x, y = np.full((1, 32), 127.0 * sign, F), np.empty((1, 64), F)
            bias = padded_bias(None, len(packed.data))
            Product(packed, variant, True, 1).bound(x, bias, y)()
            np.testing.assert_allclose(y[0], sign * want, rtol=1e-6)
