"""
Where the rows of a grouped-query attention go: lengths, positions, and the cache.

After a call entry ``b`` of the batch has ``T = seqlens_k[b] + 1`` tokens, ``Q`` of them
new. Lengths come from whoever calls, so each is checked before it bounds an array.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.provider import Array

__all__ = ["Span", "keep_past", "normalized", "rotated", "spans"]


@attrs.frozen
class Span:
    """One entry's rows: ``past`` of them are cached, ``new`` more come in this call."""

    entry: int
    past: int
    new: int

    @property
    def total(self) -> int:
        """Give the tokens that the entry has after the call."""
        return self.past + self.new


def spans(
    lengths: Array,
    given: Array | None,
    batch: int,
    rows: int,
    before: int,
    capacity: int,
) -> list[Span]:
    """
    Give every entry's span once all lengths are known to fit.

    Parameters
    ----------
    lengths
        ``seqlens_k``: tokens after the call, less one, for each entry.
    given
        ``query_seqlens``: new tokens of each entry; None where padding follows from
        the lengths alone.
    rows
        Rows of the query, padding among them.
    before, capacity
        Rows of the past buffer, and of the present one.

    Raises
    ------
    ValueError
        A length that does not fit; names the input, entry, value and capacity.
    """
    flat = lengths.reshape(-1).tolist()
    counts = None if given is None else given.reshape(-1).tolist()
    found = []
    for entry, last in enumerate(flat):
        if not 0 <= last < capacity:
            raise ValueError(
                f"seqlens_k of entry {entry} is {last}, outside [0, {capacity}): the cache "
                f"has a capacity of {capacity} rows"
            )
        new = min(rows, last + 1) if counts is None else counts[entry]
        if not 0 <= new <= min(rows, last + 1):
            raise ValueError(
                f"query_seqlens of entry {entry} is {new}, outside [0, "
                f"{min(rows, last + 1)}] for {rows} rows and seqlens_k {last}"
            )
        if last + 1 - new > before:
            raise ValueError(
                f"seqlens_k of entry {entry} is {last}, which takes {last + 1 - new} past "
                f"rows; the past buffer has a capacity of {before} rows"
            )
        found.append(Span(entry, last + 1 - new, new))
    return found


def keep_past(past: Array | None, present: Array, span: Span) -> None:
    """Take over an entry's past rows; what lies beyond its tokens is never read."""
    mine = present[span.entry]
    if (
        past is not None
        and past.ctypes.data == present.ctypes.data
        and (past.shape[2] == present.shape[2])
    ):
        return
    if past is not None:
        mine[:, : span.past] = past[span.entry, :, : span.past]
    mine[:, span.total :] = 0


def normalized(x: Array, weight: Array | None, epsilon: float) -> Array:
    """Give rows (..., size) divided by their root mean square, in float32."""
    wide = x.astype(np.float32)
    if weight is None:
        return wide
    square = np.mean(wide * wide, axis=-1, keepdims=True)
    return np.asarray(
        wide / np.sqrt(square + np.float32(epsilon)) * weight.astype(np.float32)
    )


def rotated(
    x: Array, positions: Array, cos: Array, sin: Array, interleaved: bool
) -> Array:
    """
    Rotate the leading ``2 * cos.shape[1]`` values of each head, in place.

    ``x`` is float32 (rows, heads, size); row ``p`` of the tables (length, half) is
    position ``p``. Pairs are the two halves, or neighbours where interleaved.

    Raises
    ------
    IndexError
        A position that the tables do not have.
    """
    half = cos.shape[1]
    if positions.size and not (positions.min() >= 0 and positions.max() < len(cos)):
        bad = positions.min() if positions.min() < 0 else positions.max()
        raise IndexError(
            f"position {bad} is outside [0, {len(cos)}) of the rotary tables"
        )
    c, s = (t[positions][:, None, :].astype(np.float32) for t in (cos, sin))
    if interleaved:
        one, two = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    else:
        one, two = x[..., :half], x[..., half : 2 * half]
    turned = one * s + two * c
    np.subtract(one * c, two * s, out=one)
    two[...] = turned
    return x
