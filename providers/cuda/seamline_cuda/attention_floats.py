"""
Attention of many queries of float32, whose tiles are copied while others are computed with.

It is attention by tiles as :mod:`seamline_cuda.attention_tiles` says, rows and lanes alike,
for operands that need no conversion and lie by 16 bytes: those go to shared memory without
passing registers, values while scores are made and keys while values are added up, and come
from there four elements at a time. A thread has as many rows as registers hold, so that
what it reads is multiplied often.
"""

from __future__ import annotations

import functools

from seamline_cuda import attention_float_text as text_of
from seamline_cuda import attention_matrix_text as copies
from seamline_cuda.attention_places import Operand, lies_by
from seamline_cuda.attention_spans import bounds_text
from seamline_cuda.attention_tiles import (
    END_TEXT,
    ROWS_TEXT,
    START,
    given_text,
    part_text,
    scored_text,
)
from seamline_cuda.attention_tiling import LANES, Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.templates import filled, indented

__all__ = ["float_columns", "floats_fit", "floats_kernel"]

FLOAT_THREADS = 128  #: of a block
_WIDEST = 128  #: values of a head: tiles of more do not fit shared memory twice
_TOGETHER = 16  #: bytes that are copied together


def float_columns(columns: int, depth: int, width: int) -> int:
    """Give the queries of a block, of so many that there are."""
    return next((n for n in (8, 16) if n >= columns), 32)


def floats_fit(q: Operand, k: Operand, v: Operand, depth: int, width: int) -> bool:
    """Tell whether operands are float32, and lie by 16 bytes."""
    if {q.kind, k.kind, v.kind} != {"float32"}:
        return False
    if depth % 4 or width % 4 or not 0 < max(depth, width) <= _WIDEST:
        return False
    return all(lies_by(_TOGETHER, operand) for operand in (q, k, v))


def _keys(tiling: Tiling) -> int:
    """Give the keys of a tile: two tiles, the queries and the weights have 48 KiB."""
    most = max(tiling.depth, tiling.width)
    return 64 if most <= 32 else 32 if most <= 64 else 16


def _constants(tiling: Tiling) -> dict[str, int]:
    keys, lines = _keys(tiling), tiling.threads // LANES
    over, across = tiling.columns // lines, keys // LANES
    beside = -(-tiling.width // LANES)
    strides = tiling.depth + 4, tiling.width + 4, keys + 4
    return {
        "DEPTH": tiling.depth, "WIDTH": tiling.width, "COLUMNS": tiling.columns,
        "KEYS": keys, "THREADS": tiling.threads, "LANES": LANES, "LINES": lines,
        "OVER": over, "ACROSS": across, "BESIDE": beside, "SCORES": over * across,
        "SUMS": over * beside, "FACTORS": 4 * max(across, beside), "D_STRIDE": strides[0], "V_STRIDE": strides[1],
        "W_STRIDE": strides[2], "Q_ROOM": tiling.columns * strides[0],
        "K_ROOM": keys * strides[0], "V_ROOM": keys * strides[1],
        "W_ROOM": tiling.columns * strides[2],
    }  # fmt: skip


def _loads(rows: int, size: int, threads: int) -> dict[str, str | int]:
    units, count = size // 4, rows * size // 4
    whole = "True" if count % threads == 0 else f"unit < {count}"
    return {"LOADS": -(-count // threads), "UNITS": units, "WHOLE": whole}


def _copied(tiling: Tiling, which: int, begin: str) -> list[str]:
    """Give lines that begin to copy a tile of keys (1) or values (2)."""
    name, stride = ("k", "D_STRIDE") if which == 1 else ("v", "V_STRIDE")
    size = tiling.depth if which == 1 else tiling.width
    steps = {f"NAME{by.upper()}": f"{name}_{by}" for by in ("batch", "head", "row")}
    return filled(
        copies.COPIED, FROM=begin, HELD=f"{name}_held", STRIDE=stride, NAME=name, SHIFT=0, AHEAD="0",
        **steps, **_loads(_keys(tiling), size, tiling.threads),
    )  # fmt: skip


@functools.lru_cache(256)
def floats_kernel(tiling: Tiling) -> DeviceKernel:
    """Write the kernel; a block for each part, tile, head and entry."""
    parameters = tiling.parameters()
    arrived = ["copies_awaited()", "cuda.syncthreads()"]
    step = [
        *_copied(tiling, 2, "at"),
        *text_of.SCORES.splitlines(),
        *scored_text(text_of.WEIGHTS, tiling),
        *arrived,
        "if at + KEYS < stop:",
        *indented(_copied(tiling, 1, "at + KEYS")),
        *text_of.SUMS.splitlines(),
        *arrived,
        "at += KEYS",
    ]
    loads = _loads(tiling.columns, tiling.depth, tiling.threads)
    lines = [
        *text_of.ROOM.splitlines(),
        *START.splitlines(),
        *tiling.span.text(),
        *filled(ROWS_TEXT, BOUNDS=bounds_text()),
        *part_text(tiling).splitlines(),
        "at = begin",
        "if at < stop:",
        *indented(
            [*filled(text_of.QUERIES, **loads), *_copied(tiling, 1, "at"), *arrived]
        ),
        "while at < stop:",
        *indented(step),
        *filled(END_TEXT, GIVEN=given_text(tiling)),
    ]
    head = f"def attention_floats({', '.join(parameters)}):"
    names = [f"{name} = {value}" for name, value in _constants(tiling).items()]
    text = "\n".join([*names, head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_floats", text, tuple(parameters.values()))
