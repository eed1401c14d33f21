"""Operators of ai.onnx.ml, against their definitions in NumPy and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper as oh

from seamline.errors import UnclaimedNodeError
from seamline.pipeline import Pipeline
from seamline.tensors import onnx_dtype, type_of_array

ML = "ai.onnx.ml"
X = np.array([[1, -2, 3], [-4, -1, -2], [0, 0, 0], [0.5, 8, -0.25]], np.float32)
CLASSIFIER = {
    "coefficients": [0.1, 0.2, 0.3, -0.1, -0.2, -0.3],
    "intercepts": [0.1, 0.2],
}


def model_of(op, inputs, outputs, opset, attributes, domain=ML):
    names = [f"x{i}" for i in range(len(inputs))]
    made = [f"y{i}" for i in range(outputs)]
    node = oh.make_node(op, names, made, "it", domain=domain, **attributes)
    given = [
        oh.make_tensor_value_info(
            name, int(onnx_dtype(type_of_array(x).dtype)), x.shape
        )
        for name, x in zip(names, inputs, strict=True)
    ]
    graph = oh.make_graph(
        [node], "g", given, [oh.make_empty_tensor_value_info(name) for name in made]
    )
    imports = [oh.make_opsetid(domain, opset), oh.make_opsetid("", 17)]
    return oh.make_model(graph, opset_imports=imports, ir_version=10)


def run(op, *inputs, outputs=1, opset=3, domain=ML, **attributes):
    model = model_of(op, inputs, outputs, opset, attributes, domain)
    pipeline = Pipeline.open(model, providers=["cpu"])
    try:
        feeds = {f"x{i}": x for i, x in enumerate(inputs)}
        first, second = pipeline.run(feeds), pipeline.run(feeds)
    finally:
        pipeline.close()
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    return first if outputs > 1 else first[0]


def peer(op, *inputs, outputs=1, opset=3, **attributes):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model_of(op, inputs, outputs, opset, attributes).SerializeToString(), options
    )
    given = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
    return given if outputs > 1 else given[0]


def agrees(op, *inputs, outputs=1, rtol=2e-6, atol=1e-6, **keywords):
    ours = run(op, *inputs, outputs=outputs, **keywords)
    theirs = peer(op, *inputs, outputs=outputs, **keywords)
    pairs = zip(ours, theirs, strict=True) if outputs > 1 else [(ours, theirs)]
    for got, want in pairs:
        assert got.shape == want.shape
        if want.dtype == object:
            assert got.tolist() == want.tolist()
            continue
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    return ours


def refused(op, *inputs, **keywords):
    with pytest.raises(UnclaimedNodeError) as error:
        run(op, *inputs, **keywords)
    return str(error.value)


def words(*values):
    return np.array(values, object)


# --- features -------------------------------------------------------------------------


def test_columns_are_picked_from_the_last_axis():
    at = np.array([[2, 0]])
    np.testing.assert_array_equal(run("ArrayFeatureExtractor", X, at), X[:, [2, 0]])
    assert "a vector" in refused("ArrayFeatureExtractor", X[0], at)
    texts = run("ArrayFeatureExtractor", words("a", "b").reshape(1, 2), np.array([1]))
    assert texts.tolist() == [["b"]]
    with pytest.raises(Exception, match="of 3 columns"):
        run("ArrayFeatureExtractor", X, np.array([3]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_binarizer_asks_for_more_than_the_threshold(dtype):
    x = np.array([[0, 1, 2]], dtype)
    got = run("Binarizer", x, threshold=1.0)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, [[0, 0, 1]])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_normalizer_divides_each_row(norm, dtype):
    agrees("Normalizer", X.astype(dtype), norm=norm)
    agrees("Normalizer", X[0].astype(dtype), norm=norm)


def test_scaler_takes_one_value_or_one_for_each_feature():
    got = run("Scaler", X, offset=[1.0, 2.0, 3.0], scale=[2.0])
    np.testing.assert_allclose(got, (X - [1, 2, 3]) * 2)
    agrees("Scaler", X.astype("int32"), offset=[1.0], scale=[0.5])


def test_imputer_replaces_one_value_that_may_be_nan():
    x = np.array([[1, np.nan, 3], [np.nan, 2, np.nan]], np.float32)
    got = agrees(
        "Imputer", x, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=np.nan
    )
    np.testing.assert_array_equal(got, [[1, 8, 3], [7, 2, 9]])
    whole = np.array([[1, -1]])
    got = run("Imputer", whole, imputed_value_int64s=[5], replaced_value_int64=-1)
    np.testing.assert_array_equal(got, [[1, 5]])


def test_feature_vectorizer_cuts_and_fills_up():
    got = agrees("FeatureVectorizer", X, X[:, :2].copy(), inputdimensions=[2, 3])
    np.testing.assert_array_equal(got[0], [1, -2, 1, -2, 0])


def test_one_hot_marks_the_category_and_refuses_others_if_asked():
    agrees("OneHotEncoder", X.astype(np.int64), cats_int64s=[1, -2, 3])
    agrees("OneHotEncoder", words("b", "a", "c"), cats_strings=["a", "b"])
    np.testing.assert_array_equal(
        run("OneHotEncoder", np.array([1.9, 2.0], np.float32), cats_int64s=[1, 2]),
        [[1, 0], [0, 1]],
    )
    with pytest.raises(Exception, match="no category"):
        run("OneHotEncoder", np.array([5]), cats_int64s=[1], zeros=0)
    assert "categories" in refused("OneHotEncoder", np.array([5]))


# --- labels ---------------------------------------------------------------------------


def test_labels_of_each_kind_are_found_or_the_default():
    agrees(
        "LabelEncoder", words("b", "x"), keys_strings=["a", "b"], values_int64s=[4, 5]
    )
    got = run("LabelEncoder", np.array([1, 9]), keys_int64s=[1], values_strings=["one"])
    assert got.tolist() == ["one", "_Unused"]
    got = run("LabelEncoder", np.array([1, 9]), keys_int64s=[1], values_floats=[0.5])
    assert got.tolist() == [0.5, 0.0]
    assert np.signbit(got[1])


def test_nan_may_be_a_key():
    x = np.array([np.nan, 1.5, 2.0], np.float32)
    settings = {
        "keys_floats": [np.nan, 1.5],
        "values_int64s": [7, 8],
        "default_int64": 0,
    }
    assert run("LabelEncoder", x, **settings).tolist() == [7, 8, 0]
    assert agrees("LabelEncoder", x, opset=4, **settings).tolist() == [7, 8, 0]


def test_keys_and_values_may_be_tensors_from_version_4():
    keys = onnx.numpy_helper.from_array(np.array([1.5, -0.0]))
    values = onnx.numpy_helper.from_array(np.array([3, 4], np.int16))
    default = onnx.numpy_helper.from_array(np.array([9], np.int16))
    got = run(
        "LabelEncoder", np.array([0.0, 1.5, 7.0]), opset=4,
        keys_tensor=keys, values_tensor=values, default_tensor=default,
    )  # fmt: skip
    assert got.dtype == np.int16
    assert got.tolist() == [4, 3, 9]


def test_of_two_labels_of_one_key_the_last_counts():
    x = np.array([1])  # onnxruntime takes the first; the text says the last
    got = run("LabelEncoder", x, keys_int64s=[1, 1], values_int64s=[2, 3])
    assert got.tolist() == [3]
    assert "1 keys and 2 values" in refused(
        "LabelEncoder", x, keys_int64s=[1], values_int64s=[2, 3]
    )


def test_version_1_goes_both_ways():
    classes = {"classes_strings": ["a", "b"], "opset": 1}
    assert agrees("LabelEncoder", words("b", "z"), **classes).tolist() == [1, -1]
    assert run("LabelEncoder", np.array([0, 5]), **classes).tolist() == ["a", "_Unused"]


def test_category_mapper_goes_both_ways():
    pairs = {"cats_strings": ["a", "b"], "cats_int64s": [10, 20]}
    assert agrees("CategoryMapper", words("b", "z"), **pairs).tolist() == [20, -1]
    agrees("CategoryMapper", np.array([10, 5]), **pairs)


# --- linear ---------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_models_agree_with_the_peer(transform):
    agrees(
        "LinearClassifier", X, outputs=2, **CLASSIFIER, classlabels_ints=[5, 7],
        post_transform=transform,
    )  # fmt: skip
    agrees("LinearRegressor", X, **CLASSIFIER, targets=2, post_transform=transform)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_stands_for_two_labels(transform):
    agrees(
        "LinearClassifier", X, outputs=2, coefficients=[0.1, 0.2, 0.3], intercepts=[0.1],
        classlabels_strings=["no", "yes"], post_transform=transform,
    )  # fmt: skip


def test_what_implementations_disagree_on_is_refused():
    said = refused(
        "LinearClassifier", X, outputs=2, coefficients=[0.1, 0.2, 0.3], intercepts=[0.1],
        classlabels_ints=[0, 1], post_transform="SOFTMAX",
    )  # fmt: skip
    assert "not defined" in said


def test_probit_is_the_quantile_of_the_normal_distribution():
    x = np.array([[0.975, 0.5, 0, 1, 2]], np.float32).T
    got = run("LinearRegressor", x, coefficients=[1.0], post_transform="PROBIT")
    np.testing.assert_allclose(got[:2, 0], [1.959964, 0], atol=1e-6)
    np.testing.assert_array_equal(got[2:, 0], [-np.inf, np.inf, np.nan])
