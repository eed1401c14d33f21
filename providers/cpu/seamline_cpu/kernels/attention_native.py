"""
Attention bound as commands: which of the two kernels, how many parts, and where things lie.

Few queries that share a head of keys go to :mod:`.attention_few`, which reads keys once for
all of them; more fill the panels of :mod:`.attention_blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.commands import Native, bind, in_list
from seamline_cpu.kernels.attention_arguments import FLOATS, SLOTS
from seamline_cpu.kernels.attention_blocks import (
    attend_blocks,
    held_floats,
    panel_floats,
)
from seamline_cpu.kernels.attention_few import (
    attend_few,
    few_floats,
    join_parts,
    part_floats,
)
from seamline_cpu.kernels.attention_floats import KINDS
from seamline_cpu.tiles import COLUMNS, LANES

__all__ = ["Bias", "Form", "bind_attention", "entries", "fits"]

#: Queries of one head of keys up to which keys are better read once for each of them, and
#: the keys that this takes if they are more than two.
_FEW, _MANY_KEYS = 8, 2 * LANES
_SHARED_FROM = 1 << 17  # multiply-adds from which more threads pay
_HELD_DEPTH = 48  # numbers in a row from which copying it is quicker than its conflicts
_HELD_FROM = 4  # panels of a head that make up for bringing its keys together
_HELD_NBYTES = 1 << 20  # what that may take: more would not stay in the second cache
_EVEN = 4  # heads for each thread from which one more or less does not matter
_PART = 64  # keys from which a part of them is worth a thread
_KINDS = {"float32": 1, "bool": 2, "int32": 3}


@attrs.frozen(eq=False)
class Bias:
    """
    What is added to scores.

    Attributes
    ----------
    array
        Broadcasts to (batch, heads, rows, keys); its last axis may be shorter, which hides
        the keys past its end. float32, or a mask, bool or int32, whose zeros are ``filler``.
    """

    array: Array
    filler: float = -math.inf


@attrs.frozen(eq=False)
class Form:
    """
    How scores become weights.

    Attributes
    ----------
    scale, softcap
        The factor; and the cap, 0 for none.
    causal, left, right
        A query sees no key behind its own position; ``left`` and ``right`` bound the window
        around it, -1 for not at all.
    sinks
        float32, one number or one for each head: a score that has no value.
    """

    scale: float
    softcap: float = 0.0
    causal: bool = False
    left: int = -1
    right: int = -1
    sinks: Array | None = None


def entries(batch: int, rows: int, position: int, keys: int) -> Array:
    """Give the table of a batch whose entries are alike: rows, first position, keys."""
    return np.tile(np.array([rows, position, keys], np.int64), (batch, 1))


def fits(*arrays: Array | None) -> bool:
    """Tell whether commands read arrays: their type, and neighbours side by side."""
    return all(
        a is None
        or (a.dtype.name in KINDS and (a.strides[-1] == a.itemsize or a.shape[-1] == 1))
        for a in arrays
    )


def bind_attention(
    q: Array, k: Array, v: Array, y: Array, form: Form, table: Array, threads: int,
    biases: Sequence[Bias] = (),
) -> Native:  # fmt: skip
    """
    Bind attention of arrays that fit, with heads before rows, as views of any strides.

    Parameters
    ----------
    q, k, v, y
        (batch, heads, rows, depth), (batch, kv heads, keys, depth), (batch, kv heads, keys,
        width) and (batch, heads, rows, width); the last axis has a stride of one. Heads of
        queries share those of keys in runs of equal length.
    table
        int64, for each entry of the batch: rows that it has (others give zeros), the
        position of the first, and its keys; read at each run.
    biases
        At most two.
    """
    batch, heads, rows, depth = q.shape
    kv, keys, width = k.shape[1], k.shape[2], v.shape[3]
    group = heads // kv
    values = dict.fromkeys(SLOTS, 0)
    for name, x in (("q", q), ("k", k), ("v", v), ("y", y)):
        by = (f"{name}_batch", f"{name}_head", f"{name}_row")
        values |= dict(zip(by, x.strides, strict=False)) | {name: x.ctypes.data}
    numbers = np.zeros(len(FLOATS), np.float32)
    numbers[:2] = form.scale, form.softcap
    values |= {
        "batch": batch, "heads": kv, "group": group, "rows": rows, "depth": depth,
        "width": width, "keys": keys, "table": table.ctypes.data, "causal": form.causal,
        "left": form.left, "right": form.right, "numbers": numbers.ctypes.data,
        "q_kind": KINDS[q.dtype.name], "kv_kind": KINDS[k.dtype.name],
        "y_kind": KINDS[y.dtype.name],
    }  # fmt: skip
    if form.sinks is not None:
        step = int(form.sinks.size > 1)
        values |= {"sinks": form.sinks.ctypes.data, "sink_step": step}
    for place, bias in zip(("bias", "more"), biases, strict=False):
        values |= _of_bias(place, bias, numbers)
    work = batch * heads * rows * keys * (depth + width)
    kept = (q, k, v, y, table, numbers, form, tuple(biases))
    threads = threads if work >= _SHARED_FROM else 1
    if group * rows <= 2 or (group * rows <= _FEW and keys >= _MANY_KEYS):
        return _few(values, keys, threads, kept)
    return _panels(values, threads, kept)


def _panels(values: dict[str, int], threads: int, kept: Any) -> Native:
    pairs = values["batch"] * values["heads"]
    panels = -(-values["group"] * values["rows"] // COLUMNS)
    depth, width, narrow = values["depth"], values["width"], values["kv_kind"] != 0
    shares = min(threads, pairs * panels)
    floats = -(-panel_floats(depth, width, narrow) // 16) * 16
    held = held_floats(depth, width, values["keys"])
    strided = values["k_row"] > 4 * depth or values["v_row"] > 4 * width
    apart = narrow or (strided and depth >= _HELD_DEPTH)
    even = pairs % shares == 0 or pairs >= _EVEN * shares
    if apart and even and panels >= _HELD_FROM and 4 * held <= _HELD_NBYTES:
        values["held"], floats = 4 * floats, floats + held
    scratch = _aligned(shares, floats)
    values |= {"scratch": scratch.ctypes.data, "stride": scratch.strides[0]}
    arguments = [int(values[name]) for name in SLOTS]
    return bind(attend_blocks, arguments, shares, keep=(kept, scratch))


def _few(values: dict[str, int], keys: int, threads: int, kept: Any) -> Native:
    pairs = values["batch"] * values["heads"]
    queries = values["group"] * values["rows"]
    # Parts are dealt out in turns: with two or three for each thread none is left over.
    splits = 1 if threads == 1 or pairs % threads == 0 else threads
    splits = max(1, min(splits, keys // _PART))
    shares = min(threads, pairs * splits)
    scratch = _aligned(
        shares,
        few_floats(values["depth"], values["width"], queries, values["kv_kind"] != 0),
    )
    parts = _aligned(pairs * queries * splits, part_floats(values["width"]))
    values |= {
        "scratch": scratch.ctypes.data, "stride": scratch.strides[0], "splits": splits,
        "parts": parts.ctypes.data,
    }  # fmt: skip
    arguments = np.array([int(values[name]) for name in SLOTS], np.int64)
    where = arguments.ctypes.data
    rows = [(attend_few.address, where, shares), (join_parts.address, where, 1)]
    return in_list(rows, (kept, arguments, scratch, parts))


def _of_bias(place: str, bias: Bias, numbers: Array) -> dict[str, int]:
    array = bias.array.reshape((1,) * (4 - bias.array.ndim) + bias.array.shape)
    by = [0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)]
    numbers[FLOATS.index(f"{place}_filler")] = bias.filler
    return {
        place: array.ctypes.data,
        f"{place}_kind": _KINDS[array.dtype.name],
        f"{place}_full": int(array.shape[1] > 1 or array.shape[2] > 1),
        **{f"{place}_{axis}": step for axis, step in zip(("batch", "head", "row", "key"), by, strict=True)},
    }  # fmt: skip


def _aligned(rows: int, floats: int) -> Array:
    """Give uninitialised rows of floats that begin at lines of the cache."""
    pitch = -(-floats // 16) * 16
    whole = np.empty(rows * pitch + 16, np.float32)
    start = -whole.ctypes.data % 64 // 4
    return whole[start : start + rows * pitch].reshape(rows, pitch)
