"""
The kernel that leaves a recording for the host: it brings values, asks, waits, and goes on.

One block. Its threads copy up to four values to memory that the host shares; when all are
there, one thread raises a word for the host and looks at another until the host has
written this excursion's turn into it; then values are copied back. The turn is counted on
the device, so the recording holds no number that a replay changes. An answer that is not
the turn is no answer: one for an earlier replay may still arrive.

Two things end the waiting besides: the host writes :data:`ABORTED`, or the device's clock
has gone on for ``patience`` nanoseconds. Either sets a word of the device, after which the
excursions that are left in this replay ask nothing and copy nothing; ``late`` tells the
host that it was the clock.

The fence before the question and the acquiring load after it have the scope of the system:
without them the host could see the question before the values, or the device old values
after the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline_cuda.device_kernel import DeviceKernel

__all__ = [
    "ABORTED",
    "ANSWERED",
    "ASKED",
    "LATE",
    "MAILBOX",
    "MOST",
    "NEXT",
    "OVER",
    "SMALL",
    "THREADS",
    "arguments",
]

MOST = 4  #: values that the kernel copies each way
SMALL = (
    16 << 10
)  #: bytes of a value that one block copies as quickly as an engine would
ABORTED = 0xFFFFFFFF  #: an answer that is no turn

# Words that the host shares, each on a line of its own.
ASKED, ANSWERED, LATE = 0, 32, 64
# Words of the device.
NEXT, OVER = 0, 1

THREADS = 512  #: of its one block: 4 KiB are two words for each


def _copies(sources: str, targets: str, counts: str) -> str:
    """Write the loops that copy values word by word."""
    lines = []
    for index in range(MOST):
        lines += [
            "        k = i",
            f"        while k < {counts}{index}:",
            f"            {targets}{index}[k] = {sources}{index}[k]",
            "            k += step",
        ]
    return "\n".join(lines)


def _values(*letters: str) -> str:
    return ", ".join(f"{letter}{i}" for i in range(MOST) for letter in letters)


_TEXT = f"""def mailbox({_values("a", "b", "n")}, {_values("c", "d", "m")}, shared, own, times, wrong, index, bump, patience):
    i = np.int32(cuda.threadIdx.x)
    step = np.int32(cuda.blockDim.x)
    over = cuda.shared.array(1, np.uint32)
    if i == 0:
        over[0] = own[{OVER}]
        if over[0] == 0:
            times[2 * index] = nanoseconds()
    cuda.syncthreads()
    if over[0] == 0:
{_copies("a", "b", "n")}
        cuda.threadfence_system()
    cuda.syncthreads()
    if i == 0 and over[0] == 0:
        turn = np.uint32(own[{NEXT}] + np.uint32(index))
        begun = nanoseconds()
        store_system(shared, {ASKED}, turn)
        answer = load_system(shared, {ANSWERED})
        while answer != turn:
            if answer == np.uint32({ABORTED}):
                over[0] = np.uint32(1)
                break
            if nanoseconds() - begun > patience:
                over[0] = np.uint32(1)
                store_system(shared, {LATE}, np.uint32(1))
                wrong[0] = np.uint32(1)
                break
            answer = load_system(shared, {ANSWERED})
        if over[0] != 0:
            own[{OVER}] = np.uint32(1)
        elif bump > 0:
            own[{NEXT}] = np.uint32(own[{NEXT}] + np.uint32(bump))
    cuda.syncthreads()
    if over[0] == 0:
{_copies("c", "d", "m")}
    cuda.syncthreads()
    if i == 0 and over[0] == 0:
        times[2 * index + 1] = nanoseconds()
"""

_COPY = ("uint32*", "uint32*", "int32")
MAILBOX = DeviceKernel(
    "mailbox",
    _TEXT,
    (
        *_COPY * (2 * MOST),
        "uint32*", "uint32*", "int64*", "uint32*", "int32", "int32", "int64",
    ),
)  # fmt: skip


def arguments(
    outward: Sequence[tuple[int, int, int]],
    inward: Sequence[tuple[int, int, int]],
    *,
    shared: int,
    own: int,
    times: int,
    late: int,
    index: int,
    bump: int,
    patience: int,
) -> tuple[int, ...]:
    """
    Give the kernel's arguments for one excursion.

    Parameters
    ----------
    outward, inward
        Copies in 32-bit words, :data:`MOST` each at most: source, target, count.
    shared, own, times, late
        Addresses of the words that the host shares, of the device's, of two nanosecond
        stamps for each excursion, and of a word that means that the host did not answer.
    index
        Of the excursion in its recording.
    bump
        How many turns a whole replay takes, in the last excursion; 0 in the others.
    patience
        Nanoseconds.
    """
    given: list[int] = []
    for copies in (outward, inward):
        for place in range(MOST):
            given += copies[place] if place < len(copies) else (0, 0, 0)
    return *given, shared, own, times, late, index, bump, patience
