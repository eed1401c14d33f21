"""A GPU with its memory, and a few kernels that show when and where they read and write."""

from __future__ import annotations

import numpy as np

from seamline.devices import Gauges
from seamline_cuda.device import Gpu
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.driver import call
from seamline_cuda.loading import Loader
from seamline_cuda.memory import CudaMemory

FILL = DeviceKernel(
    "fill",
    """def fill(out, n, value):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        out[i] = value
        i += step
""",
    ("uint32*", "int64", "uint32"),
)
#: Reads its source only after many steps, so that it is in flight for a while.
LATE = DeviceKernel(
    "late",
    """def late(source, out, n, rounds):
    i = cuda.grid(1)
    if i < n:
        x = np.uint32(i)
        for _ in range(rounds):
            x = np.uint32(x * np.uint32(1664525) + np.uint32(1013904223))
        out[i] = np.uint32(source[i] + x)
""",
    ("uint32*", "uint32*", "int64", "int64"),
)
#: Writes a row at a position that it reads from the device, and moves that on.
APPEND = DeviceKernel(
    "append",
    """def append(cache, row, length, width):
    at = length[0]
    i = cuda.threadIdx.x
    while i < width:
        cache[at * width + i] = row[i]
        i += cuda.blockDim.x
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        length[0] = at + 1
""",
    ("float32*", "float32*", "int64*", "int64"),
)


def after(start, rounds):
    """Give what LATE's steps make of a start: an affine map, composed by doubling."""
    a, b, x = 1664525, 1013904223, int(start)
    while rounds:
        if rounds & 1:
            x = (a * x + b) % 2**32
        a, b, rounds = a * a % 2**32, (a * b + b) % 2**32, rounds >> 1
    return x


class Rig:
    """An open GPU; closing it checks that nothing is left."""

    def __init__(self, *, limit=None, pool=64 << 20):
        self.gpu = Gpu.open(0)
        self.memory = CudaMemory.open(self.gpu, limit=limit, pool_nbytes=pool)
        self.pages, self.arena = self.memory.virtual, self.memory.arena
        self.granule = self.pages.granularity
        self.loader = Loader(self.gpu)
        self.is_real = "Emulated" not in self.gpu.name

    def rounds(self, count):
        """Give as many of LATE's rounds as take about as long here as ``count`` on a GPU."""
        return count if self.is_real else count // 1_000_000 + 1

    def launch(self, kernel, *arguments, blocks=4, threads=256):
        return self.loader.launch(kernel, arguments, blocks=blocks, threads=threads)

    def filled(self, address, nbytes, value):
        """Set bytes of the device, in the stream's order."""
        with self.gpu.here():
            call("cuMemsetD8Async", address, value, nbytes, self.gpu.compute.handle)

    def words(self, address, count):
        got = np.empty(count, np.uint32)
        self.memory.transfers.read(address, got)
        return got

    def close(self):
        self.memory.close()
        assert self.memory.gauges() == Gauges()
        self.loader.close()
        self.gpu.close()
