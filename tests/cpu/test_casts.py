"""Cast, CastLike and BitCast by the tables of the ONNX text."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from tests.cpu.movement import Bound, agrees, gives, node_of
from tests.node_cases import run_node

from seamline.provider import Refusal
from seamline.tensors import numpy_dtype, onnx_dtype
from seamline_cpu.kernels import TABLE
from seamline_cpu.kernels.conversions import converter

NAN, INF = np.nan, np.inf
F32 = np.float32
TYPES = (
    "float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "int4", "uint4", "int2", "uint2", "float4_e2m1fn",
    "float6_e2m3fn", "float6_e3m2fn",
)  # fmt: skip


def of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def cast(x, to, opset=28, **attributes):
    x = np.asarray(x)
    like = np.empty(x.shape, numpy_dtype(to))
    node = node_of("Cast", [x], to=int(onnx_dtype(to)), **attributes)
    return Bound(node, [x], [like], opset).run()[0]


@pytest.mark.parametrize("source", TYPES)
def test_one_is_one_in_every_type(source):
    x = np.ones(3, F32).astype(of(source))
    for target in TYPES:
        got = cast(x, target)
        assert got.dtype == of(target)
        np.testing.assert_array_equal(
            got.astype(F32), 1, err_msg=f"{source} to {target}"
        )


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_any_shape_passes(shape):
    for target in (
        "int32",
        "uint8",
        "bool",
        "float8_e4m3fn",
        "float8_e8m0fnu",
        "float16",
        "string",
    ):
        assert cast(np.ones(shape, F32), target).shape == shape


SATURATED = [0, 0, 1, 1, 1.25, 448, 448, 448, -448, 448, -448, NAN, 2.0**-9, 0, 2.0**-8]
NOT_SATURATED = [
    0,
    0,
    1,
    1,
    1.25,
    448,
    448,
    NAN,
    NAN,
    NAN,
    NAN,
    NAN,
    2.0**-9,
    0,
    2.0**-8,
]
POINTS = [
    0,
    -0.0,
    1,
    1.0625,
    1.1875,
    447,
    449,
    500,
    -1000,
    INF,
    -INF,
    NAN,
    2.0**-9,
    2.0**-10,
    3 * 2.0**-10,
]


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_e4m3fn_saturates_or_gives_nan(source):
    x = np.array(POINTS).astype(of(source))
    rows = slice(None)
    if source in ("float16", "bfloat16"):  # what these round themselves is not asked
        rows = [i for i, v in enumerate(POINTS) if v != v or float(x[i]) == v]
    for saturate, want in ((1, SATURATED), (0, NOT_SATURATED)):
        got = cast(x, "float8_e4m3fn", saturate=saturate).astype(F32)
        np.testing.assert_array_equal(got[rows], np.array(want, F32)[rows])


@pytest.mark.parametrize(
    ("target", "most", "beyond"),
    [
        ("float8_e4m3fn", 448, NAN),
        ("float8_e4m3fnuz", 240, NAN),
        ("float8_e5m2", 57344, INF),
        ("float8_e5m2fnuz", 57344, NAN),
    ],
)
def test_the_table_of_float8_holds_at_its_ends(target, most, beyond):
    x = np.array([0.0, -0.0, NAN, INF, -INF, 1e6, -1e6, most, -most], F32)
    got = cast(x, target)
    np.testing.assert_array_equal(
        got.astype(F32), [0, 0, NAN, most, -most, most, -most, most, -most]
    )
    assert np.signbit(got[1]) == (not target.endswith("uz"))
    got = cast(x, target, saturate=0).astype(F32)
    np.testing.assert_array_equal(
        got, [0, 0, NAN, beyond, -beyond, beyond, -beyond, most, -most]
    )
    np.testing.assert_array_equal(
        cast(np.array([70000, 3], np.int32), target).astype(F32), [most, 3]
    )


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_e8m0_rounds_as_asked_and_has_no_zero(mode, saturate):
    x = np.array([1, 1.4, 1.5, 3, 0.3, 0, INF, NAN, 3.4e38, 1e-45], F32)
    power = {
        "up": [0, 1, 1, 2, -1],
        "down": [0, 0, 0, 1, -2],
        "nearest": [0, 0, 1, 2, -2],
    }[mode]
    low, high = (2.0**-127, 2.0**127) if saturate else (NAN, NAN)
    top = high if mode != "down" else 2.0**127
    want = [2.0**p for p in power] + [low, high, NAN, top, low]
    got = cast(x, "float8_e8m0fnu", opset=24, round_mode=mode, saturate=saturate)
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_an_unknown_round_mode_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="sideways"):
        converter("float32", "float8_e8m0fnu", True, "sideways")


def test_small_floats_have_no_infinity_and_take_the_largest():
    x = np.array([100, -100, INF, 0.3], F32)
    for target, most in (
        ("float4_e2m1fn", 6),
        ("float6_e2m3fn", 7.5),
        ("float6_e3m2fn", 28),
    ):
        np.testing.assert_array_equal(
            cast(x, target)[:3].astype(F32), [most, -most, most]
        )


@pytest.mark.parametrize(
    "source", ["float32", "float64", "float16", "bfloat16", "float8_e5m2"]
)
def test_only_zeros_are_false(source):
    x = np.array([0, -0.0, NAN, 2.0**-14, -3, INF]).astype(of(source))
    np.testing.assert_array_equal(
        cast(x, "bool"), [False, False, True, True, True, True]
    )
    np.testing.assert_array_equal(
        cast(np.array([0, 256, -1]), "bool"), [False, True, True]
    )


@pytest.mark.parametrize(
    "pair",
    [
        ("float32", "int32"),
        ("int64", "float32"),
        ("float32", "bfloat16"),
        ("float32", "float8_e4m3fn"),
        ("uint8", "float32"),
        ("float32", "bool"),
    ],
)
def test_a_large_tensor_is_cast_in_every_share(pair):
    source, target = pair
    x = (np.arange(600_001) % 251).astype(of(source))
    got = cast(x, target)
    want = x.astype(F32).astype(of(target)) if target != "bool" else x != 0
    np.testing.assert_array_equal(got.astype(F32), want.astype(F32))


def test_casting_to_the_type_it_has_moves_nothing():
    x = np.arange(6, dtype=F32)
    node = node_of("Cast", [x], to=1)
    bound = Bound(node, [x], [x], 13, share=[(0, 0)])
    assert bound.claim.views == ((0, 0),)
    np.testing.assert_array_equal(bound.run()[0], x)
    np.testing.assert_array_equal(cast(x, "float32"), x)


def test_cast_like_takes_the_type_of_its_second_input():
    x, like = np.array([1.9, -2.9, 500], F32), np.empty(0, np.int32)
    gives("CastLike", [x, like], np.array([1, -2, 500], np.int32), opset=15)
    like = np.empty(1, of("float8_e4m3fn"))
    node = node_of("CastLike", [x, like], saturate=0)
    got = Bound(node, [x, like], [x.astype(of("float8_e4m3fn"))], 19).run()[0]
    np.testing.assert_array_equal(got.astype(F32), [1.875, -3, NAN])


@pytest.mark.parametrize(
    "pair",
    [
        ("float32", "int32"),
        ("float64", "uint64"),
        ("bfloat16", "uint16"),
        ("int8", "float8_e5m2"),
        ("int4", "uint4"),
        ("complex64", "float64"),
    ],
)
def test_bit_cast_keeps_every_bit(pair):
    source, target = pair
    x = np.array([1, -2, 3]).astype(of(source)) if source != "uint4" else None
    for shape in ((3,), (1, 3)):
        node = node_of("BitCast", [x], to=int(onnx_dtype(target)))
        like = np.empty(shape, numpy_dtype(target))
        got = Bound(node, [x.reshape(shape)], [like], 26).run()[0]
        assert got.tobytes() == x.tobytes()


def test_bit_cast_to_another_width_is_refused():
    x = np.zeros(2, F32)
    node = node_of("BitCast", [x], to=int(ir.DataType.INT8))
    answer = run_node(TABLE, node, [x], [np.zeros(2, np.int8)], opset=26)
    assert isinstance(answer, Refusal)
    assert "width" in str(answer)


@pytest.mark.parametrize(
    "pair",
    list(
        itertools.permutations(
            ["float32", "float16", "float64", "int32", "uint8", "int64", "bool"], 2
        )
    ),
)
def test_onnxruntime_agrees_within_range(pair):
    source, target = pair
    x = np.array([0, 1, 5, 100]).astype(source)
    for opset in (9, 13, 21):
        agrees("Cast", [x], opset=opset, to=int(onnx_dtype(target)))
