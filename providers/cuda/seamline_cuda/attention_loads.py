"""Text that brings tiles of queries, keys and values to shared memory, as float32."""

from __future__ import annotations

from seamline_cuda.attention_spans import widened
from seamline_cuda.attention_tiling import Tiling
from seamline_cuda.templates import filled

__all__ = ["held", "loaded"]

_AT_ONCE = 8  #: loads under way for each thread
_QUERY = """\
query = column + n
row = np.int64(quotient32(np.uint32(query), np.uint32(group)))
start = entry * q_batch + row * q_row + (head * group + query - row * group) * q_head
holds = query < columns
"""
_KEY = """\
start = entry * NAMEBATCH + head * NAMEHEAD + (at + n) * NAMEROW
holds = at + n < stop
"""
#: Rows of a head to shared memory, one value further apart than they are long, so that
#: lanes that read one value of different rows find it in different banks. A thread asks
#: for several loads before it waits for the first.
_LOAD = """\
i = np.int64(t)
while i < ROWS * UNITS:
    for u in range(LOADS):
        place = i + u * THREADS
        n = place // UNITS
        unit = place - n * UNITS
        PLACE
        HELD[u] = ZERO
        if place < ROWS * UNITS and holds:
            HELD[u] = NAME[(start >> SHIFT) + unit]
    for u in range(LOADS):
        place = i + u * THREADS
        n = place // UNITS
        to = n * (SIZE + 1) + (place - n * UNITS) * WIDE
        if place < ROWS * UNITS:
            STORES
    i += LOADS * THREADS
"""


def _stored(kind: str, wide: int) -> str:
    return "float32" if kind == "float32" else f"uint{16 * wide}"


def held(tiling: Tiling) -> list[str]:
    """Give lines with the registers that loads go to, for each type of them."""
    kinds = zip(tiling.kinds, tiling.wide, strict=False)
    names = sorted({_stored(kind, wide) for kind, wide in kinds})
    return [f"held_{n} = cuda.local.array({_AT_ONCE}, np.{n})" for n in names]


def loaded(tiling: Tiling, which: int) -> list[str]:
    """Give lines that load a tile of queries (0), keys (1) or values (2)."""
    kind, wide, name = tiling.kinds[which], tiling.wide[which], "qkv"[which]
    size = tiling.width if which == 2 else tiling.depth
    rows = tiling.keys if which else tiling.columns
    units, room = size // wide, "rest" if which else "queries"
    stored = _stored(kind, wide)
    held = f"held_{stored}"
    word = f"np.uint{16 * wide}"
    elements = [f"{held}[u]"]
    if wide > 1:
        elements = [
            f"np.uint16(({held}[u] >> {word}({16 * e})) & {word}(65535))"
            for e in range(wide)
        ]
    stores = [f"{room}[to + {e}] = {widened(kind, v)}" for e, v in enumerate(elements)]
    steps = {f"NAME{by.upper()}": f"{name}_{by}" for by in ("batch", "head", "row")}
    place = filled(_KEY, **steps) if which else _QUERY.splitlines()
    return filled(
        _LOAD, ROWS=rows, UNITS=units, SIZE=size, WIDE=wide, NAME=name, HELD=held,
        PLACE=place, STORES=stores,
        SHIFT=wide.bit_length() - 1, ZERO=f"np.{stored}(0)",
        LOADS=min(_AT_ONCE, -(-rows * units // tiling.threads)),
    )  # fmt: skip
