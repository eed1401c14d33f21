"""For random graphs and random claims: the partitioned run is the definition's."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.random_graphs import cases, evaluate, masks
from tests.core.toys import open_over, toys

from seamline.plan import partition
from seamline.planned import HostStep, Segment
from seamline.provider import HOST
from seamline.verify import verify

QUICK = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ORDERS = st.permutations(["a", "b", "far"])


def same(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def programs_of(program):
    """Give a program, its rest, and the bodies in it, as far as they were built."""
    yield program
    inner = [body for bodies in program.bodies.values() for body in bodies.values()]
    for runner in (*inner, *([program.rest] if program.rest else [])):
        if runner.latest() is not None:
            yield from programs_of(runner.latest())


def opened(case, declined, order, **chosen):
    made = toys(declined, **chosen)
    return open_over(case.model, *(made[name] for name in order)), made


@QUICK
@given(st.data(), ORDERS)
def test_a_partitioned_run_gives_the_definitions_values_over_lawful_plans(data, order):
    case = data.draw(cases())
    declined = data.draw(masks(case.names))
    pipeline, made = opened(case, declined, order)
    wanted = evaluate(case.model.graph, case.feeds)
    try:
        for _ in range(2):  # what a run leaves behind must not reach the next
            same(pipeline.run(case.feeds), wanted)
        for program in programs_of(pipeline.runner.latest()):
            assert verify(program.plan, pipeline.claims) == ()
    finally:
        pipeline.close()
    for toy in made.values():
        assert not toy.declined.intersection(toy.built)
        assert toy.calls.open == 0
    assert made["far"].own.content == 0


@QUICK
@given(st.data(), ORDERS)
def test_writing_in_place_changes_no_value(data, order):
    case = data.draw(cases())
    declined = data.draw(masks(case.names))
    results = []
    for in_place in (True, False):
        pipeline, _ = opened(case, declined, order, in_place=in_place, views=in_place)
        results.append(pipeline.run(case.feeds))
        pipeline.close()
    same(*results)


@QUICK
@given(st.data(), ORDERS)
def test_no_path_leaves_a_segment_and_comes_back(data, order):
    case = data.draw(cases(dynamic=False))
    pipeline, _ = opened(case, data.draw(masks(case.names)), order)
    plan = pipeline.plan()
    nodes = {node.name: node for node in plan.region.nodes}
    # A value known from sizes is there before anything runs: no path leads through it.
    writer = {
        value: node.name
        for node in nodes.values()
        for value in node.writes
        if value not in plan.known
    }
    for segment in plan.segments:
        inside = set(segment.nodes)
        assert not _reached_outside(inside, nodes, writer) & _ancestors(
            inside, nodes, writer
        )
    pipeline.close()


def _ancestors(names, nodes, writer):
    """Give the nodes outside a set that something in it depends on, by any path."""
    found, todo = set(), list(names)
    while todo:
        for value in nodes[todo.pop()].reads:
            source = writer.get(value)
            if source and source not in found:
                found.add(source)
                todo.append(source)
    return found - set(names)


def _reached_outside(names, nodes, writer):
    """Give the nodes outside a set that depend on something in it, by any path."""
    after = {}
    for node in nodes.values():
        for value in node.reads:
            if value in writer:
                after.setdefault(writer[value], []).append(node.name)
    found, todo = set(), list(names)
    while todo:
        for name in after.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found - set(names)


@QUICK
@given(st.data(), ORDERS)
def test_a_cut_copies_each_value_once_to_each_device_that_reads_it(data, order):
    case = data.draw(cases())
    pipeline, _ = opened(case, data.draw(masks(case.names)), order)
    plan = pipeline.plan({"z": case.feeds["z"].shape})
    nodes = {node.name: node for node in plan.region.nodes}
    running = [
        name
        for step in plan.steps
        if isinstance(step, Segment | HostStep)
        for name in (step.nodes if isinstance(step, Segment) else (step.node,))
    ]
    home = {
        value: plan.choices[name].device
        for name in running
        for value in nodes[name].writes
    }
    needed = {
        (value, device)
        for name in running
        for index, value in enumerate(nodes[name].inputs)
        for device in [_read_at(plan.choices[name], index)]
        if value in home and home[value] != device and value not in plan.known
    }
    copied = [(step.value, step.target) for step in plan.transfers]
    assert sorted(copied, key=str) == sorted(needed, key=str)
    pipeline.close()


def _read_at(choice, index):
    return HOST if index in choice.claim.host_inputs else choice.device


@QUICK
@given(st.data(), ORDERS)
def test_planning_again_gives_an_equal_plan_whatever_order_facts_come_in(data, order):
    case = data.draw(cases())
    declined = data.draw(masks(case.names))
    pipeline, _ = opened(case, declined, order)
    first = pipeline.plan()
    assert pipeline.plan() == first
    runner, engine = pipeline.runner, pipeline.engine
    facts = {name: first.types[name] for name in reversed(runner.region.inputs)}
    again = partition(
        runner.region, engine.placement, engine.providers, engine.constants, facts
    )
    assert again == first
    pipeline.close()
    other, _ = opened(case, declined, order)
    assert other.plan() == first
    other.close()
