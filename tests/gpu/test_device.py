"""The device layer on a real device: errors, contexts, streams, launches."""

from __future__ import annotations

import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest
from tests.gpu.rig import FILL, LATE, Rig, after

from seamline.errors import DeadlineError, RunError
from seamline.tensors import TensorType
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call
from seamline_cuda.errors import CudaError
from seamline_cuda.loading import Copy
from seamline_cuda.streams import Event


def test_a_result_other_than_success_is_an_error_with_call_code_and_explanation(rig):
    with rig.gpu.here(), pytest.raises(CudaError) as caught:
        call("cuMemcpyDtoH", np.empty(4, np.uint8).ctypes.data, 64, 4)
    error = caught.value
    assert isinstance(error, RunError)
    assert (error.call, error.code) == ("cuMemcpyDtoH", "CUDA_ERROR_INVALID_VALUE")
    assert "invalid argument" in str(error)
    assert not error.is_lost


def test_a_device_that_is_not_there_says_what_to_do():
    with pytest.raises(CudaError, match=r"cuDeviceGet.*set device_id"):
        Gpu.open(999)


def test_a_thread_has_its_own_context_again_after_a_block(rig):
    before = int(call("cuCtxGetCurrent"))
    with rig.gpu.here():
        assert int(call("cuCtxGetCurrent")) != 0
    assert int(call("cuCtxGetCurrent")) == before


def test_a_closed_device_refuses_and_closing_again_does_nothing():
    gpu = Gpu.open(0)
    gpu.close()
    gpu.close()
    with pytest.raises(CudaError, match="cuda:0 was closed"):
        gpu.usable()
    with pytest.raises(CudaError, match="was closed"), gpu.here():
        pass


