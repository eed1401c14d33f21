"""Devices and contexts; one device, which is like an H200."""

from __future__ import annotations

from tests.cuda.emulation.mapped import TOTAL
from tests.cuda.emulation.results import real, require

NAME = b"Emulated H200"
CONTEXT = 0xC0DE
_IS = "CU_DEVICE_ATTRIBUTE_"
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "WARP_SIZE": 32,
    "L2_CACHE_SIZE": 50 << 20,
    "CLOCK_RATE": 1_980_000,
    "UNIFIED_ADDRESSING": 1,
    "CAN_MAP_HOST_MEMORY": 1,
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM": 1,
    "INTEGRATED": 0,
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
}


class Contexts:
    """Calls of the driver before there is memory or a stream."""

    def cuInit(self, flags):
        self.state.is_initialized = True

    def cuDriverGetVersion(self):
        return 13000

    def cuDeviceGetCount(self):
        return 1

    def cuDeviceGet(self, index):
        require(self.state.is_initialized, "CUDA_ERROR_NOT_INITIALIZED")
        require(index == 0, "CUDA_ERROR_INVALID_DEVICE")
        return 0

    def cuDeviceGetName(self, length, device):
        return NAME.ljust(length, b"\0")

    def cuDeviceGetAttribute(self, which, device):
        name = which.name.removeprefix(_IS)
        assert name in ATTRIBUTES, (
            f"the emulated device does not say its {name}: add it"
        )
        return ATTRIBUTES[name]

    def cuDeviceTotalMem(self, device):
        return TOTAL

    def cuDevicePrimaryCtxRetain(self, device):
        require(self.state.is_initialized, "CUDA_ERROR_NOT_INITIALIZED")
        self.state.retained += 1
        return CONTEXT

    def cuDevicePrimaryCtxRelease(self, device):
        require(self.state.retained, "CUDA_ERROR_INVALID_CONTEXT")
        self.state.retained -= 1

    def cuDevicePrimaryCtxGetState(self, device):
        return 0, int(self.state.retained > 0)

    def cuCtxPushCurrent(self, context):
        alive = context == CONTEXT and self.state.retained
        require(alive, "CUDA_ERROR_INVALID_CONTEXT")
        self.state.contexts.append(context)

    def cuCtxPopCurrent(self):
        require(self.state.contexts, "CUDA_ERROR_INVALID_CONTEXT")
        return self.state.contexts.pop()

    def cuCtxGetCurrent(self):
        return self.state.contexts[-1] if self.state.contexts else 0

    def cuCtxSetCurrent(self, context):
        del self.state.contexts[-1:]
        if int(context or 0):
            self.state.contexts.append(context)

    def cuCtxSynchronize(self):
        self._all_done()

    def _all_done(self):
        state = self.state
        for stream in self._streams():
            stream.look()
        idle = state.timeline.is_idle
        state.timeline.wait(lambda: all(map(idle, list(state.timeline.queues))))

    def _streams(self):
        return [*self.state.streams.values(), *self.state.objects["stream"].values()]

    def cuMemGetInfo(self):
        return TOTAL - self.state.mapped.owned, TOTAL


assert all(hasattr(real.CUdevice_attribute, _IS + name) for name in ATTRIBUTES)
