"""Operators between dequantisation and quantisation become operators over bytes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.rewritten import Both, model_of

R = np.random.default_rng(29)
CONTRIB = "com.microsoft::"
KINDS = pytest.mark.parametrize("kind", ["uint8", "int8"])


def whole(kind, *shape):
    info = np.iinfo(kind)
    return R.integers(info.min, info.max, shape, kind, endpoint=True)


def number(value):
    return np.float32(value)


def around(body, kind, shape=(1, 4, 6, 5), opset=17, **constants):
    """Quantise the input, dequantise it, do ``body`` from ``x`` to ``f``, and quantise that."""
    low = 121 if kind == "uint8" else -7
    points = {"xs": number(0.03), "xz": np.array(low, kind), "fs": number(0.05),
              "fz": np.array(low + 9, kind)}  # fmt: skip
    sizes = ",".join(map(str, shape))
    text = (
        f"g (float[{sizes}] real) => (y) {{ q = QuantizeLinear(real, xs, xz)"
        f" x = DequantizeLinear(q, xs, xz) {body} y = QuantizeLinear(f, fs, fz) }}"
    )
    feeds = {"real": (R.standard_normal(shape) * 3).astype(np.float32)}
    return Both(model_of(text, opset, **{**points, **constants}), feeds)


def differ_by(both, codes, share=1.0):
    """Assert that codes differ by so many at most, and only so great a share of them."""
    for one, other in zip(both.plain, both.given, strict=True):
        apart = np.abs(one.astype(int) - other.astype(int))
        assert apart.max() <= codes
        assert (apart > 0).mean() <= share
        assert len(np.unique(one)) > 2 or one.size < 9


def weights(kind="int8", *shape, channels=True):
    count = shape[0] if channels else ()
    return {
        "w": whole(kind, *shape),
        "ws": R.uniform(0.001, 0.02, count).astype(np.float32),
        "wz": np.zeros(count, kind),
    }


@KINDS
@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution_sums_bytes(kind, channels, biased):
    given = weights("int8", 5, 4, 3, 3, channels=channels)
    if biased:
        given |= {
            "b": R.integers(-3000, 3000, 5, np.int32),
            "bs": given["ws"] * number(0.03),
        }
    body = (
        " v = DequantizeLinear <axis = 0> (w, ws, wz)"
        + (" c = DequantizeLinear <axis = 0> (b, bs)" if biased else "")
        + f" f = Conv <pads = [1,1,1,1]> (x, v{', c' if biased else ''})"
    )
    both = around(body, kind, **given)
    assert both.ops["QLinearConv"] == 1
    assert both.rules["quantized-conv"] == 1
    assert both.ops["DequantizeLinear"] == 0
    differ_by(both, 1, 0.01)


def test_a_bias_of_another_scale_keeps_floats_and_says_so():
    given = weights("int8", 5, 4, 3, 3)
    body = (
        " v = DequantizeLinear <axis = 0> (w, ws, wz) c = DequantizeLinear <axis = 0> (b, ws)"
        " f = Conv (x, v, c)"
    )
    both = around(body, "uint8", b=R.integers(-30, 30, 5, np.int32), **given)
    assert both.ops["QLinearConv"] == 0
    assert "not that of the product" in both.left["quantized"]
    differ_by(both, 0)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("biased", [True, False])
def test_gemm_sums_bytes(turned, biased):
    shape = (7, 24) if turned else (24, 7)
    given = weights("int8", *shape, channels=False)
    if biased:
        given |= {
            "b": R.integers(-3000, 3000, 7, np.int32),
            "bs": given["ws"] * number(0.03),
        }
    body = (
        " v = DequantizeLinear(w, ws, wz)"
        + (" c = DequantizeLinear(b, bs)" if biased else "")
        + f" f = Gemm <transB = {turned}> (x, v{', c' if biased else ''})"
    )
    both = around(body, "uint8", (5, 24), **given)
    assert both.ops[f"{CONTRIB}QGemm"] == 1
    differ_by(both, 1, 0.05)


@KINDS
@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(1, 4, 6, 5), (4, 1, 1), (), (6, 1), (1, 1, 1, 5)])
def test_arithmetic_of_bytes_gives_the_same_codes(kind, op, shape):
    given = {"o": whole(kind, *shape), "os": number(0.02), "oz": np.array(3, kind)}
    both = around(f"p = DequantizeLinear(o, os, oz) f = {op}(p, x)", kind, **given)
    assert both.ops[f"{CONTRIB}QLinear{op}"] == 1
    differ_by(both, 0)


@KINDS
def test_a_tensor_is_added_to_itself(kind):
    both = around("f = Add(x, x)", kind)
    assert both.ops[f"{CONTRIB}QLinearAdd"] == 1
    differ_by(both, 0)


UNARY = {
    "LeakyRelu": ("LeakyRelu <alpha = 0.3> (x)", 0),
    "Sigmoid": ("Sigmoid(x)", 1),
    "Softmax": ("Softmax <axis = 1> (x)", 1),
    "AveragePool": ("AveragePool <kernel_shape = [3,2], pads = [1,0,1,1], strides = [2,1]> (x)", 1),
    "GlobalAveragePool": ("GlobalAveragePool(x)", 1),
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_bytes_give_codes_that_are_next_to_each_other(kind, name):
    text, codes = UNARY[name]
    fs = number(0.004 if name in ("Sigmoid", "Softmax") else 0.05)
    both = around(f"f = {text}", kind, fs=fs)
    assert both.ops[f"{CONTRIB}QLinear{name}"] == 1
    assert both.ops["QuantizeLinear"] == 1
    differ_by(both, codes, 0.02)


@KINDS
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tensors_of_bytes_are_joined(kind, axis):
    given = {"o": whole(kind, 1, 4, 6, 5), "os": number(0.02), "oz": np.array(3, kind)}
    body = f"p = DequantizeLinear(o, os, oz) f = Concat <axis = {axis}> (x, p, x)"
    both = around(body, kind, **given)
    assert both.ops[f"{CONTRIB}QLinearConcat"] == 1
    differ_by(both, 0)


MOVES = {
    "MaxPool": "MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)",
    "Transpose": "Transpose <perm = [0,2,3,1]> (x)",
    "Flatten": "Flatten(x)",
}


@KINDS
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("alike", [True, False])
def test_bytes_are_moved_between_one_scale_and_the_same(kind, name, alike):
    same = {"fs": number(0.03), "fz": np.array(121 if kind == "uint8" else -7, kind)}
    both = around(f"f = {MOVES[name]}", kind, **(same if alike else {}))
    assert both.ops["DequantizeLinear"] == (0 if alike else 1)
    assert both.ops[name] == 1
    differ_by(both, 0)


@KINDS
def test_relu_goes_where_codes_begin_at_zero(kind):
    least = np.array(np.iinfo(kind).min, kind)
    body = "v = Mul(x, x2) f = Relu(v)"
    gone = around(body, kind, x2=number(1.5), fz=least)
    assert gone.ops["Relu"] == 0
    stays = around(body, kind, x2=number(1.5))
    assert stays.ops["Relu"] == 1
    for both in (gone, stays):
        differ_by(both, 0)


def test_floats_that_somebody_else_reads_stay_there_for_him():
    body = (
        "n = Abs(x) q2 = QuantizeLinear(n, fs, fz) p = DequantizeLinear(q2, fs, fz)"
        " f = Add(x, p)"
    )
    both = around(body, "uint8", fs=number(0.07))
    assert both.ops[f"{CONTRIB}QLinearAdd"] == 1
    assert both.ops["DequantizeLinear"] == 1
    differ_by(both, 0)


def test_bytes_of_two_types_are_left_alone():
    given = {
        "o": whole("int8", 1, 4, 6, 5),
        "os": number(0.02),
        "oz": np.array(3, np.int8),
    }
    both = around("p = DequantizeLinear(o, os, oz) f = Add(p, x)", "uint8", **given)
    assert both.ops["Add"] == 1
    differ_by(both, 0)
