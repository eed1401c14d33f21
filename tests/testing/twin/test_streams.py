"""Streams, events and copies: order that nobody asked for is seen in the result."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from seamline.devices import VirtualMemoryError
from seamline.errors import (
    ContractError,
    DeadlineError,
    KernelError,
    ResidencyError,
    RunError,
)
from seamline.provider import Gauges
from seamline.tensors import TensorType
from seamline_testing.twin import Fault, Faults, How, Step
from seamline_testing.twin.machine import Machine
from seamline_testing.twin.memory import TwinMemory
from seamline_testing.twin.provider import DEVICE
from seamline_testing.twin.streams import Operation

f32 = np.float32
KIND = TensorType("float32", (4,))


class Bare:
    """A machine with a few places, and work given to its streams by hand."""

    def __init__(self, *faults, **chosen):
        self.machine = Machine(DEVICE, Faults(*faults), **chosen)
        self.memory = TwinMemory(self.machine)
        self.buffers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for buffer in self.buffers:
            buffer.close()
        held = self.memory.gauges()
        self.machine.close()
        assert held == Gauges()

    def place(self, kind=KIND):
        self.buffers.append(
            self.memory.allocate(4 * (kind.sizes[0] if kind.sizes else 1))
        )
        return self.memory.view(self.buffers[-1], 0, kind)

    def array(self, view):
        return self.machine.array(view.place, view.kind)

    def array_shown(self, view):
        with self.machine.shown():
            return self.array(view).copy()

    def add_one(self, source, target, **chosen):
        """Queue ``target = source + 1`` on the stream that computes."""
        x, y = self.array(source), self.array(target)
        self.machine.submit(
            self.machine.compute,
            Operation("kernel 'add'", lambda: np.add(x, 1, out=y), (source.place,),
                      (target.place,), **chosen),
        )  # fmt: skip

    def raw_copy(self, view, values):
        """Queue a copy with no event around it, as a careless provider would."""

        def copy():
            self.array(view)[...] = values

        self.machine.submit(
            self.machine.copies,
            Operation("copy", copy, writes=(view.place,), copies=True,
                      delay=self.machine.copy_delay),
        )  # fmt: skip

    def read(self, view):
        target = np.empty(view.kind.sizes, f32)
        self.memory.read(view, target)
        return target


def test_a_value_written_computed_on_and_read_waits_for_every_delayed_copy():
    with Bare(copy_delay=0.02) as bare:
        a, b = bare.place(), bare.place()
        start = time.monotonic()
        for turn in range(3):
            bare.memory.submit_write(a, np.full(4, turn, f32))
            bare.add_one(a, b)
            np.testing.assert_array_equal(bare.read(b), np.full(4, turn + 1, f32))
        assert time.monotonic() - start >= 6 * 0.02


def test_a_source_may_be_changed_once_write_has_returned():
    with Bare(copy_delay=0.02) as bare:
        a, source = bare.place(), np.arange(4, dtype=f32)
        bare.memory.submit_write(a, source)
        source[...] = -1
        np.testing.assert_array_equal(bare.read(a), [0, 1, 2, 3])


def test_a_kernel_that_does_not_wait_for_its_copy_reads_poison_every_time():
    for _ in range(5):
        with Bare(copy_delay=0.02) as bare:
            a, b = bare.place(), bare.place()
            bare.memory.submit_write(a, np.zeros(4, f32))
            bare.machine.synchronize()
            bare.raw_copy(a, 5)
            bare.add_one(a, b)
            assert np.isnan(bare.read(b)).all()
            np.testing.assert_array_equal(bare.read(a), np.full(4, 5, f32))


def test_an_event_between_the_streams_makes_the_same_kernel_right():
    with Bare(copy_delay=0.02) as bare:
        a, b = bare.place(), bare.place()
        bare.raw_copy(a, 5)
        bare.machine.compute.wait_for(bare.machine.copies.record())
        bare.add_one(a, b)
        np.testing.assert_array_equal(bare.read(b), np.full(4, 6, f32))


def test_a_kernel_queued_before_a_copy_still_reads_what_lay_there():
    with Bare(copy_delay=0.01) as bare:
        a, b = bare.place(), bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.add_one(a, b, delay=0.03)
        bare.memory.submit_write(a, np.full(4, 9, f32))
        np.testing.assert_array_equal(bare.read(b), np.ones(4, f32))
        np.testing.assert_array_equal(bare.read(a), np.full(4, 9, f32))


def test_fresh_memory_is_poison():
    with Bare() as bare:
        assert np.isnan(bare.read(bare.place())).all()


def test_copies_and_bytes_are_counted_each_way():
    with Bare() as bare:
        a = bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.read(a)
        bare.read(a)
        counts = bare.machine.counts
        assert (counts["copy"], counts["bytes in"], counts["bytes out"]) == (3, 16, 32)


def test_an_error_ends_what_is_queued_behind_it_and_is_raised_once_where_one_waits():
    with Bare() as bare:
        a, b = bare.place(), bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))

        def fail():
            raise ZeroDivisionError("in a kernel")

        bare.machine.submit(bare.machine.compute, Operation("kernel 'bad'", fail))
        bare.add_one(a, b)
        with pytest.raises(ZeroDivisionError):
            bare.machine.synchronize()
        assert np.isnan(bare.read(b)).all()
        bare.add_one(a, b)
        np.testing.assert_array_equal(bare.read(b), np.ones(4, f32))


def test_synchronize_waits_and_raises_what_failed_once_and_waits_for_nothing_again():
    with Bare(copy_delay=0.02) as bare:
        source, target = bare.place(), bare.place()
        bare.memory.submit_write(source, np.arange(4, dtype=f32))
        bare.add_one(source, target)
        bare.memory.synchronize()
        np.testing.assert_array_equal(bare.array_shown(target), [1, 2, 3, 4])
        bare.machine.submit(
            bare.machine.compute, Operation("kernel 'bad'", lambda: 1 // 0)
        )
        with pytest.raises(ZeroDivisionError):
            bare.memory.synchronize()
        bare.memory.synchronize()


def test_work_on_memory_that_is_not_mapped_is_an_error_and_not_a_crash():
    with Bare() as bare:
        a, b = bare.place(), bare.place()
        bare.machine.synchronize()
        bare.buffers.pop().close()
        bare.add_one(a, b)
        with pytest.raises(VirtualMemoryError, match="is not mapped"):
            bare.machine.synchronize()


def test_a_copy_that_fails_names_device_size_and_provider_and_the_next_one_is_right():
    with Bare(Fault(Step.COPY, 1), Fault(Step.COPY, 3)) as bare:
        a, b = bare.place(), bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))
        with pytest.raises(KernelError, match="'twin': copy of 16 bytes to twin:0"):
            bare.machine.synchronize()
        bare.memory.submit_write(b, np.zeros(4, f32))
        with pytest.raises(KernelError, match="'twin': copy of 16 bytes from twin:0"):
            bare.read(b)
        np.testing.assert_array_equal(bare.read(b), np.zeros(4, f32))


def test_a_copy_that_fails_lets_no_kernel_run_that_waits_for_it():
    with Bare(Fault(Step.COPY, 1)) as bare:
        a, b = bare.place(), bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.add_one(a, b)
        with pytest.raises(KernelError, match="copy number 1"):
            bare.read(b)
        assert bare.machine.counts["kernel"] == 0


def test_work_that_hangs_ends_in_an_error_that_names_it_and_the_device_goes_on():
    with Bare(Fault(Step.COPY, 1, How.HANG), deadline=0.05) as bare:
        a, b = bare.place(), bare.place()
        start = time.monotonic()
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.add_one(a, b)
        with pytest.raises(
            DeadlineError, match="copy of 16 bytes to twin:0 did not end"
        ):
            bare.machine.synchronize()
        assert time.monotonic() - start < 2
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.add_one(a, b)
        np.testing.assert_array_equal(bare.read(b), np.ones(4, f32))


def test_a_device_that_does_not_give_up_is_lost_and_says_so(monkeypatch):
    monkeypatch.setattr("seamline_testing.twin.machine._GRACE", 0.05)
    bare = Bare(deadline=0.05)
    stuck = threading.Event()
    work = Operation("kernel 'stuck'", lambda: stuck.wait())
    bare.machine.submit(bare.machine.compute, work)
    for _ in range(2):
        with pytest.raises(
            RunError, match=r"lost: kernel 'stuck' did not end within 0\.05"
        ):
            bare.machine.synchronize()
    with pytest.raises(RunError, match=r"'twin'.*close the session"):
        bare.memory.allocate(4)
    stuck.set()
    bare.machine.close()


def test_an_unmap_waits_for_work_in_flight_and_leaves_its_result_whole():
    with Bare() as bare:
        a, b = bare.place(), bare.place()
        bare.memory.submit_write(a, np.zeros(4, f32))
        bare.add_one(a, b, delay=0.05)
        bare.buffers.pop(0).close()
        assert bare.machine.counts["kernel"] == 1
        np.testing.assert_array_equal(bare.read(b), np.ones(4, f32))


@pytest.mark.parametrize(
    "touch",
    [
        np.asarray, np.sum, lambda v: v[0], list, len, float, memoryview, np.from_dlpack,
        lambda v: np.ones(4, f32) + v, lambda v: np.copyto(np.ones(4, f32), v),
        lambda v: v.__array_interface__,
    ],
    ids=["asarray", "sum", "index", "iterate", "len", "float", "buffer", "dlpack", "add", "copyto", "interface"],
)  # fmt: skip
def test_the_host_can_look_at_a_view_in_no_way(touch):
    with Bare() as bare:
        view = bare.place()
        with pytest.raises((ResidencyError, TypeError), match=r"twin|bytes-like"):
            touch(view)


def test_a_view_of_other_memory_is_refused_for_copies():
    with Bare() as bare, Bare() as other:
        with pytest.raises(ResidencyError, match="handed a ndarray"):
            bare.memory.submit_write(np.zeros(4, f32), np.zeros(4, f32))
        with pytest.raises(ResidencyError, match="handed a TwinView"):
            bare.memory.read(other.place(), np.zeros(4, f32))
        with pytest.raises(ResidencyError, match="no buffer of twin:0"):
            bare.memory.view(other.buffers[0], 0, KIND)


def test_a_copy_between_unlike_types_and_a_view_past_the_end_are_refused():
    with Bare() as bare:
        a = bare.place()
        for wrong in (np.zeros(3, f32), np.zeros(4, np.int32), np.zeros((2, 2), f32)):
            with pytest.raises(ContractError, match=r"between float32\[4\] and"):
                bare.memory.submit_write(a, wrong)
        with pytest.raises(
            ContractError, match="not within an open buffer of 16 bytes"
        ):
            bare.memory.view(bare.buffers[0], 4, KIND)


def test_an_allocation_that_fails_at_any_step_leaves_nothing():
    steps = [
        Fault(step, 1) for step in (Step.ALLOCATE, Step.RESERVE, Step.CREATE, Step.MAP)
    ]
    for fault in steps:
        with Bare(fault) as bare:
            with pytest.raises(
                VirtualMemoryError, match=f"twin:0: {fault.step}.*made to"
            ):
                bare.memory.allocate(100)
            assert bare.memory.gauges() == Gauges()
            bare.place()


def test_a_buffer_whose_closing_fails_is_given_back_by_closing_it_again():
    for step in (Step.UNMAP, Step.RELEASE, Step.FREE):
        with Bare(Fault(step, 1)) as bare:
            buffer = bare.memory.allocate(100)
            with pytest.raises(VirtualMemoryError, match=str(step)):
                buffer.close()
            buffer.close()
            assert bare.memory.gauges() == Gauges()
            buffer.close()


def test_what_does_not_fit_is_refused_and_names_what_is_free():
    with Bare(limit=3 << 16) as bare:
        bare.buffers.append(bare.memory.allocate(2 << 16))
        with pytest.raises(
            VirtualMemoryError, match="create of 131072 bytes: only 65536"
        ):
            bare.memory.allocate((1 << 16) + 1)
        assert bare.memory.gauges() == Gauges(2 << 16, 2 << 16, 2 << 16)
