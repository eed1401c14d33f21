"""
Excursions to the host inside one recording: right in every form, placement and failure.

Each side of every session checks that it was handed memory of its own only. Every test has
a deadline, so that a device and a host that wait for each other fail instead of hanging.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tests.core.toys import ALONE, model
from tests.testing.twin.test_sessions import Host, HostPlugin

from seamline.errors import CaptureMismatchError, DeadlineError, KernelError
from seamline.hookspecs import hookimpl
from seamline.pipeline import Pipeline
from seamline.provider import ProviderSpec
from seamline_testing.twin import Fault, Faults, How, InjectedError, Step
from seamline_testing.twin.plugin import TwinPlugin

f32 = np.float32
PATIENCE = 20.0
FORMS = ("eager", "mailbox", "host_node")
RECORDED = ("mailbox", "host_node")
#: Two excursions in one run; one value is read on both sides.
TEXT = """g (float[n] x) => (y, z) {
    [a] a = Neg(x) [b] b = Abs(a) [c] c = Add(b, a) [d] d = Sub(c, b) [e] y = Mul(d, c)
    [f] z = Relu(d) }"""
PINS = {"b": "cpu", "d": "cpu"}
X = np.array([1, -2, 3, -4], f32)


def wanted(x):
    c = np.abs(x) - x
    d = c - np.abs(x)
    return [d * c, np.maximum(d, 0)]


@pytest.fixture(autouse=True)
def deadline(request):
    """End a run that waits for ever, by ending the devices it waits for."""
    ended = threading.Event()

    def watch():
        if not ended.wait(PATIENCE):
            for opened in OPEN:
                opened.twin.machine.compute.give_up.set()

    guard = threading.Thread(target=watch, daemon=True)
    guard.start()
    began = time.monotonic()
    yield
    ended.set()
    guard.join()
    OPEN.clear()
    assert time.monotonic() - began < PATIENCE


OPEN = []


class Opened:
    def __init__(
        self, source=TEXT, *, pins=PINS, faults=None, host=None, asked=None, **chosen
    ):
        self.faults = faults or Faults()
        plugin = TwinPlugin(self.faults)
        self.pipeline = Pipeline.open(
            model(source),
            providers=[("twin", {"deadline": 5.0, **(asked or {})}), "cpu"],
            pins=pins,
            plugins=[plugin, host or HostPlugin()],
            settings=ALONE,
            **chosen,
        )
        (self.twin,) = plugin.made
        OPEN.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.close()
        assert self.twin.left == 0
        assert self.twin.open_segments == 0
        assert self.twin.machine.pages.gauges().owned == 0

    def run(self, x=X):
        return self.pipeline.run({"x": x})

    def right(self, x=X):
        for got, want in zip(self.run(x), wanted(x), strict=True):
            np.testing.assert_array_equal(got, want)

    @property
    def plan(self):
        return self.pipeline.runner.latest().plan

    @property
    def chain(self):
        (chain,) = self.pipeline.runner.latest().chains.values()
        return chain

    def said(self):
        return self.pipeline.explain().data["plan"]


class Awkward(Host):
    """A host whose runs do what a test says, once a run's number is due."""

    def __init__(self, act, due):
        super().__init__()
        self.act, self.due, self.runs = act, due, 0

    def build(self, segment, context):
        made = super().build(segment, context)
        run = made.run

        def awkward():
            self.runs += 1
            if self.runs == self.due:
                self.act()
            return run()

        made.run = awkward
        return made


class AwkwardPlugin:
    CONTRACT_VERSION = 1

    def __init__(self, act, due=3):
        self.act, self.due = act, due

    @hookimpl
    def seamline_providers(self):
        return [ProviderSpec("cpu", lambda _: Awkward(self.act, self.due))]


# --- right in every form ----------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_the_definition_says_for_every_size_and_run(form):
    with Opened(seam_form=form) as opened:
        for size in (4, 4, 7, 4, 7, 4):
            for scale in (1, -2):
                opened.right(np.linspace(-3, 5, size).astype(f32) * f32(scale))
        assert {str(e.form) for e in opened.plan.excursions} == {form}
        assert len(opened.plan.chains) == (form != "eager")


