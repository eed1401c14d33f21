"""MatMul, Gemm, FusedMatMul, Einsum, Det: against float64, hand values and onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import agrees, give, gives, peer

from seamline.errors import BuildError
from seamline_cpu.kernels.packed_product import packed
from seamline_cpu.kernels.panels import pack_panels

R = np.random.default_rng(7)
SHAPES = [
    ((5, 7), (7, 3)), ((1, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)),
    ((3, 15, 40), (40, 33)), ((2, 3, 5, 7), (7, 4)), ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((3, 5, 7), (2, 3, 7, 4)), ((5, 7), (2, 3, 7, 4)), ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((7,), (2, 3, 7, 4)), ((2, 3, 5, 7), (7,)), ((4, 64, 64), (4, 64, 70)),
    ((5, 0), (0, 3)), ((0, 7), (7, 3)), ((2, 5, 7), (2, 7, 0)), ((2, 5, 7), (1, 7, 4)),
]  # fmt: skip


def floats(*shape):
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_a_product_follows_numpys_rules_for_every_shape(a, b):
    a, b = floats(*a), floats(*b)
    want = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    gives("MatMul", [a, b], want, fixed=(1,), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", [1, 3, 4, 6, 7, 97])
@pytest.mark.parametrize(("k", "n"), [(1, 1), (384, 48), (50, 31), (3000, 17)])
def test_packed_tiles_have_no_seam_at_any_edge(m, k, n):
    a, b = floats(m, k), floats(k, n)
    want = (a.astype(np.float64) @ b).astype(np.float32)
    # Elements are of size sqrt(k), and a chain of k sums rounds to some ulp of that.
    gives("MatMul", [a, b], want, fixed=(1,), rtol=1e-5, atol=4e-6 * k**0.5)


@pytest.mark.parametrize(
    ("m", "k", "n"), [(250, 300, 70), (13, 700, 400), (60, 258, 33)]
)
def test_threads_divide_the_rows_or_the_columns_and_change_no_byte(m, k, n):
    a, b = floats(m, k + 3)[:, :k], floats(k, n)
    panels, made = pack_panels(b), []
    for threads in (1, 2, 5):
        y = np.full((m, n), np.nan, np.float32)
        run = packed(a, panels, y, threads)
        for _ in range(2):
            run()
        made.append(y)
    np.testing.assert_allclose(made[0], a.astype(float) @ b, rtol=2e-5, atol=2e-4)
    assert all(y.tobytes() == made[0].tobytes() for y in made)


def test_nan_reaches_its_row_and_infinity_keeps_its_sign():
    a = np.array([[1, np.nan], [np.inf, 1], [1, 1], [-np.inf, 0]], np.float32)
    b = np.ones((2, 5), np.float32)
    want = np.repeat(
        np.array([[np.nan], [np.inf], [2], [-np.inf]], np.float32), 5, axis=1
    )
    gives("MatMul", [a, b], want, fixed=(1,))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_integers_are_exact_and_wrap(dtype):
    top = np.iinfo(dtype).max
    a, b = np.array([[top, 3]], dtype), np.array([[2], [5]], dtype)
    with np.errstate(over="ignore"):
        want = np.array([[(int(top) * 2 + 15) % 2 ** (8 * a.itemsize)]], object)
    want = want.astype("uint64").astype(dtype)
    gives("MatMul", [a, b], want, opset=9)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fixed", [(), (1,)])
def test_half_precision_is_summed_in_float32(dtype, fixed):
    # 4096 + 1 is lost in float16 and 256 + 1 in bfloat16, one at a time.
    a = np.ones((2, 6000), np.float32).astype(dtype)
    want = np.full((2, 1), 6000).astype(dtype)
    gives("MatMul", [a, np.ones((6000, 1)).astype(dtype)], want, fixed=fixed)


def test_float64_keeps_its_precision():
    a, b = R.standard_normal((3, 4, 5)), R.standard_normal((5, 6))
    gives("MatMul", [a, b], a @ b, rtol=1e-14)


GEMMS = [
    {}, {"alpha": 0.5}, {"beta": 0.25}, {"alpha": 2.0, "beta": 0.0},
    {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 3.0},
]  # fmt: skip


@pytest.mark.parametrize("attributes", GEMMS)
@pytest.mark.parametrize("c", [None, (), (1,), (6,), (5, 1), (1, 6), (5, 6)])
def test_gemm_is_alpha_a_b_plus_beta_c(attributes, c):
    a, b = floats(5, 7), floats(7, 6)
    left = a.T if attributes.get("transA") else a
    right = b.T if attributes.get("transB") else b
    c = None if c is None else floats(*c)
    want = attributes.get("alpha", 1.0) * (a.astype(np.float64) @ b)
    if c is not None:
        want = want + attributes.get("beta", 1.0) * c
    inputs = [left.copy(), right.copy()] + ([] if c is None else [c])
    fixed = (1,) if c is None else (1, 2)
    for opset in (11, 13):
        gives(
            "Gemm", inputs, want.astype(np.float32), opset=opset, fixed=fixed, rtol=1e-5,
            atol=1e-5, **attributes,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_gemm_in_half_precision_rounds_once(dtype):
    a, b, c = (floats(*s).astype(dtype) for s in ((4, 9), (9, 5), (5,)))
    want = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + 2 * c.astype(
        np.float64
    )
    gives(
        "Gemm", [a, b, c], want.astype(dtype), rtol=2e-2, atol=1e-2, alpha=0.5, beta=2.0
    )


def test_integer_gemm_takes_whole_factors_and_refuses_others():
    a, b, c = (np.arange(4, dtype=np.int32).reshape(2, 2) for _ in range(3))
    gives("Gemm", [a, b, c], 3 * (a @ b) - c, alpha=3.0, beta=-1.0)
    with pytest.raises(NotImplementedError, match=r"alpha is 0\.5"):
        give("Gemm", [a, b, c], a, alpha=0.5)


@pytest.mark.parametrize(
    ("a", "b", "attributes"),
    [
        ((5, 7), (7, 3), {}),
        ((2, 3, 5, 7), (2, 3, 4, 7), {"transB": 1, "alpha": 0.125}),
        ((2, 7, 5), (2, 7, 4), {"transA": 1}),
        ((5, 2, 3, 7), (2, 3, 7, 4), {"transBatchA": 1}),
        ((5, 2, 7), (4, 2, 7), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
        ((7, 2, 5), (2, 7, 4), {"transBatchA": 1, "transA": 1}),
        ((7,), (7, 3), {"alpha": 2.0}),
    ],
)
def test_a_fused_product_transposes_as_onnxruntime_does(a, b, attributes):
    given = [floats(*a), floats(*b)]
    agrees(
        "FusedMatMul", given, domain="com.microsoft", fixed=(1,), rtol=1e-5, atol=1e-5,
        **attributes,
    )  # fmt: skip


EQUATIONS = [
    ("iij->ij", [(3, 3, 2)]), ("iij->i", [(3, 3, 2)]), ("jii->ij", [(2, 3, 3)]),
    ("ii", [(4, 4)]), ("iii->i", [(3, 3, 3)]), ("iijj->ji", [(2, 2, 3, 3)]),
    ("b...k,kc->b...c", [(2, 3, 4, 5), (5, 2)]),
    ("abc,cd,def->abd", [(2, 3, 4), (4, 3), (3, 2, 5)]), ("ba,cb", [(2, 3), (4, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 2), (1, 4, 2, 3)]), ("i,j->ji", [(3,), (2,)]),
    ("ij->", [(2, 3)]), ("...ij,jk", [(2, 2, 3), (3, 2)]), (",ij->ij", [(), (2, 3)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bhij,bjhd->bihd", [(2, 3, 4, 5), (2, 5, 3, 6)]), (" i j , j -> i ", [(2, 3), (3,)]),
    ("ij,ij->", [(2, 3), (2, 3)]), ("...->...", [(2, 3)]), ("ii,i->i", [(3, 3), (3,)]),
    ("ij,jk->ki", [(0, 3), (3, 2)]), ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("ija,ib->aj", [(2, 3, 4), (2, 5)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_einsum_gives_numpys_answer(equation, shapes, dtype):
    given = [R.integers(-3, 4, s).astype(dtype) for s in shapes]
    want = np.einsum(equation.replace(" ", ""), *[x.astype(np.float64) for x in given])
    gives("Einsum", given, np.asarray(want).astype(dtype), equation=equation)


def test_an_ellipsis_of_two_ranks_is_an_error():
    given = [floats(2, 3, 4), floats(4, 4)]
    with pytest.raises(BuildError, match=r"stands for \[2, 1\] dimensions"):
        give("Einsum", given, given[0], equation="...a,...a->...")
    with pytest.raises(BuildError, match="does not fit rank 2"):
        give("Einsum", given, given[0], equation="...ij,k->...ij")


def test_a_determinant_is_the_signed_volume_of_a_stack():
    x = R.standard_normal((2, 3, 4, 4))
    gives("Det", [x], np.linalg.det(x), rtol=1e-12)
    swap = np.array([[0, 1], [1, 0]], np.float16)
    gives("Det", [swap], np.array(-1, np.float16), opset=22)


def test_attention_sized_stacks_agree_with_onnxruntime():
    q, k = floats(2, 4, 33, 32), floats(2, 4, 32, 35)
    agrees("MatMul", [q, k], rtol=1e-5, atol=1e-5)
    assert peer("MatMul", [q, k], opset=13)[0].shape == (2, 4, 33, 35)
