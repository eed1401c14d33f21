"""
Pages that come and go under captured work: what the whole design rests on.

Each is shown with values that could not be right by luck: fresh pages are filled with one
byte, what is written is another, and the granule beside keeps its own.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tests.gpu.rig import APPEND, FILL, LATE, after

from seamline.errors import RecordingError
from seamline_cuda.gate import Gate
from seamline_cuda.growing import GrowingRange
from seamline_cuda.virtual_memory import CudaVirtualMemory

WORDS = 1024
ROUNDS = 60_000_000  #: tenths of a second


def captured(rig, *launches, between=lambda: None):
    """Capture launches as one graph; ``between`` happens after each, inside the capture."""
    with rig.memory.gate.capture("proof"), rig.gpu.here():
        with rig.gpu.compute.captured() as made:
            for launch in launches:
                launch()
                between()
        return made[0]


def replayed(rig, graph):
    with rig.gpu.here():
        graph.launch(rig.gpu.compute)


def test_a_graph_writes_the_new_pages_at_its_address_and_leaves_the_next_granule(rig):
    granule = rig.granule
    address = rig.pages.reserve(2 * granule)
    one, two, beside = (rig.pages.create(granule) for _ in range(3))
    rig.pages.map(address, one)
    rig.pages.map(address + granule, beside)
    rig.filled(address, 2 * granule, 0x77)
    graph = captured(rig, rig.launch(FILL, address, granule // 4, 0x5A5A5A5A))
    rig.pages.unmap(address, granule)
    rig.pages.map(address, two)
    rig.filled(address, granule, 0x11)
    replayed(rig, graph)
    assert set(rig.words(address, granule // 4)) == {0x5A5A5A5A}
    assert set(rig.words(address + granule, granule // 4)) == {0x77777777}
    # The first pages, mapped again, were never written by it.
    rig.pages.unmap(address, granule)
    rig.pages.map(address, one)
    assert set(rig.words(address, granule // 4)) == {0x77777777}
    with rig.gpu.here():
        graph.close()


def test_pages_may_be_committed_by_the_thread_that_captures(rig):
    cache = GrowingRange(rig.arena, 8 * rig.granule)
    cache.grow(rig.granule)
    graph = captured(
        rig,
        rig.launch(FILL, cache.address, WORDS, 3),
        rig.launch(FILL, cache.address + rig.granule, WORDS, 4),
        between=lambda: cache.grow(cache.committed + rig.granule),
    )
    assert cache.committed == 3 * rig.granule
    replayed(rig, graph)
    assert set(rig.words(cache.address, WORDS)) == {3}
    assert set(rig.words(cache.address + rig.granule, WORDS)) == {4}
    with rig.gpu.here():
        graph.close()
    cache.close()


def test_another_threads_memory_calls_wait_for_a_capture_and_do_no_harm(rig):
    order = []

    def commit():
        buffer = rig.memory.allocate(3 * rig.granule)
        order.append("committed")
        buffer.close()
        order.append("given back")

    buffer = rig.memory.allocate(4 * WORDS)
    thread = threading.Thread(target=commit)

    def meanwhile():
        thread.start()
        time.sleep(0.1)
        order.append("captured")

    graph = captured(rig, rig.launch(FILL, buffer.address, WORDS, 9), between=meanwhile)
    thread.join(20)
    assert order == ["captured", "committed", "given back"]
    replayed(rig, graph)
    assert set(rig.words(buffer.address, WORDS)) == {9}
    with rig.gpu.here():
        graph.close()
    buffer.close()


def test_the_driver_itself_bears_a_commit_on_another_thread_during_a_capture(rig):
    """The gate is for drains; mapping past it, by a gate of its own, does no harm either."""
    free = CudaVirtualMemory(rig.gpu, gate=Gate())
    buffer, done = rig.memory.allocate(4 * WORDS), []

    def commit():
        address = free.reserve(free.granularity)
        free.map(address, free.create(free.granularity))
        done.append(address)

    def meanwhile():
        thread = threading.Thread(target=commit)
        thread.start()
        thread.join(20)

    graph = captured(rig, rig.launch(FILL, buffer.address, WORDS, 8), between=meanwhile)
    assert done
    replayed(rig, graph)
    assert set(rig.words(buffer.address, WORDS)) == {8}
    with rig.gpu.here():
        graph.close()
    free.close()
    buffer.close()


def test_another_process_that_maps_and_runs_during_a_capture_does_no_harm(rig, prelude):
    script = """
from tests.gpu.rig import FILL, Rig
rig = Rig()
buffer = rig.memory.allocate(64 << 20)
with rig.gpu.here():
    rig.launch(FILL, buffer.address, 1024, 1)()
