"""Where values lie: homes, copies, views and outputs written in place."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from tests.core.toy_kernels import definitions_table
from tests.core.toys import FAR, Toy, open_over, toys

from seamline.provider import HOST
from seamline.verify import verify

f32 = np.float32


def planned(text, pins=None, **chosen):
    source = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}')
    made = toys(**chosen)
    pipeline = open_over(source, made["a"], made["b"], made["far"], pins=pins or {})
    plan = pipeline.plan()
    pipeline.close()
    assert verify(plan) == ()
    return plan


def test_an_output_takes_over_the_bytes_of_an_input_that_dies():
    plan = planned(
        "g (float[64] x) => (float[64] y) { a = Neg(x) b = Abs(a) y = Neg(b) }"
    )
    assert plan.shared == {"a": "x", "b": "x", "y": "x"}
    assert plan.arenas == {HOST: 256}


def test_an_input_that_is_read_later_is_not_overwritten():
    plan = planned(
        "g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(x) y = Add(a, b) }"
    )
    assert "a" not in plan.shared
    assert plan.shared["b"] == "x"


def test_an_input_that_is_an_output_is_not_overwritten():
    plan = planned("g (float[4] x) => (float[4] y, float[4] x) { y = Neg(x) }")
    assert plan.shared == {}


def test_an_intermediate_that_is_an_output_is_not_overwritten():
    plan = planned(
        "g (float[4] x) => (float[4] y, float[4] a) { a = Neg(x) y = Abs(a) }"
    )
    assert "y" not in plan.shared


def test_a_value_with_a_living_view_is_not_overwritten():
    plan = planned(
        """g (float[4] x) => (float[4] y) <int64[2] s = {2, 2}, int64[1] f = {4}> {
            v = Reshape(x, s) a = Neg(x) w = Abs(v) t = Reshape(w, f) y = Add(a, t)
        }"""
    )
    assert plan.shared["v"] == "x"
    assert plan.shared.get("a") != "x"


def test_a_node_that_reads_a_value_twice_may_write_over_it():
    # Elementwise: both looks are the same look.
    plan = planned("g (float[4] x) => (float[4] y) { y = Add(x, x) }")
    assert plan.shared == {"y": "x"}


def test_a_node_that_reads_a_value_and_a_view_of_it_writes_over_neither():
    plan = planned(
        """g (float[4] x) => (float[4] y) { v = Identity(x) y = Add(x, v) }"""
    )
    assert plan.shared == {"v": "x"}


def test_an_output_smaller_than_the_input_does_not_take_its_place():
    plan = planned("g (float[4] x, float[1] z) => (float[4] y) { y = Add(z, x) }")
    assert plan.shared == {"y": "x"}


def test_another_element_type_does_not_take_its_place():
    plan = planned(
        "g (float[4] x) => (double[4] y) { a = Cast<to = 11>(x) y = Neg(a) }"
    )
    assert plan.shared == {"y": "a"}


def test_constants_lie_in_no_arena():
    plan = planned(
        "g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(w, x) }"
    )
    assert ("w", HOST) not in plan.slots


def test_without_sharing_a_chain_lies_in_two_places():
    plan = planned(
        "g (float[64] x) => (float[64] y) { a = Neg(x) b = Abs(a) c = Neg(b) y = Abs(c) }",
        in_place=False,
    )
    assert plan.shared == {}
    assert plan.arenas == {HOST: 2 * 256}
    assert plan.peak == plan.arenas


def test_a_value_on_two_devices_has_bytes_on_both():
    plan = planned(
        "g (float[4] x) => (float[4] y, float[4] z) { a = Neg(x) y = Abs(a) z = Relu(a) }",
        {"Relu": "far"},
    )
    assert ("a", HOST) in plan.slots
    assert ("a", FAR) in plan.slots
    assert [str(t.target) for t in plan.transfers] == ["far:0"]


def test_a_value_that_only_a_body_reads_keeps_its_bytes_on_its_device_until_then():
    # After a dies nowhere in the main graph, b and c would take its bytes on the device.
    text = """g (float[4] x, bool c) => (float[4] y, float[4] z) {
        a = Neg(x)
        b = Abs(x)
        d = Sub(b, x)
        z = Mul(d, b)
        y = If(c) <
            then_branch = t () => (float[4] u) { u = Neg(a) },
            else_branch = e () => (float[4] w) { w = Abs(a) }>
    }"""
    source = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}')
    made = toys()
    pipeline = open_over(source, made["far"])
    x = np.array([1, -2, 3, 4], f32)
    y, _ = pipeline.run({"x": x, "c": np.array(True)})
    np.testing.assert_array_equal(y, x)
    assert verify(pipeline.plan()) == ()
    pipeline.close()


class Fusing(Toy):
    """A provider that finds its own room inside a segment, and runs in another order."""

    owns_intermediates = True


def test_a_provider_that_owns_its_intermediates_gets_bytes_for_what_crosses_only():
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(a) y = Add(b, x) }"""
    )
    pipeline = open_over(source, Fusing(definitions_table("a")))
    plan = pipeline.plan()
    pipeline.close()
    assert {name for name, _ in plan.slots} == {"x", "y"}


def test_nothing_is_written_in_place_inside_a_segment_whose_order_is_its_providers():
    # y may be written before the other node has read x.
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Abs(x) }"""
    )
    pipeline = open_over(source, Fusing(definitions_table("a")))
    assert pipeline.plan().shared == {}
    pipeline.close()


def test_workspaces_have_bytes_while_their_node_runs():
    table = definitions_table("a", ops=("Abs",))

    @table.kernel("Neg", workspace=lambda node: 1000)
    def neg(call):
        def run():
            assert call.workspace.nbytes == 1000
            call.workspace[...] = 1
            call.output(0)[...] = -call.input(0)

        return run

    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(a) y = Neg(b) }"""
    )
    pipeline = open_over(source, Toy(table))
    plan = pipeline.plan()
    assert {slot.nbytes for slot in plan.workspaces.values()} == {1000}
    assert verify(plan) == ()
    x = np.array([1, -2, 3, 4], f32)
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], -np.abs(x))
    pipeline.close()


@pytest.mark.parametrize("text", ["float[0, 3]", "float[3, 0]"])
def test_values_of_no_bytes_have_places(text):
    plan = planned(f"g ({text} x) => ({text} y) {{ a = Neg(x) y = Add(a, x) }}")
    assert all(slot.nbytes == 0 for slot in plan.slots.values())


def test_what_a_kernel_keeps_for_the_session_is_claimed_and_explained():
    table = definitions_table("a", ops=("Abs",))

    @table.kernel("Neg", resident=lambda node: 4096)
    def neg(call):
        name = call.view.name
        call.context.resident((name,), lambda: (np.zeros(1024, np.float32), "tag"))
        return lambda: np.negative(call.input(0), out=call.output(0))

    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y) { [kept] a = Neg(x) y = Neg(a) }"""
    )
    pipeline = open_over(source, Toy(table))
    said = pipeline.explain()
    assert said.data["plan"]["memory"]["cpu:0"]["resident_nbytes"] == 8192
    assert said.data["plan"]["nodes"]["kept"]["resident_nbytes"] == 4096
    assert "kept by kernels 8.0 KiB" in str(said)
    assert said.data["providers"][0]["kept_nbytes"] == 0  # nothing was built yet
    pipeline.run({"x": np.ones(4, f32)})
    said = pipeline.explain()
    assert said.data["providers"][0]["kept_nbytes"] == 8192
    assert "8.0 KiB that a made of constants" in str(said)
    pipeline.close()
