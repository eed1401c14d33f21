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

from seamline_cuda.attention_spans import Bias, bounds_text, sink_text, widened
from seamline_cuda.attention_tiles import START, part_text
from seamline_cuda.attention_tiling import Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented

__all__ = ["few_columns", "few_kernel", "few_wide"]

_MOST = 32  #: registers of a thread for queries, and as many for sums
_ROOM = """\
sums = cuda.shared.array(LEFT, np.float32)
tops = cuda.shared.array(LEFT, np.float32)
room = cuda.shared.array(LEFT_SUMS, np.float32)
query = cuda.local.array(QUERIES, np.float32)
y_sum = cuda.local.array(SUMS, np.float32)
s = cuda.local.array(SCORES, np.float32)
k_held = cuda.local.array(K_HELD, K_TYPE)
v_held = cuda.local.array(V_HELD, V_TYPE)
"""
#: A lane's own query, and the queries of the tile.
_ROWS = """\
lane = np.int64(cuda.threadIdx.x % 32)
warp = np.int64(cuda.threadIdx.x // 32)
index = lane // ALIKE
column = tile * COLUMNS
columns = rows * group
for c in range(COLUMNS):
    place = column + c
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    start = entry * q_batch + row * q_row + (head * group + place - row * group) * q_head
    for e in range(EACH):
        d = (e // K_WIDE * 32 + lane) * K_WIDE + e % K_WIDE
        query[c * EACH + e] = np.float32(0)
        if place < columns and d < DEPTH:
            query[c * EACH + e] = QUERY
for e in range(SUMS):
    y_sum[e] = np.float32(0)
row = np.int64(quotient32(np.uint32(column), np.uint32(group)))
some = row < fresh
BOUNDS
begin = lowest
last = min(column + COLUMNS - 1, columns - 1)
row = min(np.int64(quotient32(np.uint32(last), np.uint32(group))), fresh - 1)
BOUNDS
stop = highest if some else np.int64(0)
PART
place = column + index // TOGETHER
row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
own = head * group + place - row * group
BOUNDS
low = lowest
high = min(highest, stop) if place < columns else np.int64(0)
top = np.float32(-np.inf)
total = np.float32(0)
k_start = entry * k_batch + head * k_head
v_start = entry * v_batch + head * v_head
at = begin + warp * TOGETHER
"""
_LOADS = """\
for u in range(TOGETHER):
    for g in range(CHUNKS):
        HELD[u * CHUNKS + g] = ZERO
        if at + u < stop and (g * 32 + lane) * WIDE < SIZE:
            HELD[u * CHUNKS + g] = NAME[((START + (at + u) * STEP) >> SHIFT) + g * 32 + lane]
"""
_PRODUCTS = """\
for u in range(TOGETHER):
    for c in range(COLUMNS):
        s[c * TOGETHER + u] = np.float32(0)
    for g in range(K_CHUNKS):
        TAKEN
"""
_TAKEN = """\
x = VALUE
for c in range(COLUMNS):
    s[c * TOGETHER + u] += query[c * EACH + g * K_WIDE + NUMBER] * x
"""
_HALVED = """\
upper = (lane & MASK) != 0
for i in range(HALF):
    # Both are read first: a choice between places would take the array to memory.
    one = s[i]
    two = s[i + HALF]
    mine = two if upper else one
    sent = one if upper else two
    s[i] = mine + cuda.shfl_xor_sync(0xFFFFFFFF, sent, MASK)
"""
_WEIGHT = """\
key = at + index % TOGETHER
score = s[0] * scale
CAPPED
if key >= low and key < high:
    ADDED
else:
    score = np.float32(-np.inf)
most = greatest(top, score)
MOST
# A query that has seen no key has nothing to shrink; minus infinity less itself would be
# no number.
blind = most == np.float32(-np.inf)
shrink = np.float32(1) if blind else libdevice.expf(top - most)
weight = np.float32(0) if blind else libdevice.expf(score - most)
top = most
total = total * shrink + weight
for c in range(COLUMNS):
    by = cuda.shfl_sync(0xFFFFFFFF, shrink, c * (32 // COLUMNS))
    for e in range(BESIDE):
        y_sum[c * BESIDE + e] *= by
for u in range(TOGETHER):
    for c in range(COLUMNS):
        s[c] = cuda.shfl_sync(0xFFFFFFFF, weight, (c * TOGETHER + u) * ALIKE)
    for g in range(V_CHUNKS):
        ADDED_UP
at += WARPS * TOGETHER
"""
_ADDED_UP = """\
x = VALUE
for c in range(COLUMNS):
    y_sum[c * BESIDE + g * V_WIDE + NUMBER] += s[c] * x
"""
#: Warps leave what they have; then every thread adds a few values up over them.
_END = """\
TOTAL
if index % TOGETHER == 0 and lane % ALIKE == 0:
    tops[warp * COLUMNS + index // TOGETHER] = top
    sums[warp * COLUMNS + index // TOGETHER] = total
for c in range(COLUMNS):
    for e in range(BESIDE):
        d = (e // V_WIDE * 32 + lane) * V_WIDE + e % V_WIDE
        if d < WIDTH:
            room[(warp * COLUMNS + c) * WIDTH + d] = y_sum[c * BESIDE + e]
cuda.syncthreads()
i = np.int64(cuda.threadIdx.x)
while i < COLUMNS * WIDTH:
    c = i // WIDTH
    d = i - c * WIDTH
    most = np.float32(-np.inf)
    for w in range(WARPS):
        most = greatest(most, tops[w * COLUMNS + c])
    sum = np.float32(0)
    found = np.float32(0)
    for w in range(WARPS):
        if sums[w * COLUMNS + c] != 0:
            by = libdevice.expf(tops[w * COLUMNS + c] - most)
            sum += sums[w * COLUMNS + c] * by
            found += room[(w * COLUMNS + c) * WIDTH + d] * by
    place = column + c
    if place < columns:
        GIVEN
    i += WARPS * 32
"""
_PARTS = """\
start = ((entry * heads + head) * columns + place) * splits + part
if d == 0:
    levels[2 * start] = most
    levels[2 * start + 1] = sum
parts[start * WIDTH + d] = found
"""
_RESULT = """\
row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
own = head * group + place - row * group
SINK
# A row without any key gives zeros.
inverse = np.float32(0) if sum == 0 else shrink / sum
y[entry * y_batch + row * y_row + own * y_head + d] = STORED
"""


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
        _LOADS, CHUNKS=f"{name.upper()}_CHUNKS", HELD=f"{name}_held", SIZE=size, WIDE=wide,
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
            lines += filled(_HALVED, HALF=left, MASK=mask)
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
        _WEIGHT, CAPPED=capped, ADDED=added or ["pass"], MOST=most,
        ADDED_UP=_taken(tiling, 2, _ADDED_UP),
    )  # fmt: skip


