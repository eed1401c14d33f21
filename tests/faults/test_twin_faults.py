"""
Every call on the twin goes wrong in turn: it fails, hangs past its deadline, gives rubbish.

A session of two devices, a body, a constant on each side and a size found by running is
opened and run; the n-th call of each kind goes wrong, for n = 1, 2, ... until none is
left. Each time the error is seamline's own and names the twin and the step; what a failed
run took is given back; the same session then runs right; and closing it leaves nothing.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from tests.core.toys import model

from seamline.errors import ContractError, ProviderError, RunError, SeamlineError
from seamline.pipeline import Pipeline
from seamline.provider import HOST, Gauges
from seamline_testing.twin import Fault, Faults, How, Step
from seamline_testing.twin.plugin import TwinPlugin
from seamline_testing.twin.streams import Operation

f32 = np.float32
TEXT = """g (float[n] x, bool c, int64[k] s) => (y, z, late, i) <float[1] w = {2}> {
    [a] a = Add(x, w)
    [b] b = Neg(a)
    [d] d = Mul(b, w)
    y = If(c) <
        then_branch = t () => (p) { [p] p = Neg(d) },
        else_branch = e () => (q) { [q] q = Add(d, d) }>
    [z] z = Reshape(d, s)
    [late] late = Neg(z)
    [i] i = NonZero(b)
}"""
PINS = {"b": "cpu"}
X = np.array([1, 2, -2, 4], f32)
FEEDS = {"x": X, "c": np.array(True), "s": np.array([2, 2])}
DEADLINE = 0.05


def wanted():
    b = -(X + 2)
    d = b * 2
    return [-d, d.reshape(2, 2), -d.reshape(2, 2), np.array(np.nonzero(b), np.int64)]


class Session:
    """A session over a twin with faults, and what it holds."""

    def __init__(self, *, faults=None, text=TEXT, pins=PINS):
        self.faults = faults or Faults()
        self.plugin = TwinPlugin(self.faults)
        self.pipeline = Pipeline.open(
            model(text),
            providers=[("twin", {"deadline": DEADLINE}), "cpu"],
            pins=pins,
            plugins=[self.plugin],
        )

    @property
    def twin(self):
        return self.plugin.made[0]

    def run(self):
        return self.pipeline.run(FEEDS)

    def check(self):
        for got, right in zip(self.run(), wanted(), strict=True):
            np.testing.assert_array_equal(got, right, strict=True)

    def held(self):
        host = self.pipeline.engine.memories[HOST].gauges().content
        return self.twin._memory.gauges(), host, self.twin.open_segments

    def close(self):
        self.pipeline.close()
        assert_nothing_left(self.twin)


def assert_nothing_left(twin):
    assert twin.left == 0
    assert twin.open_segments == 0
    assert twin.machine.pages.gauges() == Gauges()


def clean():
    """Give what a session holds before and after one run, and the calls of each kind."""
    session = Session()
    before, called = session.held(), dict(session.faults.counts)
    session.check()
    after = session.held()
    calls = {s: n - called.get(s, 0) for s, n in session.faults.counts.items()}
    session.check()
    assert session.held() == after
    session.close()
    return before, after, calls


def failing_run(session, fault):
    """Run with a fault planned; give the error, or None if none was raised."""
    session.faults.plan(fault)
    try:
        results = session.run()
    except SeamlineError as error:
        return error
    finally:
        fired = list(session.faults.fired)
        session.faults.plan()
        session.faults.fired.extend(fired)
    for got, right in zip(results, wanted(), strict=True):
        np.testing.assert_array_equal(got, right, strict=True)
    return None


def assert_no_more(now, most):
    gauges, host, segments = now
    assert gauges.content <= most[0].content
    assert gauges.owned <= most[0].owned
    assert host <= most[1]
    assert segments <= most[2]


ALL = sorted(
    (step, how)
    for step in (Step.ALLOCATE, Step.VIEW, Step.RESERVE, Step.CREATE, Step.MAP, Step.BUILD,
                 Step.BIND, Step.COPY, Step.RUN)
    for how in How
    if not (how is How.HANG and step not in (Step.COPY, Step.RUN))
    and not (how is How.GARBAGE and step not in (Step.ALLOCATE, Step.BUILD, Step.RUN))
)  # fmt: skip


@pytest.mark.parametrize(("step", "how"), ALL, ids=[f"{s}-{h}" for s, h in ALL])
def test_a_first_run_in_which_any_call_goes_wrong_gives_back_what_it_took(step, how):
    _, after, calls = clean()
    for nth in range(1, calls[step] + 1):
        session = Session()
        error = failing_run(session, Fault(step, nth, how))
        assert session.faults.fired == [Fault(step, nth, how)]
        assert_named(error, step)
        assert_no_more(session.held(), after)
        session.check()
        assert session.held() == after
        session.close()
    session = Session()
    assert failing_run(session, Fault(step, calls[step] + 1, how)) is None
    session.close()


@pytest.mark.parametrize(
    ("step", "how"),
    [(Step.COPY, How.FAIL), (Step.COPY, How.HANG), (Step.RUN, How.FAIL), (Step.RUN, How.HANG),
     (Step.RUN, How.GARBAGE),
     (Step.REPLAY, How.FAIL), (Step.REPLAY, How.HANG)],
    ids=str,
)  # fmt: skip
def test_a_later_run_in_which_device_work_goes_wrong_changes_nothing_that_is_held(
    step, how
):
    for nth in itertools.count(1):
        session = Session()
        session.check()
        held = session.held()
        error = failing_run(session, Fault(step, nth, how))
        if not session.faults.fired:
            session.close()
            break
        assert_named(error, step)
        assert session.held() == held
        session.check()
        assert session.held() == held
        session.close()
    # What can be recorded is replayed by now; other segments run.
    assert nth > {Step.COPY: 5, Step.RUN: 2, Step.REPLAY: 2}[step]


def assert_named(error, step):
    assert isinstance(error, RunError | ContractError), repr(error)
    assert error.provider == "twin", str(error)
    assert NAMES.get(step, str(step)) in str(error) or WORDS in str(error), str(error)


#: What a message calls a step, where it is not the step's own name.
NAMES = {Step.RUN: "node", Step.BUILD: "build"}
WORDS = "did not end in time"


def test_an_output_of_another_type_than_was_claimed_is_refused_and_named():
    session = Session(text="g (float[n] x, bool c, int64[k] s) => (i) { [i] i = NonZero(x) }",
                      pins={})  # fmt: skip
    session.faults.plan(Fault(Step.RUN, 1, How.GARBAGE))
    with pytest.raises(RunError, match=r"output 'i'.*uint16") as caught:
        session.run()
    assert (caught.value.provider, caught.value.node) == ("twin", "i")
    session.faults.plan()
    (found,) = session.run()
    np.testing.assert_array_equal(found, [[0, 1, 2, 3]])
    session.close()


OPENING = [
    (Step.CREATE_PROVIDER, How.FAIL),
    (Step.MEMORY, How.FAIL),
    (Step.MEMORY, How.GARBAGE),
    (Step.CLAIM, How.FAIL),
    (Step.CLAIM, How.GARBAGE),
    (Step.INFER, How.FAIL),
    (Step.INFER, How.GARBAGE),
]


@pytest.mark.parametrize(("step", "how"), OPENING, ids=[f"{s}-{h}" for s, h in OPENING])
def test_an_opening_in_which_a_hook_goes_wrong_is_an_error_that_names_the_twin(
    step, how
):
    text = TEXT.replace(
        "[late] late = Neg(z)", "[late] late = twin.Rude<act='raise', at=99>(z)"
    )
    text = text.replace("'raise'", '"raise"')
    for nth in itertools.count(1):
        faults = Faults(Fault(step, nth, how))
        plugin = TwinPlugin(faults)
        error = opening_error(plugin, text)
        for twin in plugin.made:
            assert_nothing_left(twin)
        if not faults.fired:
            break
        assert isinstance(error, ProviderError | RunError), repr(error)
        assert error.provider == "twin"
    assert error is None
    assert nth > 1


def opening_error(plugin, text):
    """Open and close a session; give the error that kept it from opening, if any."""
    try:
        opened = open_with(plugin, text)
    except SeamlineError as error:
        return error
    opened.close()
    return None


def open_with(plugin, text):
    source = model(text, more=', "twin" : 1')
    return Pipeline.open(source, providers=["twin", "cpu"], pins=PINS, plugins=[plugin])


def test_a_device_that_is_full_is_an_error_that_says_what_is_free_and_the_rest_goes_on():
    plugin = TwinPlugin()
    pipeline = Pipeline.open(
        model("g (float[n] x) => (y) { a = Neg(x) y = Add(a, x) }"),
        providers=[("twin", {"memory_limit": 1 << 20})],
        plugins=[plugin],
    )
    with pytest.raises(
        RunError, match=r"create of \d+ bytes: only \d+ bytes are free"
    ) as caught:
        pipeline.run({"x": np.zeros(1 << 20, f32)})
    assert caught.value.provider == "twin"
    assert plugin.made[0].memory().gauges().owned == 0
    np.testing.assert_array_equal(pipeline.run({"x": X})[0], np.zeros(4, f32))
    pipeline.close()
    assert_nothing_left(plugin.made[0])


def test_a_lost_device_says_so_on_every_later_run_and_its_session_still_closes(
    monkeypatch,
):
    monkeypatch.setattr("seamline_testing.twin.machine._GRACE", 0.05)
    session = Session()
    session.check()
    machine = session.twin.machine
    ended = threading.Event()
    # Work that does not hear the order to end, as a driver's may not.
    machine.submit(machine.compute, Operation("kernel 'deaf'", ended.wait))
    for _ in range(2):
        with pytest.raises(
            RunError, match=r"twin:0 is lost.*close the session"
        ) as caught:
            session.run()
        assert caught.value.provider == "twin"
    ended.set()
    session.pipeline.close()
    assert session.twin.machine.pages.gauges() == Gauges()
