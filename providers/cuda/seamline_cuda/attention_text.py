"""
Text that several kernels of attention share; what capitals stand for is said where it is used.

A tile holds rows of all heads that share keys, ``COLUMNS`` of them from ``column`` on.
"""

from __future__ import annotations

__all__ = ["SEEN", "WEIGHED"]

#: The keys that any row of a tile sees, from ``begin`` up to ``stop``.
SEEN = """\
row = np.int64(quotient32(np.uint32(column), np.uint32(group)))
some = row < fresh
BOUNDS
begin = lowest
last = min(column + COLUMNS - 1, columns - 1)
row = min(np.int64(quotient32(np.uint32(last), np.uint32(group))), fresh - 1)
BOUNDS
stop = highest if some else np.int64(0)
"""
#: Inside a loop over a thread's rows ``i``: the greatest score of sixteen lanes, what was
#: added up before shrunk to it, and the start of a loop over this step's weights.
WEIGHED = """\
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 8))
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 4))
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 2))
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 1))
    # A row that has seen no key has nothing to shrink; minus infinity less itself would
    # be no number.
    blind = most == np.float32(-np.inf)
    shrink = np.float32(1) if blind else libdevice.expf(top[i] - most)
    top[i] = most
    total[i] *= shrink
    for j in range(BESIDE):
        y_sum[i * BESIDE + j] *= shrink
    for j in range(ACROSS):
        weight = libdevice.expf(s[i * ACROSS + j] - most)
        weight = np.float32(0) if blind else weight
        total[i] += weight
"""
