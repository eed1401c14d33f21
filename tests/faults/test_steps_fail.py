"""
Every step that acquires something fails in turn, and everything acquired is given back.

A dry run counts the calls on memory and providers; then each is made to fail once. After
the failure nothing is open but what was open before, the same session runs, and closing
it brings every gauge to zero.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import (
    FAR,
    BrokenError,
    Calls,
    CountedHost,
    Toy,
    model,
    open_over,
)

from seamline import variants as variants_module
from seamline.errors import ContractError, SeamlineError

f32 = np.float32
SPLIT = {"Neg": "far", "Add": "a"}

# Two devices, a constant on each, a transfer each way, a body, a size found by running.
RUN = """g (float[n] x, bool c, int64[k] s) => (y, z, late) <float[1] w = {2}> {
    a = Add(x, w)
    b = Neg(a)
    d = Add(b, w)
    y = If(c) <
        then_branch = t () => (p) { p = Neg(d) },
        else_branch = e () => (q) { q = Add(d, d) }>
    z = Reshape(d, s)
    late = Neg(z)
}"""
FEEDS = {
    "x": np.array([1, 2, 3, 4], f32),
    "c": np.array(True),
    "s": np.array([2, 2]),
}

# Folded constants on both devices, and a default that may be fed.
OPEN = """g (float[2] x, float[2] v) => (y) <float[2] w = {1, 2}, float[2] v = {3, 4}> {
    a = Neg(w)
    b = Add(a, v)
    d = Neg(b)
    y = Add(x, d)
}"""


class Setting:
    """Two providers and the host's memory, all counted by one list of calls."""

    def __init__(self, monkeypatch, fail_at=None):
        self.calls = Calls(fail_at)
        self.hosts = []

        def host():
            self.hosts.append(CountedHost(self.calls))
            return self.hosts[-1]

        monkeypatch.setattr(variants_module, "HostMemory", host)
        self.a = Toy(definitions_table("a"), calls=self.calls)
        self.far = Toy(definitions_table("far"), device=FAR, calls=self.calls)
        self.pipeline = None

    def open(self, text, pins):
        self.pipeline = open_over(model(text), self.a, self.far, pins=pins)
        return self.pipeline

    def held(self):
        """Give what is open: segments, and bytes of each memory."""
        return (
            self.calls.open,
            self.far.own.content,
            sum(host.gauges().content for host in self.hosts),
        )

    def assert_nothing_is_held(self):
        assert self.held() == (0, 0, 0)
        assert self.a.is_closed
        assert self.far.is_closed


def counted(monkeypatch, text, pins, act):
    """Give how many calls ``act`` makes on a session that was opened before."""
    setting = Setting(monkeypatch)
    setting.open(text, pins)
    before = len(setting.calls.names)
    act(setting.pipeline)
    after = len(setting.calls.names)
    setting.pipeline.close()
    setting.assert_nothing_is_held()
    return before, after


def fail_each(monkeypatch, text, pins, act, check, *, folds=False):
    """Make each call of ``act`` fail; the session must go on as if it had not been made.

    With ``folds`` the failure may be folding's, which is left to the run that meets it.
    """
    before, after = counted(monkeypatch, text, pins, act)
    assert after > before
    for step in range(before, after):
        setting = Setting(monkeypatch)
        opened = setting.open(text, pins)
        held = setting.held()
        setting.calls.fail_at = step
        said = None
        try:
            check(act(opened))
        except SeamlineError as error:
            said = str(error)
        assert folds if said is None else f"call {step}: " in said
        kind = setting.calls.names[step]
        if kind in ("allocate", "build", "bind", "view"):
            after_failure = setting.held()
            assert _no_more(after_failure, held, setting), f"call {step} ({kind}) leaks"
        check(act(opened))
        opened.close()
        setting.assert_nothing_is_held()


def _no_more(now, before, setting):
    """Allow what a failed build may keep: programs already whole, constants uploaded."""
    whole = sum(
        len(program.executables)
        for runner in _runners(setting.pipeline)
        for program in runner._programs.values()
    )
    return now[0] - before[0] <= whole + _late(setting)


