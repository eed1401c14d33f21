"""Real models: over ``cpu`` alone, and cut between ``cpu`` and ``onnxruntime``."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.forced import assert_alike_where_forced
from tests.models.inputs import MODELS

import seamline
from seamline.pipeline import Pipeline

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.models

# Relative error, and absolute error as a share of the largest value: sums over thousands
# of products are added in another order. Integers, bools and strings are equal.
TOLERANCES = {"float64": (1e-6, 1e-7), "float32": (1e-3, 1e-4), "float16": (1e-2, 1e-2)}


class Watching:
    """A plugin that keeps the name and provider of every segment that has run."""

    CONTRACT_VERSION = 1

    def __init__(self):
        self.segments = []

    @seamline.hookimpl
    def seamline_segment_finished(self, segment, provider):
        self.segments.append((segment, provider))


def onnxruntimes_answer(path, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def assert_close(got, want):
    assert len(got) == len(want)
    for index, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.dtype == w.dtype, f"output {index}"
        assert g.shape == w.shape, f"output {index}"
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w, err_msg=f"output {index}")
            continue
        relative, share = TOLERANCES[w.dtype.name]
        absolute = share * float(np.abs(w).max(initial=0))
        np.testing.assert_allclose(
            g, w, rtol=relative, atol=absolute, err_msg=f"output {index}"
        )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_cpu_alone_gives_onnxruntimes_answer(model, there):
    path = there(model)
    feeds = model.feeds(path)
    with seamline.InferenceSession(
        path, providers=["cpu"], fallback="error"
    ) as session:
        first = session.run(None, feeds)
        again = session.run(None, feeds)
    if model.quantises:
        assert_alike_where_forced(path, feeds, first, providers=["cpu"])
    else:
        assert_close(first, onnxruntimes_answer(path, feeds))
    model.means(first, path)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_optimization_changes_no_answer(model, there):
    path = there(model)
    feeds = model.feeds(path)
    answers = {}
    for level in ("none", "basic", "all"):
        pipeline = Pipeline.open(path, graph_optimization_level=level)
        answers[level] = pipeline.run(feeds)
        pipeline.close()
    assert_close(answers["basic"], answers["none"])
    assert_close(answers["all"], answers["none"])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_graph_cut_between_two_providers_gives_the_same_answer(model, there):
    path = there(model)
    feeds = model.feeds(path)
    watching = Watching()
    with seamline.InferenceSession(
        path,
        providers=["cpu", ("onnxruntime", {"num_threads": 2})],
        pins=model.pins,
        fallback="error",
        plugins=[watching],
    ) as session:
        got = session.run(None, feeds)
        pieces = [g.ep_name for g in session.get_provider_graph_assignment_info()]
    assert sum(name in ("cpu", "onnxruntime") for name in pieces) >= 3
    assert {"cpu", "onnxruntime"} <= set(pieces)
    if "core" not in pieces:  # observers hear of no segment inside a body
        assert len(set(watching.segments)) >= 3, watching.segments
        assert {provider for _, provider in watching.segments} == {"cpu", "onnxruntime"}
    if not model.quantises:
        assert_close(got, onnxruntimes_answer(path, feeds))
    model.means(got, path)
