"""Seamline's FusedMatMul over the emulated device, and the rewrite that makes it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model
from tests.cpu.rewritten import model_of
from tests.cuda.emulation import check, drawn, opened, peer, run_kernel
from tests.cuda.test_matmul import refusal

from seamline_cuda.addends import spread_kernel

MORE = ', "seamline" : 1'


def text_of(rows, *, bias=True, residual=False, given="", kind="float"):
    inputs = f"{kind}[{rows},16] a, {kind}[16,8] b"
    inputs += f", {kind}[8] c" if bias else ""
    inputs += f", {kind}[{rows},8] d" if residual else ""
    names = ["a", "b", "c" if bias else '""', "d" if residual else '""']
    while names[-1] == '""':
        names.pop()
    return f"g ({inputs}) => ({kind}[{rows},8] y) {{ y = seamline.FusedMatMul<{given or 'transB = 0'}>({', '.join(names)}) }}"


def oracle_of(given):
    def oracle(_, f):
        y = f["a"].astype(float) @ f["b"].astype(float)
        y = (
            y
            + f.get("c", np.zeros(1)).astype(float)
            + f.get("d", np.zeros(1)).astype(float)
        )
        if "FastGelu" in given:
            y = y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        return [(np.maximum(y, 0) if "Relu" in given else y).astype(f["a"].dtype)]

    return oracle


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("given", ["", 'activation = "Relu"'])
@pytest.mark.parametrize(("bias", "residual"), [(True, False), (True, True)])
def test_a_product_with_what_follows_it(rows, given, bias, residual):
    text = text_of(rows, bias=bias, residual=residual, given=given)
    check(text, drawn(text, more=MORE), oracle=oracle_of(given), more=MORE)


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("activation", ["FastGelu", "Relu"])
def test_other_types_are_rounded_once_and_gelu_is_by_tanh(kind, rows, activation):
    given = f'activation = "{activation}"'
    text = text_of(rows, residual=True, given=given, kind=kind)
    check(text, drawn(text, more=MORE), oracle=oracle_of(given), more=MORE)


def test_operands_of_two_types_are_refused():
    text = text_of(4).replace("float[8] c", "float16[8] c")
    assert (
        refusal(text, MORE) == "its operands are float16, float32; one type is accepted"
    )


def test_another_activation_is_left_to_a_node_of_its_own():
    said = refusal(text_of(4, given='activation = "Sigmoid"'), MORE)
    assert said == "its activation is Sigmoid; Relu, FastGelu, or none, is accepted"


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
def test_the_optimizer_makes_one_product_of_a_layer_of_16_bits(rows):
    text = "g (float16[rows,16] a) => (float16[rows,8] y) { p = MatMul(a, b) q = Add(p, c) y = Relu(q) }"
    draw = np.random.default_rng(2).standard_normal
    stored = {n: draw(s).astype(np.float16) for n, s in (("b", (16, 8)), ("c", 8))}
    source, feeds = model_of(text, **stored), {"a": draw((rows, 16)).astype(np.float16)}
    with opened(source, graph_optimization_level="all") as pipeline:
        (got,) = pipeline.run(feeds)
        assert [node.op_type for node in pipeline.graph.nodes] == ["FusedMatMul"]
    want = feeds["a"].astype(float) @ stored["b"] + stored["c"]
    np.testing.assert_allclose(got, np.maximum(want, 0), rtol=2e-3, atol=2e-3)


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
