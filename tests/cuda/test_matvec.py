"""One vector times a matrix: kernels by their text, over sizes that are even and odd."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cuda.emulation import check, drawn, opened, peer, run_kernel

from seamline_cuda import vector_products
from seamline_cuda.vector_texts import adding_kernel, columns_kernel, rows_kernel

spread = np.random.default_rng(8)


def multiplied(_, feeds):
    a, b = feeds["a"], feeds["b"]
    return [np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)]


def product(a, b, y, kind="float", op="MatMul"):
    dims = [",".join(map(str, sizes)) for sizes in (a, b, y)]
    return f"g ({kind}[{dims[0]}] a, {kind}[{dims[1]}] b) => ({kind}[{dims[2]}] y) {{ y = {op}(a, b) }}"


def variant_of(text, **more):
    with opened(text, **more) as pipeline:
        pipeline.run(drawn(text, more=more.get("more", "")))
        plan = pipeline.runner.latest().plan
        (choice,) = plan.choices.values()
        return choice.claim


SIZES = {
    "a row and wide columns": ((1, 40), (40, 40)),
    "a row and columns of no even length": ((1, 20), (20, 37)),
    "a row and few columns, deep": ((1, 200), (200, 8)),
    "a vector and a matrix": ((33,), (33, 32)),
    "a matrix and a column": ((10, 136), (136, 1)),
    "a matrix and a vector, oddly long": ((5, 45), (45,)),
    "two vectors": ((300,), (300,)),
}


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    """Fill a device of few blocks: a block takes a while as plain Python."""
    monkeypatch.setattr(vector_products, "_BLOCKS", 3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "float") for name in SIZES]
    + [(list(SIZES)[at], kind) for at in (1, 4) for kind in ("float16", "bfloat16")],
)
def test_one_vector_by_sizes_and_types(name, kind):
    a, b = SIZES[name]
    y = np.matmul(np.zeros(a), np.zeros(b)).shape
    text = product(a, b, y, kind)
    check(text, drawn(text), oracle=multiplied, atol=2e-5 if kind == "float" else 0.03)
    assert variant_of(text).variant == "vector"


@pytest.mark.parametrize("form", ["8", "1", "1,8", "1,1"])
@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_of_one_row_adds_c(form, turned):
    b = "8,24" if turned else "24,8"
    text = f"g (float[1,24] a, float[{b}] b, float[{form}] c) => (float[1,8] y) {{ y = Gemm<alpha = 0.5, beta = 2.0, transB = {turned}>(a, b, c) }}"
    check(text, drawn(text), oracle=peer)
    assert variant_of(text).variant == "vector"


@pytest.mark.parametrize("form", ["12,1", "1"])
def test_gemm_of_one_column_adds_c(form):
    text = f"g (float[24,12] a, float[24,1] b, float[{form}] c) => (float[12,1] y) {{ y = Gemm<transA = 1>(a, b, c) }}"
    check(text, drawn(text), oracle=peer)


def test_fused_matmul_of_one_row():
    text = "g (float[1,1,24] a, float[1,12,24] b) => (float[1,1,12] y) { y = com.microsoft.FusedMatMul<transB = 1, alpha = 3.0>(a, b) }"
    check(text, drawn(text), oracle=peer, more=', "com.microsoft" : 1')


def test_a_deep_product_of_few_columns_is_cut_into_parts_in_the_workspace():
    claim = variant_of(product((1, 200), (200, 8), (1, 8)))
    assert claim.workspace_nbytes == 4 * 8 * 3
    assert variant_of(product((1, 100), (100, 8), (1, 8))).workspace_nbytes == 0
    assert "16 bytes" in claim.because


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("offset", [0, 1])
def test_addresses_that_are_odd_are_read_one_by_one(dtype, offset):
    kind = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]  # fmt: skip
    stored = np.float32 if dtype == "float32" else np.uint16
    rows, depth = 5, 48
    raw = spread.standard_normal(rows * depth + 1).astype(kind)
    m = raw[offset : offset + rows * depth]
    x, out = spread.standard_normal(depth).astype(kind), np.zeros(rows, kind)
    wide = not offset
    given = [np.ascontiguousarray(m).view(stored), x.view(stored)]
    if wide and dtype != "float32":
        given = [value.view(np.uint32) for value in given]
    kernel = rows_kernel(dtype, wide=wide)
    assert ("four_at" in kernel.text) == wide
    run_kernel(
        kernel, *map(even, given), None, None, out.view(stored), rows, depth, depth, 1.0, 0.0, 0, 0, 0,
        blocks=1, threads=256,
    )  # fmt: skip
    want = m.reshape(rows, depth).astype(float) @ x.astype(float)
    np.testing.assert_allclose(out.astype(float), want, rtol=0, atol=0.1 if stored is np.uint16 else 1e-5)  # fmt: skip


def even(array):
    """Give a copy at an address that is a multiple of 16 bytes."""
    room = np.zeros(array.nbytes + 16, np.uint8)
    start = -room.ctypes.data % 16
    made = room[start : start + array.nbytes].view(array.dtype)
    made[...] = array
    return made


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_of_the_depth_add_up(parts):
    columns, depth, part = 40, 90, -(-90 // parts)
    m = spread.standard_normal((depth, columns)).astype(np.float32)
    x = spread.standard_normal(depth).astype(np.float32)
    sums, out = np.zeros((parts, columns), np.float32), np.zeros(columns, np.float32)
    run_kernel(
        columns_kernel("float32", wide=True, cut=True), even(m.reshape(-1)), x, sums.reshape(-1),
        columns, depth, columns, 2, part, blocks=2 * parts, threads=256,
    )  # fmt: skip
    added = np.ones(1, np.float32)
    run_kernel(
        adding_kernel("float32"), sums.reshape(-1), added, None, out, columns, parts, 2.0, -1.0, 0, 0, 0,
    )  # fmt: skip
    np.testing.assert_allclose(out, 2 * (x @ m) - 1, rtol=0, atol=2e-5)


def test_a_product_of_rows_and_columns_is_no_vectors():
    assert variant_of(product((2, 8), (8, 2), (2, 2))).variant == "cublaslt"
    assert variant_of(product((2, 1, 8), (2, 8, 2), (2, 1, 2))).variant == "cublaslt"


def test_nan_and_infinity_go_through():
    text = product((1, 8), (8, 4), (1, 4))
    feeds = {"a": np.ones((1, 8), np.float32), "b": np.ones((8, 4), np.float32)}
    feeds["b"][3, 1], feeds["b"][2, 2], feeds["b"][5, 3] = np.nan, np.inf, -np.inf
    with opened(text) as pipeline:
        (got,) = pipeline.run(feeds)
    np.testing.assert_array_equal(got, [[8, np.nan, np.inf, -np.inf]])


def test_a_device_is_filled_by_parts_until_they_are_short(monkeypatch):
    monkeypatch.setattr(vector_products, "_BLOCKS", 528)
    made = vector_products.VectorProduct("float16", 4096, 4096, by_rows=False)
    assert made.parts == 9  # 64 tiles of columns, and 528 blocks
    assert (
        vector_products.VectorProduct("float16", 1 << 17, 64, by_rows=False).parts == 1
    )
    assert (
        vector_products.VectorProduct("float16", 8, 8, by_rows=True).scratch_nbytes == 0
    )