@pytest.mark.parametrize("form", RECORDED)
def test_a_replay_makes_both_excursions_in_one_recording_without_a_transfer(form):
    with Opened(seam_form=form) as opened:
        opened.right()
        opened.right()
        assert opened.chain.state == "recorded"
        before = opened.twin.machine.counts.copy()
        replays = opened.faults.counts[Step.REPLAY]
        opened.right(X * f32(3))
        after = opened.twin.machine.counts
        assert opened.faults.counts[Step.REPLAY] == replays + 1
        assert after["host"] - before["host"] == 2
        # What remains are the feed and the two results.
        assert after["copy"] - before["copy"] == 3
        moved = sum(e.out_nbytes + e.in_nbytes for e in opened.plan.excursions)
        outputs, feeds = 2 * X.nbytes, X.nbytes
        bytes_moved = after["bytes out"] + after["bytes in"]
        bytes_moved -= before["bytes out"] + before["bytes in"]
        assert bytes_moved == moved + outputs + feeds


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        # A diamond with an arm on each side.
        ("""g (float[n] x) => (y) { [p] a = Neg(x) [q] b = Exp(a) [r] c = Relu(a)
            [s] y = Add(b, c) }""", {"q": "cpu"}),
        # The host reads one value early and one late; each crosses once.
        ("""g (float[n] x) => (y) { [p] a = Neg(x) [q] b = Abs(a) [r] c = Mul(b, a)
            [s] d = Add(c, a) [t] y = Sub(d, b) }""", {"q": "cpu", "s": "cpu"}),
        # A host segment that the device's second segment does not wait for.
        ("""g (float[n] x) => (y, z) { [p] a = Neg(x) [q] z = Abs(a) [r] c = Exp(z)
            [s] b = Relu(a) [t] w = Add(c, b) [u] y = Neg(w) }""", {"q": "cpu"}),
        # An operand that only the host has, made before the chain.
        ("""g (float[n] x) => (y) { [o] h = Exp(x) [p] a = Neg(x) [q] b = Mul(a, h)
            [r] c = Add(b, h) [s] y = Neg(c) }""", {"o": "cpu", "q": "cpu"}),
        # Empty tensors cross too.
        ("""g (float[n] x) => (y) <int64[1] s = {0}, int64[1] e = {0}> {
            [p] a = Neg(x) [k] k = Slice(a, s, e) [q] b = Abs(k) [r] y = Neg(b) }""",
         {"q": "cpu"}),
    ],
    ids=["diamond", "both sides", "apart", "host only", "empty"],
)  # fmt: skip
@pytest.mark.parametrize("form", RECORDED)
def test_placements_that_interleave_are_right_and_are_verified(text, pins, form):
    from onnx.reference import ReferenceEvaluator

    reference = ReferenceEvaluator(model(text))
    with Opened(text, pins=pins, seam_form=form, verify_capture=2) as opened:
        for scale in (1, 2, -1, 3, -0.5):
            x = X * f32(scale)
            for got, want in zip(
                opened.run(x), reference.run(None, {"x": x}), strict=True
            ):
                np.testing.assert_allclose(got, want, rtol=1e-6)
        chains = opened.pipeline.runner.latest().chains.values()
        assert chains
        for chain in chains:
            assert chain.events == ["recorded", "verified", "verified"]


# --- which form, and why ----------------------------------------------------------------


def test_the_cheapest_form_is_taken_for_the_bytes_that_move_and_explained():
    with Opened() as opened:
        for _ in range(3):
            opened.right()
        first, second = opened.said()["excursions"]
        assert (
            first["form"] == min(first["prices"], key=first["prices"].get) == "mailbox"
        )
        assert first["predicted_us"] == first["prices"]["mailbox"]
        assert (first["out_nbytes"], first["in_nbytes"]) == (16, 16)
        assert first["us"] > 0 < second["host_us"]
        text = str(opened.pipeline.explain())
        assert "the cheapest of eager, mailbox, host_node" in text
        assert "the simulated device's own" in text
        page = opened.pipeline.explain().to_html()
        assert page.count("the cheapest of eager, mailbox, host_node") == 2
        seams = opened.said()["seams"]
        assert {seam["form"] for seam in seams if seam["excursion"]} == {"mailbox"}


