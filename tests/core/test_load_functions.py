from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, parser
from tests.core.loaded_graphs import all_names, f32, run_by_onnxruntime

from seamline.errors import ModelError, UnsafeModelError
from seamline.graph import load
from seamline.limits import LoadLimits

HEAD = """
<ir_version: 10, opset_import: ["" : 18, "loc" : 1]>
g (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] w) {
    mid = Neg(x)
    y = loc.leaky_twice<slope = 0.5>(x)
    z = loc.leaky_twice(x)
    w = loc.shift(mid, x)
}
"""
TWICE = """
<domain: "loc", opset_import: ["" : 18, "loc" : 1]>
leaky_twice <slope: float = 0.25> (x) => (out) {
    mid = loc.leak<slope: float = @slope>(x)
    out = loc.leak<slope: float = @slope>(mid)
}
"""
LEAK = """
<domain: "loc", opset_import: ["" : 18]>
leak <slope: float = 10.0> (x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }
"""
SHIFT = """
<domain: "loc", opset_import: ["" : 18]>
shift (a, x) => (y) {
    one = Constant<value = float[1] {1}>()
    mid = Add(x, one)
    p = Softmax(mid)
    y = Sub(p, a)
}
"""
IMPORTS = '<ir_version: 10, opset_import: ["" : 18, "loc" : 1]>\n'
FUNCTION = '<domain: "loc", opset_import: ["" : 18, "loc" : 1]>\n'


def model_of(graph, *functions):
    return parser.parse_model(
        IMPORTS + graph + "".join(FUNCTION + f for f in functions)
    )


@pytest.mark.parametrize("order", [LEAK + TWICE + SHIFT, SHIFT + TWICE + LEAK])
def test_calls_keep_attributes_defaults_and_names_apart(order):
    graph = load(parser.parse_model(HEAD + order))
    assert graph.outputs == ("y", "z", "w")
    assert {node.domain for node in graph.walk()} == {""}
    assert not graph.model.functions
    names = all_names(graph)
    assert len(names) == len(set(names))
    alphas = [n.attributes["alpha"] for n in graph.nodes if n.op_type == "LeakyRelu"]
    assert sorted(alphas) == [0.25, 0.25, 0.5, 0.5]

    x = np.array([[-4, 2, -1], [0, 8, -16]], np.float32)
    y, z, w = run_by_onnxruntime(graph, {"x": x})
    e = np.exp(x.astype(np.float64) + 1)
    np.testing.assert_array_equal(y, np.where(x < 0, x / 4, x))
    np.testing.assert_array_equal(z, np.where(x < 0, x / 16, x))
    np.testing.assert_allclose(w, e / e.sum(axis=1, keepdims=True) + x, rtol=1e-5)


def test_constants_of_a_function_become_constants_of_the_graph():
    graph = load(parser.parse_model(HEAD + LEAK + TWICE + SHIFT))
    (name,) = graph.constants
    assert name.endswith("one")
    np.testing.assert_array_equal(graph.constant(name), f32(1))


def test_an_attribute_without_default_is_left_out_where_the_call_gives_none():
    function = "f <alpha> (x) => (y) { y = Elu<alpha: float = @alpha>(x) }"
    graph = load(
        model_of(
            "g (float x) => (float a, float b) { a = loc.f(x) b = loc.f<alpha = 2.0>(x) }",
            function,
        )
    )
    by_output = {node.outputs[0]: node for node in graph.nodes}
    assert "alpha" not in by_output["a"].attributes
    assert by_output["b"].attributes == {"alpha": 2.0}


def test_an_attribute_of_another_type_is_an_error():
    function = "f <alpha> (x) => (y) { y = Elu<alpha: float = @alpha>(x) }"
    model = model_of("g (float x) => (float y) { y = loc.f<alpha = 2>(x) }", function)
    with pytest.raises(ModelError, match=r"'alpha' is INT.*FLOAT"):
        load(model)


def test_recursion_is_an_error_that_shows_the_circle():
    model = model_of(
        "g (float x) => (float y) { y = loc.a(x) }",
        "a (x) => (y) { y = loc.b(x) }\n",
        "b (x) => (y) { y = loc.c(x) }\n",
        "c (x) => (y) { y = loc.b(x) }\n",
    )
    with pytest.raises(ModelError, match="loc::b -> loc::c -> loc::b"):
        load(model)


