"""The gate: who waits for whom, and who is refused at once."""

from __future__ import annotations

import threading
import time

import pytest

from seamline.errors import DeadlineError, RecordingError
from seamline_cuda.gate import Gate


class Other:
    """Another thread that does one thing and says when it began and ended."""

    def __init__(self, act):
        self.began, self.ended = threading.Event(), threading.Event()
        self.error = None

        def work():
            self.began.set()
            try:
                act()
            except Exception as error:
                self.error = error
            self.ended.set()

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        assert self.began.wait(5)

    def is_waiting(self):
        return not self.ended.wait(0.05)

    def join(self):
        self.thread.join(5)
        assert not self.thread.is_alive()
        return self.error


def held(gate, what, release):
    """Hold a capture or a memory call on another thread until told to end."""
    entered = threading.Event()

    def work():
        context = gate.capture("s") if what == "capture" else gate.memory_call("map")
        with context:
            entered.set()
            release.wait(5)

    other = Other(work)
    assert entered.wait(5)
    return other


@pytest.mark.parametrize(
    ("one", "other", "waits"),
    [
        ("capture", "memory", True),
        ("memory", "capture", True),
        ("capture", "capture", True),
        ("memory", "memory", False),
    ],
)
def test_captures_exclude_everything_of_other_threads_and_memory_calls_only_captures(
    one, other, waits
):
    gate, release = Gate(), threading.Event()
    first = held(gate, one, release)

    def enter():
        with gate.capture("t") if other == "capture" else gate.memory_call("map"):
            pass

    second = Other(enter)
    assert second.is_waiting() is waits
    release.set()
    assert first.join() is second.join() is None


def test_the_capturing_thread_may_map_and_is_refused_what_cannot_be_recorded():
    gate = Gate()
    with gate.capture("s7") as capture:
        capture.node = "n3"
        with gate.memory_call("map"), gate.memory_call("create"):
            pass
        with pytest.raises(RecordingError, match="it unmaps, which cannot") as caught:
            gate.legal("unmaps")
        with (
            pytest.raises(RecordingError, match="begins a capture"),
            gate.capture("s8"),
        ):
            pass
    assert (caught.value.segment, caught.value.node) == ("s7", "n3")
    gate.legal("unmaps")


def test_a_thread_that_does_not_capture_is_not_refused_by_anothers_capture():
    gate, release = Gate(), threading.Event()
    first = held(gate, "capture", release)
    gate.legal("unmaps")
    assert gate.mine() is None
    release.set()
    assert first.join() is None


def test_a_waiting_capture_does_not_hold_up_memory_calls():
    """A drain may wait for work that ends only when another thread got its memory."""
    gate, release = Gate(), threading.Event()
    first = held(gate, "memory", release)

    def capture():
        with gate.capture("s"):
            pass

    waiting = Other(capture)
    assert waiting.is_waiting()
    with gate.memory_call("create"):
        pass
    release.set()
    assert first.join() is waiting.join() is None


def test_waiting_ends_at_the_deadline_and_says_for_what():
    gate, release = Gate(deadline=0.05), threading.Event()
    first = held(gate, "capture", release)
    start = time.monotonic()
    with pytest.raises(DeadlineError, match=r"map waited .* the capture of 's'"):
        gate.memory_call("map").__enter__()
    assert time.monotonic() - start < 2
    release.set()
    assert first.join() is None
    with gate.memory_call("map"):
        pass


def test_a_block_that_raises_opens_the_gate_again():
    gate = Gate()
    for context in (gate.capture, gate.memory_call):
        with pytest.raises(ZeroDivisionError), context("s"):
            raise ZeroDivisionError
    with gate.capture("s"):
        pass
