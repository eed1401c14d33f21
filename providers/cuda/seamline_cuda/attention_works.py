"""
From one attention to launches: which tiles, and into how many parts keys are cut.

All operators that are attention come to one :class:`Attended`: views of queries, keys,
values and the result by head, spans, and what is added to the scores. Few queries have a
kernel of their own. Else tensor cores take 16-bit floats where they lie evenly, and all
others tiles that hold as many queries as there are, up to what shared memory holds. Where
that makes fewer blocks than the device runs side by side, keys are cut into parts, by the
length of the buffer: how many of them have keys is found at each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from seamline_cuda.attention_few import few_columns, few_kernel, few_wide
from seamline_cuda.attention_floats import (
    FLOAT_THREADS,
    float_columns,
    floats_fit,
    floats_kernel,
)
from seamline_cuda.attention_matrices import (
    matrices_fit,
    matrices_kernel,
    matrix_columns,
)
from seamline_cuda.attention_parts import parts_kernel
from seamline_cuda.attention_places import Operand
from seamline_cuda.attention_spans import FIXED, Bias, Span
from seamline_cuda.attention_tiles import tiles_kernel
from seamline_cuda.attention_tiling import THREADS, Tiling
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.works import KernelWork, Work

__all__ = ["BECAUSE", "Attended", "parts_of", "room_of"]

#: Which kernel it is depends on where operands lie, and is known when they are bound.
BECAUSE = (
    "scores stay on the chip: by tensor cores where 16-bit floats lie by 16 bytes, in heads "
    "of 16 to 128 values; in tiles of shared memory else; few queries in registers"
)
_BLOCKS = 264  #: two for each multiprocessor of an H200; parts are not cut for more
_LEAST = 64  #: keys of a part


@attrs.frozen(kw_only=True)
class Attended:
    """
    One attention over fixed places.

    Attributes
    ----------
    batch, heads, group, rows, keys
        Entries; heads of keys, and heads of queries that share one; rows of queries, and
        the most keys that there are.
    depth, width
        Values of a head of keys, and of values.
    span
        Where lengths come from, ``given`` its parameters' values but for ``rows``.
    biases
        What is added to the scores.
    cap
        Scores are kept between this and its negative, smoothly; 0 for not at all.
    causal, left, right
        Keys after a query are not seen; how many before and after it are, -1 for all.
    sink, sinks
        A score without a value: element type, ``zero`` or empty; address.
    """

    q: Operand
    k: Operand
    v: Operand
    y: Operand
    batch: int
    heads: int
    group: int
    rows: int
    keys: int
    depth: int
    width: int
    scale: float
    span: Span = FIXED
    given: Mapping[str, float] = attrs.field(factory=dict)
    biases: tuple[Bias, ...] = ()
    cap: float = 0.0
    causal: bool = False
    left: int = -1
    right: int = -1
    sink: str = ""
    sinks: int = 0

    def works(self, workspace: int) -> list[Work]:
        """
        Give the launches.

        Parameters
        ----------
        workspace
            Address of as many bytes as :func:`room_of` says; not read where it says 0.
        """
        sizes = (self.batch, self.heads, self.group, self.rows)
        if not all(sizes) or not self.width:
            return []
        many = (self.rows * self.group, self.depth, self.width)
        few = few_columns(*many)
        how = "few" if few else self._how()
        columns = few or _COLUMNS[how](*many)
        tiles = -(-self.rows * self.group // columns)
        splits = _parts(self.batch * self.heads * tiles, self.keys)
        tiling = self._tiling(columns, splits > 1, how)
        parts = math.prod(sizes) * splits
        values = self.numbers() | {
            "tiles": tiles, "splits": splits, "parts": workspace,
            "levels": workspace + 4 * parts * self.width,
        }  # fmt: skip
        arguments = tuple(values[name] for name in tiling.parameters())
        blocks, threads = self.batch * self.heads * tiles * splits, tiling.threads
        kernel = _KERNELS[how](tiling)
        work = KernelWork(kernel, arguments, blocks * threads, threads, blocks)
        return [work, self._merged(values)] if splits > 1 else [work]

    def _how(self) -> str:
        """Name the kernel for many queries that takes what lies here."""
        given = (self.q, self.k, self.v, self.depth, self.width)
        if matrices_fit(*given):
            return "matrices"
        return "floats" if floats_fit(*given) else "tiles"

    def _tiling(self, columns: int, split: bool, how: str) -> Tiling:
        operands = (self.q, self.k, self.v, self.y)
        sizes = (self.depth, self.depth, self.width)
        q, k, v = (o.wide(n) for o, n in zip(operands, sizes, strict=False))
        threads = threads_of(columns)
        if how == "few":
            q, k, v = 1, few_wide(self.depth, k), few_wide(self.width, v)
        elif how == "matrices":
            q, k, v, threads = 2, 2, 2, 2 * columns
        elif how == "floats":
            threads = min(FLOAT_THREADS, THREADS)
        return Tiling(
            (self.q.kind, self.k.kind, self.v.kind, self.y.kind),
            self.depth, self.width, columns, self.span, (q, k, v),
            tuple(bias.kind for bias in self.biases), self.cap > 0,
            "" if split else self.sink, split, threads,
        )  # fmt: skip

    def numbers(self) -> dict[str, float]:
        """Give the values of parameters that do not depend on tiles."""
        values: dict[str, float] = dict(self.given)
        for name, operand in zip("qkvy", (self.q, self.k, self.v, self.y), strict=True):
            values[name] = operand.address
            by = zip(("batch", "head", "row"), operand.steps, strict=True)
            values |= {f"{name}_{axis}": step for axis, step in by}
        for index, bias in enumerate(self.biases):
            values |= bias.values(f"bias{index}")
        return values | {
            "rows": self.rows, "heads": self.heads, "group": self.group,
            "causal": int(self.causal), "left": self.left, "right": self.right,
            "scale": self.scale, "cap": self.cap, "sinks": self.sinks,
        }  # fmt: skip

    def _merged(self, values: Mapping[str, float]) -> KernelWork:
        columns = self.rows * self.group
        total = self.batch * self.heads * columns
        kernel, names = parts_kernel(self.y.kind, self.sink)
        more = {"total": total, "columns": columns, "width": self.width}
        given = {**values, **more}
        blocks = -(-total * 32 // THREADS)
        arguments = tuple(given[name] for name in names)
        return KernelWork(kernel, arguments, total * 32, THREADS, blocks)


def tile_columns(columns: int, depth: int, width: int) -> int:
    """Give the queries of a tile."""
    most = Tiling.most_columns(depth, width)
    return next((n for n in (8, 16, 32) if n >= columns and n <= most), most)


def threads_of(columns: int) -> int:
    """Give the threads of a block: more for a large tile, whose sums take the registers."""
    return 2 * THREADS if columns > 32 else THREADS


def parts_of(
    batch: int, heads: int, group: int, rows: int, keys: int, depth: int, width: int
) -> int:
    """Give how many parts keys are cut into at most; where operands lie is not known yet."""
    many = (rows * group, depth, width)
    few = few_columns(*many)
    columns = few or max(of(*many) for of in _COLUMNS.values())
    tiles = -(-many[0] // columns) if many[0] else 0
    return _parts(batch * heads * tiles, keys)


def _parts(blocks: int, keys: int) -> int:
    """Give the parts of keys for so many blocks: 1 where they are enough without."""
    return max(1, min(_BLOCKS // max(blocks, 1), keys // _LEAST, 64))


def room_of(
    batch: int, heads: int, group: int, rows: int, keys: int, depth: int, width: int
) -> int:
    """Give the bytes of workspace that parts take: sums, and two numbers for each."""
    splits = parts_of(batch, heads, group, rows, keys, depth, width)
    if splits == 1:
        return 0
    return 4 * batch * heads * group * rows * splits * (width + 2)


#: Of the kernels for many queries: how many a block takes.
_COLUMNS: dict[str, Callable[[int, int, int], int]] = {
    "matrices": matrix_columns,
    "floats": float_columns,
    "tiles": tile_columns,
}
_KERNELS: dict[str, Callable[[Tiling], DeviceKernel]] = {
    "few": few_kernel,
    "matrices": matrices_kernel,
    "floats": floats_kernel,
    "tiles": tiles_kernel,
}