def _end(tiling: Tiling, alike: int) -> list[str]:
    total = [
        f"total += cuda.shfl_xor_sync(0xFFFFFFFF, total, {n})"
        for n in (16, 8, 4, 2, 1)
        if alike <= n < 32 // tiling.columns
    ]
    given = _PARTS.splitlines()
    if not tiling.split:
        stored = ELEMENTS[tiling.kinds[3]].store.format("found * inverse")
        given = filled(_RESULT, SINK=sink_text(tiling.sink, "own"), STORED=stored)
    return filled(_END, TOTAL=total, GIVEN=given)


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
        *filled(_ROOM, **types),
        *START.splitlines(),
        *tiling.span.text(),
        *filled(
            _ROWS, BOUNDS=bounds_text(), QUERY=query,
            PART=filled(part_text(tiling), KEYS="(WARPS * TOGETHER)"),
        ),
        "while at < stop:",
        *indented([
            *_loads(tiling, 1), *_loads(tiling, 2),
            *filled(_PRODUCTS, TAKEN=_taken(tiling, 1, _TAKEN)),
            *_folded(tiling, constants["TOGETHER"]), *_weights(tiling),
        ]),
        *_end(tiling, constants["ALIKE"]),
    ]  # fmt: skip
    head = f"def attention_few({', '.join(parameters)}):"
    names = [f"{name} = {value}" for name, value in constants.items()]
    text = "\n".join([*names, head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_few", text, tuple(parameters.values()))
