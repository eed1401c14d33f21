"""
A matrix times one vector, at the speed of memory: kernels of their own.

A library's tiles have nothing to reuse here: every element of the matrix is read once, so all
that counts is to keep many bytes under way. Two forms, by how the matrix is stored:

*Rows*: what is summed lies together. A warp takes a row, its lanes 16 bytes each at a time, a
few loads before the first is waited for; the lanes' sums are joined by shuffles.

*Columns*: what is summed lies apart, by a row's length. A lane takes 16 bytes of adjacent
columns; eight lanes make a line of 128 bytes, so that a warp reads four rows at a time, and the
block's warps eight times as many. Sums are joined by shuffles, then through shared memory.
Where columns are too few to fill the device, the depth is cut into parts as well, which a
second kernel adds up, always in one order.

Where addresses or sizes are no multiples of 16 bytes, a lane takes one element at a time.
"""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS

__all__ = [
    "EVEN",
    "LANES",
    "THREADS",
    "adding_kernel",
    "columns_kernel",
    "rows_kernel",
]

_WARPS = 8
THREADS = 32 * _WARPS
_AT_ONCE = 4  #: loads of a lane under way
EVEN = 16  #: bytes of the widest load
LANES = 8  #: that share a line of 128 bytes


def _values(dtype: str, wide: int, name: str, place: str, u: str) -> list[str]:
    """Load ``wide`` elements as ``name{u}_0`` and so on, in float32."""
    element = ELEMENTS[dtype]
    if wide == 1:
        return [f"{name}{u}_0 = {element.load.format(f'{name}[{place}]')}"]
    if dtype == "float32":
        parts = ", ".join(f"{name}{u}_{e}" for e in range(4))
        return [f"{parts} = four_at({name}, {place})"]
    words = ", ".join(f"{name}{u}_w{e}" for e in range(4))
    lines = [f"{words} = four_at({name}, ({place}) >> 1)"]
    for e in range(8):
        word = f"{name}{u}_w{e // 2}"
        half = f"{word} >> np.uint32(16)" if e % 2 else f"{word} & np.uint32(65535)"
        lines.append(f"{name}{u}_{e} = {element.load.format(f'np.uint16({half})')}")
    return lines


def _pointer(dtype: str, wide: int) -> str:
    if wide == 1 or dtype == "float32":
        return f"{ELEMENTS[dtype].stored}*"
    return "uint32*"


def _ending(dtype: str, indent: str) -> list[str]:
    """Scale a row's sum, add what is added, and store it."""
    element = ELEMENTS[dtype]
    added = element.load.format("added[at * added_step]")
    return [
        f"{indent}value = alpha * total",
        f"{indent}if beta != np.float32(0):",
        f"{indent}    value += beta * {added}",
        f"{indent}if biased:",
        f"{indent}    value += {element.load.format('bias[at]')}",
        f"{indent}if relu and value < np.float32(0):",
        f"{indent}    value = np.float32(0)",
        f"{indent}out[at] = {element.store.format('value')}",
    ]


#: Alpha, beta, the step of what is added, and whether there are a bias and an activation.
_ENDING = ("float32", "float32", "int64", "int64", "int64")


def rows_kernel(dtype: str, *, wide: bool) -> DeviceKernel:
    """Give the kernel of a matrix whose rows are summed, and lie together."""
    many = EVEN // (4 if dtype == "float32" else 2) if wide else 1
    step, pointer = 32 * many, _pointer(dtype, many)
    lines = [
        "def vector_rows(m, x, added, bias, out, rows, depth, leading, alpha, beta, added_step, biased, relu):",
        "    lane = np.int64(cuda.threadIdx.x & 31)",
        f"    at = np.int64(cuda.blockIdx.x) * {_WARPS} + (cuda.threadIdx.x >> 5)",
        f"    step = np.int64(cuda.gridDim.x) * {_WARPS}",
        "    while at < rows:",
        "        total = np.float32(0)",
        f"        k = lane * {many}",
        "        base = at * leading",
    ]
    for at_once in (_AT_ONCE, 1):
        reach = (at_once - 1) * step
        lines.append(f"        while k + {reach} < depth:")
        body: list[str] = []
        for u in range(at_once):
            body += _values(dtype, many, "m", f"base + k + {u * step}", str(u))
        for u in range(at_once):
            body += _values(dtype, many, "x", f"k + {u * step}", str(u))
        body += [
            f"total += m{u}_{e} * x{u}_{e}" for u in range(at_once) for e in range(many)
        ]
        body.append(f"k += {at_once * step}")
        lines += [f"            {line}" for line in body]
    lines += [
        f"        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, {n})"
        for n in (16, 8, 4, 2, 1)
    ]
    lines += [
        "        if lane == 0:",
        *_ending(dtype, "            "),
        "        at += step",
    ]
    stored = f"{ELEMENTS[dtype].stored}*"
    signature = (pointer, pointer, *[stored] * 3, *["int64"] * 3, *_ENDING)
    return DeviceKernel("vector_rows", "\n".join(lines) + "\n", signature)


