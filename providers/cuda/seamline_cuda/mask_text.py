"""The texts of kernels that choose by a diagonal, an index or a length of their own."""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, STORED
from seamline_cuda.loops import looped

__all__ = ["hot_kernel", "reversed_kernel", "triangle_kernel"]


def triangle_kernel(width: int, upper: bool) -> DeviceKernel:
    """Give Trilu over source, address of the diagonal, target, count, rows, columns, given."""
    stored, keeps = STORED[width], ">=" if upper else "<="

    def load(u: str) -> list[str]:
        return [
            f"line{u} = quotient32(np.uint32(i{u}), columns)",
            f"row{u} = line{u} - quotient32(line{u}, rows) * rows",
            f"column{u} = np.uint32(i{u}) - line{u} * columns",
            f"above{u} = np.int64(column{u}) - np.int64(row{u})",
            f"x{u} = source[i{u}] if above{u} {keeps} k else np.{stored}(0)",
        ]

    name = "upper" if upper else "lower"
    lines = [f"def {name}(source, diagonal, target, n, rows, columns, given):"]
    lines += ["    k = diagonal[0] if given else np.int64(0)"]
    lines += looped(load, lambda u: [f"target[i{u}] = x{u}"])
    signature = (
        f"{stored}*", "int64*", f"{stored}*", "int64", "uint32", "uint32", "int64",
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def hot_kernel(indices: str, width: int) -> DeviceKernel:
    """Give OneHot over indices, both values, target, count, depth, and what lies inside."""
    element, stored = ELEMENTS[indices], STORED[width]

    def load(u: str) -> list[str]:
        return [
            "line = quotient32(np.uint32(i0), inner)",
            "outer = quotient32(line, depth)",
            "place = np.int64(line - outer * depth)",
            "within = np.int64(np.uint32(i0) - line * inner)",
            "at = np.int64(outer) * np.int64(inner) + within",
            # A fraction is cut towards 0, as a Cast would.
            f"index = np.int64({element.load.format('indices[at]')})",
            "if index < 0:",
            "    index += np.int64(depth)",
            "x = values[1] if index == place else values[0]",
        ]

    lines = ["def one_hot(indices, values, out, n, depth, inner):"]
    lines += looped(load, lambda u: ["out[i0] = x"], 1)
    signature = (
        f"{element.stored}*", f"{stored}*", f"{stored}*", "int64", "uint32", "uint32",
    )  # fmt: skip
    return DeviceKernel("one_hot", "\n".join(lines) + "\n", signature)


def reversed_kernel(width: int, batch_first: bool) -> DeviceKernel:
    """Give ReverseSequence over units, of which ``inner`` make one step of a sequence."""
    step, batch = ("middle", "outer") if batch_first else ("outer", "middle")

    def load(u: str) -> list[str]:
        return [
            f"line{u} = quotient32(np.uint32(i{u}), inner)",
            f"outer{u} = np.int64(quotient32(line{u}, count))",
            f"middle{u} = np.int64(line{u}) - outer{u} * np.int64(count)",
            f"long{u} = lengths[{batch}{u}]",
            f"if long{u} < 0 or long{u} > steps:",
            "    wrong[0] = np.uint32(1)",
            f"    long{u} = np.int64(0)",
            f"if {step}{u} < long{u}:",
            f"    {step}{u} = long{u} - 1 - {step}{u}",
            f"from{u} = outer{u} * np.int64(count) + middle{u}",
            f"within{u} = np.int64(np.uint32(i{u}) - line{u} * inner)",
            f"x{u} = source[from{u} * np.int64(inner) + within{u}]",
        ]

    name = "reversed_rows" if batch_first else "reversed_columns"
    lines = [f"def {name}(source, lengths, target, wrong, n, inner, count, steps):"]
    lines += looped(load, lambda u: [f"target[i{u}] = x{u}"])
    stored = STORED[width]
    signature = (
        f"{stored}*", "int64*", f"{stored}*", "uint32*", "int64", "uint32", "uint32",
        "int64",
    )  # fmt: skip
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)
