"""What tiles over packed weights have in common: registers' parts, scales, and stores."""

from __future__ import annotations

from typing import Any

from seamline_cpu.kernels.nbits_layout import GROUP
from seamline_cpu.vectors import F16, F32, I64, Vectors, vector

__all__ = ["AHEAD", "load_scales", "parts_of", "store_rows"]

AHEAD = 1280  #: bytes of each stream that are asked for before they are needed


def parts_of(v: Vectors, groups: int) -> list[tuple[int, int]]:
    """Give (group, first row in it) of each register's worth of weights."""
    return [
        (group, lane) for group in range(groups) for lane in range(0, GROUP, v.lanes)
    ]


def load_scales(v: Vectors, half: bool, address: Any, lanes: int) -> Any:
    """Load scales, or zero points that are floats, as float32."""
    if not half:
        return v.load(vector(F32, lanes), address, 4)
    return v.builder.fpext(v.load(vector(F16, lanes), address, 2), vector(F32, lanes))


def store_rows(
    v: Vectors, sums: list[list[Any]], bias: Any, y: Any, pitch: Any, columns: Any
) -> None:
    """Add the bias to rows of sums, and store their first ``columns`` columns."""
    b, lanes = v.builder, v.lanes
    width = len(sums[0]) * lanes
    whole = b.icmp_signed(">=", columns, v.constant(I64, width))
    with b.if_else(whole) as (all_of_it, part_of_it):
        for branch, full in ((all_of_it, True), (part_of_it, False)):
            with branch:
                line = y
                for row in sums:
                    for i, x in enumerate(row):
                        place, more = (
                            v.add(start, 4 * lanes * i) for start in (line, bias)
                        )
                        left = v.add(columns, -lanes * i)
                        if full:
                            v.store(b.fadd(x, v.load(x.type, more, 4)), place, 4)
                        else:
                            added = v.load_part(x.type, more, left)
                            v.store_part(b.fadd(x, added), place, left)
                    line = v.add(line, pitch)
