"""Models that say two things of one value, and arguments that are none: refused, and named."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over, toys

from seamline.errors import (
    ContractError,
    KernelError,
    ModelError,
    PinError,
    PlanError,
    SeamlineError,
)
from seamline.graph import load
from seamline.kernels import KernelTable
from seamline.pipeline import Pipeline

f32 = np.float32
X = np.array([1, -2, 3], f32)


def with_default(declared, stored, kind=TensorProto.FLOAT):
    """Give a model whose one input has a default."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info("x", kind, declared)],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(stored, "x")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ([200_000], TensorProto.FLOAT),
        ([2], TensorProto.FLOAT),
        ([5, 5], TensorProto.FLOAT),
        ([], TensorProto.FLOAT),
        ([3], TensorProto.INT64),
        ([3], TensorProto.DOUBLE),
        (["n", 1], TensorProto.FLOAT),
    ],
    ids=str,
)
def test_a_default_unlike_its_input_is_refused_before_anything_reads_past_it(
    declared, kind
):
    with pytest.raises(
        ModelError, match=r"tensor 'x': it is float32\[3\], and the input"
    ):
        load(with_default(declared, X, kind))


@pytest.mark.parametrize("declared", [[3], ["n"], [None], None], ids=str)
def test_a_default_that_fits_its_input_is_taken(declared):
    pipeline = open_over(with_default(declared, X), Toy(definitions_table("a")))
    np.testing.assert_array_equal(pipeline.run({})[0], np.maximum(X, 0))
    pipeline.close()


def test_two_functions_of_one_name_are_refused():
    source = model("g (float[3] x) => (y) { y = my.F(x) }", more=', "my" : 1')
    for op in ("Relu", "Neg"):
        body = [helper.make_node(op, ["a"], ["b"])]
        opsets = [helper.make_opsetid("", 18)]
        source.functions.append(
            helper.make_function("my", "F", ["a"], ["b"], body, opsets)
        )
    with pytest.raises(ModelError, match="function my::F: the model has two"):
        load(source)


@pytest.mark.parametrize("op", ["Add", "MatMul", "Max", "Less", "Concat <axis = 0>"])
@pytest.mark.parametrize("other", ["int32", "double", "bool"])
def test_operands_of_two_types_are_refused_whoever_would_run_them(op, other):
    text = f"g (float[3] x, {other}[3] w) => (y) {{ y = {op}(x, w) }}"
    with pytest.raises(PlanError, match=r"node .*input 0 is float32 and input 1 is"):
        Pipeline.open(model(text), providers=["cpu", "reference"])


def test_a_fourth_operand_of_another_type_is_named_by_its_place():
    text = "g (float[3] x, int64[3] w) => (y) { y = Sum(x, x, x, w) }"
    with pytest.raises(PlanError, match="input 0 is float32 and input 3 is int64"):
        Pipeline.open(model(text))


def test_operands_whose_types_the_operator_does_not_tie_are_taken():
    text = "g (float[3] x, int64[3] n, bool[3] c) => (y, z) { y = Pow(x, n) z = Where(c, x, y) }"
    pipeline = Pipeline.open(model(text))
    feeds = {"x": X, "n": np.array([2, 1, 0]), "c": np.array([True, False, True])}
    y, z = pipeline.run(feeds)
    np.testing.assert_array_equal(y, [1, -2, 1])
    np.testing.assert_array_equal(z, [1, -2, 3])
    pipeline.close()


def test_an_output_that_is_declared_as_another_type_is_refused():
    with pytest.raises(PlanError, match=r"'y' is declared as int32\[3\], and it gives"):
        Pipeline.open(model("g (float[3] x) => (int32[3] y) { y = Relu(x) }"))


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"fallback": "Error"}, "fallback= takes 'error', 'warn' or 'allow'"),
        ({"seams": "x"}, "seams= takes 'allow', 'warn' or 'error'"),
        ({"max_seams": -1}, "max_seams= is a count"),
        ({"programs": 0}, "programs= is a count, 1 or more"),
    ],
    ids=str,
)
def test_an_argument_that_is_none_of_its_values_is_refused(chosen, said):
    with pytest.raises(ValueError, match=said):
        Pipeline.open(model("g (float[3] x) => (y) { y = Relu(x) }"), **chosen)


def test_providers_as_one_text_are_refused_with_what_was_meant():
    with pytest.raises(TypeError, match=r"write \['cpu'\]"):
        Pipeline.open(model("g (float[3] x) => (y) { y = Relu(x) }"), providers="cpu")


IF = """g (bool c, float[3] x) => (y) {
    [branch] y = If(c) <then_branch = t () => (p) { [neg] p = Neg(x) },
                        else_branch = e () => (q) { q = Abs(x) }>
}"""


@pytest.mark.parametrize("pin", ["branch", "If", "ai.onnx::If"])
def test_a_pin_on_a_node_of_the_cores_is_refused(pin):
    made = toys()
    with pytest.raises(PinError, match="the core itself runs that operator"):
        open_over(model(IF), made["a"], made["b"], pins={pin: "b"})


def test_a_pattern_sweeps_over_the_cores_nodes_and_pins_the_others():
    made = toys()
    pipeline = open_over(model(IF), made["a"], made["b"], pins={"*": "b"})
    assert pipeline.assignments()["neg"] == "b"
    assert pipeline.assignments()["branch"] == "core"
    pipeline.close()


def test_a_pin_may_say_a_provider_by_another_of_its_names():
    pipeline = Pipeline.open(
        model("g (float[3] x) => (y) { [n] a = Neg(x) y = Relu(a) }"),
        providers=["reference", "cpu"],
        pins={"n": "CPUExecutionProvider", "ai.onnx::Relu": "cpu"},
    )
    assert set(pipeline.assignments().values()) == {"cpu"}
    pipeline.close()


def test_a_pin_to_no_name_is_refused():
    with pytest.raises(PinError, match="a provider is given by its name"):
        Pipeline.open(
            model("g (float[3] x) => (y) { [n] y = Neg(x) }"), pins={"n": None}
        )


def table_of(function):
    table = KernelTable("odd")
    table.simple("Neg")(function)
    return table


def test_a_kernel_that_ends_the_process_is_an_error_that_names_its_node():
    def neg(x):
        raise SystemExit(3)

    pipeline = open_over(
        model("g (float[3] x) => (y) { [n] y = Neg(x) }"), Toy(table_of(neg))
    )
    with pytest.raises(KernelError, match=r"SystemExit: 3") as caught:
        pipeline.run({"x": X})
    assert (caught.value.provider, caught.value.node) == ("odd", "n")
    pipeline.close()


def test_a_simple_kernel_cannot_write_what_others_read():
    def neg(x):
        x[...] = 0
        return x

    text = "g (float[3] x) => (a, y) { a = Abs(x) [n] y = Neg(a) }"
    pipeline = open_over(
        model(text), Toy(table_of(neg)), Toy(definitions_table("good"))
    )
    with pytest.raises(KernelError, match="read-only"):
        pipeline.run({"x": X})
    pipeline.close()


def test_a_kernel_that_gives_another_type_is_named_with_its_provider():
    pipeline = open_over(
        model("g (float[3] x) => (y) { [n] y = Neg(x) }"),
        Toy(table_of(lambda x: x.astype(np.float64))),
    )
    with pytest.raises(
        SeamlineError, match=r"'odd'.*output 0 is float64\[3\]"
    ) as caught:
        pipeline.run({"x": X})
    assert not isinstance(caught.value, ContractError) or caught.value.provider == "odd"
    pipeline.close()
