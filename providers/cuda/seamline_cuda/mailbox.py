"""
The kernel that leaves a recording for the host: it brings values, asks, waits, and goes on.

One block. Its threads copy up to four values to memory that the host shares; when all are
there, one thread raises a word for the host and looks at another until the host has
written this excursion's turn into it; then values are copied back. The turn is counted on
the device, so the recording holds no number that a replay changes. An answer that is not
the turn is no answer: one for an earlier replay may still arrive.

Two things end the waiting besides: the host writes :data:`ABORTED`, or the device's clock
has gone on for ``patience`` nanoseconds. Either sets a word of the device, after which the
excursions that are left in this replay ask nothing and bring nothing back; ``late`` tells
the host that it was the clock. What they still bring to the host is looked at by nobody.

The question is a releasing store of one thread, and the answer an acquiring load, both with
the scope of the system. That thread has met all others at a barrier, so what they wrote
before it happened before the question for the host as well, and they read after the answer
what it reads: order is cumulative, and one fence does for the block. A fence of every thread
would wait for the link once more.

Nothing else is written to the host. The stamps of an excursion stay on the device, in a
ring that is read when somebody asks: a kernel ends when its writes have arrived, and those
to the host arrive late. Copies are of 16 bytes where addresses allow it, so that a few KiB
are one access of each thread, and the link is crossed once each way.
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
    "VALUE",
    "arguments",
    "copied",
    "threads_for",
    "values_of",
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

_MOST_THREADS = 512  #: of the one block
_LOOKS = 32  # at the answer, each across the link, for one at the clock
#: How one value is handed to a kernel: source, target, and its count of 16 bytes and of words.
VALUE = ("uint32*", "uint32*", "int32", "int32")


def copied(sources: str, targets: str, fours: str, words: str, indent: int) -> str:
    """Write the loops that copy :data:`MOST` values, by 16 bytes and by words."""
    lines = []
    for one in range(MOST):
        lines += [
            "k = i",
            f"while k < {fours}{one}:",
            f"    move_four({targets}{one}, {sources}{one}, k)",
            "    k += step",
            f"k = 4 * {fours}{one} + i",
            f"while k < {words}{one}:",
            f"    move_one({targets}{one}, {sources}{one}, k)",
            "    k += step",
        ]
    return "\n".join(" " * indent + line for line in lines)


def values_of(copies: Sequence[tuple[int, int, int]]) -> list[int]:
    """Give the arguments for :data:`MOST` values from sources, targets and words of some."""
    given: list[int] = []
    for place in range(MOST):
        source, target, words = copies[place] if place < len(copies) else (0, 0, 0)
        fours = 0 if (source | target) % 16 else words // 4
        given += (source, target, fours, words)
    return given


def threads_for(copies: Sequence[tuple[int, int, int]]) -> int:
    """Say how many threads copy the longest of some values in one go, in whole warps."""
    most = max((words for _, _, words in copies), default=0)
    return min(max(-(-most // 4 // 32) * 32, 32), _MOST_THREADS)


def _names(*letters: str) -> str:
    return ", ".join(f"{letter}{i}" for i in range(MOST) for letter in letters)


_TEXT = f"""def mailbox({_names("a", "b", "f", "n")}, {_names("c", "d", "g", "m")}, shared, own, times, wrong, index, bump, ring, patience):
    i = np.int32(cuda.threadIdx.x)
    step = np.int32(cuda.blockDim.x)
    over = cuda.shared.array(1, np.uint32)
    turn = np.uint32(0)
    begun = np.int64(0)
    if i == 0:
        begun = nanoseconds()
        turn = np.uint32(own[{NEXT}] + np.uint32(index))
        over[0] = own[{OVER}]
{copied("a", "b", "f", "n", 4)}
    cuda.syncthreads()
    if i == 0 and over[0] == 0:
        store_system(shared, {ASKED}, turn)
        looks = np.int32(0)
        answer = load_system(shared, {ANSWERED})
        while answer != turn:
            looks += np.int32(1)
            if answer == np.uint32({ABORTED}):
                over[0] = np.uint32(1)
                break
            if looks == {_LOOKS}:
                looks = np.int32(0)
                if nanoseconds() - begun > patience:
                    over[0] = np.uint32(1)
                    store_system(shared, {LATE}, np.uint32(1))
                    wrong[0] = np.uint32(1)
                    break
            answer = load_system(shared, {ANSWERED})
        if over[0] != 0:
            own[{OVER}] = np.uint32(1)
    cuda.syncthreads()
    if over[0] == 0:
{copied("c", "d", "g", "m", 8)}
        if i == 0:
            if bump > 0:
                own[{NEXT}] = np.uint32(turn - np.uint32(index) + np.uint32(bump))
            place = 2 * np.int32((turn - np.uint32(1)) % np.uint32(ring))
            times[place] = begun
            times[place + 1] = nanoseconds()
"""

MAILBOX = DeviceKernel(
    "mailbox",
    _TEXT,
    (
        *VALUE * (2 * MOST),
        "uint32*", "uint32*", "int64*", "uint32*", "int32", "int32", "int32", "int64",
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
    ring: int,
    patience: int,
) -> tuple[int, ...]:
    """
    Give the kernel's arguments for one excursion.

    Parameters
    ----------
    outward, inward
        Copies in 32-bit words, :data:`MOST` each at most: source, target, count.
    shared, own, times, late
        Addresses of the words that the host shares, of the device's, of its ring of two
        nanosecond stamps for each turn, and of a word that means that the host did not
        answer.
    index
        Of the excursion in its recording.
    bump
        How many turns a whole replay takes, in the last excursion; 0 in the others.
    ring
        Turns that have stamps: a multiple of those of a replay.
    patience
        Nanoseconds.
    """
    values = (*values_of(outward), *values_of(inward))
    return *values, shared, own, times, late, index, bump, ring, patience
