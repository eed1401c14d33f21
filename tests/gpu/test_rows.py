"""
Rows, windows and ranks on a GPU: sizes of real models, eager, recorded and replayed.

They are held to the definition in float64. A result is rounded once to its type, which is
half of a last place; before that it came of additions in float32, each of which rounds a part
no greater than twice the greatest result, so that many of them in a row are allowed for.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model
from tests.cuda.emulation.sessions import peer
from tests.cuda.test_compiling_rows import NODES
from tests.gpu.test_device_sessions import Opened, feeds_of

import seamline_cuda.plugin
from seamline.pipeline import Pipeline

SKIP = """g (float[2,9,3000] x, float[9,3000] s, float[3000] w, float[3000] b, float[3000] c)
    => (float[2,9,3000] y, float[2,9,3000] t)
    { y, , , t = com.microsoft.SkipLayerNormalization(x, s, w, b, c) }"""
#: What a replay must find anew: rows that blocks share meet in a workspace.
SHARED = {
    "softmax": "g (float[1,151936] x) => (float[1,151936] y) { y = Softmax(x) }",
    "sums": "g (float[2,300000] x) => (float[2,300000] y) <int64 a = {1}> { y = CumSum(x, a) }",
    "least": "g (float[50000,3] x) => (int64[1,3] y) { y = ArgMin<axis = 0>(x) }",
    "ranks": """g (float[1,151936] x) => (float[1,50] v, int64[1,50] i) <int64[1] k = {50}>
        { v, i = TopK(x, k) }""",
    "every rank": """g (float[1,9000] x) => (float[1,8000] v, int64[1,8000] i) <int64[1] k = {8000}>
        { v, i = TopK<largest = 0>(x, k) }""",
}
DEEP = 64  #: additions in a row: of a thread, of a warp, of a block's warps, of blocks


def defined(text, feeds):
    """Give outputs by the definition, floats in float64."""
    wide = re.sub(r"\b(b?float16|float)\b", "double", text)
    given = {
        n: x if x.dtype.kind in "iub" else x.astype(float) for n, x in feeds.items()
    }
    reference = ReferenceEvaluator(model(wide, 23))
    with np.errstate(
        all="ignore"
    ):  # variances are drawn as well, and some are negative
        wanted = reference.run(None, given)
    return dict(zip(reference.output_names, wanted, strict=True))


def within(name, got, want):
    """Assert that an output is its definition, as nearly as its type and float32 allow."""
    assert got.shape == want.shape
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    kept = ml_dtypes.finfo(got.dtype)
    added = DEEP * np.finfo(np.float32).eps * np.nanmax(np.abs(want))
    least = float(kept.smallest_subnormal) / 2
    np.testing.assert_allclose(
        got.astype(float), want, float(kept.eps) / 2, added + least, err_msg=name
    )


def hold(text, got, feeds):
    for name, want in defined(text, feeds).items():
        within(name, got[name], want)


@pytest.mark.parametrize("name", [n for n in NODES if n != "skip_warp"])
def test_every_node_of_the_table_computes_what_the_standard_says(name):
    text = NODES[name]
    feeds = feeds_of(text)
    with Opened(text) as session:
        hold(text, session.run(feeds), feeds)


def test_a_skip_connection_is_what_onnxruntime_has():
    source, feeds = model(SKIP, 21, ', "com.microsoft" : 1'), feeds_of(SKIP)
    pipeline = Pipeline.open(
        source, providers=("cuda",), plugins=[seamline_cuda.plugin], settings=ALONE
    )
    try:
        for _ in range(3):
            found = pipeline.run(feeds)
            for name, got, want in zip("yt", found, peer(source, feeds), strict=True):
                assert got.dtype == want.dtype
                within(name, got, want.astype(float))
    finally:
        pipeline.close()


@pytest.mark.parametrize("name", SHARED)
def test_rows_that_blocks_share_are_replayed_with_other_values(name):
    text = SHARED[name]
    with Opened(text, verify=3) as session:
        for seed in range(5):
            feeds = feeds_of(text, seed)
            hold(text, session.run(feeds), feeds)
        (segment,) = session.captured
        assert segment.state == "recorded"


def test_ties_of_a_long_row_are_the_lowest_indices():
    text = """g (float[2,100000] x) => (float[2,70] v, int64[2,70] i) <int64[1] k = {70}>
        { v, i = TopK(x, k) }"""
    x = np.zeros((2, 100000), np.float32)
    x[1, 5::1000] = 1
    with Opened(text) as session:
        places = session.run({"x": x})["i"]
    assert places[0].tolist() == list(range(70))
    assert places[1].tolist() == list(range(5, 70000, 1000))
