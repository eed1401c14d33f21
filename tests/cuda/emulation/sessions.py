"""
A model over the emulated device, eager and captured, held to an oracle.

``check`` runs a model four times: eager, as it is recorded, and replayed twice, with other
inputs each time, so that a value that was baked into the recording shows. Replays are
compared with runs of the same segment bit for bit as well (``verify_capture``), and nothing
may be left open at the end.
"""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model
from tests.cuda.emulation.installing import emulated

import seamline_cpu.plugin
import seamline_cuda.plugin
import seamline_reference.plugin
from seamline.devices import Gauges
from seamline.pipeline import Pipeline

LOOSE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-12}


@contextlib.contextmanager
def opened(source, *, providers=("cuda",), opset=23, more="", seed=0, **chosen):
    """Open a model (or its text) in emulation; gives the pipeline, and checks it closes clean."""
    source = model(source, opset, more) if isinstance(source, str) else source
    plugins = [seamline_cuda.plugin, seamline_cpu.plugin, seamline_reference.plugin]
    with emulated(seed):
        pipeline = Pipeline.open(
            source, providers=providers, plugins=plugins, settings=ALONE, **chosen
        )
        memory = pipeline.providers["cuda"].memory()
        try:
            yield pipeline
        finally:
            pipeline.close()
        assert memory.gauges() == Gauges()


def check(
    source, feeds, *, oracle=None, providers=("cuda",), opset=23, more="", rtol=None,
    atol=None, others=None, captured=True,
):  # fmt: skip
    """
    Run a model in emulation, eager and captured, and hold it to an oracle.

    Parameters
    ----------
    source
        A model, or its text in ONNX's own syntax without the first lines.
    feeds
        Arrays by input.
    oracle
        From a model and feeds to a list of outputs (None for one that is not looked at);
        :func:`defined`, by ``onnx.reference``, where left out. :func:`peer` is onnxruntime.
    rtol, atol
        How far floats may be off; by element type where left out.
    others
        Feeds of the later runs; ``feeds`` moved and scaled where left out.
    captured
        Whether every segment of ``cuda`` must have been recorded.

    Returns
    -------
    dict
        Outputs of the first run.
    """
    source = model(source, opset, more) if isinstance(source, str) else source
    runs = [feeds, *(others or [changed(feeds, n) for n in (1, 2, 3)])]
    first = None
    with opened(source, providers=providers, verify_capture=2) as pipeline:
        for given in runs:
            found = pipeline.run(given)
            want = (oracle or defined)(source, given)
            for name, x, y in zip(pipeline.graph.outputs, found, want, strict=True):
                if y is not None:
                    hold(name, x, y, rtol, atol)
            first = first or dict(zip(pipeline.graph.outputs, found, strict=True))
        if captured:
            segments = pipeline.explain().data["plan"]["segments"]
            mine = [s["capture"] for s in segments if s["provider"] == "cuda"]
            states = [(one["state"], one["why"]) for one in mine if one]
            assert states, "nothing ran on the device"
            assert all(state == "recorded" for state, _ in states), states
    return first


def defined(source, feeds):
    """Give outputs by the definition."""
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(source).run(None, feeds)


def peer(source, feeds):
    """Give outputs by onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(source.SerializeToString())
    return session.run(None, feeds)


def hold(name, found, want, rtol=None, atol=None):
    """Assert that an output has the type, shape and values that it should."""
    found, want = np.asarray(found), np.asarray(want)
    assert found.shape == want.shape, f"{name}: {found.shape}, want {want.shape}"
    assert found.dtype == want.dtype, f"{name}: {found.dtype}, want {want.dtype}"
    if want.dtype.name not in LOOSE:
        np.testing.assert_array_equal(found, want, err_msg=name)
        return
    rtol = LOOSE[want.dtype.name] if rtol is None else rtol
    atol = LOOSE[want.dtype.name] / 10 if atol is None else atol
    np.testing.assert_allclose(
        found.astype(np.float64), want.astype(np.float64), rtol, atol, err_msg=name
    )


def changed(feeds, times):
    """
    Give other values of the same types: moved by places, and floats scaled as well.

    Whole numbers are only moved, so that indices stay within what they index. A single one
    stays as it is.
    """
    found = {}
    for name, value in feeds.items():
        value = np.asarray(value)
        moved = np.asarray(np.roll(value, times))
        if value.dtype.kind not in "iubSUO":
            moved = (moved.astype(np.float64) * (1 - 0.25 * times)).astype(value.dtype)
        found[name] = np.asarray(moved).reshape(value.shape)
    return found


def drawn(source, seed=0, opset=23, more=""):
    """Draw a model's inputs by their declared types: normal floats, whole numbers 1 to 49."""
    source = model(source, opset, more) if isinstance(source, str) else source
    found, spread = {}, np.random.default_rng(seed)
    for value in source.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        array = np.asarray(spread.standard_normal(shape))
        if dtype.kind in "iu":
            array = spread.integers(1, 50, shape)
        found[value.name] = array > 0 if dtype.kind == "b" else array.astype(dtype)
    return found
