"""
GatherBlockQuantized of onnxruntime's domain: rows of a table of codes, dequantised.

What a code stands for, and a zero point, which is a code too, is looked up in a table of all
codes of the type, so integers of 2, 4 and 8 bits and floats of 4 and 8 go one way. The table
of codes is read where it lies, mapped from the file: nothing of it is copied or kept, also
where another node packs the same weights for products.

As its text has it, an index outside gives zeros and is no error.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView, View
from seamline.tensors import INDICES, numpy_dtype
from seamline_cpu.atomics import bytes_at, floats, ints, longs, shorts
from seamline_cpu.binding import axis_of, in_order, nothing
from seamline_cpu.commands import bind, command
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.jit import jit
from seamline_cpu.kernels.nbits_choice import choice
from seamline_cpu.kernels.nbits_commands import narrowed
from seamline_cpu.kernels.quantized_fitting import unfit_table
from seamline_cpu.kernels.recorded import converted, only
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["TABLES"]

f4, i4 = np.float32, np.int32
#: Bits of a code by element type; uint8 holds 8 / ``bits`` codes in a byte.
_BITS = {
    "uint8": 0, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8, "float8_e5m2": 8, "float8_e5m2fnuz": 8,
}  # fmt: skip
_FLOATS = frozenset(name for name in _BITS if name.startswith("float"))
TABLES = frozenset(_BITS)  #: element types of tables
_SCALES = ("float32", "float16", "bfloat16")
_SHARED_FROM = 1 << 14  # elements from which more threads pay
_ZERO = f4(0.0)
_HALF_STEP = f4(2.0**-24)  # of float16's subnormal numbers
_FROM_HALF = f4(2.0**112)  # what float16's exponent lacks of float32's
(_DATA, _BITS_AT, _CELL, _VALUES, _SCALE, _KIND, _POINTS, _POINT_ROW, _LAST, _POINT_CELL,
 _DEFAULT, _INDICES, _WIDTH, _OUT, _OUTER, _SIZE, _COUNT, _INNER, _BEFORE, _ACROSS, _WITHIN,
 _RUN) = range(22)  # fmt: skip
_FLOAT, _HALF, _BRAIN = range(3)


@jit
def _scale(where: int, kind: int, at: int) -> Any:
    """Read a scale as float32."""
    if kind == _FLOAT:
        return floats(where)[at]
    bits = i4(shorts(where)[at])
    if kind == _BRAIN:
        return i4(bits << i4(16)).view(np.float32)
    magnitude, sign = i4(bits & i4(0x7FFF)), i4((bits & i4(0x8000)) << i4(16))
    if magnitude < 0x400:
        value = f4(magnitude) * _HALF_STEP
    elif magnitude >= 0x7C00:
        value = i4(i4(magnitude << i4(13)) | i4(0x7F800000)).view(np.float32)
    else:
        value = i4(magnitude << i4(13)).view(np.float32) * _FROM_HALF
    return -value if sign != 0 else value


@jit
def _code(where: int, bits: int, cell: int, at: int) -> Any:
    """Read a code; ``cell`` bits of memory hold each, in bytes the lowest first."""
    first = at * cell
    byte = np.int64(bytes_at(where + (first >> 3))[0])
    return (byte >> (first & 7)) & ((1 << bits) - 1)


@jit
def _slice(a: Any, source: int, scales: int, target: int) -> None:
    """Dequantise one slice: ``(value[code] - value[zero point]) * scale``."""
    values, within, run = floats(a[_VALUES]), longs(a[_WITHIN]), a[_RUN]
    bits, cell, data = a[_BITS_AT], a[_CELL], a[_DATA]
    out = floats(a[_OUT] + 4 * target)
    for first in range(0, a[_INNER], run):
        at = scales + within[first // run]
        scale, zero = _scale(a[_SCALE], a[_KIND], at), values[a[_DEFAULT]]
        if a[_POINTS] != 0:
            row = a[_POINTS] + at // a[_LAST] * a[_POINT_ROW]
            zero = values[_code(row, bits, a[_POINT_CELL], at % a[_LAST])]
        for i in range(first, first + run):
            out[i] = (values[_code(data, bits, cell, source + i)] - zero) * scale


@command
def _gather(a: Any, share: int, shares: int) -> None:
    """Take the slices that the indices name, in shares of the output's slices."""
    size, count, inner, before = a[_SIZE], a[_COUNT], a[_INNER], longs(a[_BEFORE])
    total = a[_OUTER] * count
    for at in range(total * share // shares, total * (share + 1) // shares):
        outer, i = at // count, at % count
        index = longs(a[_INDICES])[i] if a[_WIDTH] == 8 else ints(a[_INDICES])[i]
        place = index + size if index < 0 else index
        if place < 0 or place >= size:
            out = floats(a[_OUT] + 4 * at * inner)
            for j in range(inner):
                out[j] = _ZERO
        else:
            source = (outer * size + place) * inner
            _slice(a, source, before[outer] + place * a[_ACROSS], at * inner)


@attrs.frozen(eq=False)
class _Steps:
    """
    Where an element's scale is: the sum of what its coordinates say.

    Attributes
    ----------
    before, within
        int64: for each place in the axes before the gathered one, and for each run of
        elements in those behind it.
    across
        For each step along the gathered axis.
    run
        Elements that share a scale.
    """

    before: Array
    across: int
    within: Array
    run: int


def _steps(sizes: list[int], scales: Array, on: int, along: int, block: int) -> _Steps:
    """Find the steps of a table of these sizes, gathered ``on`` an axis."""
    strides = [
        0 if n == 1 else step // scales.itemsize
        for n, step in zip(scales.shape, scales.strides, strict=True)
    ]

    def offsets(axes: range) -> Array:
        total = np.zeros(1, np.int64)
        for axis in axes:
            place = np.arange(sizes[axis]) // (block if axis == along else 1)
            total = np.add.outer(total, place * strides[axis]).reshape(-1)
        return total

    within = offsets(range(on + 1, len(sizes)))
    behind = math.prod(sizes[max(on, along) + 1 :])
    run = math.gcd(len(within), block * behind)
    if not np.array_equal(np.repeat(within[::run], run), within):
        run = 1
    kept = np.ascontiguousarray(within[::run])
    return _Steps(offsets(range(on)), strides[on], kept, run)


def _values(dtype: str, bits: int) -> Array:
    """Give what every code of a type stands for, as float32."""
    codes = np.arange(1 << bits, dtype=np.uint8)
    if dtype == "uint8":
        return codes.astype(f4)
    if dtype == "int4":
        return ((codes ^ 8).astype(f4) - 8).astype(f4)
    if dtype == "uint4":
        return codes.astype(f4)
    return codes.view(numpy_dtype(dtype)).astype(f4)


def _refused(node: NodeView) -> str | None:
    kind, given = node.tensor(0), node.attributes
    if kind is None or kind.shape is None:
        return "the rank of the table is not known"
    rank, bits, on = len(kind.shape), given.get("bits", 4), given.get("gather_axis", 0)
    along = given.get("quantize_axis", 1)
    if rank == 0 or not (-rank <= on < rank and -rank <= along < rank):
        return f"its axes are {on} and {along}, and its table has {rank}"
    if kind.dtype == "uint8" and bits not in (2, 4, 8):
        return f"bits is {bits}, not 2, 4 or 8"
    if kind.dtype == "uint8" and bits < 8 and along % rank != rank - 1:
        return "packed data is quantised along its last axis only"
    if on % rank == along % rank:
        return "gather_axis and quantize_axis are one axis"
    if kind.dtype in _FLOATS and node.has_input(3):
        return f"a table of {kind.dtype} has no zero points"
    return None


@TABLE.kernel(
    "GatherBlockQuantized", domain="com.microsoft",
    dtypes={0: tuple(_BITS), 1: INDICES, 2: _SCALES}, when=all_of(_refused, unfit_table),
    variant="commands", because="codes are looked up one by one where they lie mapped",
    not_capturable=all_of(only(*TABLES), converted(2)),
)  # fmt: skip
def gather_block_quantized(call: Call) -> Run:
    """
    Bind slices of a table of codes, dequantised.

    uint8 data holds 8 / bits codes in a byte, the first in the lowest bits, and has
    2^(bits-1) for zero unless given; other integers have 0, and floats none.
    """
    y = call.outputs[0]
    if not y.size:
        return nothing
    threads, kind = threads_of(call.options), str(y.dtype)
    runs: list[Run] = []
    inputs = [_in_order_of_memory(x, runs) for x in (*call.inputs, None)[:4]]
    wide = y if y.dtype == f4 else np.empty(y.shape, f4)
    runs.append(_bound(call, inputs, wide, threads))
    if wide is y:
        return in_order(runs)
    if kind == "float16" and not converts_half():
        return in_order([*runs, partial(np.copyto, y, wide, casting="unsafe")])
    narrow = narrowed(choice(0, None).variant, kind)
    arguments = [wide.ctypes.data, y.size, y.ctypes.data]
    return in_order([*runs, bind(narrow, arguments, 1, keep=(wide, y))])


def _in_order_of_memory(x: View, runs: list[Run]) -> View:
    """Give an array as it is, or a copy made at each run where it lies otherwise."""
    if x is None or x.flags.c_contiguous:
        return x
    made = np.empty(x.shape, x.dtype)
    runs.append(partial(np.copyto, made, x))
    return made


def _bound(call: Call, inputs: Sequence[View], out: Array, threads: int) -> Run:
    data, indices, scales, points = inputs
    assert data is not None
    assert indices is not None
    assert scales is not None
    rank, dtype = data.ndim, str(data.dtype)
    on = axis_of(call.attr("gather_axis", 0), rank)
    along = axis_of(call.attr("quantize_axis", 1), rank)
    packed = dtype == "uint8"
    bits = int(call.attr("bits", 4)) if packed else _BITS[dtype]
    cell = bits if packed else 8  # other types take a byte for each code
    sizes = [*data.shape[:-1], data.shape[-1] * 8 // cell]
    block = int(call.attr("block_size", 128)) or sizes[along]
    steps, values = _steps(sizes, scales, on, along, block), _values(dtype, bits)
    place = 0 if points is None else points.ctypes.data
    row = 0 if points is None else points.shape[-1]
    default = 1 << (bits - 1) if packed else 0
    arguments = [
        data.ctypes.data, bits, cell, values.ctypes.data, scales.ctypes.data,
        _SCALES.index(str(scales.dtype)), place, row, scales.shape[-1], cell, default,
        indices.ctypes.data, indices.itemsize, out.ctypes.data, math.prod(sizes[:on]),
        sizes[on], indices.size, math.prod(sizes[on + 1 :]), steps.before.ctypes.data,
        steps.across, steps.within.ctypes.data, steps.run,
    ]  # fmt: skip
    keep = (data, indices, scales, points, out, steps, values)
    shares = threads if out.size >= _SHARED_FROM else 1
    return bind(_gather, arguments, shares, keep=keep)