def test_a_segment_that_cannot_be_recorded_is_in_no_chain_and_says_so():
    text = """g (float[n] x) => (y) <int64 k = {0}> { [p] a = Neg(x) [h] b = Abs(a)
        [q] c = CumSum(b, k) [i] d = Neg(c) [r] y = Neg(d) }"""
    with Opened(text, pins={"h": "cpu", "i": "cpu"}, seam_form="mailbox") as opened:
        for _ in range(3):
            np.testing.assert_array_equal(opened.run()[0], np.cumsum(np.abs(X)))
        assert not opened.plan.chains
        into, out_of = opened.plan.excursions
        assert into.before == out_of.after == "twin:q"
        for excursion in (into, out_of):
            assert "'q' cannot be recorded: it waits" in excursion.reason


def test_an_excursion_around_control_flow_stays_eager_and_says_why():
    text = """g (float[n] x, bool c) => (y) { [p] a = Neg(x) [q] b = Abs(a)
        [r] y = If(c) <then_branch = t () => (p) { [tp] p = Neg(b) },
                       else_branch = e () => (q) { [eq] q = Abs(b) }> }"""
    with Opened(text, pins={"q": "cpu"}, seam_form="mailbox") as opened:
        for c in (True, False, True):
            (y,) = opened.pipeline.run({"x": X, "c": np.array(c)})
            np.testing.assert_array_equal(y, -np.abs(X) if c else np.abs(X))
        assert not opened.plan.chains


def test_a_host_value_that_a_launch_would_keep_keeps_its_segment_out():
    text = """g (float[2,2] x, int64 k) => (y) { [p] a = Neg(x) [q] s = Add(k, k)
        [r] b = Trilu(a, s) [t] c = Abs(b) [u] y = Neg(c) }"""
    x = np.arange(1, 5, dtype=f32).reshape(2, 2)
    with Opened(text, pins={"q": "cpu", "t": "cpu"}, seam_form="mailbox") as opened:
        for k in (0, 0, 1, 1, 0):
            (y,) = opened.pipeline.run({"x": x, "k": np.array(k)})
            np.testing.assert_array_equal(y, -np.abs(np.triu(-x, 2 * k)))
        said = {e.id: e for e in opened.plan.excursions}
        assert any("reads on the host" in e.reason for e in said.values())
        assert all(e.form == "eager" for e in said.values() if "twin:r" in e.id)


def test_a_session_that_records_nothing_makes_its_excursions_eagerly():
    with Opened(record=False, seam_form="mailbox") as opened:
        opened.right()
        opened.right()
        reasons = {e.reason for e in opened.plan.excursions}
        assert reasons == {
            "mailbox was asked for, and cannot be: the session records nothing"
        }


def test_a_form_that_is_none_is_refused_with_the_forms_that_there_are():
    with pytest.raises(ValueError, match="did you mean 'mailbox'"):
        Opened(seam_form="mailbx")


# --- what goes wrong --------------------------------------------------------------------


@pytest.mark.parametrize("form", RECORDED)
def test_what_the_hosts_work_raises_is_raised_by_the_run_and_the_next_is_right(form):
    def fail():
        raise ZeroDivisionError("no such luck")

    # Two host segments in a run: the sixth is the second of the third run, a replay.
    with Opened(host=AwkwardPlugin(fail, due=6), seam_form=form) as opened:
        opened.right()
        opened.right()
        with pytest.raises(KernelError, match="no such luck") as caught:
            opened.run()
        assert (caught.value.provider, caught.value.node) == ("cpu", "d")
        assert opened.chain.state == "recorded"
        opened.right(X * f32(2))


@pytest.mark.parametrize("form", RECORDED)
@pytest.mark.parametrize("nth", [1, 2])
def test_an_answer_that_never_comes_ends_at_the_deadline_and_names_the_node(form, nth):
    faults = Faults(Fault(Step.ANSWER, nth, How.HANG))
    asked = {"answer_deadline": 0.2}
    with Opened(faults=faults, asked=asked, seam_form=form) as opened:
        opened.right()
        began = time.monotonic()
        with pytest.raises(DeadlineError, match="did not answer") as caught:
            opened.run()
        assert time.monotonic() - began < 5
        assert caught.value.node == ("b", "d")[nth - 1]
        opened.right(X * f32(2))
        opened.right(X * f32(3))


