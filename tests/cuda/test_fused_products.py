"""Seamline's FusedMatMul over the emulated device, and the rewrite that makes it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.emulation import check, drawn, opened, peer, run_kernel
from tests.cuda.test_matmul import refusal

from seamline_cuda.addends import spread_kernel

MORE = ', "seamline" : 1'


def text_of(rows, *, bias=True, residual=False, given=""):
    inputs = f"float[{rows},16] a, float[16,8] b"
    inputs += ", float[8] c" if bias else ""
    inputs += f", float[{rows},8] d" if residual else ""
    names = ["a", "b", "c" if bias else '""', "d" if residual else '""']
    while names[-1] == '""':
        names.pop()
    return f"g ({inputs}) => (float[{rows},8] y) {{ y = seamline.FusedMatMul<{given or 'transB = 0'}>({', '.join(names)}) }}"


def oracle_of(given):
    def oracle(_, f):
        y = f["a"].astype(float) @ f["b"].astype(float)
        y = y + f.get("c", 0) + f.get("d", 0)
        return [(np.maximum(y, 0) if "Relu" in given else y).astype(np.float32)]

    return oracle


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("given", ["", 'activation = "Relu"'])
@pytest.mark.parametrize(("bias", "residual"), [(True, False), (True, True)])
def test_a_product_with_what_follows_it(rows, given, bias, residual):
    text = text_of(rows, bias=bias, residual=residual, given=given)
    check(text, drawn(text, more=MORE), oracle=oracle_of(given), more=MORE)


def test_another_activation_is_left_to_a_node_of_its_own():
    said = refusal(text_of(4, given='activation = "Sigmoid"'), MORE)
    assert said == "its activation is Sigmoid; Relu, or none, is accepted"


def test_a_bias_that_lies_oddly_is_spread_before():
    """The bias is a row of a matrix of three columns, whose rows are no 16 bytes."""
    text = """g (float[4,16] a, float[16,3] b, float[2,3] s, int64 i) => (float[4,3] y) {
        c = Gather<axis = 0>(s, i)  y = Gemm(a, b, c) }"""
    feeds = drawn(text) | {"i": np.array(1)}
    check(text, feeds, oracle=peer, providers=("cuda", "cpu"), captured=False)


def test_an_operand_is_spread_onto_another():
    out = np.zeros((3, 4), np.float32)
    row, onto = np.arange(4, dtype=np.float32), np.ones((3, 4), np.float32)
    run_kernel(spread_kernel("float32"), row, onto.reshape(-1), out.reshape(-1), 12, 4, 3, 0, 1, 1, 2.0)  # fmt: skip
    np.testing.assert_array_equal(out, 2 * row + onto)


WEIGHTS = ", ".join(str(n % 7 - 3) for n in range(128))
LAYER = f"""g (float[rows,16] a) => (float[rows,8] y) <float[16,8] b = {{{WEIGHTS}}},
    float[8] c = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{
    p = MatMul(a, b) q = Add(p, c) y = Relu(q) }}"""


@pytest.mark.parametrize("rows", [1, 4])
def test_the_optimizer_makes_one_product_of_a_layer(rows):
    feeds = {"a": drawn(f"g (float[{rows},16] a) => (float y) {{ y = Relu(a) }}")["a"]}
    with opened(LAYER, graph_optimization_level="all") as pipeline:
        (got,) = pipeline.run(feeds)
        assert [node.op_type for node in pipeline.graph.nodes] == ["FusedMatMul"]
        (choice,) = pipeline.runner.latest().plan.choices.values()
        assert choice.claim.variant == ("vector" if rows == 1 else "cublaslt")
    np.testing.assert_allclose(
        got, peer(model(LAYER, 23), feeds)[0], rtol=1e-5, atol=1e-5
    )
