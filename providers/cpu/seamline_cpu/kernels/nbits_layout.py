"""
How MatMulNBits' weights lie in memory, for every variant the same.

Sixteen rows of weights are a *group*. A group is a row of records, one for each block of K::

    codes of the block, in words: word 0 of rows 0..15, word 1 of rows 0..15, ...
    scales of rows 0..15       float16 or bfloat16 if that keeps every one exactly,
                               else float32
    zero points of rows 0..15  nothing if all are the middle code, bytes if all are whole,
                               else floats like the scales

A word is the four bytes that lie together in ONNX's own order: 32 / bits codes, the low bits
first. So a vector register holds the same word of several rows, and what is added up
runs along K with no sum across lanes; all that a record needs lies in one stream of memory,
and is read once. A step is as many codes of K as are multiplied between two looks at the
scale: 32, or 16 where blocks are that short.

Groups are taken several at a time, so there are at least four; what fills them up is zero.
With ``g_idx`` codes are sorted by their block first, and activations are gathered to match.
"""

from __future__ import annotations

from typing import Any

import attrs
import ml_dtypes
import numpy as np

from seamline.provider import Array
from seamline_cpu.huge_pages import huge
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels.code_rows import CodeRows

__all__ = [
    "GROUP",
    "MOST_GROUPS",
    "Form",
    "Packed",
    "Source",
    "fewest_groups",
    "pack",
    "packed_nbytes",
    "sorted_by_block",
]

GROUP = 16  #: rows of weights whose words lie together
MOST_GROUPS = 4  #: that one tile takes
_AT_ONCE = 64 * GROUP  # rows packed together: bounds what packing takes for itself
f4 = np.float32
_NARROW: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@attrs.frozen
class Form:
    """
    What code for packed weights depends on.

    Attributes
    ----------
    bits
        Of a code: 2, 4 or 8.
    step
        Codes of K between two looks at the scale: 16 or 32.
    half
        ``float16`` or ``bfloat16``, as scales and zero points that are floats are kept;
        empty where they are float32.
    zero
        ``middle``, ``bytes`` or ``floats``; or the table whose values codes stand for, of
        :data:`seamline_cpu.kernels.nbits_codebooks.CODEBOOKS`, which has no zero points.
    """

    bits: int
    step: int
    half: str
    zero: str

    @property
    def planes(self) -> int:
        """Give the codes in a byte."""
        return 8 // self.bits

    @property
    def words(self) -> int:
        """Give the words of a step, for one row."""
        return self.step * self.bits // 32

    @property
    def scale_nbytes(self) -> int:
        """Give the bytes of a group's scales in a record."""
        return GROUP * (2 if self.half else 4)

    def record(self, block: int) -> int:
        """Give a record's bytes."""
        zeros = {"bytes": GROUP, "floats": self.scale_nbytes}
        return block * self.bits * 2 + self.scale_nbytes + zeros.get(self.zero, 0)


@attrs.frozen(eq=False)
class Source:
    """
    Weights as the model has them.

    Attributes
    ----------
    codes
        uint8, (N, blocks, bytes of a block), or what gives such rows when it is sliced.
    scales
        Floats, (N, blocks).
    zeros
        (N, blocks) floats, or codes as uint8, or None for the middle code.
    order
        ``places`` and ``owners`` of :func:`sorted_by_block`; None for as it is.
    table
        The table whose values codes stand for; empty for numbers.
    """

    codes: Array | CodeRows
    scales: Array
    zeros: Array | None
    k: int
    bits: int
    order: tuple[Array, Array] | None = None
    table: str = ""


@attrs.frozen(eq=False)
class Packed:
    """
    Weights in records.

    Attributes
    ----------
    data
        uint8, (groups, blocks, bytes of a record).
    places
        Of :func:`sorted_by_block`, or None.
    """

    form: Form
    data: Array
    n: int
    k: int
    block: int
    places: Array | None = None

    @property
    def depth(self) -> int:
        """Give K as packed: whole blocks."""
        return int(self.data.shape[1]) * self.block


def packed_nbytes(
    n: int, blocks: int, block: int, bits: int, scales: Array, zeros: Array | None,
    table: str = "",
) -> int:  # fmt: skip
    """Give the bytes that :func:`pack` makes of N rows of blocks."""
    form, _ = _form(bits, block, scales, zeros, table)
    return fewest_groups(n) * blocks * form.record(block)