def _runners(opened):
    todo = [made.runner for made in opened.variants.all()]
    while todo:
        runner = todo.pop()
        yield runner
        for program in runner._programs.values():
            todo += [
                body for bodies in program.bodies.values() for body in bodies.values()
            ]
            todo += [program.rest] if program.rest is not None else []


def _late(setting):
    """Count nodes built at run for sizes found at run: kept, and closed with their program."""
    count = 0
    for runner in _runners(setting.pipeline):
        for program in runner._programs.values():
            for _, action in program.actions:
                owner = getattr(action, "__self__", None)
                count += len(getattr(owner, "_built", ()))
    return count


def test_a_program_whose_building_or_first_run_fails_anywhere_undoes_itself(
    monkeypatch,
):
    def check(results):
        y, z, late = results
        d = -(FEEDS["x"] + 2) + 2
        np.testing.assert_array_equal(y, -d)
        np.testing.assert_array_equal(z, d.reshape(2, 2))
        np.testing.assert_array_equal(late, -d.reshape(2, 2))

    fail_each(
        monkeypatch, RUN, {**SPLIT, "Reshape": "far"}, lambda p: p.run(FEEDS), check
    )


def test_a_node_sized_at_run_whose_building_fails_anywhere_undoes_itself(monkeypatch):
    text = "g (float[n] x, int64[k] s) => (z) { a = Neg(x) z = Reshape(a, s) }"
    x = np.arange(6, dtype=f32)

    def act(opened):
        return opened.run({"x": x, "s": np.array([3, 2])})

    def check(results):
        np.testing.assert_array_equal(results[0], -x.reshape(3, 2))

    for where in ("a", "far"):
        pins = {"Neg": "far", "Reshape": where}
        fail_each(monkeypatch, text, pins, act, check)


def test_a_run_with_a_default_fed_that_fails_anywhere_undoes_itself(monkeypatch):
    feeds = {"x": np.array([10, 20], f32), "v": np.array([0, 0], f32)}

    def check(results):
        np.testing.assert_array_equal(results[0], [11, 22])

    fail_each(monkeypatch, OPEN, SPLIT, lambda p: p.run(feeds), check, folds=True)


def test_a_pipeline_whose_opening_fails_anywhere_closes_what_it_opened(monkeypatch):
    dry = Setting(monkeypatch)
    dry.open(OPEN, SPLIT)
    total = len(dry.calls.names)
    dry.pipeline.close()
    dry.assert_nothing_is_held()
    assert total > 5
    for step in range(total):
        setting = Setting(monkeypatch, fail_at=step)
        # A failure while folding belongs to the run that meets it: the session opens.
        opened = setting.open(OPEN, SPLIT)
        assert "not folded" in opened.folding.left
        assert setting.held()[0] == 0
        feeds = {"x": np.array([10, 20], f32)}
        np.testing.assert_array_equal(opened.run(feeds)[0], [8, 18])
        opened.close()
        setting.assert_nothing_is_held()


@pytest.mark.parametrize("method", ["claim", "infer", "memory"])
def test_an_opening_that_a_provider_breaks_closes_every_provider(monkeypatch, method):
    setting = Setting(monkeypatch)

    def fail(*_):
        raise BrokenError(method)

    setattr(setting.far, method, fail)
    text = OPEN if method != "infer" else "g (float[2] x) => (y) { y = mine.Odd(x) }"
    source = model(text, more=', "mine" : 1')
    with pytest.raises((SeamlineError, BrokenError), match=method):
        open_over(source, setting.a, setting.far)
    setting.assert_nothing_is_held()


def test_the_last_of_several_closes_that_fails_leaves_the_others_closed(monkeypatch):
    setting = Setting(monkeypatch)
    closes = setting.far.close

    def fail():
        closes()
        raise BrokenError("close")

    setting.far.close = fail
    opened = setting.open(RUN, SPLIT)
    opened.run(FEEDS)
    with pytest.raises(
        ContractError, match=r"'far': close\(\) raised BrokenError: close"
    ):
        opened.close()
    setting.assert_nothing_is_held()
