"""The rules that plans are held to: each is broken on purpose, and found."""

from __future__ import annotations

import attrs
import pytest
from onnx import parser
from tests.core.toys import FAR, open_over, toys

from seamline.planned import Feed, Segment, Slot, Transfer
from seamline.provider import HOST
from seamline.verify import verify

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[64] x, float[64] z) => (float[64] y, float[64] n) <float[64] w> {
    [first] a = Neg(x)
    [second] b = Mul(a, z)
    [third] c = Abs(b)
    [fourth] y = Sub(c, a)
    [late] n0 = NonZero(b)
    [after] n1 = Cast<to = 1>(n0)
    [last] n = Neg(n1)
    [idle] unread = Abs(x)
}"""
TEXT = TEXT.replace("float[64] n)", "float[1, k] n)").replace(" <float[64] w>", "")


@pytest.fixture(scope="module")
def made():
    """Give a lawful plan and the claims that it rests on."""
    named = toys({"far": ["first", "third", "fourth", "late"], "a": ["second"]})
    pipeline = open_over(parser.parse_model(TEXT), named["far"], named["a"])
    yield pipeline.plan(), pipeline.claims
    pipeline.close()


def broken(plan, claims=None, **changes):
    return "; ".join(verify(attrs.evolve(plan, **changes), claims))


def swapped(plan, old, new):
    return tuple(new if step == old else step for step in plan.steps)


def segment(plan, node):
    return next(s for s in plan.segments if node in s.nodes)


def test_a_plan_that_was_made_breaks_no_rule(made):
    assert verify(*made) == ()


def test_a_node_in_no_step_is_found(made):
    plan, _ = made
    steps = tuple(step for step in plan.steps if step != segment(plan, "second"))
    assert "node 'second' is in no step" in broken(plan, steps=steps)


def test_a_node_in_two_steps_is_found(made):
    plan, _ = made
    again = attrs.evolve(segment(plan, "second"), id="again")
    assert "is in steps and steps" in broken(plan, steps=(*plan.steps, again))


def test_a_node_that_runs_though_it_is_unused_is_found(made):
    plan, _ = made
    assert "'first' is in steps and unused" in broken(
        plan, unused=(*plan.unused, "first")
    )


def test_a_resolved_node_whose_value_is_not_known_is_found(made):
    plan, _ = made
    said = broken(plan, resolved=("idle",), unused=())
    assert "'idle' is resolved, but 'unread' is not known" in said


def test_an_unused_node_whose_value_is_read_is_found(made):
    plan, _ = made
    steps = tuple(step for step in plan.steps if step != segment(plan, "second"))
    said = broken(plan, steps=steps, unused=(*plan.unused, "second"))
    assert "'second' is unused, but its output is read" in said


def test_steps_in_the_wrong_order_are_found(made):
    plan, _ = made
    assert "where it is not" in broken(plan, steps=plan.steps[::-1])


def test_a_missing_transfer_is_found(made):
    plan, _ = made
    steps = tuple(s for s in plan.steps if not isinstance(s, Transfer))
    assert "reads 'a' on far:0, where it is not" in broken(plan, steps=steps)


def test_a_transfer_to_where_the_value_is_is_found(made):
    plan, _ = made
    last = Transfer("a", HOST, FAR, 256)
    assert "moves 'a' to where it is" in broken(plan, steps=(*plan.steps, last))


def test_a_transfer_from_where_the_value_is_not_is_found(made):
    plan, _ = made
    last = Transfer("c", FAR, HOST, 256)
    assert "reads 'c' on far:0, where it is not" in broken(
        plan, steps=(*plan.steps, last)
    )


def test_a_transfer_of_the_wrong_size_is_found(made):
    plan, _ = made
    moved = plan.transfers[0]
    steps = swapped(plan, moved, attrs.evolve(moved, nbytes=1))
    assert "says 1 bytes of 256" in broken(plan, steps=steps)


def test_a_segment_of_two_providers_is_found(made):
    plan, _ = made
    one = segment(plan, "second")
    steps = swapped(plan, one, attrs.evolve(one, provider="a"))
    assert "node 'second' is far's" in broken(plan, steps=steps)


def test_a_late_segment_of_two_nodes_is_found(made):
    plan, _ = made
    one = segment(plan, "third")
    steps = swapped(plan, one, attrs.evolve(one, sizes_at_run=True))
    assert "has 2 nodes" in broken(plan, steps=steps)


def test_segments_that_wait_on_each_other_are_found(made):
    # first joins third and fourth, though second lies between them.
    plan, _ = made
    one, other = segment(plan, "first"), segment(plan, "third")
    both = attrs.evolve(other, nodes=("first", *other.nodes))
    steps = tuple(step for step in plan.steps if step != one)
    steps = tuple(both if step == other else step for step in steps)
    assert "'a'" in broken(plan, steps=steps)  # read before it is made, in any order


def test_segments_that_could_be_one_are_found(made):
    plan, _ = made
    one = segment(plan, "third")
    halves = [attrs.evolve(one, id=n, nodes=(n,)) for n in one.nodes]
    index = plan.steps.index(one)
    steps = (*plan.steps[:index], *halves, *plan.steps[index + 1 :])
    assert "segments 'third' and 'fourth' could be one" in broken(plan, steps=steps)
    assert broken(plan, steps=steps, joined=False) == ""


def test_an_output_that_nothing_makes_is_found(made):
    plan, _ = made
    region = attrs.evolve(plan.region, outputs=("y", "nowhere"))
    assert "output 'nowhere' is made by nothing" in broken(plan, region=region)


def test_a_declined_node_is_found(made):
    plan, claims = made
    choices = dict(plan.choices)
    choices["second"] = attrs.evolve(choices["second"], provider="a", device=HOST)
    one = segment(plan, "second")
    steps = swapped(plan, one, attrs.evolve(one, provider="a", device=HOST))
    said = broken(plan, claims, choices=choices, steps=steps)
    assert "node 'second' is on a, which declined it" in said


def test_a_slot_outside_its_arena_is_found(made):
    plan, _ = made
    assert "leaves the arena of cpu:0" in broken(plan, arenas={HOST: 64, FAR: 1 << 20})


def test_a_slot_that_is_not_aligned_is_found(made):
    plan, _ = made
    slots = {**plan.slots, ("x", HOST): Slot(8, 256)}
    assert "'x' is not aligned" in broken(plan, slots=slots)


def test_a_slot_of_the_wrong_size_is_found(made):
    plan, _ = made
    slots = {**plan.slots, ("x", HOST): Slot(0, 128)}
    assert "'x' has 128 bytes for 256" in broken(plan, slots=slots)


def test_a_missing_slot_is_found(made):
    plan, _ = made
    slots = {key: slot for key, slot in plan.slots.items() if key != ("b", HOST)}
    assert "'b' has no bytes on cpu:0" in broken(plan, slots=slots)


def test_a_slot_for_a_late_value_is_found(made):
    plan, _ = made
    slots = {**plan.slots, ("n0", HOST): Slot(0, 0)}
    assert "'n0' is late" in broken(plan, slots=slots)


def test_values_alive_together_in_the_same_bytes_are_found(made):
    plan, _ = made
    # b on the host is read by the last step, while c and y are made.
    slots = {**plan.slots, ("b", HOST): plan.slots["y", HOST]}
    assert "use the same bytes at one time" in broken(plan, slots=slots, shared={})


def test_a_value_written_over_one_that_is_read_later_is_found(made):
    plan, _ = made
    slots = {**plan.slots, ("c", HOST): plan.slots["b", HOST]}
    said = broken(plan, slots=slots, shared={**plan.shared, "c": "b"})
    assert "writes 'c' over 'b', which is read later" in said


def test_shared_bytes_that_no_claim_offers_are_found(made):
    plan, _ = made
    choices = dict(plan.choices)
    claim = attrs.evolve(choices["fourth"].claim, aliases=(), views=())
    choices["fourth"] = attrs.evolve(choices["fourth"], claim=claim)
    assert plan.shared["y"] in ("a", "c", "x")
    assert "'fourth' did not offer it" in broken(plan, choices=choices)


def test_a_feed_that_reaches_no_reader_is_found(made):
    plan, _ = made
    feeds = tuple(Feed(feed.value, ()) for feed in plan.feeds)
    assert "reads 'x' on cpu:0, where it is not" in broken(plan, feeds=feeds)


def test_an_empty_segment_is_found(made):
    plan, _ = made
    empty = Segment("none", "a", HOST, (), (), ())
    assert "segment 'none' has 0 nodes" in broken(plan, steps=(*plan.steps, empty))