def test_the_last_of_a_process_to_close_gives_the_context_back(prelude):
    script = """
from seamline_cuda.device import Gpu
from seamline_cuda.driver import call
one, two = Gpu.open(0), Gpu.open(0)
said = []
for closed in (one, one, two):
    closed.close()
    said.append(call("cuDevicePrimaryCtxGetState", 0)[1])
print(*said)
"""
    found = subprocess.run(
        [sys.executable, "-c", prelude + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout == "1 1 0\n", found.stdout + found.stderr


def test_an_event_orders_two_streams(rig):
    source, out = (rig.memory.allocate(4096) for _ in range(2))
    rig.filled(source.address, 4096, 1)
    rounds = rig.rounds(20_000_000)
    late = rig.launch(LATE, source.address, out.address, 1024, rounds)
    with rig.gpu.here():
        event, other = Event.open(), Event.open(timed=True)
        late()
        rig.gpu.compute.record(event)
        rig.gpu.copies.wait_for(event)
        rig.gpu.copies.record(other)
        assert not event.is_reached()
        assert not rig.gpu.copies.is_idle()
        other.synchronize()
        assert event.is_reached()
        for made in (event, other):
            made.close()
            made.close()
    got = rig.words(out.address, 1024)
    assert got[7] == (0x01010101 + after(7, rounds)) % 2**32


def test_a_wait_with_a_deadline_ends(rig):
    source, out = (rig.memory.allocate(4096) for _ in range(2))
    rounds = rig.rounds(100_000_000)
    late = rig.launch(LATE, source.address, out.address, 1024, rounds)
    with rig.gpu.here():
        late()
        start = time.monotonic()
        with pytest.raises(DeadlineError, match="did not end within"):
            rig.gpu.compute.synchronize(deadline=0.02)
        assert time.monotonic() - start < 0.15
        rig.gpu.compute.synchronize(deadline=20)


def test_a_kernel_that_leaves_its_memory_is_told_and_the_device_is_lost_for_the_process(
    prelude,
):
    script = """
from tests.gpu.rig import FILL, Rig
from seamline_cuda.errors import CudaError
rig = Rig()
buffer = rig.memory.allocate(64)
with rig.gpu.here():
    rig.launch(FILL, 64, 4, 1)()
try:
    rig.memory.synchronize()
except CudaError as error:
    assert error.is_lost, error
    assert "start a new one" in str(error), error
try:
    rig.memory.allocate(4)
except CudaError as error:
    print("told:", error)
buffer.close()
rig.memory.close()
rig.gpu.close()
print("closed")
"""
    found = subprocess.run(
        [sys.executable, "-c", prelude + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "told:" in found.stdout, found.stdout + found.stderr
    assert "cuda:0 is lost: CUDA_ERROR_ILLEGAL_ADDRESS" in found.stdout
    assert found.stdout.endswith("closed\n"), found.stderr


def test_a_forked_child_is_refused_with_the_reason_and_the_parent_goes_on(prelude):
    script = """
import os, warnings
warnings.simplefilter("ignore")
from tests.gpu.rig import Rig
from seamline_cuda.errors import CudaError
rig = Rig()
child = os.fork()
if not child:
    try:
        rig.memory.allocate(4)
    except CudaError as error:
        os._exit(7 if "forked" in str(error) and "spawn" in str(error) else 8)
    os._exit(9)
_, status = os.waitpid(child, 0)
rig.memory.allocate(4).close()
rig.close()
print("child", os.waitstatus_to_exitcode(status))
"""
    found = subprocess.run(
        [sys.executable, "-c", prelude + script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.strip() == "child 7", found.stdout + found.stderr


@pytest.mark.hardware("torch works on a real device only")
def test_torch_reads_our_memory_and_works_on_after_we_close():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    theirs = torch.arange(8, device="cuda", dtype=torch.float32)
    rig = Rig()
    kind = TensorType("float32", (8,))
    buffer = rig.memory.allocate(32)
    view = rig.memory.view(buffer, 0, kind)
    rig.memory.write(view, np.arange(8, dtype=np.float32))
    rig.memory.synchronize()
    for seen in (torch.as_tensor(view, device="cuda"), torch.from_dlpack(view)):
        assert seen.data_ptr() == buffer.address
        assert torch.equal(seen, theirs)
    half = rig.memory.view(buffer, 0, TensorType("bfloat16", (4, 4)))
    seen = torch.from_dlpack(half)
    assert (seen.dtype, tuple(seen.shape)) == (torch.bfloat16, (4, 4))
    seen[0, 0] = 2.0
    torch.cuda.synchronize()
    got = np.empty((4, 4), ml_dtypes.bfloat16)
    rig.memory.read(half, got)
    assert got[0, 0] == 2
    del seen
    buffer.close()
    rig.close()
    assert float((theirs + 1).sum()) == 36


def test_a_launch_writes_what_its_arguments_say_and_nothing_beside(rig):
    buffer = rig.memory.allocate(8192)
    rig.filled(buffer.address, 8192, 0x77)
    with rig.gpu.here():
        rig.launch(FILL, buffer.address, 1000, 5)()
    got = rig.words(buffer.address, 2048)
    assert set(got[:1000]) == {5}
    assert set(got[1000:]) == {0x77777777}


def test_a_copy_on_the_device_is_captured_like_a_launch(rig):
    one, two = (rig.memory.allocate(4096) for _ in range(2))
    rig.filled(one.address, 4096, 0x31)
    rig.filled(two.address, 4096, 0)
    copy = Copy("copy", two.address, one.address, 2048, rig.gpu.compute.handle)
    with (
        rig.memory.gate.capture("s"),
        rig.gpu.here(),
        rig.gpu.compute.captured() as made,
    ):
        copy()
    assert set(rig.words(two.address, 1024)) == {0}
    with rig.gpu.here():
        made[0].launch(rig.gpu.compute)
    got = rig.words(two.address, 1024)
    assert set(got[:512]) == {0x31313131}
    assert set(got[512:]) == {0}
    with rig.gpu.here():
        made[0].close()


@pytest.mark.hardware("torch works on a real device only")
def test_an_unmap_waits_for_another_library_that_memory_was_lent_to():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rig = Rig(pool=0)
    buffer = rig.memory.allocate(rig.granule)
    view = rig.memory.view(buffer, 0, TensorType("int32", (rig.granule // 4,)))
    rig.filled(buffer.address, rig.granule, 0x44)
    seen = torch.from_dlpack(view)
    torch.cuda._sleep(400_000_000)  # cycles: a fifth of a second
    copied = seen.clone()
    assert not torch.cuda.current_stream().query()
    start = time.monotonic()
    buffer.close()
    assert time.monotonic() - start > 0.05
    assert torch.cuda.current_stream().query()
    assert int(copied[-1]) == 0x44444444
    del seen
    rig.close()
