"""Memory on a real device: the same rules as over the host's virtual memory, and more."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.gpu.rig import Rig

from seamline.devices import Gauges, VirtualMemoryError
from seamline.errors import ContractError, RecordingError, ResidencyError
from seamline.tensors import TensorType
from seamline_cuda.growing import GrowingRange
from seamline_testing.twin.faults import InjectedError

STEPS = ("reserve", "create", "map", "access", "unmap", "release", "free")


class Failing:
    """Fails the n-th call of one verb, the half of ``map`` that gives access included."""

    def __init__(self, verb="", nth=0):
        self.verb, self.nth, self.seen, self.fired = verb, nth, 0, False

    def __call__(self, verb):
        if verb == self.verb:
            self.seen += 1
            if self.seen == self.nth:
                self.fired = True
                raise InjectedError(f"{verb} number {self.nth} was made to fail")


def story(rig):
    """Allocate, grow, copy, free: each verb several times."""
    granule = rig.granule
    held = [rig.memory.allocate(n) for n in (100, 3 * granule, granule // 2, 200)]
    cache = GrowingRange(rig.arena, 8 * granule)
    cache.grow(3 * granule)
    cache.shrink(granule)
    cache.grow(2 * granule)
    for buffer in held:
        buffer.close()
    cache.close()


@pytest.mark.parametrize("verb", STEPS)
def test_whichever_step_fails_the_next_call_works_and_the_gauges_end_at_zero(verb):
    nth = 0
    while True:
        nth += 1
        assert nth < 60
        rig = Rig(pool=2 << 20)
        rig.pages.before = failing = Failing(verb, nth)
        try:
            story(rig)
            rig.arena.close()
        except InjectedError:
            pass
        rig.pages.before = Failing()
        buffer = rig.memory.allocate(1000)
        value = np.arange(250, dtype=np.float32)
        view = rig.memory.view(buffer, 0, TensorType("float32", (250,)))
        rig.memory.write(view, value)
        got = np.zeros_like(value)
        rig.memory.read(view, got)
        assert np.array_equal(got, value)
        buffer.close()
        rig.close()
        if not failing.fired:
            break
    assert nth > 1


@pytest.mark.parametrize("verb", ["create", "map", "access"])
def test_a_commit_that_fails_leaves_the_gauges_where_they_were(rig, verb):
    kept = rig.memory.allocate(1000)
    before, pooled = rig.memory.gauges(), rig.arena.pool.held
    rig.pages.before = Failing(verb, 1)
    with pytest.raises(InjectedError):
        rig.memory.allocate(8 * rig.granule)
    rig.pages.before = Failing()
    after = rig.memory.gauges()
    assert (after.content, after.mapped) == (before.content, before.mapped)
    assert after.owned - rig.arena.pool.held == before.owned - pooled
    kept.close()


def test_a_refusal_names_device_call_bytes_free_and_owned():
    rig = Rig(limit=4 << 20)
    kept = rig.memory.allocate(3 << 20)
    with pytest.raises(VirtualMemoryError) as caught:
        rig.memory.allocate(64 << 20)
    error = caught.value
    assert (str(error.device), error.call, error.nbytes) == (
        "cuda:0",
        "create",
        error.nbytes,
    )
    assert error.nbytes >= 60 << 20
    assert error.gauges.owned == -(-(3 << 20) // rig.granule) * rig.granule
    assert error.free is not None
    assert error.free > 0
    assert "cuda:0: create of" in str(error)
    kept.close()
    rig.close()


def test_more_than_the_device_has_is_refused_by_the_driver_and_leaves_it_usable(rig):
    with pytest.raises(VirtualMemoryError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        rig.memory.allocate(4 * rig.gpu.total)
    assert rig.memory.gauges() == Gauges()
    rig.memory.allocate(100).close()


def test_the_granule_is_the_drivers_and_a_value_takes_whole_ones(rig):
    assert rig.granule >= 1 << 16
    assert rig.granule & (rig.granule - 1) == 0
    buffer = rig.memory.allocate(rig.granule + 1)
    assert rig.memory.gauges() == Gauges(
        rig.granule + 1, 2 * rig.granule, 2 * rig.granule
    )
    buffer.close()
    buffer.close()
    assert rig.memory.gauges().mapped == 0


@pytest.mark.parametrize(
    ("count", "copies"),
    [
        (0, (0, 0)), (1, (1, 1)), (1000, (1, 1)),
        (300_000, (1, 1)),
        ((4 << 20) // 4 + 3, (2, 1)), (5 << 20, (5, 1)),  # more than a slot holds
    ],
)  # fmt: skip
def test_what_is_written_is_read_and_every_copy_is_counted(rig, count, copies):
    value = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    buffer = rig.memory.allocate(value.nbytes)
    view = rig.memory.view(buffer, 0, TensorType("float32", (count,)))
    source = value.copy()
    rig.memory.write(view, source)
    source[...] = 0  # it may be changed once write has returned
    got = np.ones_like(value)
    rig.memory.read(view, got)
    assert np.array_equal(got, value)
    counts = rig.memory.transfers.counts()
    assert counts.get("bytes_in", 0) == counts.get("bytes_out", 0) == value.nbytes
    if count:
        assert (counts["copies_in"], counts["copies_out"]) == copies
        is_timed = value.nbytes > 1 << 16
        last = value.nbytes % rig.memory.transfers.slot
        untimed = last if last <= 1 << 16 else 0  # the last piece may be a small one
        assert counts.get("timed_in", 0) == value.nbytes - untimed
        assert is_timed is (0 < counts.get("seconds_out", 0) < 1)
        assert is_timed is (0 < counts.get("seconds_in", 0) < 1)


def test_threads_copy_side_by_side_without_mixing(rig):
    wrong = []

    def work(seed):
        value = np.full(300_000, seed, np.float32)
        buffer = rig.memory.allocate(value.nbytes)
        view = rig.memory.view(buffer, 0, TensorType("float32", value.shape))
        for _ in range(20):
            got = np.empty_like(value)
            rig.memory.write(view, value)
            rig.memory.read(view, got)
            if not np.array_equal(got, value):
                wrong.append(seed)
        buffer.close()

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_memory_of_another_is_refused(rig):
    kind = TensorType("float32", (4,))
    with pytest.raises(ResidencyError, match="handed a ndarray"):
        rig.memory.write(np.zeros(4, np.float32), np.zeros(4, np.float32))
    buffer = rig.memory.allocate(16)
    view = rig.memory.view(buffer, 0, kind)
    with pytest.raises(ResidencyError, match="the host touched"):
        np.asarray(view)
    with pytest.raises(ContractError, match="a copy between"):
        rig.memory.read(view, np.zeros(5, np.float32))
    buffer.close()
    with pytest.raises(ContractError, match="not within an open buffer"):
        rig.memory.view(buffer, 0, kind)


def test_the_capturing_thread_is_refused_what_cannot_be_recorded(rig):
    buffer = rig.memory.allocate(16)
    view = rig.memory.view(buffer, 0, TensorType("float32", (4,)))
    acts = {
        "allocates": lambda: rig.memory.allocate(4),
        "writes": lambda: rig.memory.write(view, np.zeros(4, np.float32)),
        "reads": lambda: rig.memory.read(view, np.zeros(4, np.float32)),
        "synchronises": rig.memory.synchronize,
        "unmaps": lambda: rig.pages.unmap(0, rig.granule),
    }
    for said, act in acts.items():
        with rig.memory.gate.capture("s0") as capture:
            capture.node = "n1"
            with pytest.raises(RecordingError, match=f"it {said}") as caught:
                act()
        assert (caught.value.segment, caught.value.node) == ("s0", "n1")
    buffer.close()
