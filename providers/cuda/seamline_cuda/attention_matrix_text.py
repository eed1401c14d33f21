"""Text of :mod:`seamline_cuda.attention_matrices`; what its capitals stand for is said there."""

from __future__ import annotations

from seamline_cuda.attention_text import SEEN

__all__ = [
    "COPIED",
    "END",
    "LEFT",
    "RESULT",
    "ROOM",
    "ROWS",
    "SCORES",
    "SUMS",
    "WEIGHTS",
]

ROOM = """\
k_held = cuda.shared.array(K_ROOM, np.uint32, alignment=16)
v_held = cuda.shared.array(V_ROOM, np.uint32, alignment=16)
query = cuda.local.array(QUERIES, np.uint32)
s = cuda.local.array(SCORES, np.float32)
y_sum = cuda.local.array(SUMS, np.float32)
top = cuda.local.array(2, np.float32)
total = cuda.local.array(2, np.float32)
low = cuda.local.array(2, np.int64)
high = cuda.local.array(2, np.int64)
t = np.int64(cuda.threadIdx.x)
lane = t % 32
pair = lane % 4
line = t // 32 * 16 + lane // 4
"""
#: A lane has two rows of its warp's sixteen, and their queries in registers.
ROWS = (
    """\
column = tile * COLUMNS
columns = rows * group
for i in range(2):
    place = column + line + 8 * i
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    BOUNDS
    low[i] = lowest
    high[i] = highest if place < columns else np.int64(0)
    top[i] = np.float32(-np.inf)
    total[i] = np.float32(0)
    start = entry * q_batch + row * q_row + (head * group + place - row * group) * q_head
    for c in range(DEPTH // 8):
        query[2 * c + i] = np.uint32(0)
        if place < columns:
            query[2 * c + i] = q[(start >> 1) + 4 * c + pair]
for e in range(SUMS):
    y_sum[e] = np.float32(0)
"""
    + SEEN
)
#: A tile of keys or values; what is not there becomes zeros, which weigh nothing.
COPIED = """\
for u in range(LOADS):
    unit = t + u * THREADS
    n = unit // UNITS
    piece = unit - n * UNITS
    if WHOLE:
        key = min(FROM + n, stop - 1)
        nbytes = np.int32(16) if FROM + n < stop else np.int32(0)
        start = entry * NAMEBATCH + head * NAMEHEAD + key * NAMEROW
        copied_sixteen(HELD, (AHEAD + n) * STRIDE + 4 * piece, NAME, (start >> SHIFT) + 4 * piece, nbytes)
"""
SCORES = """\
for e in range(SCORES):
    s[e] = np.float32(0)
near = (turn * KEYS + lane // 16 * 8 + lane % 8) * K_STRIDE + lane // 8 % 2 * 4
for c in range(DEPTH // 16):
    for n in range(KEYS // 16):
        b0, b1, b2, b3 = matrices_at(k_held, near + n * 16 * K_STRIDE + c * 8)
        x0, x1, x2, x3 = MULTIPLIED(
            query[4 * c], query[4 * c + 1], query[4 * c + 2], query[4 * c + 3], b0, b1,
            s[8 * n], s[8 * n + 1], s[8 * n + 2], s[8 * n + 3],
        )
        s[8 * n] = x0
        s[8 * n + 1] = x1
        s[8 * n + 2] = x2
        s[8 * n + 3] = x3
        x0, x1, x2, x3 = MULTIPLIED(
            query[4 * c], query[4 * c + 1], query[4 * c + 2], query[4 * c + 3], b2, b3,
            s[8 * n + 4], s[8 * n + 5], s[8 * n + 6], s[8 * n + 7],
        )
        s[8 * n + 4] = x0
        s[8 * n + 5] = x1
        s[8 * n + 6] = x2
        s[8 * n + 7] = x3
"""
WEIGHTS = """\
for i in range(2):
    place = column + line + 8 * i
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    own = head * group + place - row * group
    first_seen = np.int32(min(max(low[i] - at, 0), KEYS))
    past_seen = np.int32(max(min(min(high[i], stop) - at, KEYS), 0))
    most = top[i]
    for n in range(KEYS // 8):
        for e in range(2):
            inside = np.int32(8 * n + 2 * pair + e)
            key = at + inside
            score = s[4 * n + 2 * i + e] * scale
            CAPPED
            if inside >= first_seen and inside < past_seen:
                ADDED
            else:
                score = np.float32(-np.inf)
            s[4 * n + 2 * i + e] = score
            most = greatest(most, score)
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 2))
    most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 1))
    # A row that has seen no key has nothing to shrink; minus infinity less itself would
    # be no number.
    blind = most == np.float32(-np.inf)
    shrink = np.float32(1) if blind else libdevice.exp2f((top[i] - most) * LOG)
    top[i] = most
    total[i] *= shrink
    for n in range(WIDTH // 8):
        y_sum[4 * n + 2 * i] *= shrink
        y_sum[4 * n + 2 * i + 1] *= shrink
    for n in range(KEYS // 8):
        for e in range(2):
            weight = libdevice.exp2f((s[4 * n + 2 * i + e] - most) * LOG)
            weight = np.float32(0) if blind else weight
            total[i] += weight
            s[4 * n + 2 * i + e] = weight
"""
#: Weights lie where the next product's rows are: no lane needs another's.
SUMS = """\
near = (turn * KEYS + lane // 8 % 2 * 8 + lane % 8) * V_STRIDE + lane // 16 * 4
for c in range(KEYS // 16):
    a0 = PAIRED(s[8 * c], s[8 * c + 1])
    a1 = PAIRED(s[8 * c + 2], s[8 * c + 3])
    a2 = PAIRED(s[8 * c + 4], s[8 * c + 5])
    a3 = PAIRED(s[8 * c + 6], s[8 * c + 7])
    for n in range(WIDTH // 16):
        b0, b1, b2, b3 = turned_matrices_at(v_held, near + c * 16 * V_STRIDE + n * 8)
        x0, x1, x2, x3 = MULTIPLIED(
            a0, a1, a2, a3, b0, b1,
            y_sum[8 * n], y_sum[8 * n + 1], y_sum[8 * n + 2], y_sum[8 * n + 3],
        )
        y_sum[8 * n] = x0
        y_sum[8 * n + 1] = x1
        y_sum[8 * n + 2] = x2
        y_sum[8 * n + 3] = x3
        x0, x1, x2, x3 = MULTIPLIED(
            a0, a1, a2, a3, b2, b3,
            y_sum[8 * n + 4], y_sum[8 * n + 5], y_sum[8 * n + 6], y_sum[8 * n + 7],
        )
        y_sum[8 * n + 4] = x0
        y_sum[8 * n + 5] = x1
        y_sum[8 * n + 6] = x2
        y_sum[8 * n + 7] = x3
"""
END = """\
for i in range(2):
    place = column + line + 8 * i
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    own = head * group + place - row * group
    sum = total[i]
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 2)
    sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 1)
    if place < columns:
        GIVEN
"""
RESULT = """\
most = top[i]
SINK
# A row without any key gives zeros.
inverse = np.float32(0) if sum == 0 else shrink / sum
start = entry * y_batch + row * y_row + own * y_head + 2 * pair
for n in range(WIDTH // 8):
    for e in range(2):
        y[start + 8 * n + e] = STORED
"""
LEFT = """\
start = ((entry * heads + head) * columns + place) * splits + part
if pair == 0:
    levels[2 * start] = top[i]
    levels[2 * start + 1] = sum
if begin < stop:
    for n in range(WIDTH // 8):
        for e in range(2):
            parts[start * WIDTH + 8 * n + 2 * pair + e] = y_sum[4 * n + 2 * i + e]
"""
