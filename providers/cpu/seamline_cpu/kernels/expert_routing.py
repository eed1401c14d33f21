"""
Which experts a token goes to, with what weight, and the tokens in order of their experts.

A token goes to the ``k`` experts with the greatest logits, of equal ones to the first.
Its weights are the softmax of all logits there, or, normalised, of the chosen ones; or
what another matrix says; or those of the sparse mixer, which is for two experts: an expert
is weighed against those alone that are within 2 % of it, the second without the first
(Liu et al., https://arxiv.org/abs/2310.00811, as onnxruntime has it).

Products want rows of one expert together, so (token, choice) pairs are sorted by expert:
``order`` says which token stands at a place, ``places`` at which place a pair stands, and
``starts`` where an expert's rows begin. Equal experts keep the order of their tokens, so a
result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.atomics import floats, longs
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels import float32_math as f32

__all__ = ["MIXER", "NORMALIZED", "PRODUCTS", "SOFTMAX", "Routes", "bind_routing"]

f4 = np.float32
SOFTMAX, NORMALIZED, MIXER = 0, 1, 2  #: how weights come about
_NEAR = f4(0.02)  # twice the sparse mixer's jitter
_SHARED_FROM = 1 << 13  # logits from which more threads pay
PRODUCTS = 3  #: of a layer, at most
_COUNTED = 2 * PRODUCTS  # each may be two commands
_APART = 8  # words between counters: a cache line
_ZERO, _ONE = f4(0.0), f4(1.0)
(_TOKENS, _EXPERTS, _K, _MODE, _LOGITS, _PITCH, _WEIGHTS, _W_PITCH, _CHOSEN, _FACTORS, _TAKEN,
 _STARTS, _ORDER, _PLACES, _ACTIVE, _COUNTERS) = range(16)  # fmt: skip
_exp = f32.exp


@attrs.frozen(eq=False)
class Routes:
    """
    Where tokens go, as each run fills it in; all int64 but the factors.

    Attributes
    ----------
    factors
        float32, (tokens, k): weight of each choice.
    starts
        (experts + 1,): first place of each expert's rows.
    order
        (tokens * k,): the token at each place.
    places
        (tokens, k): the place of each choice.
    active
        How many experts have rows, then which.
    counters
        A row for each command of products; its first word hands out the work.
    """

    factors: Array
    starts: Array
    order: Array
    places: Array
    active: Array
    counters: Array


@jit
def _greatest(row: Any, count: int, taken: Any) -> int:
    """Give the first of the greatest that are not taken."""
    best = -1
    for i in range(count):
        if taken[i] == 0 and (best < 0 or row[i] > row[best]):
            best = i
    return best


@jit
def _total(row: Any, count: int, most: Any, taken: Any, near: bool) -> Any:
    """Add up exponentials: of all, or of what is near ``most`` and not taken."""
    total = _ZERO
    for i in range(count):
        x = row[i]
        if near:
            scale = max(abs(x), most)
            if taken[i] != 0 or most - x > _NEAR * scale:
                continue
        total += _exp(x - most)
    return total


@jit
def _weigh(row: Any, count: int, chosen: Any, factors: Any, k: int, normalized: bool) -> None:  # fmt: skip
    """Write the softmax of the chosen logits."""
    most, total = row[chosen[0]], _ZERO
    if normalized:
        for j in range(k):
            total += _exp(row[chosen[j]] - most)
    else:
        for i in range(count):
            total += _exp(row[i] - most)
    for j in range(k):
        factors[j] = _exp(row[chosen[j]] - most) / total


@jit
def _look_up(row: Any, chosen: Any, factors: Any, k: int, normalized: bool) -> None:
    """Write the weights that another matrix states, which may add up to 0."""
    total = _ZERO
    for j in range(k):
        factors[j] = row[chosen[j]]
        total += factors[j]
    if normalized:
        for j in range(k):
            factors[j] = factors[j] / total if total != _ZERO else _ZERO


@command
def _choose(a: Any, share: int, shares: int) -> None:
    """Choose each token's experts, and their weights."""
    tokens, count, k, mode = a[_TOKENS], a[_EXPERTS], a[_K], a[_MODE]
    taken = longs(a[_TAKEN] + 8 * share * count)
    for token in range(tokens * share // shares, tokens * (share + 1) // shares):
        row = floats(a[_LOGITS] + token * a[_PITCH])
        chosen = longs(a[_CHOSEN] + 8 * k * token)
        factors = floats(a[_FACTORS] + 4 * k * token)
        for i in range(count):
            taken[i] = 0
        for j in range(k):
            best = _greatest(row, count, taken)
            chosen[j] = best
            if mode == MIXER:
                factors[j] = _ONE / _total(row, count, row[best], taken, True)
            taken[best] = 1
        if a[_WEIGHTS] != 0:
            stated = floats(a[_WEIGHTS] + token * a[_W_PITCH])
            _look_up(stated, chosen, factors, k, mode == NORMALIZED)
        elif mode != MIXER:
            _weigh(row, count, chosen, factors, k, mode == NORMALIZED)


@command
def _group(a: Any, share: int, shares: int) -> None:
    """Sort choices by expert; a counting sort, of which one thread does all."""
    pairs, count, k = a[_TOKENS] * a[_K], a[_EXPERTS], a[_K]
    chosen, starts, active = longs(a[_CHOSEN]), longs(a[_STARTS]), longs(a[_ACTIVE])
    order, places, counters = longs(a[_ORDER]), longs(a[_PLACES]), longs(a[_COUNTERS])
    for number in range(_COUNTED):
        counters[_APART * number] = 0
    for e in range(count + 1):
        starts[e] = 0
    for i in range(pairs):
        starts[chosen[i] + 1] += 1
    found = 0
    for e in range(count):
        if starts[e + 1] > 0:
            found += 1
            active[found] = e
        starts[e + 1] += starts[e]
    active[0] = found
    for i in range(pairs):
        place = starts[chosen[i]]
        starts[chosen[i]] = place + 1
        order[place] = i // k
        places[i] = place
    # Each start has moved to its expert's end, which is the next one's start.
    for e in range(count, 0, -1):
        starts[e] = starts[e - 1]
    starts[0] = 0


def bind_routing(
    logits: Array, weights: Array | None, k: int, experts: int, mode: int, threads: int
) -> tuple[Routes, list[Run]]:
    """
    Bind the choice of experts.

    Parameters
    ----------
    logits
        float32, a row for each token, at least ``experts`` wide.
    weights
        As ``logits``, what the chosen weigh; None for what the logits say.
    mode
        :data:`SOFTMAX`, :data:`NORMALIZED` or :data:`MIXER`.
    """
    tokens = len(logits)
    made = Routes(
        np.zeros((tokens, k), f4),
        np.zeros(experts + 1, np.int64),
        np.zeros(tokens * k, np.int64),
        np.zeros((tokens, k), np.int64),
        np.zeros(experts + 1, np.int64),
        np.zeros((_COUNTED, _APART), np.int64),
    )
    shares = threads if tokens * experts >= _SHARED_FROM else 1
    chosen = np.zeros((tokens, k), np.int64)
    taken = np.zeros((shares, experts), np.int64)
    stated = (0, 0) if weights is None else (weights.ctypes.data, weights.strides[0])
    arguments = np.array(
        [
            tokens, experts, k, mode, logits.ctypes.data, logits.strides[0], *stated,
            chosen.ctypes.data, made.factors.ctypes.data, taken.ctypes.data,
            made.starts.ctypes.data, made.order.ctypes.data, made.places.ctypes.data,
            made.active.ctypes.data, made.counters.ctypes.data,
        ],
        np.int64,
    )  # fmt: skip
    keep = (logits, weights, chosen, taken, made)
    return made, [
        bind(_choose, arguments, shares, keep=keep),
        bind(_group, arguments, 1, keep=keep),
    ]
