"""Text of :mod:`seamline_cuda.attention_floats`; what its capitals stand for is said there."""

from __future__ import annotations

from seamline_cuda.attention_text import WEIGHED

__all__ = ["QUERIES", "ROOM", "SCORES", "SUMS", "WEIGHTS"]

ROOM = """\
q_held = cuda.shared.array(Q_ROOM, np.float32, alignment=16)
k_held = cuda.shared.array(K_ROOM, np.float32, alignment=16)
v_held = cuda.shared.array(V_ROOM, np.float32, alignment=16)
weights = cuda.shared.array(W_ROOM, np.float32, alignment=16)
s = cuda.local.array(SCORES, np.float32)
b = cuda.local.array(FACTORS, np.float32)
y_sum = cuda.local.array(SUMS, np.float32)
top = cuda.local.array(OVER, np.float32)
total = cuda.local.array(OVER, np.float32)
low = cuda.local.array(OVER, np.int32)
high = cuda.local.array(OVER, np.int32)
t = np.int64(cuda.threadIdx.x)
lane = t % LANES
line = t // LANES
"""
#: Queries of all heads that share keys, zeros behind the last one.
QUERIES = """\
for u in range(LOADS):
    unit = t + u * THREADS
    n = unit // UNITS
    piece = unit - n * UNITS
    if WHOLE:
        query = min(column + n, columns - 1)
        nbytes = np.int32(16) if column + n < columns else np.int32(0)
        row = np.int64(quotient32(np.uint32(query), np.uint32(group)))
        start = entry * q_batch + row * q_row + (head * group + query - row * group) * q_head
        copied_sixteen(q_held, n * D_STRIDE + 4 * piece, q, start + 4 * piece, nbytes)
"""
SCORES = """\
for e in range(SCORES):
    s[e] = np.float32(0)
for d in range(DEPTH // 4):
    for j in range(ACROSS):
        b0, b1, b2, b3 = four_shared(k_held, (lane + j * LANES) * D_STRIDE + 4 * d)
        b[4 * j] = b0
        b[4 * j + 1] = b1
        b[4 * j + 2] = b2
        b[4 * j + 3] = b3
    for i in range(OVER):
        a0, a1, a2, a3 = four_shared(q_held, (line + i * LINES) * D_STRIDE + 4 * d)
        for j in range(ACROSS):
            s[i * ACROSS + j] += a0 * b[4 * j]
            s[i * ACROSS + j] += a1 * b[4 * j + 1]
            s[i * ACROSS + j] += a2 * b[4 * j + 2]
            s[i * ACROSS + j] += a3 * b[4 * j + 3]
"""
WEIGHTS = (
    """\
for i in range(OVER):
    place = column + line + i * LINES
    row = np.int64(quotient32(np.uint32(place), np.uint32(group)))
    own = head * group + place - row * group
    first_seen = low[i] - np.int32(at)
    past_seen = min(high[i], np.int32(stop)) - np.int32(at)
    most = top[i]
    for j in range(ACROSS):
        inside = np.int32(lane + j * LANES)
        key = at + inside
        score = s[i * ACROSS + j] * scale
        CAPPED
        if inside >= first_seen and inside < past_seen:
            ADDED
        else:
            score = np.float32(-np.inf)
        s[i * ACROSS + j] = score
        most = greatest(most, score)
"""
    + WEIGHED
    + """\
        weights[(line + i * LINES) * W_STRIDE + lane + j * LANES] = weight
"""
)
SUMS = """\
for c in range(KEYS // 4):
    for j in range(BESIDE):
        near = 4 * c * V_STRIDE + min(lane + j * LANES, WIDTH - 1)
        for n in range(4):
            b[4 * j + n] = v_held[near + n * V_STRIDE]
    for i in range(OVER):
        a0, a1, a2, a3 = four_shared(weights, (line + i * LINES) * W_STRIDE + 4 * c)
        for j in range(BESIDE):
            y_sum[i * BESIDE + j] += a0 * b[4 * j]
            y_sum[i * BESIDE + j] += a1 * b[4 * j + 1]
            y_sum[i * BESIDE + j] += a2 * b[4 * j + 2]
            y_sum[i * BESIDE + j] += a3 * b[4 * j + 3]
"""
