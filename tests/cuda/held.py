"""
Runs models over provider ``cuda`` alone, on a GPU or over the emulation, and holds them.

A model runs three times with other feeds each: as a warm-up, recorded, and replayed. The
oracle is ONNX's reference, or a function of the feeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model

import seamline_cuda.plugin
from seamline.devices import Gauges
from seamline.pipeline import Pipeline


@attrs.frozen
class Case:
    """
    A model and its feeds.

    Attributes
    ----------
    text
        In ONNX's own syntax.
    given
        Makes feeds that are not drawn freely, such as indices.
    want
        Gives outputs by name; where left out, ONNX's reference does.
    """

    text: str
    given: Callable[[Any], dict[str, Any]] = lambda spread: {}
    want: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    opset: int = 23
    rtol: float = 0

    @property
    def model(self):
        more = ', "com.microsoft": 1' if "com.microsoft" in self.text else ""
        return model(self.text, self.opset, more)

    def feeds(self, seed):
        """Draw a model's inputs."""
        spread, found = np.random.default_rng(seed), {}
        for value in self.model.graph.input:
            kind = value.type.tensor_type
            shape = [d.dim_value for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            array = np.asarray(spread.standard_normal(shape) * 5)
            found[value.name] = array > 0 if dtype.kind == "b" else array.astype(dtype)
        return found | self.given(spread)

    def wanted(self, feeds):
        if self.want is not None:
            return self.want(feeds)
        reference = ReferenceEvaluator(self.model)
        names = reference.output_names
        with np.errstate(all="ignore"):
            return dict(zip(names, reference.run(None, feeds), strict=True))


def opened(source, **settings):
    return Pipeline.open(
        source,
        providers=("cuda",),
        plugins=[seamline_cuda.plugin],
        settings=ALONE,
        **settings,
    )


def hold(case, runs=3, **settings):
    """Run a case; give the names of its launches, and what happened to its segments."""
    pipeline = opened(case.model, **settings)
    memory = pipeline.providers["cuda"].memory()
    try:
        for seed in range(runs):
            feeds = case.feeds(seed)
            got = dict(zip(pipeline.graph.outputs, pipeline.run(feeds), strict=True))
            for name, want in case.wanted(feeds).items():
                same(got[name], np.asarray(want), case.rtol, f"run {seed}: {name}")
        captured = list(pipeline.runner.latest().captured.values())
        launched = [one.kernel for c in captured for one in c.executable.launches]
        return launched, [c.events for c in captured]
    finally:
        pipeline.close()
        assert memory.gauges() == Gauges()


def same(got, want, rtol, said):
    assert (got.dtype, got.shape) == (want.dtype, want.shape), said
    if want.dtype.kind in "iub" or not rtol:
        if got.dtype in (ml_dtypes.bfloat16, np.float16):
            got, want = got.astype(np.float32), want.astype(np.float32)
        np.testing.assert_array_equal(got, want, err_msg=said)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=said)
