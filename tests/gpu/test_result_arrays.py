"""Arrays that results are read into: pinned once they are used again, and the caller's own."""

from __future__ import annotations

import numpy as np
from tests.gpu.rig import Rig

from seamline.tensors import TensorType
from seamline_cuda.driver import call
from seamline_cuda.errors import CudaError
from seamline_cuda.result_arrays import ResultArrays

COUNT = 100_003  #: floats, more than is copied through a slot
KIND = TensorType("float32", (COUNT,))


def read(rig, value):
    """Write a number all over, and read it into an array that the memory gives."""
    buffer = rig.memory.allocate(4 * COUNT)
    view = rig.memory.view(buffer, 0, KIND)
    rig.memory.write(view, np.full(COUNT, value, np.float32))
    made = rig.memory.array(KIND)
    rig.memory.read(view, made)
    buffer.close()
    assert (made == value).all()
    return made


def pinned(rig):
    return rig.memory.transfers.arrays.pinned_nbytes


def test_a_block_that_comes_back_is_pinned_and_given_out_again(rig):
    places = set()
    for value in range(4):
        places.add(read(rig, value).ctypes.data)
        assert pinned(rig) == (0 if value == 0 else -(-4 * COUNT // 4096) * 4096)
    assert len(places) == 1


def test_what_a_caller_keeps_is_never_written_again_nor_pinned(rig):
    kept = [read(rig, value) for value in range(4)]
    assert pinned(rig) == 0
    part = kept.pop(0)[5:9]  # a part of it keeps the whole
    for value in range(4, 8):
        read(rig, value)
    assert (part == 0).all()
    assert [array[0] for array in kept] == [1, 2, 3]


def test_arrays_outlive_the_device_that_filled_them():
    rig = Rig()
    read(rig, 6)
    made = read(rig, 7)
    assert pinned(rig)
    rig.close()
    made += 1
    assert (made == 8).all()


def test_results_of_other_sizes_have_blocks_of_their_own_up_to_a_limit(rig):
    with rig.gpu.here():
        arrays = ResultArrays(limit=1 << 20)
        small = arrays.array((1 << 16,), np.dtype(np.float32))  # a quarter of it
        again = arrays.array((1 << 17,), np.dtype(np.float32))  # half of it
        assert arrays.array((1 << 17,), np.dtype(np.float32)).base is None  # too many
        del again
        other = arrays.array(
            (3 << 16,), np.dtype(np.float32)
        )  # what is free makes room
        assert other.base is not None
        assert not np.shares_memory(small, other)
        assert arrays.array((9,), np.dtype(np.float32)).base is None  # too small
        arrays.close()


def test_a_driver_that_pins_nothing_makes_it_slower_not_wrong(rig, monkeypatch):
    def refusing(name, *given):
        if name == "cuMemHostRegister":
            raise CudaError(name, "CUDA_ERROR_OPERATING_SYSTEM", 304, "locked memory")
        return call(name, *given)

    monkeypatch.setattr("seamline_cuda.result_arrays.call", refusing)
    for value in range(3):
        read(rig, value)
    assert pinned(rig) == 0
    assert "locked memory" in rig.memory.transfers.arrays.refused


def test_types_and_shapes_are_those_asked_for(rig):
    memory = rig.memory
    for kind in (TensorType("bfloat16", (3, 1, 70_000)), TensorType("bool", (0, 4)), TensorType("int64", ())):  # fmt: skip
        for _ in range(2):
            made = memory.array(kind)
            assert made.shape == kind.sizes
            assert made.dtype.name == kind.dtype
            assert made.flags.writeable
            assert made.flags.c_contiguous
