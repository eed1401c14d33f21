"""The checks of numerics: what they ask, who judges, and which lies they catch."""

import numpy as np
import onnx
import pytest
from onnx import helper

from seamline_testing import numerics
from seamline_testing.draws import PROPERTIES, property_of
from seamline_testing.numerics_generated import laid_out
from seamline_testing.oracles import judge
from seamline_testing.results import Finding, Outcome
from seamline_testing.running import Ran, run_model, settled_by
from seamline_testing.subject import Subject
from seamline_testing.suites import node_cases

CPU = Subject("cpu", {"num_threads": 1})
LIARS = "tests.testing.liars"


def liar(name):
    return Subject(name, plugins=(f"{LIARS}.{name}",))


@pytest.fixture(scope="module")
def checks():
    return {check.id: check for check in numerics.checks(CPU, True)}


def test_ids_are_unique_and_every_case_of_the_suite_is_there(checks):
    full = [check.id for check in numerics.checks(CPU)]
    assert len(set(full)) == len(full)
    assert sum(name.startswith("numerics/node/") for name in full) == len(node_cases())
    assert len(checks) < len(full) / 3


@pytest.mark.parametrize(
    "name", ["node/add", "generated/Add/float32", "bound/Add/float32", "simple/expand_shape_model1"]
)  # fmt: skip
def test_a_right_provider_passes_and_the_judge_is_named(checks, name):
    finding = checks[f"numerics/{name}"].run(CPU)
    assert finding.outcome in (Outcome.PASS, Outcome.PASS_NOT_CLAIMED), finding
    assert finding.judge
    assert finding.tolerance


def test_the_same_check_finds_the_same_twice(checks):
    check = checks["numerics/generated/Slice/float32"]
    assert check.run(CPU) == check.run(CPU)


@pytest.mark.parametrize("kind", ["node/add", "generated/Add/float32", "bound/Add/float32"])  # fmt: skip
def test_zeros_are_a_mismatch(checks, kind):
    finding = checks[f"numerics/{kind}"].run(liar("zeros"))
    assert finding.outcome is Outcome.MISMATCH
    assert "want" in finding.said
    assert finding.judge == "definition"


def test_slight_errors_in_one_type_are_found_in_that_type_alone(checks):
    subject = liar("slightly_wrong")
    found = {
        dtype: checks[f"numerics/generated/Add/{dtype}"].run(subject).outcome
        for dtype in ("float32", "int64")
    }
    full = {c.id: c for c in numerics.checks(subject)}
    found["float16"] = full["numerics/generated/Add/float16"].run(subject).outcome
    assert sorted(found.values()).count(Outcome.MISMATCH) == 1, found


def test_a_write_outside_an_output_is_a_violation_that_says_where(checks):
    finding = checks["numerics/bound/Add/float32"].run(liar("writes_outside"))
    assert finding.outcome is Outcome.CONTRACT_VIOLATION
    assert "wrote outside" in finding.said


def test_a_written_input_is_a_violation(checks):
    finding = checks["numerics/bound/Add/float32"].run(liar("mutates_input"))
    assert finding.outcome is Outcome.CONTRACT_VIOLATION
    assert "wrote to its input" in finding.said


def test_a_provider_that_claims_nothing_passes_nothing(checks):
    subject = liar("claims_nothing")
    outcomes = {
        checks[f"numerics/{name}"].run(subject).outcome
        for name in ("node/add", "generated/Add/float32", "bound/Add/float32")
    }
    assert outcomes == {Outcome.DECLINED}


def test_what_the_core_gives_by_itself_is_not_claimed(checks):
    finding = checks["numerics/generated/Shape/float32"].run(CPU)
    assert finding.outcome is Outcome.PASS_NOT_CLAIMED


def test_an_error_of_any_other_type_is_undeclared():
    finding = settled_by(ZeroDivisionError("by zero"))
    assert finding.outcome is Outcome.CONTRACT_VIOLATION
    assert "undeclared error: ZeroDivisionError: by zero" in finding.said


# --- who judges -----------------------------------------------------------------------


def one_node(operator, opset, *shapes, outputs=1, **attributes):
    names = [f"x{i}" for i in range(len(shapes))]
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, names, made, **attributes)],
        "one",
        [helper.make_tensor_value_info(n, 1, s) for n, s in zip(names, shapes, strict=True)],
        [onnx.ValueInfoProto(name=name) for name in made],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.uniform(0.1, 1, s).astype(np.float32)
        for n, s in zip(names, shapes, strict=True)
    }
    return onnx.shape_inference.infer_shapes(model), feeds


