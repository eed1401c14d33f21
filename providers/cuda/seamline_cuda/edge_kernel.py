"""
The kernel at an edge of a recording: it copies values and then tells the host.

One block, as in :mod:`seamline_cuda.mailbox`. At the beginning of a recording it copies from
memory that the host shares, and tells that this memory may be written again; at the end it
copies to such memory, and tells that all is there. What it tells is the number of the replay,
which the device counts by itself. A barrier and one releasing store with the scope of the
system order every thread's accesses before it, those of kernels before this one included.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.mailbox import MOST, VALUE, copied, values_of

__all__ = ["EDGE", "GIVEN", "TAKEN", "edge_arguments"]

# Words that the host shares, each on a line of its own.
TAKEN, GIVEN = 0, 32

_VALUES = ", ".join(f"{letter}{i}" for i in range(MOST) for letter in "abfn")
_TEXT = f"""def edge({_VALUES}, shared, own, word, bump):
    i = np.int32(cuda.threadIdx.x)
    step = np.int32(cuda.blockDim.x)
    replay = np.uint32(0)
    if i == 0:
        replay = own[0]
{copied("a", "b", "f", "n", 4)}
    cuda.syncthreads()
    if i == 0:
        if word >= 0:
            store_system(shared, word, replay)
        if bump > 0:
            own[0] = np.uint32(replay + np.uint32(1))
"""

EDGE = DeviceKernel(
    "edge", _TEXT, (*VALUE * MOST, "uint32*", "uint32*", "int32", "int32")
)


def edge_arguments(
    copies: Sequence[tuple[int, int, int]],
    *,
    shared: int,
    own: int,
    word: int,
    bump: bool,
) -> tuple[int, ...]:
    """
    Give the kernel's arguments.

    Parameters
    ----------
    copies
        In 32-bit words, :data:`~seamline_cuda.mailbox.MOST` at most: source, target, count.
    shared, own
        Addresses of the words that the host shares, and of the device's count of replays.
    word
        Which word to tell by: :data:`TAKEN` or :data:`GIVEN`; -1 for none.
    bump
        It is the last of its recording that reads the count.
    """
    return *values_of(copies), shared, own, word, int(bump)
