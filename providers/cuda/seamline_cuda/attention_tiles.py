"""
Attention by tiles: some queries against some keys at a time, with a streaming softmax.

A block has a tile of queries in shared memory, those of all heads that share one head of
keys among them, and takes keys and then values of a tile after the other into the place
beside it. Sixteen lanes hold a row's scores, so that its greatest is found by shuffles;
the same lanes hold the row's sums, which they shrink where a greater score comes. Nothing
but the result is written.

Where queries are few, keys are cut into parts, each with a block of its own. A part leaves
its sums, and what they were shrunk by, in the workspace; :mod:`attention_parts` has the
kernel that adds them up.

Arrays of a thread are in registers, since every loop over them has a constant count and is
unrolled; a test holds the compiler to it.
"""

from __future__ import annotations

import functools

from seamline_cuda.attention_loads import held, loaded
from seamline_cuda.attention_spans import Bias, bounds_text, sink_text
from seamline_cuda.attention_text import SEEN, WEIGHED
from seamline_cuda.attention_tiling import LANES, Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented

__all__ = [
    "END_TEXT", "ROWS_TEXT", "START", "given_text", "part_text", "scored_text", "tiles_kernel",
]  # fmt: skip


#: Where a block stands.
START = """\
whole = quotient32(np.uint32(cuda.blockIdx.x), np.uint32(splits))
part = np.int64(cuda.blockIdx.x) - np.int64(whole) * splits
others = quotient32(whole, np.uint32(tiles))
# What is causal has most to do at its end, which is begun with.
tile = tiles - 1 - (np.int64(whole) - np.int64(others) * tiles)
entry = np.int64(quotient32(others, np.uint32(heads)))
head = np.int64(others) - entry * heads
"""
_ROOM = """\
queries = cuda.shared.array(QUERY_ROOM, np.float32)
rest = cuda.shared.array(KEY_ROOM, np.float32)
weights = cuda.shared.array(WEIGHT_ROOM, np.float32)
s = cuda.local.array(SCORES, np.float32)
y_sum = cuda.local.array(SUMS, np.float32)
top = cuda.local.array(OVER, np.float32)
total = cuda.local.array(OVER, np.float32)
low = cuda.local.array(OVER, np.int64)
high = cuda.local.array(OVER, np.int64)
a = cuda.local.array(OVER, np.float32)
b = cuda.local.array(MOST, np.float32)
t = cuda.threadIdx.x
lane = t % LANES
line = t // LANES
"""
#: Every row of a thread, and the keys that any row of the tile sees.
ROWS_TEXT = (
    """\
column = tile * COLUMNS
columns = rows * group
for i in range(OVER):
    place = column + line + i * LINES
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    BOUNDS
    low[i] = lowest
    high[i] = highest if place < columns else np.int64(0)
    top[i] = np.float32(-np.inf)
    total[i] = np.float32(0)
for e in range(SUMS):
    y_sum[e] = np.float32(0)
"""
    + SEEN
)
_PART = """\
pieces = (max(stop - begin, 0) + KEYS - 1) // KEYS
share = (pieces + splits - 1) // splits * KEYS
begin += part * share
stop = min(stop, begin + share)
"""
_SCORES = (
    """\
for e in range(SCORES):
    s[e] = np.float32(0)
for d in range(DEPTH):
    for i in range(OVER):
        a[i] = queries[(line + i * LINES) * (DEPTH + 1) + d]
    for j in range(ACROSS):
        b[j] = rest[(NEAR + j * LANES) * (DEPTH + 1) + d]
    for i in range(OVER):
        for j in range(ACROSS):
            s[i * ACROSS + j] += a[i] * b[j]
for i in range(OVER):
    place = column + line + i * LINES
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    own = head * group + place - row * group
    most = top[i]
    for j in range(ACROSS):
        key = at + lane + j * LANES
        score = s[i * ACROSS + j] * scale
        CAPPED
        if key >= low[i] and key < min(high[i], stop) and INSIDE:
            ADDED
        else:
            score = np.float32(-np.inf)
        s[i * ACROSS + j] = score
        most = greatest(most, score)
"""
    + WEIGHED
    + """\
        if INSIDE:
            weights[(line + i * LINES) * (KEYS + 1) + lane + j * LANES] = weight
"""
)
_SUMS = """\
for key in range(min(stop - at, KEYS)):
    for i in range(OVER):
        a[i] = weights[(line + i * LINES) * (KEYS + 1) + key]
    for j in range(BESIDE):
        b[j] = rest[key * (WIDTH + 1) + min(lane + j * LANES, WIDTH - 1)]
    for i in range(OVER):
        for j in range(BESIDE):
            y_sum[i * BESIDE + j] += a[i] * b[j]
"""
END_TEXT = """\
for i in range(OVER):
    place = column + line + i * LINES
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    own = head * group + place - row * group
    sum = total[i]
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 8)
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 4)
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 2)
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 1)
    if place < columns:
        GIVEN
"""
_RESULT = """\
most = top[i]
SINK
# A row without any key gives zeros.
inverse = np.float32(0) if sum == 0 else shrink / sum
start = entry * y_batch + row * y_row + own * y_head
for j in range(BESIDE):
    if lane + j * LANES < WIDTH:
        y[start + lane + j * LANES] = STORED
"""
_LEFT = """\
start = ((entry * heads + head) * columns + place) * splits + part
if lane == 0:
    levels[2 * start] = top[i]
    levels[2 * start + 1] = sum
if begin < stop:
    for j in range(BESIDE):
        if lane + j * LANES < WIDTH:
            parts[start * WIDTH + lane + j * LANES] = y_sum[i * BESIDE + j]
"""


