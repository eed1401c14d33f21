"""
Attention of few queries, such as a decoder's: keys and values are read once, from memory.

A warp takes a few keys at a time, each spread over its lanes, with the queries of all
heads that share them in registers. Sums of products are folded over lanes so that every
step halves what is left, and each lane ends with one score; it has the greatest score and
the sum of its query. Weights go back to all lanes by shuffles, and values are added up
where they were loaded. Warps of a block have keys in turn, and meet only at the end.

Keys are cut into parts as :mod:`seamline_cuda.attention_tiles` says, whose parameters
these kernels have.
"""

from __future__ import annotations

import functools

from seamline_cuda import attention_few_text as text_of
from seamline_cuda.attention_spans import Bias, bounds_text, sink_text, widened
from seamline_cuda.attention_tiles import START, part_text
from seamline_cuda.attention_tiling import Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented

__all__ = ["few_columns", "few_kernel", "few_wide"]

_MOST = 32  #: registers of a thread for queries, and as many for sums


def few_columns(columns: int, depth: int, width: int) -> int:
    """Give the queries of a tile, 0 where there are too many for this kernel."""
    each = -(-max(depth, width) // 32)
    most = next((n for n in (8, 4, 2, 1) if n * each <= _MOST), 1)
    if columns > 2 * most:
        return 0
    return next((n for n in (1, 2, 4) if n >= columns and n <= most), most)


def few_wide(size: int, wide: int) -> int:
    """Give how many elements of a head a lane loads together, of those that may be."""
    return next((n for n in (4, 2) if n <= wide and size % (32 * n) == 0), 1)


def _together(columns: int, each: int) -> int:
    """Give the keys that a warp takes at a time: what they take of the registers is bounded."""
    return next((n for n in (8, 4) if n * columns <= 32 and n * each <= 32), 2)


def _constants(tiling: Tiling) -> dict[str, int]:
    columns, (_, k, v) = tiling.columns, tiling.wide
    chunks = -(-tiling.depth // (32 * k)), -(-tiling.width // (32 * v))
    each, beside = chunks[0] * k, chunks[1] * v
    warps, together = tiling.threads // 32, _together(columns, max(each, beside))
    return {
        "DEPTH": tiling.depth, "WIDTH": tiling.width, "COLUMNS": columns,
        "TOGETHER": together, "ALIKE": 32 // (columns * together), "WARPS": warps,
        "K_WIDE": k, "V_WIDE": v, "K_CHUNKS": chunks[0], "V_CHUNKS": chunks[1],
        "EACH": each, "BESIDE": beside, "QUERIES": columns * each, "SUMS": columns * beside,
        "SCORES": columns * together, "K_HELD": together * chunks[0],
        "V_HELD": together * chunks[1], "LEFT": warps * columns,
        "LEFT_SUMS": warps * columns * tiling.width,
    }  # fmt: skip


def _type(kind: str, wide: int) -> str:
    return "np.float32" if kind == "float32" else f"np.uint{16 * wide}"


def _loads(tiling: Tiling, which: int) -> list[str]:
    name, wide = "qkv"[which], tiling.wide[which]
    size = "DEPTH" if which == 1 else "WIDTH"
    return filled(
        text_of.LOADS, CHUNKS=f"{name.upper()}_CHUNKS", HELD=f"{name}_held", SIZE=size, WIDE=wide,
        ZERO=f"{_type(tiling.kinds[which], wide)}(0)", NAME=name, START=f"{name}_start",
        STEP=f"{name}_row", SHIFT=wide.bit_length() - 1,
    )  # fmt: skip


def _taken(tiling: Tiling, which: int, template: str) -> list[str]:
    """Give lines that take the elements of one load, one after the other."""
    kind, wide, name = tiling.kinds[which], tiling.wide[which], "qkv"[which]
    held, word = f"{name}_held[u * {name.upper()}_CHUNKS + g]", f"np.uint{16 * wide}"
    lines = []
    for e in range(wide):
        value = held
        if wide > 1:
            value = f"np.uint16(({held} >> {word}({16 * e})) & {word}(65535))"
        lines += filled(template, VALUE=widened(kind, value), NUMBER=e)
    return lines


def _folded(tiling: Tiling, together: int) -> list[str]:
    """Give lines that leave each lane the sum over lanes of one product."""
    lines, left, mask = [], tiling.columns * together, 16
    while mask:
        if left > 1:
            left //= 2
            lines += filled(text_of.HALVED, HALF=left, MASK=mask)
        else:
            lines.append(f"s[0] += cuda.shfl_xor_sync(0xFFFFFFFF, s[0], {mask})")
        mask //= 2
    return lines


def _weights(tiling: Tiling) -> list[str]:
    capped = ["score = cap * libdevice.tanhf(score / cap)"] if tiling.capped else []
    added = [
        f"score += {Bias.text(kind, f'bias{index}', 'own', 'row', 'key')}"
        for index, kind in enumerate(tiling.biases)
    ]
    masks = [n for n in (16, 8, 4, 2, 1) if n < 32 // tiling.columns]
    most = [
        f"most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, {n}))"
        for n in masks
    ]
    return filled(
        text_of.WEIGHT, CAPPED=capped, ADDED=added or ["pass"], MOST=most,
        ADDED_UP=_taken(tiling, 2, text_of.ADDED_UP),
    )  # fmt: skip


def _end(tiling: Tiling, alike: int) -> list[str]:
    total = [
        f"total += cuda.shfl_xor_sync(0xFFFFFFFF, total, {n})"
        for n in (16, 8, 4, 2, 1)
        if alike <= n < 32 // tiling.columns
    ]
    given = text_of.PARTS.splitlines()
    if not tiling.split:
        stored = ELEMENTS[tiling.kinds[3]].store.format("found * inverse")
        given = filled(
            text_of.RESULT, SINK=sink_text(tiling.sink, "own"), STORED=stored
        )
    return filled(text_of.END, TOTAL=total, GIVEN=given)


@functools.lru_cache(256)
def few_kernel(tiling: Tiling) -> DeviceKernel:
    """Write the kernel; a block for each part, tile, head and entry."""
    parameters, constants = tiling.parameters(), _constants(tiling)
    types = {
        f"{n}_TYPE": _type(tiling.kinds[i], tiling.wide[i])
        for i, n in ((1, "K"), (2, "V"))
    }
    query = widened(tiling.kinds[0], "q[start + d]")
    lines = [
        *filled(text_of.ROOM, **types),
        *START.splitlines(),
        *tiling.span.text(),
        *filled(
            text_of.ROWS, BOUNDS=bounds_text(), QUERY=query,
            PART=filled(part_text(tiling), KEYS="(WARPS * TOGETHER)"),
        ),
        "while at < stop:",
        *indented([
            *_loads(tiling, 1), *_loads(tiling, 2),
            *filled(text_of.PRODUCTS, TAKEN=_taken(tiling, 1, text_of.TAKEN)),
            *_folded(tiling, constants["TOGETHER"]), *_weights(tiling),
        ]),
        *_end(tiling, constants["ALIKE"]),
    ]  # fmt: skip
    head = f"def attention_few({', '.join(parameters)}):"
    names = [f"{name} = {value}" for name, value in constants.items()]
    text = "\n".join([*names, head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_few", text, tuple(parameters.values()))
