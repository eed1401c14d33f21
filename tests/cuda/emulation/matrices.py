"""
What :mod:`seamline_cuda.matrix_intrinsics` does, by definition: a warp's matrices, and copies.

A copy to shared memory may arrive at any time between its start and the wait for it: what
was there is gone at once, and what comes is there after the wait only.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tests.cuda.emulation.names import WARP

ALL = 0xFFFFFFFF
_KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
#: Names in a kernel's text whose use makes it run in lock-step.
NAMES = {
    "matrices_at",
    "turned_matrices_at",
    *(f"multiplied_{kind}" for kind in _KINDS),
}


def functions(names):
    """Give what a kernel may call, over the ``cuda`` of one launch."""
    pending = {}

    def multiplied(kind):
        what = f"multiplied_{kind}"

        def multiply(*given):
            return names._all(what, ALL, given)

        return {
            what: multiply,
            f"paired_{kind}": lambda low, high: _paired(kind, low, high),
        }

    def matrices_at(words, index):
        return names._all("matrices_at", ALL, _row(words, index))

    def turned_matrices_at(words, index):
        return names._all("turned_matrices_at", ALL, _row(words, index))

    def copied_sixteen(words, to, source, at, nbytes):
        assert to % 4 == 0, "a copy of 16 bytes to an odd place of shared memory"
        assert source.moved(at).address % 16 == 0, (
            "a copy of 16 bytes from an odd address"
        )
        assert nbytes % 4 == 0, "a copy of parts of words"
        for n in range(4):
            words[to + n] = np.uint32(ALL).view(source.dtype)
            value = source[at + n] if 4 * n < nbytes else source.dtype.type(0)
            pending.setdefault(names.rank, []).append((words, to + n, value))

    def copies_awaited():
        for words, index, value in pending.pop(names.rank, ()):
            words[index] = value

    scope = {f.__name__: f for f in (matrices_at, turned_matrices_at, copied_sixteen, copies_awaited)}  # fmt: skip
    for kind in _KINDS:
        scope |= multiplied(kind)
    return scope | {"four_shared": _row}


def together(what, values):
    """Give each lane's part of what a whole warp did; ``values`` by lane."""
    if what == "matrices_at":
        return {lane: tuple(values[8 * j + lane // 4][lane % 4] for j in range(4)) for lane in values}  # fmt: skip
    if what == "turned_matrices_at":
        rows = [
            np.array(values[lane], np.uint32).view(np.uint16) for lane in range(WARP)
        ]
        return {
            lane: tuple(_turned(rows, lane, j) for j in range(4)) for lane in values
        }
    return _product(_KINDS[what.removeprefix("multiplied_")], values)


def _row(words, index):
    assert index % 4 == 0, "a row of a matrix at an odd place of shared memory"
    return tuple(words[index + n] for n in range(4))


def _turned(rows, lane, j):
    low, high = (int(rows[8 * j + lane % 4 * 2 + n][lane // 4]) for n in range(2))
    return np.uint32(low | high << 16)


def _paired(kind, low, high):
    pair = np.array([low, high], np.float32).astype(_KINDS[kind])
    return pair.view(np.uint32)[0]


def _product(kind, values):
    """Multiply: each lane has pieces of ``a`` (16 by 16), of ``b`` (16 by 8), and of sums."""
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8), np.float32)
    for lane, given in values.items():
        line, at = lane // 4, lane % 4 * 2
        words = (
            np.array(given[:6], np.uint32).view(kind).astype(np.float64).reshape(6, 2)
        )
        for n in range(4):
            a[line + n % 2 * 8, at + n // 2 * 8 :][:2] = words[n]
        for n in range(2):
            b[at + 8 * n :, line][:2] = words[4 + n]
        c[line, at:][:2], c[line + 8, at:][:2] = given[6:8], given[8:10]
    found = (a @ b + c).astype(np.float32)
    return {
        lane: (
            *found[lane // 4, lane % 4 * 2 :][:2],
            *found[lane // 4 + 8, lane % 4 * 2 :][:2],
        )
        for lane in values
    }