def test_a_function_that_calls_itself_in_a_body_is_recursion():
    function = """f (c, x) => (y) { y = If(c) <
        then_branch = t () => (a) {a = loc.f(c, x)},
        else_branch = e () => (b) {b = Neg(x)}> }"""
    model = model_of("g (bool c, float x) => (float y) { y = loc.f(c, x) }", function)
    with pytest.raises(ModelError, match="loc::f -> loc::f"):
        load(model)


def test_calls_in_bodies_and_bodies_in_functions_are_inlined():
    function = """pick (c, x) => (y) { m = Neg(x) y = If(c) <
        then_branch = t () => (a) {a = Mul(m, x)},
        else_branch = e () => (b) {b = loc.leak<slope = 0.5>(m)}> }\n"""
    text = """g (bool c, float x) => (float y) { y = If(c) <
        then_branch = t () => (float r) {m = Abs(x) r = loc.pick(c, m)},
        else_branch = e () => (float q) {q = loc.pick(c, x)}> }\n"""
    model = parser.parse_model(IMPORTS + text + FUNCTION + function + LEAK)
    graph = load(model)
    names = all_names(graph)
    assert len(names) == len(set(names))
    for flag, x, expected in ((True, -3, -9), (False, 4, -2), (False, -4, 4)):
        feeds = {"c": np.array(flag), "x": np.array(x, np.float32)}
        assert run_by_onnxruntime(graph, feeds)[0] == expected


def test_an_input_that_the_call_leaves_out_stays_out():
    function = "f (x, low, high) => (y) { y = Clip(x, low, high) }"
    text = "g (float x, float m) => (float y) { y = loc.f(x, , m) }"
    (node,) = load(model_of(text, function)).nodes
    assert node.inputs == ("x", "", "m")
    (node,) = load(model_of(text.replace("x, , m", "x"), function)).nodes
    assert node.inputs[0] == "x"
    assert not any(node.inputs[1:])


def test_an_output_that_is_an_input_and_one_given_twice_keep_their_names():
    function = "f (x) => (x, n, n) { n = Neg(x) }"
    text = "g (float x) => (float a, float b, float c) { a, b, c = loc.f(x) }"
    graph = load(model_of(text, function))
    assert graph.outputs == ("a", "b", "c")
    feeds = {"x": np.array(3, np.float32)}
    assert [float(v) for v in run_by_onnxruntime(graph, feeds)] == [3, -3, -3]


def test_the_declared_type_of_an_output_survives_inlining():
    model = model_of(
        "g (float[2] x) => (float[2] y) { y = loc.f(x) }", "f (x) => (y) { y = Neg(x) }"
    )
    assert str(load(model).types["y"]) == "float32[2]"


def test_unsorted_functions_are_sorted():
    graph = load(
        model_of(
            "g (float x) => (float y) { y = loc.f(x) }",
            "f (x) => (y) { y = Neg(m) m = Abs(x) }",
        )
    )
    assert [node.op_type for node in graph.nodes] == ["Abs", "Neg"]


def test_another_opset_with_another_meaning_is_refused_by_name():
    function = (
        '<domain: "loc", opset_import: ["" : 11]>\nf (x) => (y) { y = Softmax(x) }'
    )
    text = IMPORTS + "g (float[2,2] x) => (float[2,2] y) { y = loc.f(x) }\n" + function
    with pytest.raises(ModelError, match=r"loc::f.*opset 11.*18.*Softmax"):
        load(parser.parse_model(text))


def test_another_opset_with_the_same_meaning_is_inlined():
    function = '<domain: "loc", opset_import: ["" : 17]>\nf (x) => (y) { y = Neg(x) }'
    text = IMPORTS + "g (float[2,2] x) => (float[2,2] y) { y = loc.f(x) }\n" + function
    (node,) = load(parser.parse_model(text)).nodes
    assert (node.op_type, node.since_version) == ("Neg", 13)


def test_a_domain_that_only_the_function_imports_is_imported():
    function = '<domain: "loc", opset_import: ["" : 18, "other" : 3]>\nf (x) => (y) { y = other.Op(x) }'
    text = IMPORTS + "g (float[2,2] x) => (float[2,2] y) { y = loc.f(x) }\n" + function
    graph = load(parser.parse_model(text))
    assert graph.opsets["other"] == 3
    assert graph.nodes[0].since_version == 3


def test_a_domain_that_nobody_imports_is_an_error():
    function = "f (x) => (y) { y = other.Op(x) }"
    model = model_of("g (float x) => (float y) { y = loc.f(x) }", function)
    with pytest.raises(ModelError, match=r"loc::f.*'other'"):
        load(model)


