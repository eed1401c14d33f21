"""The provider ``reference``: any operator that onnx.reference implements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.node_cases import Kept, view_of_node
from tests.plugins.segments import run_segment, segment_of

from seamline.errors import KernelError, RecordingError
from seamline.provider import Claim, Executable, Provider, Refusal
from seamline_reference import plugin
from seamline_reference.provider import ReferenceProvider

HEAD = '<ir_version: 10, opset_import: ["" : 21, "other" : 1]>\n'


@pytest.fixture
def provider():
    return ReferenceProvider()


def view(op, inputs, outputs, *, opset=21, **attributes):
    node = helper.make_node(
        op,
        [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)],
        [f"y{i}" for i in range(len(outputs))],
        name="node",
        **attributes,
    )
    return view_of_node(node, inputs, outputs, opset)


def run(provider, text, feeds, **options):
    spec = segment_of(text, **options)
    for node in spec.nodes:
        assert isinstance(provider.claim(node), Claim)
    executable = provider.build(spec, Kept())
    assert isinstance(executable, Executable)
    return run_segment(executable, spec, feeds)


X = np.array([[-1.5, 0.0, 2.0]], np.float32)


def test_the_plugin_offers_it_by_name_and_by_no_alias():
    (spec,) = plugin.seamline_providers()
    assert (spec.name, spec.aliases) == ("reference", ())
    made = spec.create({})
    assert isinstance(made, Provider)
    made.close()


def test_an_implemented_operator_is_claimed_and_cannot_be_captured(provider):
    claim = provider.claim(view("Relu", [X], [X]))
    assert isinstance(claim, Claim)
    assert claim.not_capturable
    assert not claim.sizes_at_run


def test_an_operator_defined_by_a_function_is_claimed(provider):
    assert isinstance(provider.claim(view("HardSwish", [X], [X])), Claim)


def test_an_unknown_operator_is_refused_by_name_and_version(provider):
    refusal = provider.claim(view("Bogus", [X], [X]))
    assert isinstance(refusal, Refusal)
    assert "Bogus" in refusal.because


def test_an_operator_of_another_domain_is_refused(provider):
    node = helper.make_node("FastGelu", ["x"], ["y"], domain="com.microsoft")
    refusal = provider.claim(view_of_node(node, [X], [X], 1))
    assert isinstance(refusal, Refusal)
    assert "com.microsoft::FastGelu" in refusal.because


def test_claiming_runs_nothing(provider, monkeypatch):
    from onnx.reference import ReferenceEvaluator

    def fail(*args, **kwargs):
        raise AssertionError("claim ran the operator")

    monkeypatch.setattr(ReferenceEvaluator, "run", fail)
    assert isinstance(provider.claim(view("Softmax", [X], [X])), Claim)


def test_the_version_of_the_operator_is_the_one_that_runs(provider):
    x = np.array([1, 2, 3], np.float32)
    for version, axes in ((11, "<axes = [0]> (x)"), (13, "(x, a)")):
        head = f'<ir_version: 7, opset_import: ["" : {version}]>\n'
        text = head + (
            "g (float[3] x) => (float[1, 3] y) <int64[1] a = {0}> "
            f"{{ y = Unsqueeze {axes} }}"
        )
        np.testing.assert_array_equal(run(provider, text, {"x": x})["y"], x[None])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_an_older_meaning_that_the_reference_lost_is_refused(provider, op):
    """Before 13 these flattened from the axis on; onnx.reference never does."""
    refusal = provider.claim(view(op, [X], [X], opset=11))
    assert isinstance(refusal, Refusal)
    assert "version 11" in refusal.because or "version 1" in refusal.because
    assert refusal.accepts == "version 13 and later"
    assert isinstance(provider.claim(view(op, [X], [X], opset=13)), Claim)


def test_nodes_of_a_segment_feed_each_other(provider):
    spec = segment_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { a = Neg(x) y = Abs(a) }"
    )
    views = {"x": X.copy(), "a": np.empty_like(X), "y": np.empty_like(X)}
    executable = provider.build(spec, Kept())
    executable.bind(views, {})
    assert executable.run() is None
    np.testing.assert_array_equal(views["y"], np.abs(X))


def test_an_output_sized_by_data_is_given_by_name(provider):
    text = HEAD + "g (bool[2, 3] x) => (int64[2, n] y) { y = NonZero(x) }"
    x = np.array([[0, 1, 1], [1, 0, 0]], bool)
    assert provider.claim(segment_of(text).nodes[0]).sizes_at_run
    got = run(provider, text, {"x": x})["y"]
    np.testing.assert_array_equal(got, np.array(np.nonzero(x)))


def test_strings_are_held_as_objects(provider):
    text = (
        HEAD
        + "g (string[2] x, string[2] w) => (string[2] y) { y = StringConcat(x, w) }"
    )
    x = np.array(["ä", ""], dtype=object)
    got = run(provider, text, {"x": x, "w": x})["y"]
    assert got.dtype == object
    assert got.tolist() == ["ää", ""]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "uint4"])
def test_types_that_numpy_lacks_are_held_by_ml_dtypes(provider, name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    to = getattr(TensorProto, name.replace("_", "").upper())
    x = np.array([0, 1, 3, 6], np.float32)
    node = view("Cast", [x], [x.astype(dtype)], to=to)
    assert isinstance(provider.claim(node), Claim)
    spec = segment_of(
        HEAD
        + f"g (float[4] x) => ({name.replace('_', '')}[4] y) {{ y = Cast <to = {to}> (x) }}"
    )
    got = run_segment(provider.build(spec, Kept()), spec, {"x": x})["y"]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float32), x)


def test_a_missing_optional_input_is_missing(provider):
    text = HEAD + "g (float[1, 3] x, float m) => (float[1, 3] y) { y = Clip(x, , m) }"
    got = run(provider, text, {"x": X, "m": np.float32(1)})["y"]
    np.testing.assert_array_equal(got, np.minimum(X, 1))


def test_an_output_left_out_is_not_asked_for(provider):
    text = (
        HEAD
        + "g (float[4] x, int64[1] k) => (int64[2] i) <int64[1] k = {2}> { , i = TopK(x, k) }"
    )
    x = np.array([3, 9, 1, 7], np.float32)
    np.testing.assert_array_equal(run(provider, text, {"x": x})["i"], [1, 3])


def test_a_kernel_that_fails_names_the_node_and_the_operator(provider):
    spec = segment_of(
        HEAD + "g (float[3] x, int64[1] i) => (float[1] y) { [pick] y = Gather(x, i) }"
    )
    executable = provider.build(spec, Kept())
    with pytest.raises(KernelError, match="Gather") as caught:
        run_segment(executable, spec, {"x": X[0], "i": np.array([9])})
    assert caught.value.node == spec.nodes[0].name


def test_a_result_of_another_shape_than_planned_is_an_error(provider):
    spec = segment_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = Neg(x) }")
    executable = provider.build(spec, Kept())
    executable.bind({"x": X, "y": np.empty((3, 1), np.float32)}, {})
    with pytest.raises(KernelError, match=r"\[1, 3\], the plan says float32\[3, 1\]"):
        executable.run()


def test_recording_is_refused(provider):
    spec = segment_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = Neg(x) }")
    with pytest.raises(RecordingError):
        provider.build(spec, Kept()).record()


def test_integers_have_the_width_that_the_node_gives(provider):
    text = HEAD + "g (int32 x) => (int32 y) { y = ReduceSumSquare<keepdims = 0>(x) }"
    (got,) = run(provider, text, {"x": np.int32(70000)}).values()
    assert got.dtype == np.int32
    assert int(got) == 70000**2 - 2**32  # integers wrap


def test_an_older_batch_normalization_is_refused(provider):
    x, s = np.ones((1, 2, 3), np.float32), np.ones(2, np.float32)
    for opset, kind in ((13, Refusal), (14, Claim)):
        node = view("BatchNormalization", [x, s, s, s, s], [x], opset=opset)
        assert isinstance(provider.claim(node), kind)