assert set(rig.words(buffer.address, 1024)) == {1}
buffer.close()
rig.close()
print("done")
"""
    buffer, said = rig.memory.allocate(4 * WORDS), []

    def meanwhile():
        found = subprocess.run(
            [sys.executable, "-c", prelude + script],
            capture_output=True,
            text=True,
            timeout=60,
        )
        said.append(found.stdout.strip() or found.stderr)

    graph = captured(rig, rig.launch(FILL, buffer.address, WORDS, 7), between=meanwhile)
    assert said == ["done"]
    replayed(rig, graph)
    assert set(rig.words(buffer.address, WORDS)) == {7}
    with rig.gpu.here():
        graph.close()
    buffer.close()


def test_an_unmap_waits_for_a_replay_that_still_reads_the_pages(rig):
    granule = rig.granule
    source = rig.pages.reserve(granule)
    pages = rig.pages.create(granule)
    rig.pages.map(source, pages)
    rig.filled(source, granule, 0x21)
    out = rig.memory.allocate(4 * WORDS)
    graph = captured(
        rig, rig.launch(LATE, source, out.address, WORDS, rig.rounds(ROUNDS))
    )
    replayed(rig, graph)
    with rig.gpu.here():
        assert not rig.gpu.compute.is_idle()
    start = time.monotonic()
    rig.pages.unmap(source, granule)
    waited = time.monotonic() - start
    with rig.gpu.here():
        assert rig.gpu.compute.is_idle()
    assert waited > 0.02
    got = rig.words(out.address, WORDS)
    for index in (0, 1, WORDS - 1):
        assert got[index] == (0x21212121 + after(index, rig.rounds(ROUNDS))) % 2**32
    with rig.gpu.here():
        graph.close()
    out.close()


def test_a_buffer_closed_while_a_kernel_reads_it_is_waited_for(rig):
    source, out = rig.memory.allocate(3 * rig.granule), rig.memory.allocate(4 * WORDS)
    rig.filled(source.address, source.nbytes, 1)
    late = rig.launch(LATE, source.address, out.address, WORDS, rig.rounds(ROUNDS))
    with rig.gpu.here():
        late()
    source.close()
    got = rig.words(out.address, WORDS)
    assert got[5] == (0x01010101 + after(5, rig.rounds(ROUNDS))) % 2**32
    out.close()


def test_an_unmap_inside_a_capture_is_refused_and_the_capture_ends_well(rig):
    cache = GrowingRange(rig.arena, 2 * rig.granule)
    cache.grow(rig.granule)

    def unmap():
        with pytest.raises(RecordingError, match="unmaps"):
            cache.shrink(0)

    graph = captured(rig, rig.launch(FILL, cache.address, WORDS, 6), between=unmap)
    replayed(rig, graph)
    assert set(rig.words(cache.address, WORDS)) == {6}
    with rig.gpu.here():
        graph.close()
    cache.close()


def test_a_cache_grows_under_one_graph_that_appends_to_it(rig):
    """Position and length lie on the device, so one capture serves every step."""
    width = rig.granule // 4 // 4  # four rows fill a granule
    cache = GrowingRange(rig.arena, 16 * rig.granule)
    row, length = rig.memory.allocate(4 * width), rig.memory.allocate(8)
    transfers = rig.memory.transfers
    transfers.write(length.address, np.zeros(1, np.int64))
    cache.grow(rig.granule)
    graph = captured(
        rig,
        rig.launch(APPEND, cache.address, row.address, length.address, width, blocks=1),
    )
    for step in range(40):
        transfers.write(row.address, np.full(width, step + 1, np.float32))
        cache.grow((step + 1) * width * 4)
        replayed(rig, graph)
    got = np.empty((40, width), np.float32)
    transfers.read(cache.address, got)
    assert np.array_equal(got[:, 0], np.arange(1, 41))
    assert np.array_equal(got.min(axis=1), got.max(axis=1))
    assert cache.committed == 10 * rig.granule
    with rig.gpu.here():
        graph.close()
    cache.close()


@pytest.mark.alone
def test_ten_thousand_replays_with_growth_and_other_pages_between_leave_nothing(rig):
    width, rows = rig.granule // 4 // 4, 64
    cycles = 160 if rig.is_real else 3
    cache = GrowingRange(rig.arena, 16 * rig.granule)
    row, length = rig.memory.allocate(4 * width), rig.memory.allocate(8)
    transfers, before = rig.memory.transfers, None
    append = rig.launch(
        APPEND, cache.address, row.address, length.address, width, blocks=1
    )
    cache.grow(rig.granule)
    graph = captured(rig, append)
    got = np.empty((rows, width), np.float32)
    for cycle in range(1, cycles + 1):
        transfers.write(row.address, np.full(width, cycle, np.float32))
        transfers.write(length.address, np.zeros(1, np.int64))
        for step in range(rows):
            cache.grow((step + 1) * width * 4)
            replayed(rig, graph)
        if cycle % 16 == 0 or cycle == cycles:
            transfers.read(cache.address, got)
            assert (got.min(), got.max()) == (cycle, cycle)
        cache.shrink(0)
        if before is None:
            before = rig.memory.gauges(), rig.gpu.free_bytes()
    assert rig.memory.gauges() == before[0]
    # More, where another process of the tests has ended meanwhile.
    assert rig.gpu.free_bytes() >= before[1]
    with rig.gpu.here():
        graph.close()
