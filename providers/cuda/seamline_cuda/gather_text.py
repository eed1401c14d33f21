"""The texts of kernels that read by index. What lies outside is told, and element 0 read."""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import STORED
from seamline_cuda.kernel_text import position
from seamline_cuda.loops import looped

__all__ = ["found", "gather_kernel", "picking_kernel", "tuples_kernel"]


def found(at: str, value: str, size: str, instead: str = "np.int64(0)") -> list[str]:
    """Write how an index is counted from the front and looked at."""
    return [
        f"{at} = np.int64({value})",
        f"if {at} < 0:",
        f"    {at} += {size}",
        f"if {at} < 0 or {at} >= {size}:",
        "    wrong[0] = np.uint32(1)",
        f"    {at} = {instead}",
    ]


def gather_kernel(width: int, indices: str) -> DeviceKernel:
    """Give the kernel over units, of which ``inner`` make a slice."""

    def load(u: str) -> list[str]:
        return [
            f"row{u} = quotient32(np.uint32(i{u}), inner)",
            f"outer{u} = quotient32(row{u}, count)",
            *found(f"at{u}", f"indices[row{u} - outer{u} * count]", "size"),
            f"line{u} = np.int64(outer{u}) * size + at{u}",
            f"within{u} = np.int64(np.uint32(i{u}) - row{u} * inner)",
            f"x{u} = data[line{u} * np.int64(inner) + within{u}]",
        ]

    lines = ["def gather(data, indices, out, wrong, n, inner, count, size):"]
    lines += looped(load, lambda u: [f"out[i{u}] = x{u}"])
    stored = STORED[width]
    signature = (
        f"{stored}*", f"{indices}*", f"{stored}*", "uint32*", "int64", "uint32", "uint32",
        "int64",
    )  # fmt: skip
    return DeviceKernel("gather", "\n".join(lines) + "\n", signature)


def picking_kernel(width: int, indices: str, rank: int, parts: int) -> DeviceKernel:
    """Give the kernel over elements, each of ``parts`` units that lie together."""
    name = f"gather_elements_{rank}" + (f"_{parts}" if parts > 1 else "")

    def load(u: str) -> list[str]:
        return [
            *position(f"i{u}", rank, u),
            *found(f"at{u}", f"indices[i{u}]", "size"),
            f"place{u} = at{u} * along",
            *(f"place{u} += np.int64(at{a}_{u}) * step{a}" for a in range(rank)),
            *(f"x{u}_{p} = data[place{u} * {parts} + {p}]" for p in range(parts)),
        ]

    def store(u: str) -> list[str]:
        return [f"out[i{u} * {parts} + {p}] = x{u}_{p}" for p in range(parts)]

    numbers = [f"size{a}" for a in range(1, rank)]
    steps = [f"step{a}" for a in range(rank)]
    names = ", ".join([*numbers, *steps])
    lines = [
        f"def {name}(data, indices, out, wrong, n, size, along{', ' * bool(names)}{names}):",
        *looped(load, store),
    ]
    stored = STORED[width]
    signature = (
        f"{stored}*", f"{indices}*", f"{stored}*", "uint32*", "int64", "int64", "int64",
        *["uint32"] * len(numbers), *["int32"] * len(steps),
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def tuples_kernel(width: int, depth: int) -> DeviceKernel:
    """Give the kernel over units, of which ``inner`` make what a tuple names."""
    name, sizes = f"gather_nd_{depth}", [f"size{d}" for d in range(depth)]

    def load(u: str) -> list[str]:
        lines = [
            f"row{u} = quotient32(np.uint32(i{u}), inner)",
            f"line{u} = np.int64(quotient32(row{u}, rows))",
        ]
        for d in range(depth):
            value = f"indices[np.int64(row{u}) * {depth} + {d}]"
            lines += found(f"at{u}", value, f"size{d}")
            lines.append(f"line{u} = line{u} * size{d} + at{u}")
        within = f"np.int64(np.uint32(i{u}) - row{u} * inner)"
        return [*lines, f"x{u} = data[line{u} * np.int64(inner) + {within}]"]

    lines = [
        f"def {name}(data, indices, out, wrong, n, inner, rows, {', '.join(sizes)}):",
        *looped(load, lambda u: [f"out[i{u}] = x{u}"]),
    ]
    stored = STORED[width]
    signature = (
        f"{stored}*", "int64*", f"{stored}*", "uint32*", "int64", "uint32", "uint32",
        *["int64"] * depth,
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)
