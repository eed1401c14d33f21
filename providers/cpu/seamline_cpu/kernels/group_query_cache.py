"""
Where the rows of a grouped-query attention go: lengths, positions, and the cache.

After a call entry ``b`` of the batch has ``T = seqlens_k[b] + 1`` tokens, ``Q`` of them
new. Lengths come from whoever calls, so each is checked before it bounds an array.
"""

from __future__ import annotations

import attrs

from seamline.provider import Array

__all__ = ["Span", "spans"]


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
