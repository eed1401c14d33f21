"""
Results that are made of numbers: ConstantOfShape, Range, EyeLike, Shape and Size.

What they hold follows from sizes, attributes and what is read on the host, so it is part of
a launch. Shapes whose sizes are known are never computed at all: the core knows them, and
their readers read them on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import INDICES, TensorType, numpy_dtype
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, MOVED, STORED
from seamline_cuda.limits import bytes_of, rank_of, unfit
from seamline_cuda.loops import looped
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "constant_of_shape", "eye_like", "range_of", "shape_of", "size_of"]

_COUNTED = ("float32", "float16", "float64", "int16", "int32", "int64")
_TYPES = tuple(name for name in MOVED if numpy_dtype(name).itemsize <= 8)


def _kernel(name: str, lines: Sequence[str], *signature: str) -> DeviceKernel:
    return DeviceKernel(name, "\n".join(lines) + "\n", signature)


def fill_kernel(width: int) -> DeviceKernel:
    """Give the kernel over target, count and the bits of one unit."""
    lines = ["def fill(out, n, bits):", f"    x = np.{STORED[width]}(bits)"]
    lines += looped(lambda u: [], lambda u: [f"out[i{u}] = x"])
    return _kernel("fill", lines, f"{STORED[width]}*", "int64", "uint64")


def counted_kernel(dtype: str) -> DeviceKernel:
    """Give Range's kernel over target, count, start and delta."""
    element = ELEMENTS[dtype]
    kind = element.computed
    product = {"float32": "product", "float64": "product64"}.get(kind)
    at = f"np.{kind}(i0)"
    step = f"{at} * delta" if product is None else f"{product}({at}, delta)"
    stored = element.store.format(element.rounded.format(f"start + {step}"))
    lines = ["def counted(out, n, start, delta):"]
    lines += looped(lambda u: [], lambda u: [f"out[i0] = {stored}"], 1)
    return _kernel("counted", lines, f"{element.stored}*", "int64", kind, kind)


def diagonal_kernel(dtype: str) -> DeviceKernel:
    """Give EyeLike's kernel over target, count, columns, diagonal and the bits of 1."""
    stored = STORED[bytes_of(dtype)]
    load = [
        "row = quotient32(np.uint32(i0), columns)",
        "column = np.uint32(i0) - row * columns",
        f"x = np.{stored}(0)",
        "if np.int64(column) - np.int64(row) == k:",
        f"    x = np.{stored}(bits)",
    ]
    lines = ["def diagonal(out, n, columns, k, bits):"]
    lines += looped(lambda u: load, lambda u: ["out[i0] = x"], 1)
    return _kernel(
        "diagonal", lines, f"{stored}*", "int64", "uint32", "int64", "uint64"
    )


def sizes_kernel(count: int) -> DeviceKernel:
    """Give the kernel that writes so many numbers, which are its arguments."""
    names = [f"n{i}" for i in range(count)]
    lines = [f"def sizes_{count}({', '.join(['out', *names])}):"]
    lines += ["    if cuda.grid(1) == 0:"]
    lines += [f"        out[{i}] = {name}" for i, name in enumerate(names)]
    return _kernel(f"sizes_{count}", lines, "int64*", *["int64"] * count)


def constant_of_shape(call: Call) -> Sequence[Work]:
    """Fill with one value, 0 of float32 unless given; by 8 bytes where they fit."""
    value, out = call.attr("value"), call.outputs[0]
    one = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    if not out.nbytes:
        return []
    bits = one.tobytes()
    width = 8 if out.nbytes % 8 == 0 else len(bits)
    repeated = int.from_bytes(bits * (width // len(bits)), "little")
    count = out.nbytes // width
    return [KernelWork(fill_kernel(width), (out.address, count, repeated), count)]


def range_of(call: Call) -> Sequence[Work]:
    """Give ``start + i * delta``; float16 is counted in float32."""
    start, limit, delta = (np.asarray(call.inputs[i]).reshape(()) for i in range(3))
    out = call.outputs[0]
    steps = _steps(start, limit, delta)
    if (steps,) != tuple(out.shape):
        raise ValueError(f"gives {steps} elements, the plan says {list(out.shape)}")
    make: type[int] | type[float] = int if start.dtype.kind in "iu" else float
    kernel = counted_kernel(out.kind.dtype)
    arguments = (out.address, steps, make(start), make(delta))
    return [KernelWork(kernel, arguments, steps)] if steps else []


def _steps(start: Any, limit: Any, delta: Any) -> int:
    if delta == 0:
        raise ValueError("delta is 0: the range has no end")
    if start.dtype.kind in "iu":
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)


def eye_like(call: Call) -> Sequence[Work]:
    """Fill with 0, and 1 on the diagonal ``k`` above the main one."""
    out = call.outputs[0]
    one = np.ones((), numpy_dtype(out.kind.dtype)).tobytes()
    kernel = diagonal_kernel(out.kind.dtype)
    count, bits = math.prod(out.shape), int.from_bytes(one, "little")
    arguments = (out.address, count, out.shape[1], int(call.attr("k", 0)), bits)
    return [KernelWork(kernel, arguments, count)] if count else []


def shape_of(call: Call) -> Sequence[Work]:
    """Write the sizes from ``start`` to ``end``; both count from the back if negative."""
    sizes = call.inputs[0].shape
    return _written(call, sizes[call.attr("start", 0) : call.attr("end", len(sizes))])


def size_of(call: Call) -> Sequence[Work]:
    """Write the number of elements."""
    return _written(call, (math.prod(call.inputs[0].shape),))


def _written(call: Call, numbers: Sequence[int]) -> Sequence[Work]:
    kernel = sizes_kernel(len(numbers))
    arguments = (call.outputs[0].address, *numbers)
    return [KernelWork(kernel, arguments, 1, 32)] if numbers else []


def _filled(node: NodeView) -> str | None:
    value = node.attributes.get("value")
    kind = node.outputs[0]
    if value is not None and isinstance(kind, TensorType) and kind.dtype not in _TYPES:
        return f"{kind.dtype} has more than 8 bytes, or no fixed number of them"
    return unfit(node)


def _square(node: NodeView) -> str | None:
    kind = node.outputs[0]
    if isinstance(kind, TensorType) and kind.dtype not in ELEMENTS:
        return f"it makes {kind.dtype}, which the device has not"
    if rank_of(node) not in (None, 2):
        return "only a matrix has a diagonal"
    return unfit(node)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    every = tuple(MOVED)
    for op_type, since, dtypes, on_host, when, function in (
        ("ConstantOfShape", 9, INDICES, (0,), _filled, constant_of_shape),
        ("Range", 11, _COUNTED, (0, 1, 2), unfit, range_of),
        ("EyeLike", 9, every, (), _square, eye_like),
        ("Shape", 1, every, (), unfit, shape_of),
        ("Size", 1, every, (), unfit, size_of),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=dtypes,
            when=when,
            host_inputs=on_host,
            variant="numbers",
            because="what it holds follows from sizes and is part of the launch",
            not_capturable=None,
        )(function)