@pytest.mark.parametrize("form", RECORDED)
def test_an_answer_to_an_earlier_turn_is_taken_for_no_answer(form):
    faults = Faults(Fault(Step.ANSWER, 3, How.GARBAGE))
    asked = {"answer_deadline": 0.2}
    with Opened(faults=faults, asked=asked, seam_form=form) as opened:
        opened.right()
        opened.right()
        with pytest.raises(DeadlineError):
            opened.run()
        opened.right(X * f32(2))


@pytest.mark.parametrize("form", RECORDED)
def test_an_answer_that_fails_is_raised_and_leaves_a_usable_device(form):
    faults = Faults(Fault(Step.ANSWER, 1, How.FAIL))
    with Opened(faults=faults, seam_form=form) as opened:
        opened.right()
        with pytest.raises(KernelError, match="was made to fail"):
            opened.run()
        opened.right()


@pytest.mark.parametrize("form", RECORDED)
def test_a_host_that_is_late_is_an_error_and_its_answer_is_not_taken_later(form):
    late = AwkwardPlugin(lambda: time.sleep(0.5), due=6)
    asked = {"answer_deadline": 0.1}
    with Opened(host=late, asked=asked, seam_form=form) as opened:
        opened.right()
        opened.right()
        with pytest.raises(DeadlineError) as caught:
            opened.run()
        assert caught.value.node == "d"
        opened.right(X * f32(-2))


def test_a_host_that_never_returns_is_given_up_under_a_deadline_of_providers():
    stuck = threading.Event()
    host = AwkwardPlugin(lambda: stuck.wait(PATIENCE), due=5)
    opened = Opened(host=host, deadline=1.0, seam_form="mailbox")
    try:
        opened.right()
        opened.right()
        began = time.monotonic()
        with pytest.raises(DeadlineError) as caught:
            opened.run()
        assert time.monotonic() - began < 5
        assert caught.value.provider == "cpu"
        assert not opened.twin.machine.lost
        opened.twin.memory().synchronize()
    finally:
        stuck.set()
        opened.pipeline.close()


@pytest.mark.parametrize("form", RECORDED)
def test_a_recording_closed_in_flight_ends_its_replay_with_an_error(form):
    closed = threading.Event()
    holder = {}

    def close():
        holder["chain"].recording.close()
        closed.set()

    host = AwkwardPlugin(close, due=5)
    with Opened(host=host, seam_form=form) as opened:
        opened.right()
        opened.right()
        holder["chain"] = opened.chain
        with pytest.raises(KernelError, match="closed while it was replayed"):
            opened.run()
        assert closed.is_set()


@pytest.mark.parametrize("form", RECORDED)
def test_a_kernel_that_fails_in_a_chain_is_named_and_the_host_does_not_wait(form):
    faults = Faults(Fault(Step.REPLAY, 2, How.FAIL))
    with Opened(faults=faults, seam_form=form) as opened:
        opened.right()
        opened.right()
        with pytest.raises(KernelError, match="replay number 2 was made to fail"):
            opened.run()
        opened.right()


@pytest.mark.parametrize("form", RECORDED)
def test_a_device_that_hangs_before_it_asks_ends_at_the_hosts_deadline(form):
    faults = Faults(Fault(Step.REPLAY, 2, How.HANG))
    with Opened(faults=faults, seam_form=form, asked={"deadline": 0.3}) as opened:
        opened.right()
        opened.right()
        with pytest.raises(DeadlineError):
            opened.run()
        opened.right()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_chain_that_cannot_be_recorded_runs_step_by_step_and_says_why(nth):
    faults = Faults(Fault(Step.RECORD, nth, How.FAIL))
    with Opened(faults=faults, seam_form="mailbox") as opened:
        opened.right()
        opened.right()
        node = ("a", "c", "e")[nth - 1]
        assert opened.chain.state == "eager"
        assert f"node {node!r}: call {nth} of 'record'" in opened.chain.why or (
            node in opened.chain.why
        )
        capture = opened.said()["chains"][0]["capture"]
        assert capture["state"] == "eager"
        for scale in (2, 3, 4):
            opened.right(X * f32(scale))


def test_a_chain_whose_replay_differs_is_named_and_taken_apart():
    with Opened(verify_capture=1, seam_form="mailbox") as opened:
        record = opened.twin.record_chain

        def stale(spec):
            made = record(spec)
            excursion = made.parts[1]
            excursion.ins[0][...] = 7
            excursion.host = lambda: None
            return made

        opened.twin.record_chain = stale
        opened.right()
        with pytest.raises(CaptureMismatchError) as caught:
            opened.run()
        assert caught.value.node == "b"
        opened.right(X * f32(2))
        assert opened.chain.state == "eager"