def test_the_definition_judges_where_there_is_one():
    model, feeds = one_node("Add", 18, (2, 3), (3,))
    right = judge(model, feeds, [np.float32([0])])  # whatever is stored
    assert right.judge == "definition"
    np.testing.assert_array_equal(right.wanted[0], feeds["x0"] + feeds["x1"])


def test_two_that_agree_judge_where_there_is_no_definition():
    model, feeds = one_node("Det", 18, (2, 2))
    a = feeds["x0"].astype(np.float64)
    value = np.float32(a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])
    assert judge(model, feeds, [np.asarray(value)]).judge == "onnxruntime+stored"
    assert judge(model, feeds).judge == "onnx.reference+onnxruntime"


def test_wrong_stored_values_are_outvoted():
    model, feeds = one_node("Det", 18, (2, 2))
    right = judge(model, feeds, [np.asarray(np.float32(77))])
    assert right.judge == "onnx.reference+onnxruntime"


def test_nobody_judges_where_no_two_agree(monkeypatch):
    model, feeds = one_node("Det", 18, (2, 2))
    monkeypatch.setitem(
        __import__("seamline_testing.oracles", fromlist=["WRONG"]).WRONG["onnxruntime"],
        "Det",
        "for this test",
    )
    right = judge(model, feeds, [np.asarray(np.float32(77))])
    assert right.why_not == "onnx.reference and stored disagree"


# --- runs -----------------------------------------------------------------------------


def test_taking_part_is_seen_in_a_body_of_control_flow():
    body = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["e"])], "body", [],
        [helper.make_tensor_value_info("e", 1, [2])],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("c", 9, []), helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    feeds = {"c": np.array(True), "x": np.float32([0, 1])}
    ran = run_model(CPU, model, feeds)
    assert isinstance(ran, Ran)
    assert ran.took_part


def test_what_no_provider_claims_is_declined_with_the_reason():
    model, feeds = one_node("Add", 18, (2,), (2,))
    answer = run_model(liar("claims_nothing"), model, feeds)
    assert isinstance(answer, Finding)
    assert answer.outcome is Outcome.DECLINED
    assert answer.said.startswith("claims_nothing: ")


@pytest.mark.parametrize("layout", ["plain", "transposed", "every other", "backwards", "read-only"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_a_layout_keeps_the_values(layout, shape):
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    got = laid_out(x, layout)
    np.testing.assert_array_equal(got, x, strict=True)
    if shape == (2, 3) and layout in ("transposed", "every other", "backwards"):
        assert not got.flags.c_contiguous


def test_draws_are_held_to_their_properties():
    p, like = np.float32([0, 1, 0.5]), np.float32([0, 0, 0])
    check = PROPERTIES["Bernoulli"]
    assert not check([p], [np.float32([0, 1, 1])], [like])
    assert "1 where p is 0" in check([p], [np.float32([1, 1, 1])], [like])
    assert "want 0 and 1" in check([p], [np.float32([0, 1, 0.5])], [like])
    assert "float64[3], want float32[3]" in check([p], [np.zeros(3)], [like])


def test_dropout_is_a_draw_only_where_it_trains():
    x, ratio = np.ones((4, 5), np.float32), np.float32(0.5)
    assert property_of("Dropout", [x]) is None
    assert property_of("Dropout", [x, ratio, np.array(False)]) is None
    assert property_of("Dropout", [x, ratio, np.array(True)]) is not None


def test_what_dropout_keeps_is_scaled_and_its_mask_says_which():
    x = np.arange(60, dtype=np.float32) - 7
    given = [x, np.float32(0.75), np.array(True)]
    check = property_of("Dropout", given)
    mask = np.arange(60) % 4 == 0
    right = np.where(mask, x * 4, 0).astype(np.float32)
    like = [np.zeros_like(x), np.zeros(60, np.bool_)]
    assert not check(given, [right], like[:1])
    assert not check(given, [right, mask], like)
    unscaled = np.where(mask, x, 0).astype(np.float32)
    assert "neither 0 nor" in check(given, [unscaled], like[:1])
    assert "neither 0 nor" in check(given, [right, ~mask], like)
    assert "drops none" in check(given, [x * 4], like[:1])
    assert "drops all" in check(given, [np.zeros_like(x), np.zeros_like(mask)], like)
    said = check(given, [right.astype(np.float64)], like[:1])
    assert said == "float64[60], want float32[60]"


def test_a_ratio_of_zero_drops_nothing():
    x = np.arange(60, dtype=np.float32)
    given, like = [x, np.float32(0), np.array(True)], [np.zeros_like(x)]
    check = property_of("Dropout", given)
    assert not check(given, [x], like)
    assert "neither 0 nor" in check(
        given, [np.zeros_like(x), np.ones(60, bool)], [*like, np.ones(60, bool)]
    )
