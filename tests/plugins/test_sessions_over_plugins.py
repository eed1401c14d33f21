"""Sessions over the two plugins: alone, cut between them, and when data decides a size."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import seamline

pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'
X = np.array([[-2, -1, 0], [1, 2, 3]], np.float32)


def session(text, providers, **options):
    return seamline.InferenceSession(
        onnx.parser.parse_model(HEAD + text), providers=providers, **options
    )


@pytest.mark.parametrize("provider", ["onnxruntime", "reference"])
def test_a_model_runs_over_one_provider(provider):
    text = (
        "g (float[N, 3] x) => (float[N, 3] y) <float[3] w = {1.0, 2.0, 3.0}> "
        "{ a = Mul(x, w) b = Relu(a) y = Add(b, x) }"
    )
    with session(text, [provider]) as opened:
        for x in (X, X[:1], X):  # the second has another shape
            (y,) = opened.run(None, {"x": x})
            np.testing.assert_array_equal(y, np.maximum(x * [1, 2, 3], 0) + x)


def test_pins_cut_a_model_between_providers():
    text = "g (float[N, 3] x) => (float[N, 3] y) { a = Neg(x) b = Relu(a) y = Exp(b) }"
    pins = {"Relu": "reference"}
    with session(text, ["onnxruntime", "reference"], pins=pins) as opened:
        (y,) = opened.run(None, {"x": X})
    np.testing.assert_allclose(y, np.exp(np.maximum(-X, 0)), rtol=1e-6)


@pytest.mark.parametrize("provider", ["onnxruntime", "reference"])
def test_what_follows_a_size_found_in_data_runs_too(provider):
    text = (
        "g (float[N, 3] x) => (float[3, M] y) <float[1] one = {1.0}> "
        "{ p = Relu(x) i = NonZero(p) f = Cast <to = 1> (i) "
        "t = Transpose(x) r = MatMul(t, f) y = Add(r, one) }"
    )
    with session(text, [provider]) as opened:
        for x in (X, np.flip(X, 0).copy(), -X):
            (y,) = opened.run(None, {"x": x})
            places = np.array(np.nonzero(np.maximum(x, 0)), np.float32)
            np.testing.assert_allclose(y, x.T @ places + 1, rtol=1e-6)


def test_onnxruntimes_own_operators_are_typed_and_run():
    text = (
        "g (float[N, 3] x) => (float[N, 3] y) "
        "{ a = com.microsoft.QuickGelu <alpha = 1.0> (x) y = Neg(a) }"
    )
    with session(text, ["onnxruntime"]) as opened:
        (y,) = opened.run(None, {"x": X})
    np.testing.assert_allclose(y, -X / (1 + np.exp(-X.astype(np.float64))), rtol=1e-5)


def test_a_node_that_reference_lacks_is_refused_before_any_run():
    text = "g (float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu <alpha = 1.0> (x) }"
    with pytest.raises(seamline.PlanError, match=r"QuickGelu(?s:.*)reference: "):
        session(text, ["reference"])


def test_strings_cross_between_the_two():
    text = (
        'g (string[2] x) => (string[2] y) <string[2] w = {"a", "b"}> '
        "{ s = StringConcat(x, w) y = Identity(s) }"
    )
    pins = {"Identity": "reference"}
    with session(text, ["onnxruntime", "reference"], pins=pins) as opened:
        (y,) = opened.run(None, {"x": np.array(["ä", ""], dtype=object)})
    assert y.tolist() == ["äa", "b"]
