"""Buffers that grow: whole growth or none, every step failed in turn, nothing left."""

from __future__ import annotations

import numpy as np
import pytest

from seamline.devices import Gauges, VirtualMemoryError
from seamline.errors import ContractError, ResidencyError
from seamline.growing import GrowingBuffer
from seamline.memory import HostMemory
from seamline.tensors import TensorType
from seamline_testing.twin.faults import Fault, Faults, Step
from seamline_testing.twin.provider import Twin


@pytest.fixture(params=["host", "twin"])
def memory(request):
    if request.param == "host":
        yield HostMemory()
        return
    twin = Twin()
    yield twin.memory()
    twin.close()


def mask_of(buffer, *granules):
    mask = np.zeros(buffer.granules, bool)
    mask[list(granules)] = True
    return mask


def test_pages_come_anywhere_and_keep_what_was_written(memory):
    buffer = memory.reserve(8 << 16)
    size, address = buffer.granule, buffer.address
    assert (buffer.committed, memory.gauges()) == (0, Gauges())
    assert buffer.commit(mask_of(buffer, 1, 2, 6)) == (
        (size, 3 * size),
        (6 * size, 7 * size),
    )
    view = memory.view(buffer, 2 * size - 4, TensorType("int32", (2,)))
    memory.write(view, np.array([5, 7], np.int32))
    assert buffer.commit(mask_of(buffer, 0, 1)) == ((0, size),)
    buffer.keep(mask_of(buffer, 1, 2))
    got = np.empty(2, np.int32)
    memory.read(view, got)
    assert got.tolist() == [5, 7]
    assert (buffer.address, buffer.committed_parts()) == (address, ((size, 3 * size),))
    buffer.count(9)
    assert memory.gauges() == Gauges(9, 2 * size, 2 * size)
    buffer.close()
    buffer.close()
    assert memory.gauges() == Gauges()


def test_a_view_stays_within_the_room_and_an_open_buffer(memory):
    buffer = memory.reserve(100)
    with pytest.raises((ContractError, ValueError), match="not within an open buffer"):
        memory.view(buffer, 0, TensorType("uint8", (101,)))
    buffer.close()
    with pytest.raises((ContractError, ValueError), match="open buffer"):
        memory.view(buffer, 0, TensorType("uint8", (10,)))


def test_a_buffer_of_another_device_is_refused(memory):
    other = Twin()
    foreign = other.memory().reserve(1 << 16)
    with pytest.raises((ResidencyError, ValueError), match=r"none of|no buffer|host"):
        memory.view(foreign, 0, TensorType("uint8", (10,)))
    foreign.close()
    other.close()


def test_growth_that_fails_at_any_step_leaves_everything_as_it_was():
    faults = Faults()
    twin = Twin({}, faults)
    memory = twin.memory()
    buffer = memory.reserve(8 << 16)
    buffer.commit(mask_of(buffer, 3))
    before, failed = (memory.gauges(), buffer.held().tolist()), 0
    for step in (Step.CREATE, Step.MAP):
        for nth in range(1, 6):
            faults.plan(Fault(step, nth))
            try:
                buffer.commit(mask_of(buffer, 1, 2, 3, 5, 7))
            except VirtualMemoryError:
                failed += 1
                assert (memory.gauges(), buffer.held().tolist()) == before
            faults.plan()
            buffer.keep(mask_of(buffer, 3))
    assert failed == 8  # four granules, two steps each; the fifth finds nothing to fail
    buffer.close()
    assert memory.gauges() == Gauges()
    twin.close()


def test_an_unmap_that_fails_is_tried_again_by_the_next_call():
    faults = Faults()
    twin = Twin({}, faults)
    buffer = twin.memory().reserve(4 << 16)
    buffer.grow(4 << 16)
    faults.plan(Fault(Step.UNMAP, 2))
    with pytest.raises(VirtualMemoryError):
        buffer.close()
    assert isinstance(buffer, GrowingBuffer)
    assert buffer.committed == 3 << 16
    buffer.close()
    assert twin.memory().gauges() == Gauges()
    twin.close()


def test_addresses_that_cannot_be_reserved_are_a_typed_error(memory):
    with pytest.raises(VirtualMemoryError, match=r"reserve of \d+ bytes"):
        memory.reserve(1 << 60)
    assert memory.gauges() == Gauges()
