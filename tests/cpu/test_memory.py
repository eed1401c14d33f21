"""What a model of packed weights keeps: its packed bytes, and little beside them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.bench.bench_memory import measured, weights_model, written

from seamline.external_data import MappedTensor
from seamline.pipeline import Pipeline

MEGABYTES = 96  #: of codes; the record under docs/performance has 256

linux = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"),
    reason="only Linux says what is resident",
)


@linux
@pytest.mark.parametrize("beside", [True, False], ids=["beside", "inside"])
def test_a_model_takes_no_more_than_its_packed_weights_and_a_seventh(tmp_path, beside):
    said = measured(tmp_path, MEGABYTES, beside=beside)
    assert said["declared"] > MEGABYTES * 2**20
    assert said["all"] < 1.15 * said["declared"], said
    # While one of three weights is packed its own pages are there too, and inside of a
    # file that does not align them, copies of all scales.
    assert said["peak"] < 1.75 * said["declared"], said
    assert said["sum"] != 0


@linux
def test_scales_of_bfloat16_that_float16_has_not_cost_no_more(tmp_path):
    said = measured(tmp_path, MEGABYTES, "bfloat16", odd=True)
    assert said["all"] < 1.15 * said["declared"], said
    codes = MEGABYTES * 2**20
    assert said["declared"] == pytest.approx(codes * (1 + 2 / 16), rel=0.01)


def test_constants_that_were_let_go_are_read_again_where_another_kernel_wants_them(
    tmp_path,
):
    """Both nodes read the codes: one packs them, one adds them up."""
    model = weights_model(64, 512, 1, "float32")
    node = model.graph.node.add(
        op_type="Cast", input=["b0"], output=["wide"], name="cast"
    )
    node.attribute.add(name="to", i=1, type=2)
    model.graph.node.add(
        op_type="ReduceSum", input=["wide"], output=["total"], name="sum"
    )
    model.graph.output.add(name="total").type.tensor_type.elem_type = 1
    codes = np.frombuffer(model.graph.initializer[0].raw_data, np.uint8)
    path = written(model, tmp_path / "model.onnx", beside=True)
    pipeline = Pipeline.open(path, providers=["cpu"])
    x = np.ones((1, 64), np.float32)
    for _ in range(3):
        y, total = pipeline.run({"x": x})
        assert total.item() == codes.sum()
    tensor = pipeline.graph.constants["b0"]
    assert isinstance(tensor, MappedTensor)
    pipeline.graph.rest("b0")
    assert np.array_equal(pipeline.graph.constant("b0").ravel(), codes)
    assert np.array_equal(pipeline.run({"x": x})[0], y)
    pipeline.close()


def test_the_part_of_a_file_that_is_let_go_is_whole_pages_of_the_tensor_alone(tmp_path):
    path = written(
        weights_model(64, 512, 2, "float32"), tmp_path / "m.onnx", beside=True
    )
    pipeline = Pipeline.open(path, providers=["cpu"])
    before = {name: pipeline.graph.constant(name).copy() for name in ("b0", "s0", "b1")}
    for name in before:
        pipeline.graph.rest(name)
        pipeline.graph.rest(name)
    for name, want in before.items():
        assert np.array_equal(pipeline.graph.constant(name), want)
    pipeline.graph.rest("no such name")
    pipeline.close()