@pytest.mark.parametrize(
    ("call", "what"),
    [("y = loc.f(x, x)", "2 inputs"), ("y, z = loc.f(x)", "2 outputs")],
)
def test_a_call_that_does_not_fit_is_an_error(call, what):
    model = model_of(
        f"g (float x) => (float y) {{ {call} }}", "f (x) => (y) { y = Neg(x) }"
    )
    with pytest.raises(ModelError, match=what):
        load(model)


def test_a_function_may_stand_in_for_an_operator_of_onnx():
    model = model_of(
        "g (float x) => (float y) { y = loc.Neg(x) }", "Neg (x) => (y) { y = Abs(x) }"
    )
    assert [node.qualified_op for node in load(model).nodes] == ["Abs"]


def test_functions_of_one_name_are_told_apart_by_overload():
    functions = [
        helper.make_function(
            "loc",
            "f",
            ["x"],
            ["y"],
            [helper.make_node(op, ["x"], ["y"])],
            [helper.make_opsetid("", 18)],
            overload=op,
        )
        for op in ("Neg", "Abs")
    ]
    model = parser.parse_model(IMPORTS + "g (float x) => (float y) { y = loc.f(x) }")
    model.graph.node[0].overload = "Abs"
    model.functions.extend(functions)
    assert [node.op_type for node in load(model).nodes] == ["Abs"]


def test_calls_that_double_at_every_level_are_refused_before_expansion():
    functions = [
        f"f{i} (x) => (y) {{ a = loc.f{i + 1}(x) y = loc.f{i + 1}(a) }}\n"
        for i in range(30)
    ]
    functions.append("f30 (x) => (y) { y = Neg(x) }\n")
    model = model_of("g (float x) => (float y) { y = loc.f0(x) }\n", *functions)
    with pytest.raises(UnsafeModelError, match=rf"{2**30} nodes.*max_nodes"):
        load(model)


def test_calls_deeper_than_the_limit_are_refused():
    functions = [f"f{i} (x) => (y) {{ y = loc.f{i + 1}(x) }}\n" for i in range(6)]
    functions.append("f6 (x) => (y) { y = Neg(x) }\n")
    model = model_of("g (float x) => (float y) { y = loc.f0(x) }\n", *functions)
    with pytest.raises(UnsafeModelError, match=r"7 deep.*limit is 5"):
        load(model, limits=LoadLimits(max_depth=5))
    assert len(load(model, limits=LoadLimits(max_depth=7)).nodes) == 1


def test_the_callers_functions_stay_as_they_are():
    model = ir.from_proto(parser.parse_model(HEAD + LEAK + TWICE + SHIFT))
    load(model)
    assert len(model.functions) == 3
    assert len(load(model).nodes) == 9 - 1


MAP = """
<ir_version: 10, opset_import: ["" : 18]>
g (seq(float[n]) xs, float[n] w, float k) => (seq(float[n]) ys) {
    m = Neg(k)
    ys = SequenceMap(xs, w) <body = b (float[n] a, float[n] c) => (float[n] d) {
        s = Add(a, c)
        d = Mul(s, m)
    }>
}"""


def test_a_sequence_map_becomes_the_loop_that_defines_it():
    graph = load(parser.parse_model(MAP))
    assert [node.op_type for node in graph.nodes] == [
        "Neg",
        "SequenceLength",
        "SequenceEmpty",
        "Loop",
    ]
    assert graph.outputs == ("ys",)
    assert {"xs", "w", "m"} <= set(graph.nodes[-1].captures)
    names = all_names(graph)
    assert len(names) == len(set(names))
    feeds = {"xs": [f32(1, 2), f32(3, 4)], "w": f32(10, 20)}
    feeds["k"] = np.array(2, np.float32)
    (got,) = run_by_onnxruntime(graph, feeds)
    expected = [f32(-22, -44), f32(-26, -48)]
    for g, w in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, w)


def test_a_sequence_map_of_unknown_type_is_left_to_the_providers():
    text = MAP.replace("ys = Seq", "zs = vendor.Op(xs) ys = Seq").replace(
        "(xs, w)", "(zs, w)"
    )
    model = parser.parse_model(text)
    model.opset_import.append(helper.make_opsetid("vendor", 1))
    assert "SequenceMap" in [node.op_type for node in load(model).nodes]


def test_a_sequence_map_whose_body_does_not_fit_is_refused_by_name():
    model = parser.parse_model(MAP)
    node = model.graph.node[1]
    node.name = "mapped"
    del node.attribute[:]
    with pytest.raises(ModelError, match="mapped"):
        load(model)
