"""Blocks, barriers, warps and pointers of the emulation, by kernels of a few lines."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.cuda.emulation import (
    DivergedError,
    IllegalAccessError,
    RaceError,
    run_kernel,
)

from seamline_cuda.device_kernel import DeviceKernel


def kernel(body, *signature, names="x, out, n"):
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return DeviceKernel("k", f"def k({names}):\n{lines}\n", signature)


FLOATS = ("float32*", "float32*", "int64")
SUM = kernel(
    """
row = cuda.blockIdx.x
t = cuda.threadIdx.x
parts = cuda.shared.array(8, np.float32)
total = np.float32(0)
i = t
while i < n:
    total += x[row * n + i]
    i += cuda.blockDim.x
for step in (16, 8, 4, 2, 1):
    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, step)
if t % 32 == 0:
    parts[t // 32] = total
cuda.syncthreads()
if t == 0:
    total = np.float32(0)
    for w in range(cuda.blockDim.x // 32):
        total += parts[w]
    out[row] = total
""",
    *FLOATS,
)


def test_rows_are_summed_by_warps_and_a_barrier():
    x = np.arange(3 * 300, dtype=np.float32).reshape(3, 300)
    out = np.zeros(3, np.float32)
    run_kernel(SUM, x, out, 300, blocks=3, threads=128)
    np.testing.assert_array_equal(out, x.sum(1))


def test_a_grid_stride_loop_meets_every_element_once():
    body = (
        "i = cuda.grid(1)\nwhile i < n:\n    out[i] += x[i]\n    i += cuda.gridsize(1)"
    )
    x, out = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    run_kernel(kernel(body, *FLOATS), x, out, 1000, blocks=3, threads=64)
    np.testing.assert_array_equal(out, x + 1)


@pytest.mark.parametrize(
    ("call", "source"),
    [
        ("shfl_down_sync(mask, v, 3)", lambda i: i + 3 if i + 3 < 32 else i),
        ("shfl_up_sync(mask, v, 3)", lambda i: i - 3 if i >= 3 else i),
        ("shfl_xor_sync(mask, v, 5)", lambda i: i ^ 5),
        ("shfl_sync(mask, v, 7)", lambda i: 7),
    ],
)
def test_a_shuffle_gives_the_lane_that_it_names(call, source):
    body = f"mask = 0xFFFFFFFF\nv = x[cuda.laneid]\nout[cuda.laneid] = cuda.{call}"
    x, out = np.arange(32, dtype=np.float32) * 10, np.zeros(32, np.float32)
    run_kernel(kernel(body, *FLOATS), x, out, 32)
    np.testing.assert_array_equal(out, [10 * source(i) for i in range(32)])


def test_votes_count_the_lanes_of_their_mask():
    body = """
t = cuda.threadIdx.x
out[t] = cuda.ballot_sync(0xFFFFFFFF, x[t] > 29)
if t < 4:
    out[t] = cuda.any_sync(0xF, x[t] > 2) + 10 * cuda.all_sync(0xF, x[t] > 2)
"""
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run_kernel(kernel(body, *FLOATS), x, out, 32)
    assert out[:4].tolist() == [1] * 4
    assert set(out[4:]) == {3 << 30}


def test_shared_memory_starts_as_garbage_in_every_block():
    body = """
held = cuda.shared.array(2, np.float32)
out[cuda.blockIdx.x] = held[0]
held[0] = 1
"""
    out = np.zeros(2, np.float32)
    run_kernel(kernel(body, *FLOATS), out, out, 2, blocks=2, threads=1)
    assert np.isnan(out).all()


def test_atomics_give_what_was_there():
    body = "out[cuda.grid(1)] = cuda.atomic.add(x, 0, 2)\ncuda.atomic.max(x, 1, cuda.grid(1))"
    x, out = np.zeros(2, np.float32), np.zeros(8, np.float32)
    run_kernel(kernel(body, *FLOATS), x, out, 8, threads=8)
    assert sorted(out) == list(range(0, 16, 2))
    assert x.tolist() == [16, 7]


@pytest.mark.parametrize("at", [-1, 4])
def test_an_access_outside_names_kernel_argument_and_index(at):
    body = f"out[0] = x[{at}]"
    x = np.zeros(4, np.float32)
    with pytest.raises(IllegalAccessError, match=rf"k, argument x\[{at}\].*not mapped"):
        run_kernel(kernel(body, *FLOATS), x, x.copy(), 4, threads=1)
    with pytest.raises(IllegalAccessError, match=rf"k, argument out\[{at}\]"):
        run_kernel(kernel(f"out[{at}] = x[0]", *FLOATS), x, x.copy(), 4, threads=1)


def test_shared_memory_has_an_end():
    body = "held = cuda.shared.array(4, np.float32)\nheld[n] = 1"
    with pytest.raises(IllegalAccessError, match=r"shared memory of line 2: \(4,\)"):
        run_kernel(kernel(body, *FLOATS), None, None, 4, threads=1)


def test_a_pointer_that_is_no_multiple_of_its_element_is_misaligned():
    raw = np.zeros(64, np.uint8)[1:]
    with pytest.raises(IllegalAccessError, match="no multiple of 4") as caught:
        run_kernel(kernel("out[0] = 1", *FLOATS), None, raw, 1, threads=1)
    assert caught.value.misaligned


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if cuda.threadIdx.x < 5:\n    cuda.syncthreads()\nelse:\n    cuda.syncwarp()", "5 at syncthreads of line 3, 27 at syncwarp"),
        ("if cuda.threadIdx.x < 5:\n    cuda.syncthreads()\nelse:\n    cuda.syncthreads()", "27 at syncthreads of line 5"),
        ("if cuda.threadIdx.x == 5:\n    return\ncuda.syncwarp()", "names lane 5, which ended"),
        ("cuda.syncwarp(0xF)", r"lane \d+ is not in the mask"),
        ("if cuda.threadIdx.x < 16:\n    cuda.shfl_xor_sync(0xFFFF, 1.0, 16)\nelse:\n    cuda.syncwarp(0xFFFF0000)", r"reads lane \d+, which takes no part"),
    ],
)  # fmt: skip
def test_threads_that_diverge_are_an_error_that_says_where_and_not_a_hang(body, said):
    with pytest.raises(DivergedError, match=said):
        run_kernel(kernel(body, *FLOATS), None, None, 1)


def test_threads_that_are_done_are_not_waited_for_at_a_barrier():
    body = "t = cuda.threadIdx.x\nif t >= n:\n    return\ncuda.syncthreads()\nout[t] = x[t]"
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    run_kernel(kernel(body, *FLOATS), x, out, 5, threads=8)
    assert out.tolist() == [1] * 5 + [0] * 3


def test_numbers_have_the_type_of_their_parameter():
    body = "out[0] = np.float32(n * np.float32(0.1))"
    out = np.zeros(1, np.float32)
    run_kernel(
        kernel(body, "float32*", "float32*", "float32"), out, out, 1 / 3, threads=1
    )
    assert out[0] == np.float32(1 / 3) * np.float32(0.1)


def test_half_precision_is_read_and_stored_as_bits():
    body = "out[0] = float_to_half(half_to_float(x[0]) * np.float32(3))"
    x = np.array([0.1], np.float16)
    out = np.zeros(1, np.float16)
    run_kernel(kernel(body, "uint16*", "uint16*", "int64"), x, out, 1, threads=1)
    assert out[0] == np.float16(np.float32(x[0]) * 3)
    assert math.isclose(out[0], 0.3, rel_tol=1e-3)


RACES = {
    "read before the barrier": "s[t] = x[t]\nout[t] = s[(t + 1) % 64]",
    "written while others read": "s[t] = x[t]\ncuda.syncthreads()\nv = s[(t + 40) % 64]\ns[t] = v",
    "two values at one place": "s[0] = x[t] + t",
    "a shuffle is no barrier": "s[t] = x[t]\ncuda.shfl_xor_sync(0xFFFFFFFF, x[t], 1)\nout[t] = s[t ^ 1]",
    "a warp's barrier between warps": "s[t] = x[t]\ncuda.syncwarp()\nout[t] = s[(t + 32) % 64]",
}
ORDERED = {
    "a barrier": "s[t] = x[t]\ncuda.syncthreads()\nout[t] = s[(t + 1) % 64]",
    "a warp's barrier": "s[t] = x[t]\ncuda.syncwarp()\nout[t] = s[t ^ 1]",
    "lanes read, then one writes": "s[t] = x[t]\ncuda.syncthreads()\nv = s[t // 32 * 32]\ncuda.syncwarp()\nif t % 32 == 3:\n    s[t // 32 * 32] = v",
    "one value by all": "s[0] = 1\ncuda.syncthreads()\nout[t] = s[0]",
    "its own element": "s[t] = x[t]\ns[t] = s[t] + 1\nout[t] = s[t]",
}


def shared(body):
    return kernel(
        f"t = cuda.threadIdx.x\ns = cuda.shared.array(64, np.float32)\n{body}", *FLOATS
    )


@pytest.mark.parametrize("name", RACES)
def test_shared_memory_that_two_threads_touch_without_a_barrier_is_a_race(name):
    x = np.ones(64, np.float32)
    with pytest.raises(RaceError, match="no barrier between"):
        run_kernel(shared(RACES[name]), x, x.copy(), 64, threads=64)


@pytest.mark.parametrize("name", ORDERED)
def test_what_a_barrier_orders_is_none(name):
    x = np.ones(64, np.float32)
    run_kernel(shared(ORDERED[name]), x, x.copy(), 64, threads=64)


def test_threads_come_in_no_order_that_a_kernel_may_count_on():
    body = "i = cuda.grid(1)\nout[0] = out[0] * 2 % 1048573 + i"
    out, other = np.zeros(1, np.float32), np.zeros(1, np.float32)
    run_kernel(kernel(body, *FLOATS), None, out, 0, threads=64, blocks=2)
    for i in range(128):
        other[0] = other[0] * 2 % 1048573 + i
    assert out[0] != other[0]
