"""QMoE in a session: recorded, explained, and refused with the reason where it does not fit."""

from __future__ import annotations

import numpy as np
import onnx.helper as oh
import pytest
from onnx import numpy_helper
from tests.cpu.packed_weights import error
from tests.cpu.test_mixture_of_experts import CONTRIB, Case

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline


def model_of(case, **attributes):
    """Give a model of the node, its weights stored, and what to feed it."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    given = {**case.attributes, **attributes}
    node = oh.make_node("QMoE", names, ["y"], name="experts", domain=CONTRIB, **given)
    infos = [oh.make_tensor_value_info("x0", 1, ["T", case.x.shape[1]]),
             oh.make_tensor_value_info("x1", 1, ["T", case.logits.shape[1]])]  # fmt: skip
    stored = [numpy_helper.from_array(case.inputs[i], names[i]) for i in case.constant]
    result = oh.make_tensor_value_info("y", 1, ["T", case.x.shape[1]])
    graph = oh.make_graph([node], "g", infos, [result], stored)
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(CONTRIB, 1)]
    made = oh.make_model(graph, opset_imports=imports, ir_version=10)
    return made, {"x0": case.x, "x1": case.logits}


def opened(made, **options):
    return Pipeline.open(made, providers=[("cpu", {"num_threads": 2, **options})])


@pytest.mark.parametrize("level", [0, 4])
def test_a_layer_of_experts_leaves_python_and_follows_its_feeds(level):
    case = Case(kind="swiglu", fusion=1, level=level)
    made, feeds = model_of(case)
    pipeline = opened(made)
    for _ in range(3):
        (y,) = pipeline.run(feeds)
    assert error(y, case.want) < (2e-2 if level else 2e-6)
    turned = {"x0": case.x[::-1].copy(), "x1": case.logits[::-1].copy()}
    (other,) = pipeline.run(turned)
    np.testing.assert_array_equal(other, y[::-1])
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["state"] == "recorded"
    assert not segment["capture"]["left"]


def test_replays_are_what_runs_are():
    """Rotated inputs send tokens elsewhere; a difference would be an error."""
    made, feeds = model_of(Case(tokens=9, kind="swiglu", fusion=1))
    pipeline = Pipeline.open(made, verify_capture=2)
    for _ in range(4):
        pipeline.run(feeds)
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["state"] == "recorded"


def test_the_claim_says_how_activations_are_held_and_what_is_kept():
    case = Case(level=4)
    made, feeds = model_of(case)
    pipeline = opened(made, int4_variant="portable")
    (y,) = pipeline.run(feeds)
    assert error(y, case.want) < 2e-2
    said = pipeline.explain().data["plan"]["nodes"]["experts"]
    assert said["variant"] == "portable"
    assert "8-bit activations" in said["because"]
    memory = pipeline.explain().data["plan"]["memory"]
    kept = sum(m["resident_nbytes"] for m in memory.values())
    models = sum(case.inputs[i].nbytes for i in (2, 3, 5, 6))
    assert 0 < kept <= 1.5 * models  # the inner 48 rows are filled up to 64


def test_one_thread_and_two_give_the_same_bytes():
    case = Case(tokens=70, hidden=256, inner=128, level=4, kind="swiglu", fusion=1)
    made, feeds = model_of(case)
    results = [opened(made, num_threads=n).run(feeds)[0] for n in (1, 2)]
    np.testing.assert_array_equal(*results)


def test_experts_without_rows_are_not_read():
    """What no token goes to may be anything: NaN there would be seen."""
    logits = np.full((3, 4), -9, np.float32)
    logits[:, 1] = 5
    case = Case(tokens=3, k=1, logits=logits)
    for index in (3, 6):
        scales = case.inputs[index]
        scales[[0, 2, 3]] = np.nan
    made, feeds = model_of(case)
    (y,) = opened(made).run(feeds)
    assert error(y, case.want) < 2e-6


REFUSED = [
    ({"quant_type": "nvfp4"}, "quant_type 'nvfp4' is not implemented"),
    ({"quant_type": "fp4"}, "blocks of 32"),
    ({"quant_type": "fp4", "block_size": 32}, "not float8_e8m0fnu"),
    ({"expert_weight_bits": 3}, "experts of 3 bits"),
    ({"weights_prepacked": 1}, "packed for another device"),
    ({"activation_type": "geglu"}, "activation 'geglu'"),
    ({"k": 9}, "k is 9, and there are 4 experts"),
    ({"use_sparse_mixer": 1, "k": 3}, "for two experts"),
    ({"activation_type": "swiglu", "swiglu_fusion": 0}, "it has no fc3"),
    ({"activation_type": "swiglu", "swiglu_fusion": 1}, "fc2 is"),
    ({"swiglu_limit_after_activation": 1}, "swiglu_limit_after_activation"),
    ({"block_size": 32}, "block_size is 32"),
    ({"expert_weight_bits": 8}, "its fc1 has 4 blocks of 32 codes"),
]


@pytest.mark.parametrize(("changed", "reason"), REFUSED)
def test_a_form_that_does_not_fit_is_refused_with_its_reason(changed, reason):
    made, feeds = model_of(Case(), **changed)
    with pytest.raises(SeamlineError) as raised:
        opened(made).run(feeds)
    assert reason in str(raised.value)


def test_weights_that_are_fed_are_packed_at_every_run():
    case = Case()
    made, feeds = model_of(case)
    stored = {x.name: x for x in made.graph.initializer}
    fed = stored["x2"]
    made.graph.initializer.remove(fed)
    shape = case.inputs[2].shape
    made.graph.input.append(oh.make_tensor_value_info("x2", fed.data_type, shape))
    pipeline = opened(made)
    for codes in (np.zeros_like(case.inputs[2]), case.inputs[2]):
        (y,) = pipeline.run({**feeds, "x2": codes})
    assert error(y, case.want) < 2e-6
    said = pipeline.explain().data["plan"]["nodes"]["experts"]["not_capturable"]
    assert "its fc1 weight is not constant" in said
