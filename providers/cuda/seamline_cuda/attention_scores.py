"""Scores that a node gives out: a warp for each row, all keys of it, at the stage asked for."""

from __future__ import annotations

import functools

from seamline.provider import View
from seamline_cuda.attention_spans import Bias, Span, bounds_text, widened
from seamline_cuda.attention_works import Attended
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented
from seamline_cuda.works import KernelWork, Work

__all__ = ["scores_work"]

_THREADS = 32
_RAW, _CAPPED, _ADDED, _WEIGHTS = range(4)

#: Each lane has every 32nd key; for weights the row is gone through once more.
_TEXT = """\
t = cuda.threadIdx.x
whole = np.uint32(cuda.blockIdx.x)
others = quotient32(whole, np.uint32(rows))
row = np.int64(whole) - np.int64(others) * rows
entry = np.int64(quotient32(others, np.uint32(heads)))
own = np.int64(others) - entry * heads
SPAN
BOUNDS
query = entry * q_batch + row * q_row + own * q_head
cached = entry * k_batch + np.int64(quotient32(np.uint32(own), np.uint32(group))) * k_head
line = np.int64(cuda.blockIdx.x) * keys
top = np.float32(-np.inf)
sum = np.float32(0)
key = np.int64(t)
while key < keys:
    score = np.float32(0)
    for d in range(depth):
        score += QUERY * KEY
    score *= scale
    STAGES
    key += 32
END
"""
_MASKED = """\
if key >= lowest and key < highest:
    ADDED
else:
    score = np.float32(-np.inf)
"""
_ONLINE = """\
most = greatest(top, score)
if most != np.float32(-np.inf):
    sum = sum * libdevice.expf(top - most) + libdevice.expf(score - most)
top = most
"""
_WEIGHED = """\
most = top
most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 16))
most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 8))
most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 4))
most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 2))
most = greatest(most, cuda.shfl_xor_sync(0xFFFFFFFF, most, 1))
sum = sum if sum == 0 else sum * libdevice.expf(top - most)
sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 16)
sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 8)
sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 4)
sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 2)
sum += cuda.shfl_xor_sync(0xFFFFFFFF, sum, 1)
key = np.int64(t)
while key < keys:
    score = np.float32(0)
    for d in range(depth):
        score += QUERY * KEY
    score *= scale
    STAGES
    weight = np.float32(0) if sum == 0 else libdevice.expf(score - most) / sum
    y[line + key] = STORED
    key += 32
"""


def _stages(biases: tuple[str, ...], capped: bool, mode: int) -> list[str]:
    """Give lines that take a score to the stage that is asked for."""
    stages: list[str] = []
    if capped and mode != _RAW:
        stages.append("score = cap * libdevice.tanhf(score / cap)")
    if mode >= _ADDED:
        added = [
            f"score += {Bias.text(kind, f'bias{i}', 'own', 'row', 'key')}"
            for i, kind in enumerate(biases)
        ]
        stages += filled(_MASKED, ADDED=added or ["pass"])
    return stages


def _parameters(
    kinds: tuple[str, str, str], span: Span, biases: tuple[str, ...]
) -> dict[str, str]:
    names = (*(f"{n}_{by}" for n in "qk" for by in ("batch", "head", "row")),
             "keys", "heads", "group", "depth", "causal", "left", "right")  # fmt: skip
    found = {
        n: f"{ELEMENTS[kind].stored}*" for n, kind in zip("qky", kinds, strict=True)
    }
    found |= span.parameters() | dict.fromkeys(names, "int64")
    for index, kind in enumerate(biases):
        found |= Bias.parameters(kind, f"bias{index}")
    return found | {"scale": "float32", "cap": "float32"}


@functools.lru_cache(64)
def _kernel(
    kinds: tuple[str, str, str],
    span: Span,
    biases: tuple[str, ...],
    capped: bool,
    mode: int,
) -> tuple[DeviceKernel, tuple[str, ...]]:
    parameters = _parameters(kinds, span, biases)
    stages = _stages(biases, capped, mode)
    store = ELEMENTS[kinds[2]].store
    factors = {
        "QUERY": widened(kinds[0], "q[query + d]"),
        "KEY": widened(kinds[1], "k[cached + key * k_row + d]"),
    }
    last = _ONLINE.splitlines()
    end: list[str] = []
    if mode == _WEIGHTS:
        stored = store.format("weight")
        end = filled(_WEIGHED, STAGES=stages, STORED=stored, **factors)
    else:
        last = [f"y[line + key] = {store.format('score')}"]
    lines = filled(
        _TEXT, SPAN=span.text(), BOUNDS=bounds_text(), STAGES=[*stages, *last], END=end,
        **factors,
    )  # fmt: skip
    head = f"def attention_scores({', '.join(parameters)}):"
    text = "\n".join([head, *indented(lines)]) + "\n"
    kernel = DeviceKernel("attention_scores", text, tuple(parameters.values()))
    return kernel, tuple(parameters)


def scores_work(attended: Attended, scores: View, mode: int) -> list[Work]:
    """
    Give the launch that writes scores of (batch, heads, rows, keys).

    Parameters
    ----------
    mode
        0 for the products, 1 for what is capped, 2 with what is added, 3 for weights.
    """
    heads = attended.heads * attended.group
    blocks = attended.batch * heads * attended.rows
    if not blocks or not attended.keys:
        return []
    kernel, names = _kernel(
        (attended.q.kind, attended.k.kind, scores.kind.dtype), attended.span,
        tuple(bias.kind for bias in attended.biases), attended.cap > 0, mode,
    )  # fmt: skip
    values = {
        **attended.numbers(), "y": scores.address, "heads": heads, "keys": attended.keys,
        "depth": attended.depth,
    }  # fmt: skip
    arguments = tuple(values[name] for name in names)
    return [KernelWork(kernel, arguments, blocks * _THREADS, _THREADS, blocks)]
