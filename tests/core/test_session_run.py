"""Running: what goes in, what comes out, and whose it is."""

import threading
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tests.core.arithmetic import model, open_session

from seamline.errors import FeedError, KernelError, RunError
from seamline.ortvalue import OrtValue
from seamline.session_options import RunOptions, SessionOptions
from seamline.unsupported import UnusedOptionWarning

AFFINE = """
g (float[N, 3] x, float[N, 1] b) => (float[N, 3] y, float[N, 3] x) <float[3] w = {1, 2, 3}>
{ t = Mul(x, w)  y = Add(t, b) }"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([[10], [20]], np.float32)


@pytest.fixture
def session():
    with open_session(AFFINE) as opened:
        yield opened


def expected(x=X, b=B):
    return x * np.array([1, 2, 3], np.float32) + b


def test_outputs_come_in_the_order_of_the_model(session):
    y, x = session.run(None, {"x": X, "b": B})
    assert y.tolist() == expected().tolist()
    assert x.tolist() == X.tolist()


def test_an_empty_list_of_names_asks_for_all_outputs(session):
    assert len(session.run([], {"x": X, "b": B})) == 2


def test_outputs_can_be_chosen_and_repeated(session):
    x, y, again = session.run(["x", "y", "x"], {"x": X, "b": B})
    assert (x.tolist(), y.tolist(), again.tolist()) == (
        X.tolist(), expected().tolist(), X.tolist(),
    )  # fmt: skip
    x[...] = -1
    assert again.tolist() == X.tolist()


def test_an_unknown_output_brings_those_that_are_close(session):
    with pytest.raises(FeedError, match="Invalid output name: 'yy'; did you mean 'y'"):
        session.run(["yy"], {"x": X, "b": B})


def test_the_same_answers_as_onnx_runtime(session):
    peer = onnxruntime.InferenceSession(
        model(AFFINE).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for rows in (2, 1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        feeds = {"x": x, "b": np.ones((rows, 1), np.float32)}
        for mine, theirs in zip(
            session.run(None, feeds), peer.run(None, feeds), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)


# --- whose memory it is -------------------------------------------------------------------------


def test_writing_an_output_changes_no_feed_no_weight_and_no_later_output(session):
    fed = X.copy()
    first = session.run(None, {"x": fed, "b": B})
    kept = [array.copy() for array in first]
    for array in first:
        array[...] = -7
    assert fed.tolist() == X.tolist()
    for mine, before in zip(session.run(None, {"x": fed, "b": B}), kept, strict=True):
        assert mine.tolist() == before.tolist()


def test_an_output_is_not_changed_by_later_runs_or_by_the_feed(session):
    fed = X.copy()
    y, x = session.run(None, {"x": fed, "b": B})
    fed[...] = 99
    session.run(None, {"x": X * 5, "b": B})
    assert y.tolist() == expected().tolist()
    assert x.tolist() == X.tolist()


def test_a_weight_given_as_output_is_the_callers_own():
    with open_session("g () => (float[2] w) <float[2] w = {3, 4}> { }") as session:
        (first,) = session.run(None, {})
        first[...] = 0
        assert session.run(None, {})[0].tolist() == [3, 4]


def test_an_output_named_twice_is_given_twice():
    once = model("g (float[2] x) => (float[2] y) { y = Add(x, x) }")
    once.graph.output.append(once.graph.output[0])
    with open_session(once) as session:
        first, second = session.run(None, {"x": np.ones(2, np.float32)})
        assert [arg.name for arg in session.get_outputs()] == ["y", "y"]
        first[...] = 0
        assert second.tolist() == [2, 2]


# --- inputs with a value of their own -----------------------------------------------------------

WITH_DEFAULT = helper.make_model(
    helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "w")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2], [3, 4])],
    ),
    ir_version=10,
    opset_imports=[helper.make_opsetid("", 21)],
)


def test_an_initializer_that_is_an_input_may_be_fed_or_not():
    x = np.ones(2, np.float32)
    with open_session(WITH_DEFAULT) as session:
        assert [arg.name for arg in session.get_inputs()] == ["x"]
        assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
        assert session.run(None, {"x": x})[0].tolist() == [3, 4]
        assert session.run(None, {"x": x, "w": [5, 6]})[0].tolist() == [5, 6]
        assert session.run(None, {"x": x})[0].tolist() == [3, 4]


# --- values, threads, failures --------------------------------------------------------------------


def test_values_go_in_and_come_out(session):
    feeds = {"x": OrtValue.ortvalue_from_numpy(X), "b": OrtValue.ortvalue_from_numpy(B)}
    (y,) = session.run_with_ort_values(["y"], feeds)
    assert y.data_type() == "tensor(float)"
    assert y.numpy().tolist() == expected().tolist()


def test_threads_share_a_session_and_each_gets_its_own_answer(session):
    wrong = []

    def work(number):
        x = np.full((2, 3), number, np.float32)
        for _ in range(20):
            if session.run(["y"], {"x": x, "b": B})[0].tolist() != expected(x).tolist():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_asynchronous_run_calls_back_with_outputs_and_the_callers_data(session):
    said, done = [], threading.Event()

    def callback(*arguments):
        said.append(arguments)
        done.set()

    session.run_async(["y"], {"x": X, "b": B}, callback, "tag")
    assert done.wait(10)
    ((outputs, data, error),) = said
    assert (outputs[0].tolist(), data, error) == (expected().tolist(), "tag", "")


def test_an_asynchronous_run_checks_feeds_before_it_returns(session):
    with pytest.raises(FeedError, match="missing"):
        session.run_async(None, {}, print, None)


QUOTIENT = "g (int64[2] a, int64[2] b) => (int64[2] c) { c = Div(a, b) }"


def test_a_failed_kernel_is_named_and_the_session_goes_on():
    with open_session(QUOTIENT) as session:
        with pytest.raises(
            KernelError, match="an integer was divided by zero"
        ) as caught:
            session.run(None, {"a": [1, 2], "b": [1, 0]})
        assert caught.value.node == "Div_0"
        assert session.run(None, {"a": [4, 9], "b": [2, 3]})[0].tolist() == [2, 3]


def test_a_failed_asynchronous_run_calls_back_with_the_reason():
    said = []
    with open_session(QUOTIENT) as session:
        session.run_async(
            None, {"a": [1, 2], "b": [1, 0]}, lambda *a: said.append(a), None
        )
    ((outputs, _, error),) = said
    assert outputs == []
    assert "KernelError" in error
    assert "divided by zero" in error


def test_a_closed_session_says_so():
    session = open_session(AFFINE)
    session.close()
    session.close()
    with pytest.raises(RunError, match="the session is closed"):
        session.run(None, {"x": X, "b": B})


def test_a_terminated_run_does_not_start(session):
    options = RunOptions()
    options.terminate = True
    with pytest.raises(RunError, match="terminated"):
        session.run(None, {"x": X, "b": B}, options)


def test_run_options_without_effect_are_named(session):
    options = RunOptions(logid="mine")
    options.add_run_config_entry("gpu_graph_id", "1")
    with pytest.warns(
        UnusedOptionWarning, match="logid='mine', config entry 'gpu_graph_id'"
    ):
        session.run(None, {"x": X, "b": B}, options)


def test_default_run_options_warn_of_nothing(session):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": X, "b": B}, RunOptions())


# --- sizes fixed by options -------------------------------------------------------------------------


def test_a_free_dimension_can_be_fixed_by_name():
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    with open_session(AFFINE, options) as session:
        assert session.get_inputs()[0].shape == [2, 3]
        session.run(None, {"x": X, "b": B})
        with pytest.raises(FeedError, match="dimension 0 is 1, 2 expected"):
            session.run(None, {"x": X[:1], "b": B[:1]})


def test_a_free_dimension_can_be_fixed_by_denotation():
    proto = model("g (float[N, 3] x) => (float[N, 3] y) { y = Add(x, x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    with open_session(proto, options) as session:
        assert session.get_inputs()[0].shape == [2, 3]


def test_a_model_opens_from_a_path_from_bytes_and_from_a_proto(tmp_path):
    proto = model(AFFINE)
    onnx.save(proto, tmp_path / "m.onnx")
    for source in (
        tmp_path / "m.onnx",
        str(tmp_path / "m.onnx"),
        proto.SerializeToString(),
        proto,
    ):
        with open_session(source) as session:
            assert (
                session.run(["y"], {"x": X, "b": B})[0].tolist() == expected().tolist()
            )
