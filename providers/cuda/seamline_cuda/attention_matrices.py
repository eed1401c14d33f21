"""
Attention of many queries by tensor cores, for 16-bit floats.

A warp has sixteen queries in registers, in the form that its tensor cores multiply; the
warps of a block share tiles of keys and values in shared memory. Scores of a tile stay where
the cores leave them. Each lane then has parts of two rows, four lanes the whole of one, so
that a row's greatest score is found by two shuffles; and as the cores' sums lie as their
left operand does, weights go into the product with the values without leaving their lane.
They are rounded to 16 bits for it, as the values are; sums, of weights too, are float32.

There is room for two tiles: one is copied while the other is computed with. Rows of shared
memory are 16 bytes longer than what they hold, so that eight of them lie in different banks.

Keys are cut into parts as :mod:`seamline_cuda.attention_tiles` says, whose parameters these
kernels have.
"""

from __future__ import annotations

import functools

from seamline_cuda import attention_matrix_text as text_of
from seamline_cuda.attention_places import Operand, lies_by
from seamline_cuda.attention_spans import bounds_text, sink_text
from seamline_cuda.attention_tiles import START, part_text, scored_text
from seamline_cuda.attention_tiling import Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented

__all__ = ["matrices_fit", "matrices_kernel", "matrix_columns"]

_WARPS = 4  #: of a block, at most
_EACH = 16  #: queries of a warp
_WIDEST = 128  #: values of a head: sums of more do not fit the registers
_TOGETHER = 16  #: bytes that are copied together


def matrix_columns(columns: int, depth: int = 0, width: int = 0) -> int:
    """Give the queries of a block, sixteen for each warp, of so many that there are."""
    return _EACH * min(_WARPS, -(-columns // _EACH))


def matrices_fit(q: Operand, k: Operand, v: Operand, depth: int, width: int) -> bool:
    """Tell whether tensor cores take operands of these types and places."""
    if {q.kind, k.kind, v.kind} not in ({"float16"}, {"bfloat16"}):
        return False
    if depth % 16 or width % 16 or not 0 < max(depth, width) <= _WIDEST:
        return False
    even = q.address % 4 == 0 and all(step % 2 == 0 for step in q.steps)
    return even and all(lies_by(_TOGETHER, operand) for operand in (k, v))


def _keys(tiling: Tiling) -> int:
    """Give the keys of a tile: two of them, and two of values, have 48 KiB."""
    return 64 if max(tiling.depth, tiling.width) <= 64 else 32


def _constants(tiling: Tiling) -> dict[str, int | str]:
    depth, width = tiling.depth, tiling.width
    strides, keys = (depth // 2 + 4, width // 2 + 4), _keys(tiling)
    return {
        "DEPTH": depth, "WIDTH": width, "COLUMNS": tiling.columns, "KEYS": keys,
        "THREADS": tiling.threads, "K_STRIDE": strides[0], "V_STRIDE": strides[1],
        "K_ROOM": 2 * keys * strides[0], "V_ROOM": 2 * keys * strides[1],
        "QUERIES": depth // 4, "SCORES": keys // 2, "SUMS": width // 2,
        "LOG": "np.float32(1.4426950408889634)",
    }  # fmt: skip


def _copied(tiling: Tiling, which: int, begin: str, ahead: str) -> list[str]:
    """Give lines that begin to copy a tile of keys (1) or values (2) to rows from ``ahead`` on."""
    name = "qkv"[which]
    units = (tiling.depth if which == 1 else tiling.width) // 8
    count = _keys(tiling) * units
    steps = {f"NAME{by.upper()}": f"{name}_{by}" for by in ("batch", "head", "row")}
    return filled(
        text_of.COPIED, LOADS=-(-count // tiling.threads), UNITS=units, FROM=begin,
        WHOLE="True" if count % tiling.threads == 0 else f"unit < {count}",
        HELD=f"{name}_held", STRIDE=f"{name.upper()}_STRIDE", NAME=name, SHIFT=1, AHEAD=ahead, **steps,
    )  # fmt: skip


def _given(tiling: Tiling) -> list[str]:
    if tiling.split:
        return [*text_of.LEFT.splitlines()]
    value = "y_sum[4 * n + 2 * i + e] * inverse"
    stored = ELEMENTS[tiling.kinds[3]].store.format(value)
    return filled(text_of.RESULT, SINK=sink_text(tiling.sink, "own"), STORED=stored)


@functools.lru_cache(256)
def matrices_kernel(tiling: Tiling) -> DeviceKernel:
    """
    Write the kernel; a block for each part, tile, head and entry.

    ``tiling`` has two threads for each column, and is 2 wide: operands are read by words.
    """
    parameters, kind = tiling.parameters(), tiling.kinds[0]
    following = [
        line
        for which in (1, 2)
        for line in _copied(tiling, which, "at + KEYS", "(1 - turn) * KEYS")
    ]
    step = [
        "copies_awaited()",
        "cuda.syncthreads()",
        "if at + KEYS < stop:",
        *indented(following),
        *filled(text_of.SCORES, MULTIPLIED=f"multiplied_{kind}"),
        *scored_text(text_of.WEIGHTS, tiling),
        *filled(text_of.SUMS, MULTIPLIED=f"multiplied_{kind}", PAIRED=f"paired_{kind}"),
        "at += KEYS",
        "turn = 1 - turn",
    ]
    lines = [
        *text_of.ROOM.splitlines(),
        *START.splitlines(),
        *tiling.span.text(),
        *filled(text_of.ROWS, BOUNDS=bounds_text()),
        *part_text(tiling).splitlines(),
        "at = begin",
        "turn = np.int64(0)",
        "if at < stop:",
        *indented([*_copied(tiling, 1, "at", "0"), *_copied(tiling, 2, "at", "0")]),
        "while at < stop:",
        *indented(step),
        *filled(text_of.END, GIVEN=_given(tiling)),
    ]
    head = f"def attention_matrices({', '.join(parameters)}):"
    names = [f"{name} = {value}" for name, value in _constants(tiling).items()]
    text = "\n".join([*names, head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_matrices", text, tuple(parameters.values()))
