"""The host's virtual memory keeps the rules of a driver's, and gives everything back."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import resource
import subprocess
import sys

import pytest

from seamline.devices import VirtualMemoryError
from seamline.errors import RunError
from seamline.provider import Gauges
from seamline_testing.twin.host_virtual_memory import HostVirtualMemory

G = 1 << 16


@pytest.fixture
def memory():
    made = HostVirtualMemory()
    yield made
    made.close()
    assert made.gauges() == Gauges()


def put(address, value):
    ctypes.memset(address, value, 8)


def got(address):
    return ctypes.string_at(address, 1)[0]


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_pages_are_zeroed_and_readable_once_mapped(memory):
    address = memory.reserve(2 * G)
    memory.map(address, memory.create(G))
    assert address % G == 0
    assert ctypes.string_at(address, G) == bytes(G)
    put(address, 7)
    assert got(address) == 7


def test_new_pages_at_the_same_address_show_their_own_contents_and_leave_the_next_granule(
    memory,
):
    address = memory.reserve(2 * G)
    one, two, beside = (memory.create(G) for _ in range(3))
    memory.map(address, one)
    memory.map(address + G, beside)
    put(address, 1)
    put(address + G, 9)
    memory.unmap(address, G)
    memory.map(address, two)
    assert got(address) == 0
    put(address, 2)
    assert got(address + G) == 9
    memory.unmap(address, G)
    memory.map(address, one)
    assert got(address) == 1


def test_one_handle_mapped_twice_is_the_same_bytes(memory):
    address = memory.reserve(2 * G)
    pages = memory.create(G)
    memory.map(address, pages)
    memory.map(address + G, pages)
    put(address, 5)
    assert got(address + G) == 5
    assert memory.gauges() == Gauges(0, 2 * G, G)


def test_released_pages_stay_owned_until_their_last_mapping_goes(memory):
    before = open_files()
    address = memory.reserve(G)
    pages = memory.create(G)
    memory.map(address, pages)
    memory.release(pages)
    put(address, 3)
    assert got(address) == 3
    assert memory.gauges() == Gauges(0, G, G)
    memory.unmap(address, G)
    assert memory.gauges() == Gauges()
    assert open_files() == before
    with pytest.raises(VirtualMemoryError, match="there are no pages"):
        memory.map(address, pages)


REFUSED = {
    "a reservation of part of a granule": (
        lambda m, a, p: m.reserve(G + 1), "no multiple of 65536"),
    "no pages": (lambda m, a, p: m.create(0), "no multiple of 65536"),
    "a map over a map": (lambda m, a, p: m.map(a, p), "something is mapped there"),
    "a map outside": (lambda m, a, p: m.map(a + 4 * G, p), "not within a reservation"),
    "a map half outside": (
        lambda m, a, p: m.map(a + 3 * G, p), "not within a reservation"),
    "a map off a granule": (lambda m, a, p: m.map(a + 8, p), "not within a reservation"),
    "an unmap of half": (lambda m, a, p: m.unmap(a, G), "not exactly what was mapped"),
    "an unmap of the other half": (
        lambda m, a, p: m.unmap(a + G, G), "not exactly what was mapped"),
    "an unmap of more": (lambda m, a, p: m.unmap(a, 3 * G), "not exactly what was"),
    "a free under a map": (lambda m, a, p: m.free(a, 4 * G), "still mapped"),
    "a free of less": (lambda m, a, p: m.free(a, 3 * G), "not reserved so"),
    "a release of nothing": (lambda m, a, p: m.release(999), "no pages 999"),
    "access past the end": (lambda m, a, p: m.serials(a + G, 2 * G), "is not mapped"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_that_a_driver_would_refuse_is_refused_and_changes_nothing(memory, what):
    act, said = REFUSED[what]
    address = memory.reserve(4 * G)
    pages = memory.create(2 * G)
    memory.map(address, pages)
    put(address, 4)
    before = memory.gauges()
    with pytest.raises(VirtualMemoryError, match=said) as caught:
        act(memory, address, pages)
    assert isinstance(caught.value, RunError)
    assert caught.value.gauges == before == memory.gauges()
    assert got(address) == 4
    memory.unmap(address, 2 * G)
    memory.free(address, 4 * G)


def test_more_than_the_limit_is_refused_with_what_is_free_and_owned():
    memory = HostVirtualMemory(limit=3 * G)
    kept = memory.create(2 * G)
    with pytest.raises(
        VirtualMemoryError, match=f"only {G} bytes are free.*owned {2 * G}"
    ):
        memory.create(2 * G)
    memory.release(kept)
    memory.release(memory.create(3 * G))
    memory.close()


def test_an_unmap_waits_first_and_a_wait_that_fails_unmaps_nothing():
    waited = []

    def drain():
        waited.append(len(memory.serials(address, G)))
        if len(waited) == 1:
            raise TimeoutError("work is still in flight")

    memory = HostVirtualMemory(drain=drain)
    address = memory.reserve(G)
    memory.map(address, memory.create(G))
    with pytest.raises(TimeoutError):
        memory.unmap(address, G)
    assert memory.gauges().mapped == G
    memory.unmap(address, G)
    assert waited == [1, 1]
    memory.close()


def test_a_system_call_that_fails_leaves_the_books_and_the_files_as_they_were(
    memory,
):
    address, before = memory.reserve(G), open_files()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(VirtualMemoryError, match=r"create of 65536.*Too many open"):
            memory.create(G)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert open_files() == before
    with pytest.raises(VirtualMemoryError, match=r"reserve.*Cannot allocate memory"):
        memory.reserve(1 << 60)
    pages = memory.create(G)
    os.close(memory._book.pages[pages].token)
    with pytest.raises(
        VirtualMemoryError, match=r"map of 65536 bytes: \[Errno 9\] mmap"
    ):
        memory.map(address, pages)
    assert memory.gauges() == Gauges(0, 0, G)
    memory._book.pages[pages].token = os.open("/dev/null", os.O_RDONLY)


def test_a_range_that_was_remapped_has_another_name_though_the_address_is_the_same(
    memory,
):
    address = memory.reserve(2 * G)
    pages = memory.create(G)
    memory.map(address, pages)
    memory.map(address + G, memory.create(G))
    first = memory.serials(address, 2 * G)
    assert memory.serials(address + 10, 20) == first[:1]
    memory.unmap(address, G)
    memory.map(address, pages)
    again = memory.serials(address, 2 * G)
    assert again[0] != first[0]
    assert again[1] == first[1]


def test_closing_gives_back_addresses_pages_and_files_whatever_was_left_open():
    files, memory = open_files(), HostVirtualMemory()
    address = memory.reserve(8 * G)
    memory.map(address, memory.create(G))
    memory.create(G)
    memory.close()
    memory.close()
    assert memory.gauges() == Gauges()
    assert open_files() == files
    with open("/proc/self/maps") as maps:
        assert f"{address:x}-" not in maps.read()


TOUCH = """
import ctypes, os
from seamline_testing.twin.host_virtual_memory import HostVirtualMemory

