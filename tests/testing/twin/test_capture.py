"""Recording and replaying on the twin: what is kept, what is refused, what goes on."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from tests.testing.twin.rig import Rig

from seamline.errors import (
    DeadlineError,
    KernelError,
    RecordingError,
    ResidencyError,
)
from seamline.tensors import TensorType
from seamline_testing.twin import Fault, Faults, How, Step

f32 = np.float32
CHAIN = """g (float[4] x) => (y) <float[1] w = {2}> {
    [add] a = Add(x, w)
    [relu] b = Relu(a)
    [mul] y = Mul(b, x)
}"""
#: new_state = 2 * state + x: a step too many shows at once.
STEP = """g (float[4] state, float[4] x) => (new_state) <float two = {2}> {
    [double] d = Mul(state, two)
    [step] new_state = Add(d, x)
}"""
START, X = np.array([1, 2, 3, 4], f32), np.array([1, 0, -1, 5], f32)


def chain(x):
    return np.maximum(x + 2, 0) * x


def stepped(count):
    state = START
    for _ in range(count):
        state = 2 * state + X
    return state


def rude(act, at=0):
    return f"""g (float[4] x) => (y) {{
        [before] a = Neg(x)
        [rude] b = twin.Rude <act = "{act}", at = {at}> (a)
        [after] y = Neg(b)
    }}"""


# -- replay equals eager ---------------------------------------------------------------


def test_a_replay_computes_on_the_values_of_its_own_time():
    with Rig(CHAIN).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        for values in (START, -START, START * 7):
            rig.put("x", values)
            recording.replay()
            np.testing.assert_array_equal(rig.get("y"), chain(values))
        assert recording.replays == 3
        recording.close()


def test_recording_runs_nothing_that_shows():
    with Rig(CHAIN).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        assert np.isnan(rig.get("y")).all()
        assert np.isnan(rig.get("a")).all()
        recording.close()


def test_state_moves_once_for_each_call_whether_it_ran_recorded_or_replayed():
    for eager_first in (0, 1, 3):
        with Rig(STEP, shared={"new_state": "state"}).bind() as rig:
            rig.put("state", START)
            rig.put("x", X)
            for count in range(eager_first):
                rig.executable.run()
                np.testing.assert_array_equal(rig.get("state"), stepped(count + 1))
            recording = rig.executable.record()
            np.testing.assert_array_equal(rig.get("state"), stepped(eager_first))
            for count in range(eager_first, 10):
                recording.replay()
                np.testing.assert_array_equal(rig.get("state"), stepped(count + 1))


def test_a_second_recording_of_a_segment_moves_no_state_either():
    with Rig(STEP, shared={"new_state": "state"}).bind() as rig:
        rig.put("state", START)
        rig.put("x", X)
        first = rig.executable.record()
        first.replay()
        second = rig.executable.record()
        first.replay()
        second.replay()
        np.testing.assert_array_equal(rig.get("state"), stepped(3))


def test_segments_of_several_sizes_recorded_in_any_order_replay_as_they_ran():
    def one(size):
        return Rig(f"g (float[{size}] x) => (y) {{ a = Neg(x) y = Add(a, a) }}").bind()

    for order in itertools.permutations((1, 2, 8)):
        rigs, recordings = {size: one(size) for size in order}, {}
        for size in order:
            recordings[size] = rigs[size].executable.record()
        for size in sorted(order):
            x = np.arange(size, dtype=f32)
            rigs[size].put("x", x)
            recordings[size].replay()
            np.testing.assert_array_equal(rigs[size].get("y"), -2 * x)
            rigs[size].close()


# -- what may not happen while recording ---------------------------------------------------


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("allocate", "allocates"),
        ("synchronize", "synchronises"),
        ("read", "allocates"),
        ("raise", "ZeroDivisionError|a mistake"),
    ],
)
def test_a_launch_that_cannot_be_recorded_names_its_node_and_leaves_the_segment_usable(
    act, said
):
    # The first launch is the warm-up's, so the second is the one that is recorded.
    with Rig(rude(act, 2)).bind() as rig:
        rig.put("x", START)
        with pytest.raises(RecordingError, match=said) as caught:
            rig.executable.record()
        at = caught.value
        assert (at.provider, at.segment, at.node) == ("twin", "s0", "rude")
        for _ in range(10):
            rig.executable.run()
            np.testing.assert_array_equal(rig.get("y"), -START)
        recording = rig.executable.record()
        recording.replay()
        np.testing.assert_array_equal(rig.get("y"), -START)


@pytest.mark.parametrize("act", ["allocate", "synchronize", "read"])
def test_the_same_launches_are_legal_where_nothing_is_recorded(act):
    with Rig(rude(act)).bind() as rig:
        rig.put("x", START)
        rig.executable.run()
        np.testing.assert_array_equal(rig.get("y"), -START)


def test_a_launch_that_raises_outside_a_recording_is_an_error_of_its_node():
    with Rig(rude("raise", 1)).bind() as rig:
        rig.put("x", START)
        with pytest.raises(
            KernelError, match="a mistake in the kernel's launch"
        ) as caught:
            rig.executable.run()
        assert caught.value.node == "rude"
        rig.executable.run()
        np.testing.assert_array_equal(rig.get("y"), -START)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("g (float[4] x) => (y) <int64 a = {0}> { b = Neg(x) [sum] y = CumSum(b, a) }", "sum"),
        ("g (float[4] x) => (y, i) <int64[1] k = {2}> { [top] y, i = TopK(x, k) }", "top"),
        ("g (float[4] x) => (y) { [odd] y = NonZero(x) }", "odd"),
    ],
)  # fmt: skip
def test_a_claim_that_says_not_capturable_is_true(text, node):
    with Rig(text).bind() as rig:
        view = next(view for view in rig.spec.nodes if view.name == node)
        assert rig.twin.claim(view).not_capturable
        rig.put("x", START)
        rig.executable.run()
        with pytest.raises(RecordingError) as caught:
            rig.executable.record()
        assert caught.value.node == node


def test_what_a_recording_thread_may_not_do_another_does_once_the_recording_is_over():
    order = []
    with Rig(CHAIN).bind() as rig:
        rig.put("x", START)

        def allocate():
            order.append("asked")
            rig.memory.allocate(64).close()
            order.append("allocated")

        with rig.machine.gate:
            other = threading.Thread(target=allocate)
            other.start()
            while not order:
                time.sleep(0.001)
            recording = rig.executable.record()
            order.append("recorded")
        other.join()
        assert order == ["asked", "recorded", "allocated"]
        recording.replay()


def test_two_threads_that_allocate_and_record_in_turn_never_disturb_each_other():
    stop, wrong = threading.Event(), []

    with Rig(CHAIN).bind() as rig:

        def churn():
            try:
                while not stop.is_set():
                    rig.memory.allocate(1 << 10).close()
            except Exception as error:
                wrong.append(error)

        other = threading.Thread(target=churn)
        other.start()
        try:
            rig.put("x", START)
            for _ in range(30):
                recording = rig.executable.record()
                recording.replay()
                np.testing.assert_array_equal(rig.get("y"), chain(START))
        finally:
            stop.set()
            other.join()
    assert not wrong


# -- what a replay rests on ----------------------------------------------------------------


def test_a_replay_over_memory_that_was_unmapped_is_refused_and_names_the_value():
    with Growing() as growing:
        recording = growing.rig.executable.record()
        growing.decommit(0)
        with pytest.raises(
            RecordingError, match="'cache' lies where nothing is mapped"
        ):
            recording.replay()
        growing.commit(0)
        recording.replay()


def test_a_replay_writes_the_new_pages_at_its_address_and_says_that_they_are_new():
    with Growing() as growing:
        recording = growing.rig.executable.record()
        growing.append(recording, 1)
        assert recording.remapped() == ()
        growing.decommit(0)
        growing.commit(0)
        assert set(recording.remapped()) == {"cache", "grown"}
        np.testing.assert_array_equal(growing.rows(4), np.zeros((4, 4), f32))
        growing.append(recording, 2)
        np.testing.assert_array_equal(
            growing.rows(3)[:, 0], np.array([0, 2, 0], f32), strict=True
        )


def test_an_append_past_what_is_committed_is_an_error_of_its_node_and_no_crash():
    with Growing() as growing:
        growing.rig.put("length", [growing.rows_in_granule])
        recording = growing.rig.executable
        with pytest.raises(KernelError, match="is not mapped") as caught:
            recording.run()
        assert caught.value.node == "append"
        growing.commit(1)
        recording.run()
        assert growing.rig.get("length") == [growing.rows_in_granule + 1]


def test_a_replay_after_its_buffer_was_closed_is_refused_though_another_lies_there():
    with Rig(CHAIN).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        rig.buffers.pop("b").close()
        taken = rig.memory.allocate(16)
        with pytest.raises(RecordingError, match="the buffer of 'b' was closed"):
            recording.replay()
        taken.close()


def test_a_replay_of_a_segment_that_was_bound_again_or_closed_is_refused():
    with Rig(CHAIN).bind() as rig:
        recording = rig.executable.record()
        rig.bind()
        with pytest.raises(RecordingError, match="bound to other places or closed"):
            recording.replay()
        again = rig.executable.record()
        again.replay()
        again.close()
        with pytest.raises(RecordingError, match="it is closed"):
            again.replay()


def test_a_host_input_that_changed_since_is_refused_and_recorded_anew_it_is_followed():
    with Rig("g (float[3] x, int64[1] r) => (float[6] y) { y = Tile(x, r) }") as rig:
        rig.types["y"] = TensorType("float32", (6,))
        rig.bind()
        rig.host["r"][...] = 2
        rig.put("x", [1, 2, 3])
        recording = rig.executable.record()
        recording.replay()
        np.testing.assert_array_equal(rig.get("y"), [1, 2, 3, 1, 2, 3])
        rig.host["r"][...] = 3
        with pytest.raises(RecordingError, match="host input 'r' is baked into it"):
            recording.replay()
        rig.host["r"][...] = 2
        recording.replay()


def test_a_device_length_is_read_at_each_replay_and_no_row_but_the_next_is_written():
    with Growing() as growing:
        recording = growing.rig.executable.record()
        for step in range(1, 600):
            if step % growing.rows_in_granule == 0:
                growing.commit(step // growing.rows_in_granule)
            if step == 300:  # one eager call in between moves the same state
                growing.rig.put("row", np.full(4, step, f32))
                growing.rig.executable.run()
            else:
                growing.append(recording, step)
        np.testing.assert_array_equal(
            growing.rows(599)[:, 3], np.arange(1, 600, dtype=f32)
        )
        assert not growing.rows(growing.mapped_rows)[599:].any()
        assert growing.rig.get("length") == [599]


class Growing:
    """An append-only cache whose rows are committed granule by granule."""

    TEXT = """g (float[ROWS,4] cache, float[4] row, int64[1] length) => (grown, longer) {
        [append] grown, longer = twin.Append(cache, row, length)
    }"""
    #: Small granules, so that growth is met within a few hundred steps.
    GRANULE = 4096

    def __init__(self):
        self.rows_in_granule = self.GRANULE // 16
        text = self.TEXT.replace("ROWS", str(4 * self.rows_in_granule))
        self.rig = Rig(text, shared={"longer": "length"})
        self.pages = self.rig.machine.pages
        self.pages.granule = self.GRANULE
        self.address = self.pages.reserve(4 * self.GRANULE)
        self.handles = {}
        self.commit(0)
        kind = TensorType("float32", (4 * self.rows_in_granule, 4))
        cache = self.rig.memory.at(self.address, kind, grows=True)
        self.rig.views |= {"cache": cache, "grown": cache}
        self.rig.bind()
        self.rig.put("length", [0])
        self.rig.put("row", np.zeros(4))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.rig.executable.close()
        for granule in list(self.handles):
            self.decommit(granule)
        self.pages.free(self.address, 4 * self.GRANULE)
        self.rig.close()

    @property
    def mapped_rows(self):
        return len(self.handles) * self.rows_in_granule

    def commit(self, granule):
        handle = self.handles[granule] = self.pages.create(self.GRANULE)
        self.pages.map(self.address + granule * self.GRANULE, handle)

    def decommit(self, granule):
        self.pages.unmap(self.address + granule * self.GRANULE, self.GRANULE)
        self.pages.release(self.handles.pop(granule))

    def append(self, recording, value):
        self.rig.put("row", np.full(4, value, f32))
        recording.replay()

    def rows(self, count):
        kind = TensorType("float32", (count, 4))
        target = np.empty(kind.sizes, f32)
        self.rig.memory.read(self.rig.memory.at(self.address, kind), target)
        return target


# -- threads, deadlines, faults ------------------------------------------------------------


def test_a_second_thread_is_refused_at_once_while_the_first_replays():
    with Rig(CHAIN, copy_delay=0.0).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        said = []

        def replay():
            try:
                recording.replay()
            except KernelError as error:
                said.append(str(error))

        with rig.executable.taken():
            other = threading.Thread(target=replay)
            other.start()
            other.join(2)
            assert not other.is_alive()
        assert said == [
            "provider 'twin', segment 's0': another thread runs it now; "
            "give each thread a program of its own"
        ]
        recording.replay()


def test_a_recording_made_on_one_thread_is_replayed_on_another():
    with Rig(CHAIN).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        other = threading.Thread(target=recording.replay)
        other.start()
        other.join()
        np.testing.assert_array_equal(rig.get("y"), chain(START))


@pytest.mark.parametrize("how", [How.FAIL, How.HANG])
def test_a_replay_that_fails_or_hangs_ends_in_a_typed_error_and_the_next_is_right(how):
    faults = Faults(Fault(Step.REPLAY, 2, how))
    with Rig(CHAIN, faults=faults, deadline=0.05).bind() as rig:
        rig.put("x", START)
        recording = rig.executable.record()
        recording.replay()
        kind = KernelError if how is How.FAIL else DeadlineError
        with pytest.raises(kind, match="replay") as caught:
            recording.replay()
        assert (caught.value.provider, caught.value.segment) == ("twin", "s0")
        recording.replay()
        np.testing.assert_array_equal(rig.get("y"), chain(START))


def test_a_recording_that_is_made_to_fail_names_provider_and_segment_and_can_be_repeated():
    with Rig(CHAIN, faults=Faults(Fault(Step.RECORD, 1))).bind() as rig:
        rig.put("x", START)
        with pytest.raises(RecordingError, match="record number 1") as caught:
            rig.executable.record()
        assert (caught.value.provider, caught.value.segment) == ("twin", "s0")
        rig.executable.record().replay()
        np.testing.assert_array_equal(rig.get("y"), chain(START))


def test_a_kernel_that_fails_in_a_replay_names_its_node():
    text = """g (float[2] x, int64[1] i) => (y) {
        [neg] a = Neg(x)
        [gather] y = Gather(a, i)
    }"""
    with Rig(text).bind() as rig:
        rig.put("x", [1, 2])
        rig.put("i", [1])
        recording = rig.executable.record()
        recording.replay()
        rig.put("i", [7])
        with pytest.raises(KernelError, match="index 7 is out of bounds") as caught:
            recording.replay()
        assert caught.value.node == "gather"
        rig.put("i", [0])
        recording.replay()
        np.testing.assert_array_equal(rig.get("y"), [-1])


# -- residency -----------------------------------------------------------------------------


def test_a_host_array_bound_as_a_device_value_is_refused_and_so_is_the_reverse():
    with Rig("g (float[3] x, int64[1] r) => (y) { y = Tile(x, r) }") as rig:
        rig.types["y"] = TensorType("float32", (6,))
        rig.bind()
        views, host = dict(rig.views), dict(rig.host)
        with pytest.raises(ResidencyError, match="handed a ndarray"):
            rig.executable.bind({**views, "x": np.zeros(3, f32)}, {}, host)
        with pytest.raises(ResidencyError, match="host input 'r' is a TwinView"):
            rig.executable.bind(views, {}, {"r": views["x"]})
        with pytest.raises(ResidencyError, match="handed a ndarray"):
            rig.executable.bind(views, {"n": np.zeros(4, np.uint8)}, host)
