"""Kernels of rows, windows and ranks compile for every architecture, spill nothing, fit a block."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cuda.plain import nodes_of

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from seamline.kernel import Call
from seamline_cuda.compiler import compiled, ptx_of
from seamline_cuda.table import TABLE
from seamline_cuda.works import KernelWork

ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
_ROW = "<int64[1] a = {1}>"

#: One node each, chosen so that every text that a generator writes is among them.
NODES = {
    "sum_warp": f"g (float16[512,60] x) => (float16[512,1] y) {_ROW} {{ y = ReduceSum(x, a) }}",
    "greatest_tall": "g (bfloat16[4000,70] x) => (bfloat16[1,70] y) <int64[1] a = {0}> { y = ReduceMax(x, a) }",
    "mean_of_integers": f"g (int64[9,60,4] x) => (int64[9,1,4] y) {_ROW} {{ y = ReduceMean(x, a) }}",
    "softmax_warp": "g (float16[512,128] x) => (float16[512,128] y) { y = Softmax(x) }",
    "argmax": "g (float[3,200000] x) => (int64[3,1] y) { y = ArgMax<axis = 1>(x) }",
    "layer_held": """g (float16[9,4096] x, float16[4096] w, float16[4096] b) => (float16[9,4096] y)
        { y = LayerNormalization(x, w, b) }""",
    "rms_long": "g (float16[900,8192] x, float16[8192] w) => (float16[900,8192] y) { y = RMSNormalization(x, w) }",
    "skip_warp": """g (float16[2,9,64] x, float16[9,64] s, float16[64] w, float16[64] b, float16[64] c)
        => (float16[2,9,64] y, float16[2,9,64] t) { y, , , t = com.microsoft.SkipLayerNormalization(x, s, w, b, c) }""",
    "groups": """g (float16[1,320,64,64] x, float16[320] w, float16[320] b) => (float16[1,320,64,64] y)
        { y = GroupNormalization<num_groups = 32>(x, w, b) }""",
    "batch": """g (float[1,64,56,56] x, float[64] s, float[64] b, float[64] m, float[64] v)
        => (float[1,64,56,56] y) { y = BatchNormalization(x, s, b, m, v) }""",
    "window_largest": """g (float[1,64,56,56] x) => (float[1,64,28,28] y, int64[1,64,28,28] i)
        { y, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }""",
    "window_mean": """g (float16[1,8,9,9,9] x) => (float16[1,8,8,8,8] y)
        { y = AveragePool<kernel_shape = [2, 2, 2], count_include_pad = 1>(x) }""",
    "cumulated": "g (float[4,100000] x) => (float[4,100000] y) <int64 a = {1}> { y = CumSum(x, a) }",
    "ranked_short": """g (float[512,128] x) => (float[512,8] v, int64[512,8] i) <int64[1] k = {8}>
        { v, i = TopK(x, k) }""",
    "ranked_parts": """g (float[1,151936] x) => (float[1,50] v, int64[1,50] i) <int64[1] k = {50}>
        { v, i = TopK(x, k) }""",
}  # fmt: skip
LISTED = tomllib.loads(Path(__file__).with_name("row_registers.toml").read_text())


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEAMLINE_CACHE_DIR", str(tmp_path))


def works_of(text):
    """Give what a node's kernel would launch, over places that nobody reads."""
    (node,), _ = nodes_of(text, 23)
    kernel = TABLE.find(node)
    place = lambda kind: None if kind is None else SimpleNamespace(address=64, shape=kind.sizes, kind=kind)  # noqa: E731  # fmt: skip
    inputs = tuple(
        node.constant(i) if i in kernel.host_inputs else place(kind)
        for i, kind in enumerate(node.inputs)
    )
    outputs = tuple(map(place, node.outputs))
    call = Call(node, inputs, outputs, None, {}, SimpleNamespace(address=64))
    return [work for work in kernel.function(call) if isinstance(work, KernelWork)]


@pytest.mark.parametrize("name", NODES)
def test_a_node_compiles_everywhere_within_its_listed_registers_and_spills_nothing(
    name,
):
    for major, minor in ARCHITECTURES:
        most = 0
        for work in works_of(NODES[name]):
            made = compiled(work.kernel, (major, minor))
            assert made.spilled == 0
            # Registers are handed out by eights, and a multiprocessor has 65536.
            assert -(-made.registers // 8) * 8 * work.threads <= 65536
            most = max(most, made.registers)
        listed = LISTED[name][f"sm_{major}{minor}"]
        assert listed - 8 <= most <= listed


def test_the_table_lists_these_nodes_and_no_other():
    assert set(LISTED) == set(NODES)


@pytest.mark.parametrize(
    "name", ["softmax_warp", "skip_warp", "batch", "window_mean", "cumulated"]
)
def test_rows_of_32_and_16_bits_never_compute_in_64(name):
    for work in works_of(NODES[name]):
        text = ptx_of(work.kernel, (9, 0)).decode()
        assert [line for line in text.splitlines() if ".f64" in line] == []


def test_an_integer_never_passes_through_a_float():
    for work in works_of(NODES["mean_of_integers"]):
        text = ptx_of(work.kernel, (9, 0)).decode()
        assert [
            line for line in text.splitlines() if ".f64" in line or ".f32" in line
        ] == []


def test_every_block_has_room_for_as_many_threads():
    for text in NODES.values():
        assert all(work.threads <= 512 for work in works_of(text))
