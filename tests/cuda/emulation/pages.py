"""Memory calls: addresses and pages apart, whole allocations, pinned memory."""

from __future__ import annotations

from tests.cuda.emulation.mapped import GRANULE
from tests.cuda.emulation.results import real, require

_READ_WRITE = real.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class PageCalls:
    """Calls of the driver that give and take memory."""

    def cuMemGetAllocationGranularity(self, kind, which):
        return GRANULE

    def cuMemAddressReserve(self, nbytes, alignment, address, flags):
        return self.state.mapped.reserve(nbytes)

    def cuMemAddressFree(self, address, nbytes):
        self.state.mapped.free(int(address), nbytes)

    def cuMemCreate(self, nbytes, kind, flags):
        require(kind.location.id == 0, "CUDA_ERROR_INVALID_DEVICE")
        return self.state.mapped.create(nbytes)

    def cuMemRelease(self, handle):
        self.state.mapped.release(handle)

    def cuMemMap(self, address, nbytes, offset, handle, flags):
        require(offset == 0, "CUDA_ERROR_INVALID_VALUE")
        self.state.mapped.map(int(address), nbytes, handle)

    def cuMemSetAccess(self, address, nbytes, described, count):
        require(count == len(described) == 1, "CUDA_ERROR_INVALID_VALUE")
        require(described[0].flags == _READ_WRITE, "CUDA_ERROR_INVALID_VALUE")
        self.state.mapped.allow(int(address), nbytes)

    def cuMemUnmap(self, address, nbytes):
        self.state.mapped.unmap(int(address), nbytes)

    def cuMemHostAlloc(self, nbytes, flags):
        return self.state.mapped.pin(nbytes)

    def cuMemFreeHost(self, address):
        self.state.mapped.unpin(int(address))

    def cuMemHostRegister(self, address, nbytes, flags):
        self.state.mapped.register(int(address), nbytes)

    def cuMemHostUnregister(self, address):
        self.state.mapped.unregister(int(address))

    def cuMemHostGetDevicePointer(self, address, flags):
        return self.state.known(int(address), 1, "pinned memory")

    def cuMemAlloc(self, nbytes):
        mapped, room = self.state.mapped, -(-nbytes // GRANULE) * GRANULE
        pages = mapped.create(room)
        address = mapped.reserve(room)
        mapped.map(address, room, pages)
        mapped.allow(address, room)
        mapped.release(pages)
        self.state.allocations[address] = room
        return address

    def cuMemFree(self, address):
        room = self.state.allocations.pop(int(address), None)
        require(room is not None, "CUDA_ERROR_INVALID_VALUE")
        self._all_done()
        self.state.mapped.unmap(int(address), room)
        self.state.mapped.free(int(address), room)