def fewest_groups(n: int) -> int:
    """Give the groups that N rows take."""
    return max(-(-n // GROUP), MOST_GROUPS)


def pack(source: Source) -> Packed:
    """Pack weights; beside the result it takes memory for some rows only."""
    n, blocks, width = source.codes.shape
    block = width * 8 // source.bits
    of_codes = source.scales, source.zeros, source.table
    form, zeros = _form(source.bits, block, *of_codes)
    order = source.order
    blocks = blocks if order is None else len(order[1])
    record, groups = form.record(block), fewest_groups(n)
    data = huge(groups * blocks * record).reshape(groups, blocks, record)
    for start in range(0, n, _AT_ONCE):
        rows = slice(start, min(start + _AT_ONCE, n))
        codes, scales = source.codes[rows], source.scales[rows]
        some = None if zeros is None else zeros[rows]
        if order is not None:
            codes, scales = (
                _moved(codes, order[0], source.bits, block),
                scales[:, order[1]],
            )
            some = None if some is None else some[:, order[1]]
        _fill(data[start // GROUP :], form, codes, scales, some)
    return Packed(form, data, n, source.k, block, None if order is None else order[0])


def _form(
    bits: int, block: int, scales: Array, zeros: Array | None, table: str
) -> tuple[Form, Array | None]:
    """Give how weights are kept, and their zero points so."""
    zeros, kind = (None, table) if table else _zero_kind(zeros, bits)
    floats = [scales] if kind != "floats" or zeros is None else [scales, zeros]
    half = next(
        (k for k in _halves() if all(_exact(x, _NARROW[k]) for x in floats)), ""
    )
    return Form(bits, 32 if block % 32 == 0 else 16, half, kind), zeros


def _halves() -> tuple[str, ...]:
    """Give the types of 16 bits that code here can widen; bfloat16 takes a shift."""
    return ("float16", "bfloat16") if converts_half() else ("bfloat16",)


def _fill(
    data: Array, form: Form, codes: Array, scales: Array, zeros: Array | None
) -> None:
    """Write some rows' records."""
    blocks, width = codes.shape[1:]
    at = GROUP * width
    # Views of a record's parts: groups, blocks, then words, then rows.
    words = np.ascontiguousarray(codes).view(np.uint32)
    _spread(data[:, :, :at].view(np.uint32), words)
    _spread(
        data[:, :, at : at + form.scale_nbytes].view(_NARROW.get(form.half, f4)),
        scales.reshape(-1, blocks, 1),
    )
    if zeros is None:
        return
    rest = data[:, :, at + form.scale_nbytes :]
    kind = np.uint8 if form.zero == "bytes" else _NARROW.get(form.half, f4)
    _spread(rest.view(kind), zeros.reshape(-1, blocks, 1))


def _spread(target: Array, source: Array) -> None:
    """Write (rows, blocks, words) as (groups, blocks, words * GROUP)."""
    rows, blocks, words = source.shape
    whole = rows // GROUP
    split = target.reshape(len(target), blocks, words, GROUP)
    body = source[: whole * GROUP].reshape(whole, GROUP, blocks, words)
    split[:whole] = body.transpose(0, 2, 3, 1)
    for row in range(whole * GROUP, rows):
        split[whole, :, :, row - whole * GROUP] = source[row]


def _exact(x: Array, narrow: Any) -> bool:
    """Tell whether a type holds every value; looked at in pieces, as there may be many."""
    if x.dtype == narrow:
        return True
    flat = x.reshape(-1)
    return all(_same(flat[i : i + 65536], narrow) for i in range(0, len(flat), 65536))


def _same(x: Array, narrow: Any) -> bool:
    wide = x.astype(f4)
    with np.errstate(over="ignore"):
        kept = wide.astype(narrow).astype(f4)
    return bool(np.all((kept == wide) | np.isnan(wide)))


def _zero_kind(zeros: Array | None, bits: int) -> tuple[Array | None, str]:
    """Give zero points as they are kept: dropped where all are the middle code."""
    if zeros is None or bool(np.all(zeros == (1 << (bits - 1)))):
        return None, "middle"
    if zeros.dtype == np.uint8:
        return zeros, "bytes"
    wide = zeros.astype(f4)
    if bool(np.all((wide >= 0) & (wide <= 255) & (wide == np.floor(wide)))):
        return wide.astype(np.uint8), "bytes"
    return wide, "floats"


def sorted_by_block(groups: Array, block: int) -> tuple[Array, Array]:
    """
    Give an order of K in which every block has one scale.

    Parameters
    ----------
    groups
        ``g_idx``: for each of K, the block whose scale it has.

    Returns
    -------
    places
        intp, whole blocks: where in K each is from, -1 for what fills a block up.
    owners
        intp, for each block the one whose scale it has.
    """
    places, owners = [], []
    for owner in np.unique(groups):
        found = np.flatnonzero(groups == owner)
        full = np.full(-(-len(found) // block) * block, -1, np.intp)
        full[: len(found)] = found
        places.append(full)
        owners += [int(owner)] * (len(full) // block)
    return np.concatenate(places), np.array(owners, np.intp)


def _moved(codes: Array, places: Array, bits: int, block: int) -> Array:
    """Put codes in another order of K; what fills a block up is 0."""
    rows, planes = len(codes), 8 // bits
    shifts = np.arange(planes, dtype=np.uint8) * np.uint8(bits)
    flat = (codes.reshape(rows, -1, 1) >> shifts) & np.uint8((1 << bits) - 1)
    taken = np.where(places < 0, np.uint8(0), flat.reshape(rows, -1)[:, places])
    parts = taken.reshape(rows, -1, planes) << shifts
    packed = np.bitwise_or.reduce(parts, axis=2)
    return np.asarray(packed.reshape(rows, -1, block // planes), np.uint8)
