"""A model that cannot be opened leaves nothing of its files mapped or open."""

from __future__ import annotations

import gc
import os

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline
from seamline_testing.twin import Fault, Faults, How, Step
from seamline_testing.twin.plugin import TwinPlugin

f32 = np.float32
SIZE = 1 << 14


def saved(folder, *, op="Add", spoil=None):
    """Save a model whose weights lie in ``weights.bin``; ``spoil`` changes it first."""
    float1 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["v"], "neg"),
         helper.make_node(op, ["x", "v"], ["y"], "last")],
        "g",
        [helper.make_tensor_value_info("x", float1, ["n"])],
        [helper.make_tensor_value_info("y", float1, ["n"])],
        [numpy_helper.from_array(np.arange(SIZE, dtype=f32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    path = folder / "model.onnx"
    onnx.save_model(
        model,
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    if spoil is not None:
        model = onnx.load(path, load_external_data=False)
        spoil(model, folder)
        onnx.save(model, path)
    return str(path)


def traces(folder):
    """Give what of the folder's files this process has mapped or open."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = [line for line in maps if str(folder) in line]
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the listing's own
    return mapped + [name for name in files if name.startswith(str(folder))]


def second_initializer(**location):
    def spoil(model, _):
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(model.graph.initializer[0])
        tensor.name = "second"
        for entry in tensor.external_data:
            entry.value = str(location.get(entry.key, entry.value))

    return spoil


def cycle(model, _):
    model.graph.node[0].input[0] = "y"


def no_opset(model, _):
    model.opset_import[0].version = 0


SPOILED = {
    "a second tensor past the end of the file": second_initializer(offset=SIZE * 4),
    "a second tensor in a file that is not there": second_initializer(
        location="no.bin"
    ),
    "a second tensor outside the folder": second_initializer(location="../weights.bin"),
    "a second tensor of the wrong length": second_initializer(length=3),
    "nodes that need each other": cycle,
    "an opset that never was": no_opset,
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_model_that_is_wrong_after_its_weights_were_mapped_leaves_them_unmapped(
    tmp_path, what
):
    path = saved(tmp_path, spoil=SPOILED[what])
    with pytest.raises(SeamlineError):
        Pipeline.open(path, providers=["cpu"])
    assert traces(tmp_path) == []


def test_what_is_looked_for_is_there_while_a_good_model_is_open_and_gone_after(
    tmp_path,
):
    pipeline = Pipeline.open(saved(tmp_path), providers=["cpu"])
    assert any("weights.bin" in line for line in traces(tmp_path))
    (y,) = pipeline.run({"x": np.zeros(SIZE, f32)})
    np.testing.assert_array_equal(y, -np.arange(SIZE, dtype=f32))
    pipeline.close()
    del pipeline
    assert traces(tmp_path) == []


@pytest.mark.parametrize("step", [Step.CREATE_PROVIDER, Step.CLAIM, Step.MEMORY])
def test_a_hook_that_fails_while_a_model_is_opened_leaves_its_weights_unmapped(
    tmp_path, step
):
    plugin = TwinPlugin(Faults(Fault(step, 1, How.FAIL)))
    with pytest.raises(SeamlineError):
        Pipeline.open(saved(tmp_path), providers=["twin", "cpu"], plugins=[plugin])
    assert traces(tmp_path) == []


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"pins": {"nothing": "cpu"}}, "matches no node"),
        ({"pins": {"last": "twin"}}, "refuses it"),
        ({"providers": ["twin"]}, "no provider claims"),
        ({"providers": ["twine", "cpu"]}, "twin"),
    ],
    ids=["a pin of nothing", "a pin that is refused", "no claim", "no such provider"],
)
def test_a_placement_that_cannot_be_leaves_the_weights_unmapped(tmp_path, chosen, said):
    path = saved(tmp_path, op="Celu")
    model = onnx.load(path, load_external_data=False)
    del model.graph.node[1].input[0]
    onnx.save(model, path)
    plugin = TwinPlugin()
    with pytest.raises(SeamlineError, match=said):
        Pipeline.open(
            path, **{"providers": ["twin", "cpu"], "plugins": [plugin], **chosen}
        )
    assert traces(tmp_path) == []
    assert all(twin.machine.pages.gauges().owned == 0 for twin in plugin.made)