def touch(how):
    memory = HostVirtualMemory()
    address = memory.reserve(memory.granularity)
    if how != "reserved":
        memory.map(address, memory.create(memory.granularity))
        ctypes.memset(address, 1, 8)
    if how == "hidden":
        memory.show(visible=False)
    if how == "unmapped":
        memory.unmap(address, memory.granularity)
    os._exit(ctypes.string_at(address, 1)[0])

for how in ("reserved", "hidden", "unmapped", "visible"):
    child = os.fork()
    if not child:
        touch(how)
    print(how, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_touching_hidden_or_unmapped_memory_ends_the_process():
    done = subprocess.run(
        [sys.executable, "-c", TOUCH], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "reserved", "-11", "hidden", "-11", "unmapped", "-11", "visible", "1"
    ]  # fmt: skip


def test_two_thousand_random_calls_agree_with_books_kept_apart(memory):
    rng, granules = random.Random(0), 16
    address = memory.reserve(granules * G)
    mapped, handles = {}, {}
    for step in range(2000):
        at = rng.randrange(granules)
        if at in mapped and rng.random() < 0.5:
            handle, value = mapped.pop(at)
            assert got(address + at * G) == value
            memory.unmap(address + at * G, G)
        elif at not in mapped:
            handle = memory.create(G)
            memory.map(address + at * G, handle)
            value = step % 255 + 1
            put(address + at * G, value)
            mapped[at] = handle, value
            if rng.random() < 0.5:
                memory.release(handle)
            else:
                handles[handle] = at
        elif handles and rng.random() < 0.3:
            handle, _ = handles.popitem()
            memory.release(handle)
        held = {h for h, _ in mapped.values()} | set(handles)
        assert memory.gauges() == Gauges(0, len(mapped) * G, len(held) * G)


def test_a_granule_is_whole_pages():
    assert HostVirtualMemory().granularity % mmap.PAGESIZE == 0
