"""
TopK: the first k of each row, by value and of equals by index.

Three ways, chosen by sizes. A few of a short row: the threads of a row find the first, then
the first behind it, k times. A row that fits shared memory: all of it is put in order. Any
other: a block picks k of it and orders those, or where such rows are few, several blocks
pick from parts first.

The order is a total one: greater keys first (:mod:`seamline_cuda.ranking_keys`), then lower
indices, so that the three agree in every bit. ``sorted=0`` asks for any order, and gets this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.claiming import rows_fit, sizes_of
from seamline_cuda.folds import Folds, axes_within
from seamline_cuda.ranking_keys import key_lines, least_key, pointer_of
from seamline_cuda.ranking_text import SHARED, Ranking
from seamline_cuda.row_programs import Fold, RowProgram, State
from seamline_cuda.row_works import row_work
from seamline_cuda.works import KernelWork, Work

__all__ = ["Split", "add_to", "split_of"]

_DTYPES = (
    "float32", "float16", "bfloat16", "float64", "int32", "int64", "int8", "int16", "uint8",
    "uint16", "uint32", "uint64",
)  # fmt: skip
_TURNS, _SHORT = 16, 1024  # most elements found one by one, of rows so long
_BUSY, _PART = 264, 4096  # blocks for a large device; elements of a part, at least
_PAIR = 16  # bytes of a key and an index


@attrs.frozen
class Split:
    """
    How rows are ranked.

    Attributes
    ----------
    rows, length, inner
        How many there are, their elements, and elements from one of these to the next.
    k
        How many are wanted.
    parts, part
        Blocks that share a row, and the elements of each.
    room
        Pairs that the last kernel puts in order, a power of two.
    """

    rows: int
    length: int
    inner: int
    k: int
    parts: int
    part: int
    room: int

    @property
    def one_by_one(self) -> bool:
        """Tell whether the first are found one after the other."""
        short = self.length <= _SHORT if self.inner == 1 else self.length <= 512
        return self.k <= _TURNS and short

    @property
    def whole(self) -> bool:
        """Tell whether the last kernel puts in order all that it is handed."""
        handed = self.parts * self.k if self.parts > 1 else self.length
        return handed <= SHARED

    @property
    def left(self) -> int:
        """Count pairs that parts leave in the workspace."""
        return self.rows * self.parts * self.k if self.parts > 1 else 0

    @property
    def nbytes(self) -> int:
        """Give the bytes of workspace."""
        if self.one_by_one:
            return 0
        pooled = self.rows * self.room if self.room > SHARED else 0
        return (self.left + pooled) * _PAIR


def split_of(sizes: Sequence[int], axis: int, k: int) -> Split:
    """Choose by sizes alone how rows along an axis are ranked."""
    length, inner = sizes[axis], math.prod(sizes[axis + 1 :])
    rows = math.prod(sizes[:axis]) * inner
    parts = min(-(-_BUSY // max(rows, 1)), length // _PART, length // max(4 * k, 1))
    parts, part = max(parts, 1), length
    if parts > 1:
        part = -(-length // parts)
        part = -(-part // 32) * 32
        parts = -(-length // part)
    handed = parts * k if parts > 1 else length
    room = _power(handed if handed <= SHARED else k)
    return Split(rows, length, inner, k, parts, part, room)


def _power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


# --- one by one ---------------------------------------------------------------------


def _next(dtype: str, outputs: Sequence[str]) -> Fold:
    """Give the pass that finds the first behind ``last``, and stores it."""
    states = (
        State("best", "int64", least_key(dtype)),
        State("where", "int64", "np.int64(-1)"),
    )
    behind = "x{u} < last or (x{u} == last and j{u} > last_at)"
    step = (
        f"if ({behind}) and (where < 0 or x{{u}} > best):",
        "    best = x{u}",
        "    where = j{u}",
    )
    nearer = "o_best > best or (o_best == best and o_where < where)"
    merge = (
        f"if o_where >= 0 and (where < 0 or {nearer}):",
        "    best = o_best",
        "    where = o_where",
    )
    after = ["last = best", "last_at = where", "if live and lane == 0:"]
    if "values" in outputs:
        after.append("    values[out + turn * inner] = x[base + where * inner]")
    if "places" in outputs:
        after.append("    places[out + turn * inner] = where")
    return Fold(states, step, merge, tuple(after))


def _found(dtype: str, largest: bool, outputs: Sequence[str]) -> RowProgram:
    """Give the program that finds the first behind the last one found, k times."""
    pointer = pointer_of(dtype)
    results = ((name, "int64*" if name == "places" else pointer) for name in outputs)
    return RowProgram(
        "topk_one_by_one",
        (("x", pointer), *results, ("k", "int64"), ("inner", "int64")),
        (("x", "int64"),),
        tuple(key_lines(dtype, "x[at{u}]", "x{u}", largest=largest)),
        (_next(dtype, outputs),),
        before=(
            # Nothing that is left out by the first comparison is as great.
            "last = np.int64(9223372036854775807)",
            "last_at = np.int64(-1)",
            "outer = np.int64(quotient32(np.uint32(row), np.uint32(inner)))",
            "out = outer * k * inner + (row - outer * inner)",
        ),
        turns="k",
    )


# --- nodes --------------------------------------------------------------------------


def _axis(node: NodeView, rank: int) -> int | None:
    found = axes_within((int(node.attributes.get("axis", -1)),), rank)
    return None if found is None else found[0]


def _split(node: NodeView) -> Split | None:
    """Take k from the results' sizes, which are known even where k is computed."""
    sizes, out = (
        sizes_of(node, 0),
        next((k for k in node.outputs if k is not None), None),
    )
    if sizes is None or not isinstance(out, TensorType) or not out.is_sized:
        return None
    axis = _axis(node, len(sizes))
    return None if axis is None else split_of(sizes, axis, out.sizes[axis])


