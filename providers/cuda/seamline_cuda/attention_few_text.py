"""Text of :mod:`seamline_cuda.attention_few`; what its capitals stand for is said there."""

from __future__ import annotations

from seamline_cuda.attention_text import SEEN

__all__ = [
    "ADDED_UP",
    "END",
    "HALVED",
    "LOADS",
    "PARTS",
    "PRODUCTS",
    "RESULT",
    "ROOM",
    "ROWS",
    "TAKEN",
    "WEIGHT",
]

ROOM = """\
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
ROWS = (
    """\
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
"""
    + SEEN
    + """\
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
)
LOADS = """\
for u in range(TOGETHER):
    for g in range(CHUNKS):
        HELD[u * CHUNKS + g] = ZERO
        if at + u < stop and (g * 32 + lane) * WIDE < SIZE:
            HELD[u * CHUNKS + g] = NAME[((START + (at + u) * STEP) >> SHIFT) + g * 32 + lane]
"""
PRODUCTS = """\
for u in range(TOGETHER):
    for c in range(COLUMNS):
        s[c * TOGETHER + u] = np.float32(0)
    for g in range(K_CHUNKS):
        TAKEN
"""
TAKEN = """\
x = VALUE
for c in range(COLUMNS):
    s[c * TOGETHER + u] += query[c * EACH + g * K_WIDE + NUMBER] * x
"""
HALVED = """\
upper = (lane & MASK) != 0
for i in range(HALF):
    # Both are read first: a choice between places would take the array to memory.
    one = s[i]
    two = s[i + HALF]
    mine = two if upper else one
    sent = one if upper else two
    s[i] = mine + cuda.shfl_xor_sync(0xFFFFFFFF, sent, MASK)
"""
WEIGHT = """\
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
ADDED_UP = """\
x = VALUE
for c in range(COLUMNS):
    y_sum[c * BESIDE + g * V_WIDE + NUMBER] += s[c] * x
"""
#: Warps leave what they have; then every thread adds a few values up over them.
END = """\
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
PARTS = """\
start = ((entry * heads + head) * columns + place) * splits + part
if d == 0:
    levels[2 * start] = most
    levels[2 * start + 1] = sum
parts[start * WIDTH + d] = found
"""
RESULT = """\
row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
own = head * group + place - row * group
SINK
# A row without any key gives zeros.
inverse = np.float32(0) if sum == 0 else shrink / sum
y[entry * y_batch + row * y_row + own * y_head + d] = STORED
"""
