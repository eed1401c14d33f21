"""Run a model as it is and as graph optimization rewrites it, over the provider ``cpu``."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.helper as oh
from onnx import numpy_helper, parser

from seamline.pipeline import Pipeline


def model_of(text, opset=17, **constants):
    """Parse a graph, and store arrays in it under their names."""
    graph = parser.parse_graph(text)
    for name, array in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    opsets = [oh.make_opsetid("", opset)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=8)


class Both:
    """What a model gives unoptimized and optimized, after a recording, and what was done."""

    def __init__(self, model, feeds, level="all"):
        self.plain, _, _ = _run(model, feeds, "none")
        self.given, graph, optimized = _run(model, feeds, level)
        self.ops = Counter(node.qualified_op for node in graph.nodes)
        self.rules = Counter(rewrite.rule for rewrite in optimized.rewrites)
        self.left = {one.rule: one.why for one in optimized.left}

    def are_alike(self, rtol=1e-5, share=1e-6):
        """Assert that both give the same, to float32's rounding of another order."""
        for one, other in zip(self.plain, self.given, strict=True):
            assert one.dtype == other.dtype
            atol = share * float(np.abs(one).max(initial=0)) + 1e-7
            np.testing.assert_allclose(other, one, rtol=rtol, atol=atol)


def _run(model, feeds, level):
    pipeline = Pipeline.open(
        onnx.ModelProto.FromString(model.SerializeToString()),
        graph_optimization_level=level,
    )
    try:
        first = pipeline.run(feeds)
        for _ in range(2):  # the second run records, the third replays
            again = pipeline.run(feeds)
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        return again, pipeline.graph, pipeline.optimized
    finally:
        pipeline.close()