@functools.lru_cache(256)
def tiles_kernel(tiling: Tiling) -> DeviceKernel:
    """Write the kernel; a block for each part, tile, head and entry."""
    parameters = tiling.parameters()
    step = [
        "cuda.syncthreads()",
        *loaded(tiling, 1),
        "cuda.syncthreads()",
        *_scores(tiling),
    ]
    step += ["cuda.syncthreads()", *loaded(tiling, 2), "cuda.syncthreads()"]
    step += [*_SUMS.splitlines(), "at += KEYS"]
    bounds = bounds_text()
    lines = [
        *_ROOM.splitlines(),
        *START.splitlines(),
        *held(tiling),
        *tiling.span.text(),
        *filled(ROWS_TEXT, BOUNDS=bounds),
        *part_text(tiling).splitlines(),
        *loaded(tiling, 0),
        "at = begin",
        "while at < stop:",
        *indented(step),
        *filled(END_TEXT, GIVEN=given_text(tiling)),
    ]
    constants = [f"{name} = {value}" for name, value in tiling.constants().items()]
    head = f"def attention_tiles({', '.join(parameters)}):"
    text = "\n".join([*constants, head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_tiles", text, tuple(parameters.values()))


def part_text(tiling: Tiling) -> str:
    """Give lines that take one part of the keys, ``KEYS`` at least."""
    return _PART if tiling.split else ""


def given_text(tiling: Tiling) -> list[str]:
    """Give lines that write a row's result, or what its part leaves."""
    return [*_LEFT.splitlines()] if tiling.split else _result(tiling)


def scored_text(text: str, tiling: Tiling, **more: str) -> list[str]:
    """Fill in how a score is capped, and what is added to it."""
    capped = ["score = cap * libdevice.tanhf(score / cap)"] if tiling.capped else []
    added = [
        f"score += {Bias.text(kind, f'bias{index}', 'own', 'row', 'key')}"
        for index, kind in enumerate(tiling.biases)
    ]
    return filled(text, CAPPED=capped, ADDED=added or ["pass"], **more)


def _scores(tiling: Tiling) -> list[str]:
    # Lanes behind a tile of fewer keys than lanes take its last, and leave it out.
    few = tiling.keys < LANES
    inside, near = ("lane < KEYS", "min(lane, KEYS - 1)") if few else ("True", "lane")
    return scored_text(_SCORES, tiling, INSIDE=inside, NEAR=near)


def _result(tiling: Tiling) -> list[str]:
    value = "y_sum[i * BESIDE + j] * inverse"
    stored = ELEMENTS[tiling.kinds[3]].store.format(value)
    return filled(_RESULT, SINK=sink_text(tiling.sink, "own"), STORED=stored)
