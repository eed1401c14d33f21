"""
Modules and launches. A module's image is a kernel's text, see :func:`image_of`.

Arguments are read when a launch is submitted, as the driver does; what they point to, when
it runs.
"""

from __future__ import annotations

import ctypes
import json

import attrs
from tests.cuda.emulation.launching import launched
from tests.cuda.emulation.results import require
from tests.cuda.emulation.timeline import Work

from seamline_cuda.device_kernel import DeviceKernel

_MAGIC = b"emulated kernel\n"
_TYPES = {
    "int8": ctypes.c_int8, "uint8": ctypes.c_uint8, "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16, "int32": ctypes.c_int32, "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64, "uint64": ctypes.c_uint64, "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}  # fmt: skip
_MOST_SIDES = (2**31 - 1, 65535, 65535)
_MOST_THREADS = 1024
_MOST_SHARED = 227 << 10


def image_of(kernel):
    """Give what stands for a kernel's machine code."""
    return _MAGIC + json.dumps(attrs.asdict(kernel)).encode()


@attrs.define(eq=False)
class Module:
    kernel: DeviceKernel
    functions: list = attrs.field(factory=list)


class Launches:
    """Calls of the driver that load and launch kernels."""

    def cuModuleLoadData(self, image):
        is_ours = bytes(image[: len(_MAGIC)]) == _MAGIC
        require(is_ours, "CUDA_ERROR_INVALID_IMAGE", "no kernel of the emulation")
        given = json.loads(bytes(image[len(_MAGIC) :]))
        kernel = DeviceKernel(given["name"], given["text"], tuple(given["signature"]))
        return self.state.add("module", Module(kernel))

    def cuModuleUnload(self, module):
        for handle in self.state.drop("module", module).functions:
            self.state.drop("function", handle)

    def cuModuleGetFunction(self, module, name):
        found = self.state.of("module", module)
        require(name.decode() == found.kernel.name, "CUDA_ERROR_NOT_FOUND")
        handle = self.state.add("function", found.kernel)
        found.functions.append(handle)
        return handle

    def cuFuncLoad(self, function):
        self.state.of("function", function)

    def cuFuncSetAttribute(self, function, which, value):
        self.state.of("function", function)

    def cuLaunchKernel(
        self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra
    ):
        kernel = self.state.of("function", function)
        grid, block = (gx, gy, gz), (bx, by, bz)
        fits = all(0 < n <= most for n, most in zip(grid, _MOST_SIDES, strict=True))
        fits &= min(block) > 0 and bx * by * bz <= _MOST_THREADS and bz <= 64
        require(fits and shared <= _MOST_SHARED, "CUDA_ERROR_INVALID_VALUE", f"{grid} blocks of {block}")  # fmt: skip
        given = _read(kernel, int(parameters or 0))
        state = self.state

        def act():
            launched(kernel, given, state.mapped, grid, block)

        state.of("stream", stream).submit(Work(kernel.name, act))

    def cuLaunchHostFunc(self, stream, function, data):
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(function))
        given = int(data or 0)
        work = Work("host function", lambda: call(given))
        self.state.of("stream", stream).submit(work)


def _read(kernel, table):
    """Read the arguments that a table of addresses points to."""
    count = len(kernel.signature)
    require(table or not count, "CUDA_ERROR_INVALID_VALUE", "no arguments")
    places = (ctypes.c_void_p * count).from_address(table) if count else ()
    return [
        _TYPES["uint64" if kind.endswith("*") else kind].from_address(place).value
        for kind, place in zip(kernel.signature, places, strict=True)
    ]
