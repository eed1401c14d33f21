"""
Models that onnxruntime's quantiser wrote, in each of its formats: recorded, and right.

A quantised model is compared with the floats that it was made from, as close as bytes come,
and with onnxruntime on the same file. Weights have seven bits, with which onnxruntime's
products are exact on processors without VNNI too.
"""

from __future__ import annotations

import functools
import logging
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from tests.cpu.quantised import MODELS, Feeds, fed, inferred

from seamline.pipeline import Pipeline

FORMATS = {
    "operators": {"quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8},
    "operators_by_channel": {
        "quant_format": QuantFormat.QOperator, "activation_type": QuantType.QUInt8,
        "per_channel": True,
    },
    "pairs": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8},
    "pairs_of_signed_by_channel": {
        "quant_format": QuantFormat.QDQ, "activation_type": QuantType.QInt8,
        "per_channel": True,
    },
    "dynamic": None,
    "dynamic_of_unsigned_weights": QuantType.QUInt8,
}  # fmt: skip
#: How far bytes may be from the floats that they stand for, as a share of the largest.
NEAR = {"convolutional": 0.1, "encoder": 0.1, "recurrent": 0.1}


@functools.cache
def floats(name):
    build, _ = MODELS[name]
    return inferred(build())


@functools.cache
def quantised(name, form, folder):
    """Quantise a model; give the file, the float model's answer and the feeds."""
    _, shape = MODELS[name]
    source, target = folder / f"{name}.onnx", folder / f"{name}.{form}.onnx"
    onnx.save(floats(name), source)
    given = FORMATS[form]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        if form.startswith("dynamic"):
            quantize_dynamic(
                source, target, weight_type=given or QuantType.QInt8, reduce_range=True,
                op_types_to_quantize=["Conv", "MatMul", "Gemm", "LSTM", "Gather"],
            )  # fmt: skip
        else:
            quantize_static(
                source, target, Feeds(shape), weight_type=QuantType.QInt8,
                reduce_range=True, **given,
            )  # fmt: skip
        logging.disable(logging.NOTSET)
    feeds = fed(shape, 7)
    return target, answer(source, feeds), feeds


def answer(path, feeds):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quantised")


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_a_quantised_model_is_recorded_and_gives_what_it_should(
    name, form, level, folder
):
    path, real, feeds = quantised(name, form, folder)
    pipeline = Pipeline.open(path, graph_optimization_level=level)
    for _ in range(3):
        (got,) = pipeline.run(feeds)
    plan = pipeline.explain().data["plan"]
    pipeline.close()
    size = np.abs(real).max()
    assert np.abs(got - real).max() <= NEAR[name] * size
    assert np.abs(got - answer(path, feeds)).max() <= NEAR[name] / 2 * size
    for segment in plan["segments"]:
        assert segment["capture"]["state"] == "recorded"
        assert not segment["capture"]["left"]
    assert not any(node["not_capturable"] for node in plan["nodes"].values())