@pytest.mark.parametrize("form", RECORDED)
def test_another_thread_is_refused_while_a_chain_is_replayed(form):
    inside, go_on, raised = threading.Event(), threading.Event(), []

    def hold():
        inside.set()
        go_on.wait(5)

    host = AwkwardPlugin(hold, due=5)
    with Opened(host=host, seam_form=form) as opened:
        opened.right()
        opened.right()
        recording = opened.chain.recording

        def other():
            inside.wait(5)
            try:
                recording.replay()
            except KernelError as error:
                raised.append(error)
            go_on.set()

        thread = threading.Thread(target=other)
        thread.start()
        opened.right()
        thread.join(5)
        assert "another thread runs it now" in str(raised[0])


def test_two_sessions_replay_their_chains_side_by_side():
    with Opened(seam_form="mailbox") as one, Opened(seam_form="host_node") as other:
        errors = []

        def several(opened, scale):
            try:
                for _ in range(10):
                    opened.right(X * f32(scale))
            except Exception as error:
                errors.append(error)

        threads = [
            threading.Thread(target=several, args=(one, 2)),
            threading.Thread(target=several, args=(other, -3)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not errors


def test_an_idle_session_uses_no_processor_time():
    with Opened(seam_form="mailbox") as opened:
        for _ in range(3):
            opened.right()
        began = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - began < 0.05


def test_injected_errors_are_none_of_seamlines():
    assert not issubclass(InjectedError, KernelError)


# --- measuring and profiling ------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_measured_and_stands_beside_its_price(form):
    with Opened(seam_form=form) as opened:
        timings = opened.pipeline.measure({"x": X}, runs=3)
        plan = opened.pipeline.explain(None, timings).data["plan"]
        assert len(plan["excursions"]) == 2
        for one in plan["excursions"]:
            assert one["us"] > 0 < one["host_us"]
            assert one["predicted_us"] == one["prices"][form]
        text = str(opened.pipeline.explain(None, timings))
        assert text.count("measured") == 2
        assert ("chain:twin:a..twin:e recorded" in text) == (form != "eager")


def test_a_profile_has_a_recorded_chain_as_one_event_with_its_excursions():
    events = []

    class Noting:
        def event(self, name, category, start_ns, end_ns, args):
            events.append((name, category, args))

    with Opened(seam_form="mailbox") as opened:
        for _ in range(2):
            opened.right()
        opened.pipeline.run({"x": X}, profile=Noting())
    ((name, _, args),) = [one for one in events if one[1] == "Chain"]
    assert name == "chain:twin:a..twin:e"
    assert (args["segments"], args["excursions"]) == (3, 2)
    assert args["first"] == "twin:a"
    assert not [one for one in events if one[1] == "Segment"]


def test_a_body_of_control_flow_has_chains_of_its_own():
    text = """g (float[n] x, bool c) => (y) {
        y = If(c) <then_branch = t () => (p) {
                [ta] a = Neg(x) [tb] b = Abs(a) [tc] p = Neg(b) },
            else_branch = e () => (q) { [eq] q = Abs(x) }> }"""
    with Opened(text, pins={"tb": "cpu"}, seam_form="mailbox") as opened:
        for c in (True, True, False, True):
            (y,) = opened.pipeline.run({"x": X, "c": np.array(c)})
            np.testing.assert_array_equal(y, -np.abs(X) if c else np.abs(X))
        body = opened.said()["bodies"]
        (taken,) = [one for name, one in body.items() if name.endswith("then_branch")]
        assert taken["chains"][0]["capture"]["state"] == "recorded"


def test_an_observer_hears_of_a_replayed_chain_once_by_its_first_segment():
    heard = []

    class Hearing(HostPlugin):
        @hookimpl
        def seamline_segment_finished(self, segment, provider, start_ns, end_ns):
            heard.append((segment, provider))

    with Opened(host=Hearing(), seam_form="mailbox") as opened:
        for _ in range(2):
            opened.right()
        heard.clear()
        opened.right()
        assert heard == [("twin:a", "twin")]
