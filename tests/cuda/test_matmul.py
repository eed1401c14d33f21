"""MatMul, Gemm and FusedMatMul over the emulated device: the definition, then onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.emulation import check, drawn, opened, peer

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernels import KernelProvider
from seamline.provider import Refusal, view_of
from seamline_cuda.stacks import Stacks
from seamline_cuda.table import TABLE


def product(a, b, y, kind="float"):
    def dims(sizes):
        return ",".join(map(str, sizes))

    return f"g ({kind}[{dims(a)}] a, {kind}[{dims(b)}] b) => ({kind}[{dims(y)}] y) {{ y = MatMul(a, b) }}"


def multiplied(_, feeds):
    """Multiply in float64, and round once."""
    a, b = feeds["a"], feeds["b"]
    return [np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)]


RANKS = {
    "two matrices": ((3, 4), (4, 5), (3, 5)),
    "a row and a matrix": ((4,), (4, 5), (5,)),
    "a matrix and a column": ((3, 4), (4,), (3,)),
    "two vectors": ((4,), (4,), ()),
    "a stack and one matrix": ((2, 3, 4), (4, 5), (2, 3, 5)),
    "one matrix and a stack": ((3, 4), (2, 4, 5), (2, 3, 5)),
    "two stacks": ((2, 3, 4), (2, 4, 5), (2, 3, 5)),
    "stacks that repeat in turn": ((2, 1, 3, 4), (3, 4, 5), (2, 3, 3, 5)),
    "stacks of stacks": ((2, 1, 2, 3, 4), (1, 3, 1, 4, 5), (2, 3, 2, 3, 5)),
    "a vector and a stack": ((4,), (2, 4, 5), (2, 5)),
    "a stack and a vector": ((2, 3, 4), (4,), (2, 3)),
    "no rows": ((0, 4), (4, 5), (0, 5)),
    "no columns": ((3, 4), (4, 0), (3, 0)),
    "nothing to sum": ((3, 0), (0, 5), (3, 5)),
    "an empty stack": ((0, 3, 4), (1, 4, 5), (0, 3, 5)),
}


@pytest.mark.parametrize("name", RANKS)
def test_matmul_by_ranks(name):
    text = product(*RANKS[name])
    check(text, drawn(text), oracle=multiplied)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
def test_matmul_by_types(kind):
    text = product((2, 6, 16), (16, 24), (2, 6, 24), kind)
    check(text, drawn(text), oracle=multiplied)


C_FORMS = [(3, 5), (1, 5), (5,), (3, 1), (1, 1), (1,), ()]


@pytest.mark.parametrize("form", C_FORMS)
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_gemm_adds_c_in_each_form(form, beta):
    dims = f"float[{','.join(map(str, form))}]" if form else "float"
    text = f"g (float[3,4] a, float[4,5] b, {dims} c) => (float[3,5] y) {{ y = Gemm<alpha = 2.0, beta = {beta}>(a, b, c) }}"
    check(text, drawn(text))
    check(text, drawn(text), oracle=peer)


@pytest.mark.parametrize(
    "turned", ["transA = 1", "transB = 1", "transA = 1, transB = 1"]
)
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_gemm_takes_operands_that_are_stored_the_other_way(turned, kind):
    a = "6,8" if "transA" not in turned else "8,6"
    b = "8,10" if "transB" not in turned else "10,8"
    text = f"g ({kind}[{a}] a, {kind}[{b}] b, {kind}[10] c) => ({kind}[6,10] y) {{ y = Gemm<{turned}>(a, b, c) }}"
    check(text, drawn(text))


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
def test_gemm_of_each_version(opset):
    text = "g (float[3,4] a, float[4,5] b, float[5] c) => (float[3,5] y) { y = Gemm(a, b, c) }"
    check(text, drawn(text), opset=opset)


def test_gemm_without_c_and_with_nothing_to_sum():
    text = "g (float[3,4] a, float[4,5] b) => (float[3,5] y) { y = Gemm(a, b) }"
    check(text, drawn(text), opset=13)
    text = "g (float[3,0] a, float[0,5] b, float[3,1] c) => (float[3,5] y) { y = Gemm<beta = 3.0>(a, b, c) }"
    check(text, drawn(text), oracle=lambda _, f: [np.repeat(f["c"] * 3, 5, 1)])


FUSED = {
    "transA = 1": ((2, 4, 3), (2, 4, 5)),
    "transB = 1": ((2, 3, 4), (2, 5, 4)),
    "transA = 1, transB = 1, alpha = 0.125": ((2, 4, 3), (2, 5, 4)),
    "transBatchA = 1": ((3, 2, 4), (2, 4, 5)),
    "transBatchB = 1": ((2, 3, 4), (4, 2, 5)),
    "transBatchA = 1, transA = 1, transBatchB = 1, transB = 1": ((4, 2, 3), (5, 2, 4)),
}


@pytest.mark.parametrize("given", FUSED)
def test_fused_matmul_turns_operands_as_onnxruntime_does(given):
    a, b = (",".join(map(str, sizes)) for sizes in FUSED[given])
    text = f"g (float[{a}] a, float[{b}] b) => (float[2,3,5] y) {{ y = com.microsoft.FusedMatMul<{given}>(a, b) }}"
    more = ', "com.microsoft" : 1'
    check(text, drawn(text, more=more), oracle=peer, more=more)


def refusal(text, more=""):
    provider = KernelProvider(TABLE, device=Device("cuda"))
    graph = load(model(text, 23, more))
    constants = Constants(graph)
    types = dict(collect(graph, [provider], constants).types)
    answer = provider.claim(view_of(graph.nodes[0], types, constants.get))
    assert isinstance(answer, Refusal)
    return str(answer)


def test_stacks_join_what_is_stepped_through_alike():
    assert Stacks.of((2, 3), (2, 3)) == Stacks(6, 1, 1, ((0, 0, 0),), 1)
    assert Stacks.of((2, 3), ()) == Stacks(6, 1, 0, ((0, 0, 0),), 1)
    assert Stacks.of((2, 1), (1, 7)) == Stacks(7, 0, 1, ((0, 0, 0), (1, 0, 7)), 1)


def test_a_rank_that_is_found_by_running_is_multiplied():
    text = """g (bool b, float[2,3,4] x, float[4,5] w) => (float[] y)
        { t = If(b) <then_branch = q () => (float[2,3,4] u) { u = Neg(x) },
            else_branch = e () => (float[3,4] v) <int64[1] k = {0}> { v = ReduceMax<keepdims = 0>(x, k) }>
          z = MatMul(t, w)  y = ReduceSum<keepdims = 0>(z) }"""
    spread = np.random.default_rng(6)
    x, w = (spread.standard_normal(s).astype(np.float32) for s in ((2, 3, 4), (4, 5)))
    with opened(text) as pipeline:
        for branch, left in ((True, -x), (False, x.max(axis=0)), (True, -x)):
            (found,) = pipeline.run({"x": x, "w": w, "b": np.array(branch)})
            np.testing.assert_allclose(found, (left @ w).sum(), 1e-4)
        places = {one.provider for one in pipeline.placement.choices.values()}
        assert places == {"core", "cuda"}