def _unfit(node: NodeView) -> str | None:
    if reason := rows_fit(node):
        return reason
    x = node.tensor(0)
    rank = len(x.shape or ()) if x is not None else 0
    return f"its axis is outside of rank {rank}" if _axis(node, rank) is None else None


def _workspace(node: NodeView) -> int:
    split = _split(node)
    return split.nbytes if split is not None else 0


def _ranked(call: Call) -> Sequence[Work]:
    node, split = call.view, _split(call.view)
    assert split is not None
    asked = {"values": call.output(0), "places": call.output(1)}
    views = {name: view for name, view in asked.items() if view is not None}
    if not split.rows or not split.k:
        return []
    if split.k > split.length:
        raise ValueError(f"k is {split.k}, and its axis has {split.length} elements")
    x, largest = call.inputs[0], bool(node.attributes.get("largest", 1))
    dtype, outputs = x.kind.dtype, tuple(views)
    addresses = (x.address, *(view.address for view in views.values()))
    if split.one_by_one:
        folds = Folds.of(x.shape, (_axis(node, len(x.shape)) or 0,))
        program = _found(dtype, largest, outputs)
        return row_work(program, folds, (*addresses, split.k, split.inner), call)
    return _kernels(split, dtype, largest, outputs, addresses, call)


def _kernels(
    split: Split, dtype: str, largest: bool, outputs: tuple[str, ...],
    addresses: Sequence[int], call: Call,
) -> list[Work]:  # fmt: skip
    start = call.workspace.address if call.workspace is not None else 0
    pairs = [split.left, split.rows * split.room if split.room > SHARED else 0]
    pool = start + split.left * _PAIR
    spaces = [
        (at, at + n * 8) if n else (0, 0)
        for at, n in zip((start, pool), pairs, strict=True)
    ]
    arguments = (
        *addresses, *spaces[0], *spaces[1],
        split.length, split.k, split.inner, split.parts, split.part, split.room,
    )  # fmt: skip
    works: list[Work] = []
    if split.parts > 1:
        first = Ranking("topk_part", dtype, largest, False, True, True, 0, outputs)
        works.append(_launched(first, arguments, split.rows * split.parts, split.part))
    room = split.room if split.room <= SHARED else 0
    last = Ranking(
        "topk", dtype, largest, split.parts > 1, not split.whole, False, room, outputs
    )
    handed = split.parts * split.k if split.parts > 1 else split.length
    return [*works, _launched(last, arguments, split.rows, handed)]


def _launched(
    ranking: Ranking, arguments: tuple[int, ...], blocks: int, handed: int
) -> KernelWork:
    """Give enough threads for two elements each."""
    threads = min(max(_power(-(-handed // 2)), 32), 512)
    return KernelWork(ranking.kernel(), arguments, blocks * threads, threads, blocks)


def add_to(table: KernelTable) -> None:
    """Add TopK, whose k is an input since opset 10 and an attribute before."""
    for since, on_host in (((1, 9), ()), ((10, 10_000), (1,))):
        table.kernel(
            "TopK",
            since=since,
            dtypes=_DTYPES,
            when=_unfit,
            host_inputs=on_host,
            workspace=_workspace,
            variant="picked",
            because="k of each row are picked before they are put in order",
            not_capturable=None,
        )(_ranked)
