"""The arena over the host's virtual memory: every rule of it, without a device."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from seamline.devices import Gauges, VirtualMemoryError
from seamline_cuda.arena import ALIGNMENT, Arena
from seamline_cuda.growing import GrowingRange
from seamline_testing.twin.faults import Fault, Faults, InjectedError, Step
from seamline_testing.twin.host_virtual_memory import HostVirtualMemory

G = 1 << 16
VERBS = (Step.RESERVE, Step.CREATE, Step.MAP, Step.UNMAP, Step.RELEASE, Step.FREE)


class Rig:
    """An arena over pages that fail on request, and that must end as they began."""

    def __init__(self, room=64 * G, pool=4 * G, limit=None):
        self.faults, self.drains = Faults(), 0
        self.pages = HostVirtualMemory(
            limit=limit, drain=self._drain, before=self._before
        )
        self.arena = Arena.over(self.pages, room, pool)

    def _drain(self):
        self.drains += 1

    def _before(self, verb):
        try:
            self.faults.check(Step(verb))
        except InjectedError as error:
            raise VirtualMemoryError(
                self.pages.device, verb, 0, str(error), self.pages.gauges()
            ) from error

    @property
    def gauges(self):
        return self.arena.gauges()


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.arena.close()
    assert made.pages.gauges() == Gauges() == made.gauges


def test_nothing_is_reserved_before_the_first_allocation(rig):
    assert rig.faults.counts[Step.RESERVE] == 0
    rig.arena.free(rig.arena.allocate(1))
    rig.arena.free(rig.arena.allocate(1))
    assert rig.faults.counts[Step.RESERVE] == 1


def test_small_values_share_a_granule_and_are_aligned(rig):
    places = [rig.arena.allocate(n) for n in (1, 300, 0, 256)]
    assert [place - places[0] for place in places] == [0, 256, 768, 1024]
    assert all(place % ALIGNMENT == 0 for place in places)
    assert rig.gauges == Gauges(557, G, G)
    for place in places:
        rig.arena.free(place)
    assert rig.gauges == Gauges(0, 0, G)  # its pages wait in the pool


def test_a_large_value_gets_its_pages_in_one_piece(rig):
    place = rig.arena.allocate(10 * G)
    assert rig.faults.counts[Step.CREATE] == 1
    rig.arena.free(place)
    assert rig.gauges == Gauges()  # more than the pool keeps


def test_a_value_across_a_mapped_end_commits_only_what_has_no_pages(rig):
    rig.arena = Arena.over(rig.pages, 2 * G, 0)
    first = rig.arena.allocate(1000)
    second = rig.arena.allocate(G + 5000)
    assert second == first + 1024
    assert rig.gauges.mapped == 2 * G
    rig.arena.free(first)  # the first granule is still the second value's
    assert rig.gauges.mapped == 2 * G
    rig.arena.free(second)
    assert rig.gauges.mapped == 0


def test_what_has_pages_is_used_before_new_pages_are_taken(rig):
    held = [rig.arena.allocate(G // 4) for _ in range(4)]
    rig.arena.free(held[2])
    big = rig.arena.allocate(3 * G)
    again = rig.arena.allocate(G // 4)
    assert again == held[2]
    assert rig.gauges.mapped == 4 * G
    assert big not in held


def test_pages_are_reused_for_the_same_size_and_the_pool_keeps_to_its_limit(rig):
    rig.arena.free(rig.arena.allocate(3 * G))
    rig.arena.free(rig.arena.allocate(3 * G))
    assert rig.arena.pool.counts == {"created": 1, "reused": 1}
    rig.arena.free(rig.arena.allocate(2 * G))
    assert rig.gauges.owned == 2 * G  # 3 + 2 are more than 4: the older went


def test_an_unmap_is_drained_first_every_time(rig):
    places = [rig.arena.allocate(G) for _ in range(3)]
    for count, place in enumerate(places, 1):
        rig.arena.free(place)
        assert rig.drains == count


def test_more_than_the_room_is_refused_and_names_what_is_there(rig):
    kept = rig.arena.allocate(60 * G)
    before = rig.gauges
    with pytest.raises(
        VirtualMemoryError, match=f"allocate of {8 * G} bytes.*reserved"
    ):
        rig.arena.allocate(8 * G)
    assert rig.gauges == before
    rig.arena.free(kept)


def test_a_full_device_takes_the_pools_pages_before_it_refuses():
    rig = Rig(limit=4 * G, pool=4 * G)
    rig.arena.free(rig.arena.allocate(3 * G))
    place = rig.arena.allocate(4 * G)
    assert rig.gauges.owned == 4 * G
    with pytest.raises(VirtualMemoryError, match="only 0 bytes are free") as caught:
        rig.arena.allocate(G)
    assert (caught.value.call, caught.value.nbytes, caught.value.free) == (
        "create",
        G,
        0,
    )
    rig.arena.free(place)
    rig.arena.close()
    assert rig.gauges == Gauges()


def story(rig):
    """Allocate, grow, free and close, each verb many times."""
    held = [rig.arena.allocate(n) for n in (100, 3 * G, 5 * G, 200)]
    cache = GrowingRange(rig.arena, 8 * G)
    cache.grow(3 * G)
    cache.shrink(G)
    cache.grow(2 * G)
    for place in held:
        rig.arena.free(place)
    cache.close()


@pytest.mark.parametrize("step", VERBS)
def test_whichever_call_fails_the_next_one_works_and_the_end_is_empty(step):
    for nth in range(1, 40):
        rig = Rig(pool=2 * G)
        rig.faults.plan(Fault(step, nth))
        try:
            story(rig)
            rig.arena.close()
        except VirtualMemoryError:
            pass
        if not rig.faults.fired:
            rig.arena.close()
            break
        place = rig.arena.allocate(2 * G)
        rig.arena.free(place)
        rig.arena.close()
    else:
        pytest.fail("the story never ended without a fault")
    assert nth > 1
    assert rig.gauges == Gauges()


@pytest.mark.parametrize("step", [Step.CREATE, Step.MAP])
def test_an_allocation_that_fails_leaves_the_gauges_as_they_were(rig, step):
    kept = rig.arena.allocate(G + 1)
    before = rig.gauges
    rig.faults.plan(Fault(step, 1))
    with pytest.raises(VirtualMemoryError, match="made to fail"):
        rig.arena.allocate(2 * G)
    after = rig.gauges
    assert (after.content, after.mapped) == (before.content, before.mapped)
    assert after.owned - before.owned == rig.arena.pool.held
    rig.arena.free(kept)


@pytest.mark.parametrize("step", [Step.CREATE, Step.MAP])
def test_a_growth_that_fails_half_way_gives_its_first_half_back(rig, step):
    cache = GrowingRange(rig.arena, 8 * G)
    cache.grow(G)
    before = rig.gauges
    rig.faults.plan(Fault(step, 3))
    with pytest.raises(VirtualMemoryError, match="made to fail"):
        cache.grow(6 * G)
    assert (cache.committed, cache.live) == (G, G)
    assert (rig.gauges.content, rig.gauges.mapped) == (before.content, before.mapped)
    cache.grow(6 * G)
    assert cache.committed == 6 * G
    cache.close()
    cache.close()


def test_a_growing_range_does_not_move_and_is_not_handed_out(rig):
    cache = GrowingRange(rig.arena, 4 * G)
    others = [rig.arena.allocate(G) for _ in range(8)]
    for nbytes in (1, G, G + 1, 4 * G):
        cache.grow(nbytes)
        assert cache.committed == -(-nbytes // G) * G
    inside = range(cache.address, cache.address + 4 * G)
    assert not any(place in inside for place in others)
    with pytest.raises(ValueError, match="room for"):
        cache.grow(4 * G + 1)
    cache.close()
    for place in others:
        rig.arena.free(place)


def test_any_order_of_calls_keeps_values_apart_and_ends_empty():
    rig, drawn, held = Rig(room=512 * G), random.Random(7), {}
    for _ in range(500):
        if held and drawn.random() < 0.5:
            place = drawn.choice(list(held))
            rig.arena.free(place)
            del held[place]
        else:
            nbytes = int(drawn.choice([10, 1000, G, 3 * G]) * drawn.random())
            place = rig.arena.allocate(nbytes)
            held[place] = nbytes
        granules = set()
        for place, nbytes in held.items():
            rig.pages.serials(place, max(nbytes, 1))  # raises where it has no pages
            last = place + -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
            granules |= set(range(place // G, -(-last // G)))
        assert rig.gauges.mapped >= len(granules) * G
        assert rig.gauges.content == sum(held.values())
    ends = sorted((place, place + nbytes) for place, nbytes in held.items())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))
    for place in list(held):
        rig.arena.free(place)
    assert rig.gauges.mapped == 0
    rig.arena.close()
    assert rig.pages.gauges() == Gauges()


def test_an_allocation_does_not_wait_for_another_threads_drain():
    entered, done = threading.Event(), threading.Event()
    rig = Rig()
    kept = rig.arena.allocate(G)

    def drain():
        entered.set()
        assert done.wait(10)

    rig.pages.drain = drain
    thread = threading.Thread(target=rig.arena.free, args=(kept,))
    thread.start()
    assert entered.wait(10)
    place = rig.arena.allocate(G)
    assert place != kept  # those addresses are not to be had until the unmap is over
    done.set()
    thread.join(10)
    rig.arena.free(place)
    rig.arena.close()