def columns_kernel(dtype: str, *, wide: bool, cut: bool) -> DeviceKernel:
    """
    Give the kernel of a matrix whose columns are summed.

    Parameters
    ----------
    cut
        It writes sums of parts of the depth, in float32, for :func:`adding_kernel`.
    """
    many = EVEN // (4 if dtype == "float32" else 2) if wide else 1
    lanes = LANES if wide else 32
    across, tall = lanes * many, _WARPS * (32 // lanes)
    element = ELEMENTS[dtype]
    last = "out" if cut else "added, bias, out"
    more = "" if cut else ", alpha, beta, added_step, biased, relu"
    lines = [
        f"def vector_columns(m, x, {last}, columns, depth, leading, tiles, part{more}):",
        f"    sums = cuda.shared.array({_WARPS * across}, np.float32)",
        "    tid = np.int64(cuda.threadIdx.x)",
        f"    lane = tid & {lanes - 1}",
        f"    row = tid >> {lanes.bit_length() - 1}",
        "    tile = np.int64(cuda.blockIdx.x) % tiles",
        "    turn = np.int64(cuda.blockIdx.x) // tiles",
        f"    column = tile * {across} + lane * {many}",
        "    k = turn * part + row",
        "    end = min((turn + 1) * part, depth)",
        *(f"    t{e} = np.float32(0)" for e in range(many)),
        "    if column < columns:",
    ]
    for at_once in (_AT_ONCE, 1):
        lines.append(f"        while k + {(at_once - 1) * tall} < end:")
        body: list[str] = []
        for u in range(at_once):
            place = f"(k + {u * tall}) * leading + column"
            body += _values(dtype, many, "m", place, str(u))
            body.append(f"x{u} = {element.load.format(f'x[k + {u * tall}]')}")
        body += [
            f"t{e} += m{u}_{e} * x{u}" for u in range(at_once) for e in range(many)
        ]
        body.append(f"k += {at_once * tall}")
        lines += [f"            {line}" for line in body]
    for e in range(many):
        lines += [
            f"    t{e} += cuda.shfl_xor_sync(0xFFFFFFFF, t{e}, {n})"
            for n in (16, 8)
            if n >= lanes
        ]
    lines += [
        f"    if (tid & 31) < {lanes}:",
        *(
            f"        sums[(tid >> 5) * {across} + lane * {many} + {e}] = t{e}"
            for e in range(many)
        ),
        "    cuda.syncthreads()",
        f"    at = tile * {across} + tid",
        f"    if tid < {across} and at < columns:",
        "        total = np.float32(0)",
        f"        for warp in range({_WARPS}):",
        f"            total += sums[warp * {across} + tid]",
    ]
    if cut:
        lines.append("        out[turn * columns + at] = total")
    else:
        lines += _ending(dtype, "        ")
    stored = f"{element.stored}*"
    places = ("float32*",) if cut else (stored,) * 3
    signature = (
        _pointer(dtype, many), stored, *places, *["int64"] * 5, *(() if cut else _ENDING),
    )  # fmt: skip
    return DeviceKernel("vector_columns", "\n".join(lines) + "\n", signature)


def adding_kernel(dtype: str) -> DeviceKernel:
    """Give the kernel that adds up the parts that :func:`columns_kernel` left."""
    lines = [
        "def vector_parts(parts, added, bias, out, n, many, alpha, beta, added_step, biased, relu):",
        "    at = np.int64(cuda.grid(1))",
        "    step = np.int64(cuda.gridsize(1))",
        "    while at < n:",
        "        total = np.float32(0)",
        "        for turn in range(many):",
        "            total += parts[turn * n + at]",
        *_ending(dtype, "        "),
        "        at += step",
    ]
    stored = f"{ELEMENTS[dtype].stored}*"
    signature = ("float32*", *[stored] * 3, "int64", "int64", *_ENDING)
    return DeviceKernel("vector_parts", "\n".join(lines) + "\n", signature)
