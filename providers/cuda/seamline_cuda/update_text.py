"""
The texts of kernels that write by index. What lies outside is told, and not written.

Without a reduction every update has a thread. With one, updates that meet are folded in
the order that they come in, by one thread for each line of them, so that sums of floats
are the same in every run; there are no atomics.
"""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, STORED
from seamline_cuda.gather_text import found
from seamline_cuda.kernel_text import position
from seamline_cuda.loops import looped

__all__ = ["FOLDS", "folded_lines", "folded_tuples", "placed", "placed_tuples"]

FOLDS = ("add", "mul", "max", "min")
_OUTSIDE = "np.int64(-1)"


def _fold(how: str, dtype: str) -> str:
    """Write what becomes of ``target[place]`` by ``update``, rounded to the type."""
    element = ELEMENTS[dtype]
    before = element.load.format("target[place]")
    update = element.load.format("update")
    product = {"float64": "product64({}, {})", "float32": "product({}, {})"}
    form = {
        "add": "{} + {}",
        "mul": product.get(element.computed, "{} * {}"),
        "max": "greatest({}, {})",
        "min": "least({}, {})",
    }[how]
    return element.store.format(element.rounded.format(form.format(before, update)))


def placed(width: int, indices: str, rank: int, parts: int) -> DeviceKernel:
    """Give ScatterElements over updates, each of ``parts`` units that lie together."""
    name = f"scatter_elements_{rank}" + (f"_{parts}" if parts > 1 else "")

    def load(u: str) -> list[str]:
        return [
            *position(f"i{u}", rank, u),
            *found(f"at{u}", f"indices[i{u}]", "size", _OUTSIDE),
            f"place{u} = at{u} * along",
            *(f"place{u} += np.int64(at{a}_{u}) * step{a}" for a in range(rank)),
            *(f"x{u}_{p} = updates[i{u} * {parts} + {p}]" for p in range(parts)),
        ]

    def store(u: str) -> list[str]:
        writes = [
            f"    target[place{u} * {parts} + {p}] = x{u}_{p}" for p in range(parts)
        ]
        return [f"if at{u} >= 0:", *writes]

    names = [f"size{a}" for a in range(1, rank)] + [f"step{a}" for a in range(rank)]
    fixed = "indices, updates, target, wrong, n, size, along"
    lines = [f"def {name}({', '.join([fixed, *names])}):", *looped(load, store)]
    stored = STORED[width]
    signature = (
        f"{indices}*", f"{stored}*", f"{stored}*", "uint32*", *["int64"] * 3,
        *["uint32"] * max(rank - 1, 0), *["int32"] * rank,
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def folded_lines(how: str, dtype: str, indices: str, rank: int) -> DeviceKernel:
    """Give ScatterElements with a reduction over lines along the axis."""
    name = f"scatter_elements_{how}_{rank}"
    names = [f"size{a}" for a in range(1, rank)]
    names += [f"{side}{a}" for side in "dj" for a in range(rank)]

    def start(side: str) -> str:
        found = [f"np.int64(at{a}_0) * {side}{a}" for a in range(rank)]
        return " + ".join(found) or "np.int64(0)"

    def line(u: str) -> list[str]:
        return [
            *position("i0", rank, "0"),
            f"base = {start('d')}",
            f"from_ = {start('j')}",
            "k = np.int64(0)",
            "while k < count:",
            *(f"    {one}" for one in found("at", "indices[from_]", "size", _OUTSIDE)),
            "    if at >= 0:",
            "        place = base + at * along",
            "        update = updates[from_]",
            f"        target[place] = {_fold(how, dtype)}",
            "    from_ += apart",
            "    k += 1",
        ]

    fixed = "indices, updates, target, wrong, n, count, apart, size, along"
    lines = [f"def {name}({', '.join([fixed, *names])}):"]
    lines += looped(line, lambda u: [], 1)
    stored = ELEMENTS[dtype].stored
    signature = (
        f"{indices}*", f"{stored}*", f"{stored}*", "uint32*", *["int64"] * 5,
        *["uint32"] * max(rank - 1, 0), *["int32"] * (2 * rank),
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def _line_of(u: str, row: str, depth: int) -> list[str]:
    """Write the number of the slice that a tuple names, -1 where it names none."""
    lines = [f"line{u} = np.int64(0)"]
    for d in range(depth):
        value = f"indices[{row} * {depth} + {d}]"
        lines += found(f"at{u}", value, f"size{d}", _OUTSIDE)
        lines += [
            f"if at{u} < 0 or line{u} < 0:",
            f"    line{u} = np.int64(-1)",
            "else:",
            f"    line{u} = line{u} * size{d} + at{u}",
        ]
    return lines


def placed_tuples(width: int, depth: int) -> DeviceKernel:
    """Give ScatterND over units, of which ``inner`` make what a tuple names."""
    name, sizes = f"scatter_nd_{depth}", [f"size{d}" for d in range(depth)]

    def load(u: str) -> list[str]:
        return [
            f"row{u} = np.int64(quotient32(np.uint32(i{u}), inner))",
            *_line_of(u, f"row{u}", depth),
            f"x{u} = updates[i{u}]",
        ]

    def store(u: str) -> list[str]:
        place = f"line{u} * np.int64(inner) + i{u} - row{u} * np.int64(inner)"
        return [f"if line{u} >= 0:", f"    target[{place}] = x{u}"]

    fixed = "indices, updates, target, wrong, n, inner"
    lines = [f"def {name}({fixed}, {', '.join(sizes)}):", *looped(load, store)]
    stored = STORED[width]
    signature = (
        "int64*", f"{stored}*", f"{stored}*", "uint32*", "int64", "uint32",
        *["int64"] * depth,
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def folded_tuples(how: str, dtype: str, depth: int) -> DeviceKernel:
    """Give ScatterND with a reduction: one thread for each element of a slice."""
    name, sizes = f"scatter_nd_{how}_{depth}", [f"size{d}" for d in range(depth)]

    def line(u: str) -> list[str]:
        return [
            "k = np.int64(0)",
            "while k < count:",
            *(f"    {one}" for one in _line_of("", "k", depth)),
            "    if line >= 0:",
            "        place = line * n + i0",
            "        update = updates[k * n + i0]",
            f"        target[place] = {_fold(how, dtype)}",
            "    k += 1",
        ]

    fixed = "indices, updates, target, wrong, n, count"
    lines = [f"def {name}({fixed}, {', '.join(sizes)}):"]
    lines += looped(line, lambda u: [], 1)
    stored = ELEMENTS[dtype].stored
    signature = (
        "int64*", f"{stored}*", f"{stored}*", "uint32*", "int64", "int64",
        *["int64"] * depth,
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)
