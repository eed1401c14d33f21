"""The emulated driver's rules: what runs when, what a capture refuses, what ends a device."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from tests.cuda.emulation import emulated
from tests.cuda.emulation.mapped import DEVICE
from tests.gpu.rig import FILL, Rig

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.driver import call, enumeration, prepared
from seamline_cuda.errors import CudaError
from seamline_cuda.streams import Event

LOCAL = "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"
WRONG_BARRIER = DeviceKernel(
    "wrong",
    """def wrong(out, n):
    if cuda.threadIdx.x < n:
        cuda.syncthreads()
    else:
        cuda.syncwarp()
""",
    ("uint32*", "int64"),
)


def begin(rig):
    call(
        "cuStreamBeginCapture",
        rig.gpu.compute.handle,
        enumeration("CUstreamCaptureMode", LOCAL),
    )


def test_work_runs_after_its_submission_so_that_a_missing_wait_is_seen(driver, rig):
    buffer = rig.memory.allocate(64)
    rig.filled(buffer.address, 64, 1)
    rig.memory.synchronize()
    with rig.gpu.here():
        host = int(call("cuMemHostAlloc", 64, 0))
        seen = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_uint32 * 16).from_address(host)
        )
        rig.launch(FILL, buffer.address, 16, 7)()
        call("cuMemcpyDtoHAsync", host, buffer.address, 64, rig.gpu.compute.handle)
        assert 7 not in seen
        rig.gpu.compute.synchronize()
        assert set(seen) == {7}
        call("cuMemFreeHost", host)


def test_work_begins_by_itself_a_little_later(rig):
    with rig.gpu.here():
        event = Event.open()
        rig.gpu.compute.record(event)
        assert not event.is_reached()
        until = time.monotonic() + 5
        while not event.is_reached():
            assert time.monotonic() < until
            time.sleep(0.002)
        event.close()


def test_the_host_has_no_address_of_the_devices(rig):
    buffer = rig.memory.allocate(64)
    assert buffer.address & DEVICE
    assert buffer.address >= 1 << 47  # no process of this machine has such an address
    buffer.close()


def test_arguments_are_read_when_a_launch_is_submitted(rig):
    buffer = rig.memory.allocate(64)
    launch = rig.launch(FILL, buffer.address, 16, 5)
    with rig.gpu.here():
        launch()
    launch._block[16] = b"\x09"  # the value, after the fact
    assert set(rig.words(buffer.address, 16)) == {5}


@pytest.mark.parametrize(
    ("kernel", "arguments", "code", "said"),
    [
        (FILL, (64, 4, 1), "CUDA_ERROR_ILLEGAL_ADDRESS", r"fill, argument out\[0\]"),
        (FILL, (DEVICE + 2, 4, 1), "CUDA_ERROR_ILLEGAL_ADDRESS", "is not mapped"),
        (WRONG_BARRIER, (0, 5), "CUDA_ERROR_LAUNCH_FAILED", "wrong: threads wait for each other: 5 at syncthreads"),
    ],
)  # fmt: skip
def test_a_kernel_that_fails_ends_the_device_and_says_what_it_did(
    kernel, arguments, code, said
):
    with emulated():
        rig = Rig()
        with rig.gpu.here():
            rig.launch(kernel, *arguments)()
        for _ in range(2):
            with pytest.raises(CudaError, match=said) as caught, rig.gpu.here():
                rig.gpu.compute.synchronize()
            assert caught.value.code == code
        with pytest.raises(CudaError, match=code), rig.gpu.here():
            call("cuMemAlloc", 64)
        rig.gpu.noticed(caught.value)
        rig.gpu.close()


def test_memory_taken_away_under_work_is_an_illegal_address(driver):
    rig = Rig()
    address = rig.pages.reserve(rig.granule)
    rig.pages.map(address, rig.pages.create(rig.granule))
    with rig.gpu.here():
        rig.launch(FILL, address, 16, 5)()
        call("cuMemUnmap", address, rig.granule)  # past the arena, which would drain
    with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
        rig.memory.synchronize()


@pytest.mark.parametrize("name", ["cuMemHostAlloc", "cuCtxSynchronize", "cuMemcpyDtoH"])
def test_what_cannot_be_captured_makes_the_capture_invalid(rig, name):
    given = {"cuMemHostAlloc": (64, 0), "cuMemcpyDtoH": (1, 1, 1)}.get(name, ())
    with rig.gpu.here():
        begin(rig)
        with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"):
            call(name, *given)
        with pytest.raises(CudaError, match="STREAM_CAPTURE_INVALIDATED"):
            call("cuStreamEndCapture", rig.gpu.compute.handle)
        rig.gpu.compute.synchronize()


def test_a_stream_that_captures_may_not_be_waited_for_and_pageable_memory_not_copied(
    rig,
):
    buffer, here = rig.memory.allocate(64), np.zeros(64, np.uint8)
    stream = rig.gpu.compute.handle
    with rig.gpu.here():
        for act in (
            lambda: call("cuStreamSynchronize", stream),
            lambda: call("cuStreamQuery", stream),
            lambda: call(
                "cuMemcpyHtoDAsync", buffer.address, here.ctypes.data, 64, stream
            ),
        ):
            begin(rig)
            with pytest.raises(CudaError, match="STREAM_CAPTURE_UNSUPPORTED"):
                act()
            assert int(prepared("cuStreamEndCapture")(stream)[0]) == 901
    buffer.close()


def test_a_stream_joins_a_capture_by_an_event_and_has_to_be_waited_for_again(rig):
    buffer = rig.memory.allocate(64)
    rig.filled(buffer.address, 64, 0)
    compute, copies = rig.gpu.compute, rig.gpu.copies
    with rig.gpu.here():
        event, back = Event.open(), Event.open()
        for joins in (False, True):
            begin(rig)
            compute.record(event)
            copies.wait_for(event)
            call("cuMemsetD8Async", buffer.address, 3, 64, copies.handle)
            copies.record(back)
            if joins:
                compute.wait_for(back)
            result = prepared("cuStreamEndCapture")(compute.handle)
            assert int(result[0]) == (0 if joins else 904)
        made = call("cuGraphInstantiate", result[1], 0)
        call("cuGraphLaunch", made, compute.handle)
        call("cuGraphExecDestroy", made)
        call("cuGraphDestroy", result[1])
        event.close()
        back.close()
    assert set(rig.words(buffer.address, 16)) == {0x03030303}
    buffer.close()


def test_streams_without_an_event_between_them_run_in_either_order():
    found = set()
    for seed in range(8):
        with emulated(seed):
            rig = Rig()
            buffer = rig.memory.allocate(64)
            with rig.gpu.here():
                for value, stream in ((1, rig.gpu.compute), (2, rig.gpu.copies)):
                    call("cuMemsetD8Async", buffer.address, value, 64, stream.handle)
            rig.gpu.synchronize()
            found.add(int(rig.words(buffer.address, 1)[0]) & 0xFF)
            buffer.close()
            rig.close()
    assert found == {1, 2}


def test_the_host_may_not_change_pinned_memory_before_its_copy_is_done(rig):
    """A copy reads the slot when it runs; that is why a slot is waited for."""
    buffer = rig.memory.allocate(64)
    with rig.gpu.here():
        host = int(call("cuMemHostAlloc", 64, 0))
        seen = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_uint8 * 64).from_address(host)
        )
        seen[...] = 1
        call("cuMemcpyHtoDAsync", buffer.address, host, 64, rig.gpu.compute.handle)
        seen[...] = 2
        rig.gpu.compute.synchronize()
        call("cuMemFreeHost", host)
    assert set(rig.words(buffer.address, 16)) == {0x02020202}
    buffer.close()


def test_what_is_left_open_is_told():
    def leave():
        with emulated():
            Rig()

    with pytest.raises(AssertionError, match=r"not given back: \{'stream': 2"):
        leave()


def test_a_function_that_is_not_emulated_says_so(driver):
    with pytest.raises(AttributeError, match="no cuTexRefCreate yet"):
        prepared("cuTexRefCreate")


def test_a_process_emulates_once_it_has_imported_everywhere():
    script = """
import tests.cuda.emulation.everywhere as everywhere
from seamline_cuda.probe import probe
from tests.gpu.rig import FILL, Rig
assert probe().usable
rig = Rig()
buffer = rig.memory.allocate(64)
with rig.gpu.here():
    rig.launch(FILL, buffer.address, 16, 3)()
print(sorted(set(rig.words(buffer.address, 16).tolist())))
buffer.close()
rig.close()
everywhere.DRIVER.close()
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "[3]", found.stdout + found.stderr
