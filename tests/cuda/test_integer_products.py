"""Products of whole numbers over the emulated device: exact, and wrapping as they do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.test_matmul import refusal

spread = np.random.default_rng(3)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64"])
def test_products_wrap_as_their_type_does(kind):
    text = (
        f"g ({kind}[3,20] a, {kind}[20,5] b) => ({kind}[3,5] y) {{ y = MatMul(a, b) }}"
    )
    bits = np.iinfo(kind)
    feeds = {
        n: spread.integers(bits.min, bits.max, shape, dtype=kind)
        for n, shape in (("a", (3, 20)), ("b", (20, 5)))
    }
    check(text, feeds, oracle=lambda _, f: [f["a"] @ f["b"]])


@pytest.mark.parametrize(
    ("a", "b"), [((70, 3), (3, 66)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (4, 3)), ((2, 0), (0, 3))]
)  # fmt: skip
def test_products_of_any_ranks(a, b):
    y = np.matmul(np.zeros(a), np.zeros(b)).shape
    dims = [",".join(map(str, sizes)) for sizes in (a, b, y)]
    text = f"g (int32[{dims[0]}] a, int32[{dims[1]}] b) => (int32[{dims[2]}] y) {{ y = MatMul(a, b) }}"
    check(text, drawn(text), oracle=lambda _, f: [np.matmul(f["a"], f["b"])])


@pytest.mark.parametrize("form", ["4,5", "5", "4,1"])
def test_gemm_of_whole_numbers(form):
    text = f"g (int64[3,4] a, int64[5,3] b, int64[{form}] c) => (int64[4,5] y) {{ y = Gemm<transA = 1, transB = 1, alpha = 2.0, beta = -3.0>(a, b, c) }}"
    check(text, drawn(text), oracle=lambda _, f: [2 * f["a"].T @ f["b"].T - 3 * f["c"]])


ZEROS = {
    "none": ("", ""),
    "one for all": ("uint8 p", "int8 q"),
    "one for each row and column": ("uint8[3] p", "int8[5] q"),
    "of the left alone": ("uint8 p", ""),
}


@pytest.mark.parametrize("name", ZEROS)
def test_bytes_less_their_zero_points(name):
    p, q = ZEROS[name]
    more = "".join(f", {x}" for x in (p, q) if x)
    last = "".join(f", {x.split()[1]}" for x in (p, q) if x)
    text = f"g (uint8[3,40] a, int8[40,5] b{more}) => (int32[3,5] y) {{ y = MatMulInteger(a, b{last}) }}"
    feeds = {
        n: spread.integers(
            *(0, 255) if n in "ap" else (-128, 127), v.shape, dtype=v.dtype
        )
        for n, v in drawn(text).items()
    }

    def oracle(_, f):
        a, b = f["a"].astype(np.int32), f["b"].astype(np.int32)
        a -= np.asarray(f.get("p", 0), np.int32).reshape(-1, 1)
        b -= np.asarray(f.get("q", 0), np.int32).reshape(1, -1)
        return [a @ b]

    check(text, feeds, oracle=oracle)
    if "each" not in name:
        # Sums of two products beyond 16 bits saturate in onnxruntime on some processors.
        small = {n: np.asarray(v // 2) for n, v in feeds.items()}
        check(text, small, oracle=peer, captured=False)


def test_stacks_of_bytes():
    text = "g (uint8[2,3,4] a, uint8[2,4,5] b, uint8 p, uint8 q) => (int32[2,3,5] y) { y = MatMulInteger(a, b, p, q) }"
    check(text, drawn(text), oracle=peer)


STACKS = {
    "a row of each matrix": ("2,3,4", "4,5", "2,3,1", ""),
    "one column vector for all": ("2,3,4", "2,4,5", "3,1", "1,5"),
    "vectors": ("2,3,4", "2,4,5", "3", "5"),
}


@pytest.mark.parametrize("name", STACKS)
def test_zero_points_of_each_row_and_column_of_a_stack(name):
    a, b, p, q = STACKS[name]
    more, last = (f", int8[{q}] q", ", q") if q else ("", "")
    text = f"g (uint8[{a}] a, int8[{b}] b, uint8[{p}] p{more}) => (int32[2,3,5] y) {{ y = MatMulInteger(a, b, p{last}) }}"

    def oracle(_, f):
        rows = f["p"].astype(np.int32)
        rows = rows if rows.ndim > 1 else rows.reshape(-1, 1)
        left = f["a"].astype(np.int32) - rows
        return [left @ (f["b"].astype(np.int32) - np.asarray(f.get("q", 0), np.int32))]

    check(text, drawn(text), oracle=oracle)


def test_what_is_refused_says_what_is_taken():
    text = "g (uint8[2,3,4] a, uint8[2,4,5] b, uint8[2,3,1] p) => (int32[2,3,5] y) { y = MatMulInteger(a, b, p) }"
    assert "one for all, or one for each row of A, is accepted" in refusal(text)
    text = "g (int32[3,4] a, int32[4,5] b) => (int32[3,5] y) { y = Gemm<alpha = 0.5>(a, b) }"
    assert "alpha is 0.5" in refusal(text)
