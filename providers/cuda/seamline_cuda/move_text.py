"""
The texts of kernels that copy between strided places.

``move`` has one thread for each element, or for a few neighbours that lie together on both
sides and are moved as one. It writes in the target's order, so writes are coalesced, and
reads are where the source's last axis is the target's.

``transposed`` is for the other case. A warp that reads along the source's last axis writes
far apart, and the other way round. So a block reads a square along the one, and writes it
along the other from shared memory, whose rows are one element longer than the square:
else all lanes of a warp would meet in one bank.
"""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import STORED
from seamline_cuda.kernel_text import position
from seamline_cuda.loops import looped

__all__ = ["EDGE", "THREADS", "move", "transposed"]

THREADS = 256
_WARPS, _LANES = THREADS // 32, 32

#: Edge of a square by bytes of an element: whole 32-byte sectors, and enough under way.
EDGE = {1: 64, 2: 64, 4: 32, 8: 32}


def move(width: int, rank: int, flat: tuple[bool, bool]) -> DeviceKernel:
    """
    Give the kernel over source, target, count, inner sizes, and steps of what is not flat.

    Parameters
    ----------
    width
        Bytes of an element.
    rank
        Axes that a place is taken apart into.
    flat
        Whether source and target lie in order, without gaps; their steps are left out.
    """
    sides = [name for name, lies in zip("st", flat, strict=True) if not lies]
    numbers = [f"size{axis}" for axis in range(1, rank)] if sides else []
    steps = [f"{side}{axis}" for side in sides for axis in range(rank)]
    name = f"move_{rank}_{''.join(sides)}"
    lines = [f"def {name}({', '.join(['source', 'target', 'n', *numbers, *steps])}):"]
    taken = rank if sides else 0

    def load(u: str) -> list[str]:
        place = _place("s", rank, flat[0], u)
        return [*position(f"i{u}", taken, u), f"x{u} = source[{place}]"]

    def store(u: str) -> list[str]:
        return [f"target[{_place('t', rank, flat[1], u)}] = x{u}"]

    lines += looped(load, store)
    stored = STORED[width]
    signature = [f"{stored}*", f"{stored}*", "int64"]
    signature += ["uint32"] * len(numbers) + ["int32"] * len(steps)
    return DeviceKernel(name, "\n".join(lines) + "\n", tuple(signature))


def _place(side: str, rank: int, flat: bool, u: str) -> str:
    """Give the expression of an element's place."""
    if flat:
        return f"i{u}"
    return " + ".join(f"np.int32(at{a}_{u}) * {side}{a}" for a in range(rank))


def transposed(width: int, rank: int) -> DeviceKernel:
    """
    Give the kernel that moves squares, one for each block.

    Its parameters are source, target, the squares along the source's last axis and along
    the target's, the sizes of both, the steps of the source along the target's last axis
    and of the target along the source's, then inner sizes and steps of the other axes.
    """
    edge, name = EDGE[width], f"transposed_{rank}"
    numbers = [f"size{axis}" for axis in range(1, rank)]
    steps = [f"{side}{axis}" for side in "st" for axis in range(rank)]
    fixed = "source, target, squares_a, squares_b, na, nb, down, across"
    lines = [
        f"def {name}({', '.join([fixed, *numbers, *steps])}):",
        f"    square = cuda.shared.array({edge * (edge + 1)}, np.{STORED[width]})",
        "    block = np.uint32(cuda.blockIdx.x)",
        "    above = quotient32(block, squares_b)",
        "    outer = quotient32(above, squares_a)",
        *(f"    {line}" for line in position("outer", rank, "0")),
        f"    first_a = np.int32(above - outer * squares_a) * np.int32({edge})",
        f"    first_b = np.int32(block - above * squares_b) * np.int32({edge})",
        "    lane = np.int32(cuda.threadIdx.x % 32)",
        "    warp = np.int32(cuda.threadIdx.x // 32)",
        f"    here = {_start('s', rank)} + (first_b + warp) * down + first_a + lane",
        f"    there = {_start('t', rank)} + (first_a + warp) * across + first_b + lane",
        *_read(edge),
        "    cuda.syncthreads()",
        *_written(edge),
    ]
    stored = STORED[width]
    signature = [f"{stored}*"] * 2 + ["uint32"] * 2 + ["int32"] * 4
    signature += ["uint32"] * len(numbers) + ["int32"] * len(steps)
    return DeviceKernel(name, "\n".join(lines) + "\n", tuple(signature))


def _start(side: str, rank: int) -> str:
    found = [f"np.int32(at{axis}_0) * {side}{axis}" for axis in range(rank)]
    return " + ".join(found) or "np.int64(0)"


def _parts(edge: int) -> list[tuple[int, int]]:
    """Give the rows and columns that a thread has, beside its own first."""
    return [(r, c) for r in range(0, edge, _WARPS) for c in range(0, edge, _LANES)]


def _read(edge: int) -> list[str]:
    """Load all before anything is kept: the compiler would wait for each in turn."""
    parts, row = _parts(edge), edge + 1
    lines = [f"    if first_a + {edge} <= na and first_b + {edge} <= nb:"]
    for k, (r, c) in enumerate(parts):
        lines.append(f"        x{k} = source[here + {r} * down + {c}]")
    for k, (r, c) in enumerate(parts):
        lines.append(f"        square[(warp + {r}) * {row} + lane + {c}] = x{k}")
    lines.append("    else:")
    for r, c in parts:
        lines.append(
            f"        if first_b + warp + {r} < nb and first_a + lane + {c} < na:"
        )
        place = f"square[(warp + {r}) * {row} + lane + {c}]"
        lines.append(f"            {place} = source[here + {r} * down + {c}]")
    return lines


def _written(edge: int) -> list[str]:
    lines, row = [], edge + 1
    for r, c in _parts(edge):
        lines.append(f"    if first_a + warp + {r} < na and first_b + lane + {c} < nb:")
        value = f"square[(lane + {c}) * {row} + warp + {r}]"
        lines.append(f"        target[there + {r} * across + {c}] = {value}")
    return lines
