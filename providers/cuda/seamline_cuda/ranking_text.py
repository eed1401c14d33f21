"""
The text that picks the first k of a row and puts them in order, a block for each row.

Picking reads the row once for each byte of the keys, greatest byte first, and counts how
often each value of the byte occurs among keys that agree with what is known so far: so it
learns the k-th key byte by byte, and stops as soon as all that agree are wanted. Where too
many are equal, bytes of the index go on the same way, so that of equals the lowest indices
are taken. What was picked is put in order in shared memory, or in the workspace where it is
much. A row of few elements is put in order as a whole.

Where rows are few and long, each of several blocks picks k of a part, without order; a
second kernel ranks what they left.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.ranking_keys import bits_of, key_lines, least_key, pointer_of

__all__ = ["SHARED", "Ranking"]

SHARED = 2048  #: pairs of key and index that shared memory holds
_DIGITS = 256


@attrs.frozen
class Ranking:
    """
    A kernel that ranks rows.

    Attributes
    ----------
    name
        The kernel's name.
    dtype
        The element type.
    largest
        Whether the greatest come first.
    candidates
        Whether it ranks what parts left, not the tensor.
    picks
        Whether it picks before it puts in order.
    leaves
        Whether it takes a part of a row, and leaves what it picked.
    room
        Pairs that are put in order, a power of two; in shared memory, or 0 for what the
        workspace holds.
    outputs
        Which of ``values`` and ``places`` are asked for.
    """

    name: str
    dtype: str
    largest: bool
    candidates: bool
    picks: bool
    leaves: bool
    room: int
    outputs: tuple[str, ...]

    def kernel(self) -> DeviceKernel:
        """Write it."""
        pointer = pointer_of(self.dtype)
        parameters = [("x", pointer)]
        parameters += [
            (name, "int64*" if name == "places" else pointer) for name in self.outputs
        ]
        parameters += [("left_key", "int64*"), ("left_at", "int64*"), ("pool_key", "int64*"), ("pool_at", "int64*")]  # fmt: skip
        numbers = ("n", "k", "inner", "parts", "part", "room")
        parameters += [(name, "int64") for name in numbers]
        body = [*self._head(), *(self._picked() if self.picks else self._all())]
        if not self.leaves:
            body += [*_ordered(), *self._written()]
        names = ", ".join(name for name, _ in parameters)
        text = f"def {self.name}({names}):\n" + "".join(
            f"    {line}\n" for line in body
        )
        return DeviceKernel(self.name, text, tuple(kind for _, kind in parameters))

    def _head(self) -> list[str]:
        """Find the row, the elements to rank, and where pairs are gathered."""
        lines = ["t = np.int64(cuda.threadIdx.x)", "width = np.int64(cuda.blockDim.x)",
                 "row = np.int64(cuda.blockIdx.x)"]  # fmt: skip
        if self.leaves:
            lines += [
                "mine = row", "row = np.int64(quotient32(np.uint32(row), np.uint32(parts)))",
                "mine = mine - row * parts", "begin = mine * part", "end = min(begin + part, n)",
                "keys = left_key", "ats = left_at", "first = (row * parts + mine) * k",
                "last = first + k",
            ]  # fmt: skip
        else:
            lines += [
                "begin = np.int64(0)",
                f"end = {'parts * k' if self.candidates else 'n'}",
            ]
            lines += self._pool()
        outer = "np.int64(quotient32(np.uint32(row), np.uint32(inner)))"
        lines += [f"outer = {outer}", "base = outer * n * inner + (row - outer * inner)",
                  "out = outer * k * inner + (row - outer * inner)"]  # fmt: skip
        return lines

    def _pool(self) -> list[str]:
        if not self.room:
            return [
                "keys = pool_key",
                "ats = pool_at",
                "first = row * room",
                "last = first + room",
            ]
        made = [
            f"{name} = cuda.shared.array({self.room}, np.int64)"
            for name in ("keys", "ats")
        ]
        return [*made, "first = np.int64(0)", "last = room"]

    def _loaded(self) -> list[str]:
        """Make ``key`` and ``at`` of the element ``i``."""
        if self.candidates:
            return ["key = left_key[row * end + i]", "at = left_at[row * end + i]"]
        lines = key_lines(
            self.dtype, "x[base + i * inner]", "key", largest=self.largest
        )
        return [*lines, "at = i"]

    def _each(self, body: Sequence[str]) -> list[str]:
        inside = [*self._loaded(), *body, "i += width"]
        return ["i = begin + t", "while i < end:", *_inside(inside)]

    def _all(self) -> list[str]:
        """Take every element."""
        return [
            *self._each(["keys[first + i] = key", "ats[first + i] = at"]),
            *self._filled("end"),
        ]

    def _filled(self, count: str) -> list[str]:
        """Fill what is left of the room with what comes last."""
        inside = [f"keys[i] = {least_key(self.dtype)}", "ats[i] = n", "i += width"]
        return [
            f"i = first + {count} + t",
            "while i < last:",
            *_inside(inside),
            "cuda.syncthreads()",
        ]

    def _picked(self) -> list[str]:
        """Find the k-th key, then gather all up to it, in any order."""
        # An index counts from behind, so that the lowest is the greatest of its bytes.
        same = "found == 0 and key == prefix and (n - at) >> shift >= behind"
        taken = [
            f"wanted = (found == 1 and key >> shift >= prefix) or (found == 0 and key > prefix) or ({same})",
            "if wanted:", "    slot = first + cuda.atomic.add(counter, 0, 1)",
            "    keys[slot] = key", "    ats[slot] = at",
        ]  # fmt: skip
        bits = bits_of(self.dtype)
        return [
            f"counts = cuda.shared.array({_DIGITS}, np.int32)", "told = cuda.shared.array(3, np.int64)",
            "counter = cuda.shared.array(1, np.int32)", "if t == 0:", "    counter[0] = 0",
            "need = min(k, end - begin)", "left = need", "prefix = np.int64(0)", "behind = np.int64(0)",
            "found = 0", f"shift = np.int64({bits})",
            "while shift > 0 and found == 0 and need > 0:",
            *_inside(self._digit(
                f"shift == {bits - 8} or key >> (shift + 8) == prefix",
                f"(key >> shift) + 128 if shift == {bits - 8} else (key >> shift) & 255",
                f"prefix = digit - 128 if shift == {bits - 8} else prefix * 256 + digit",
            )),
            "if found == 0 and need > 0:", "    shift = np.int64(32)",
            "    while shift > 0 and found == 0:",
            *_inside(_inside(self._digit(
                "key == prefix and (n - at) >> (shift + 8) == behind", "((n - at) >> shift) & 255",
                "behind = behind * 256 + digit",
            ))),
            "    found = 0",
            *self._each(taken), *self._filled("need"),
        ]  # fmt: skip

    def _digit(self, agrees: str, digit: str, learn: str) -> list[str]:
        """Learn the next byte of the last key that is wanted."""
        counted = [
            f"if {agrees}:",
            f"    digit = {digit}",
            "    cuda.atomic.add(counts, digit, 1)",
        ]
        return [
            "shift -= 8", "i = t", f"while i < {_DIGITS}:", "    counts[i] = 0", "    i += width",
            "cuda.syncthreads()", *self._each(counted), "cuda.syncthreads()",
            "if t < 32:", *_inside(_chosen()), "cuda.syncthreads()",
            "digit = told[0]", "left = told[1]", "found = 1 if told[2] == left else 0", learn,
            "cuda.syncthreads()",
        ]  # fmt: skip

    def _written(self) -> list[str]:
        inside = ["at = ats[first + i]"]
        if "values" in self.outputs:
            inside.append("values[out + i * inner] = x[base + at * inner]")
        if "places" in self.outputs:
            inside.append("places[out + i * inner] = at")
        return ["i = t", "while i < k:", *_inside([*inside, "i += width"])]


def _chosen() -> list[str]:
    """Let a warp find the digit, counted from the greatest, at which ``left`` are reached."""
    lines = ["some = np.int64(0)", "for q in range(8):", "    some += counts[255 - 8 * t - q]",
             "upto = some"]  # fmt: skip
    lines += [
        "distance = np.int64(1)",
        "while distance < 32:",
        "    o = cuda.shfl_sync(0xffffffff, upto, np.int32(max(t - distance, 0)))",
        "    upto = upto + o if t >= distance else upto",
        "    distance = distance << 1",
    ]
    return [
        *lines, "before = upto - some", "if before < left and upto >= left:",
        "    for q in range(8):", "        here = np.int64(counts[255 - 8 * t - q])",
        "        if before < left and before + here >= left:",
        "            told[0] = 255 - 8 * t - q", "            told[1] = left - before",
        "            told[2] = here", "        before += here",
    ]  # fmt: skip


def _ordered() -> list[str]:
    """Put pairs in order by a bitonic network: the greater key, then the lower index first."""
    exchange = [
        "low = first + ((i - (i & (half - 1))) << 1) + (i & (half - 1))", "high = low + half",
        "a = keys[low]", "b = keys[high]", "a_at = ats[low]", "b_at = ats[high]",
        "late = b > a or (b == a and b_at < a_at)",
        "if late == (((low - first) & size) == 0):",
        "    keys[low] = b", "    keys[high] = a", "    ats[low] = b_at", "    ats[high] = a_at",
        "i += width",
    ]  # fmt: skip
    step = [
        "i = t",
        "while i < room >> 1:",
        *_inside(exchange),
        "cuda.syncthreads()",
        "half = half >> 1",
    ]
    return [
        "size = np.int64(2)", "while size <= room:",
        *_inside(["half = size >> 1", "while half > 0:", *_inside(step), "size = size << 1"]),
    ]  # fmt: skip


def _inside(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
