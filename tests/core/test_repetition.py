"""Nodes of one form are inferred once, and claims hold where nothing changed."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over

from seamline.constants import Constants
from seamline.graph import load
from seamline.repetition import form_of
from seamline.shapes import resolve, resolve_static
from seamline.tensors import TensorType

UNARY = ("Neg", "Relu", "Softmax", "Transpose")
BINARY = ("Add", "Mul", "MatMul", "Concat")


def f32(*shape):
    return TensorType("float32", shape)


def nodes_of(text):
    graph = load(model(text))
    return graph, {node.name: node for node in graph.nodes}


def form(text, **types):
    graph, _ = nodes_of(text)
    return form_of(graph.nodes[-1], types, graph.types)


@st.composite
def bodies(draw):
    """Give a graph of repeated operators over square matrices and their joins."""
    lines, values = [], ["x", "w"]
    for index in range(draw(st.integers(2, 9))):
        left, right = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        op = draw(st.sampled_from(UNARY + BINARY))
        if op == "Concat":
            text = f"Concat <axis = {draw(st.integers(0, 1))}> ({left}, {right})"
        elif op in UNARY:
            text = f"{op}({left})"
        else:
            text = f"{op}({left}, {left})" if op != "MatMul" else f"MatMul({left}, w)"
        lines.append(f"v{index} = {text}")
        values.append(f"v{index}" if op not in ("MatMul", "Concat") else left)
    return "\n".join(lines)


@given(bodies(), st.sampled_from(["float", "int64"]))
def test_types_of_repeated_forms_are_those_that_inference_gives_each_alone(body, kind):
    graph, _ = nodes_of(
        f"g ({kind}[3, 3] x) => () <{kind}[3, 3] w = "
        f"{{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{ {body} }}"
    )
    constants = Constants(graph)
    types = {"x": graph.types["x"]}
    together = resolve(graph, graph.nodes, types, constants, lambda node: None)
    for node in graph.nodes:
        alone = resolve(graph, [node], dict(types), constants, lambda node: None)
        types.update({name: alone.types[name] for name in node.outputs})
    assert {n: together.types[n] for n in types} == types


def test_a_body_whose_last_node_repeats_a_form_gives_its_owner_a_type():
    graph, _ = nodes_of("""g (bool c, float[3] x) => (y) {
        a = Neg(x)
        b = Neg(a)
        y = If(c) <then_branch = t () => (p) { p = Neg(b) },
                   else_branch = e () => (q) { q = Neg(a) }>
    }""")
    found = resolve_static(graph, Constants(graph), lambda node: None)
    assert found.types["p"] == found.types["y"] == f32(3)


def test_nodes_that_differ_in_an_attribute_or_a_size_are_of_two_forms():
    text = "g (float[3, 3] x) => (y) {{ y = Concat <axis = {axis}> (x, x) }}"
    first = form(text.format(axis=0), x=f32(3, 3))
    assert first == form(text.format(axis=0), x=f32(3, 3))
    assert first != form(text.format(axis=1), x=f32(3, 3))
    assert first != form(text.format(axis=0), x=f32(3, 4))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("g (int64[3] x) => (y) { y = Neg(x) }", TensorType("int64", (3,))),
        ("g (float[N] x) => (y) { y = Neg(x) }", f32("N")),
        ("g (float[3] x) => (y) { y = Identity(x) }", f32(3)),
        ("g (float[3] x) => (y) { y = Neg(x) }", None),
    ],
    ids=["integers are followed", "symbols", "not in the list", "no type"],
)
def test_no_form_is_given_where_more_than_types_may_decide(text, kind):
    assert form(text, x=kind) is None


class Counting(Toy):
    """Notes each node that it is asked about."""

    def __init__(self, table):
        super().__init__(table)
        self.asked = []

    def claim(self, node):
        self.asked.append(node.name)
        return super().claim(node)


def test_a_provider_is_asked_again_only_about_nodes_whose_sizes_were_open():
    toy = Counting(definitions_table("toy"))
    text = "g (float[3] x, float[N] z) => (y, v) { [a] y = Neg(x) [b] v = Neg(z) }"
    feeds = {"x": np.ones(3, np.float32), "z": np.ones(5, np.float32)}
    with closing(open_over(model(text), toy)) as pipeline:
        assert toy.asked == ["a", "b"]
        found = pipeline.run(feeds)
        assert toy.asked == ["a", "b", "b"]
    np.testing.assert_array_equal(found[1], -feeds["z"])


def test_a_provider_is_asked_again_where_a_folded_value_has_become_known():
    toy = Counting(definitions_table("toy"))
    text = """g (float[2] x) => (y) <float[2] c = {1, 2}>
        { [n] d = Neg(c) [a] y = Add(x, d) }"""
    with closing(open_over(model(text), toy)) as pipeline:
        found = pipeline.run({"x": np.ones(2, np.float32)})
        folded = pipeline.folding.nodes
    assert folded == ("n",)
    assert toy.asked.count("a") == 2
    np.testing.assert_array_equal(found[0], np.array([0, -1], np.float32))
