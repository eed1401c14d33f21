"""What one kernel of attention by tiles depends on, and its parameters."""

from __future__ import annotations

import attrs

from seamline_cuda.attention_spans import FIXED, Bias, Span
from seamline_cuda.elements import ELEMENTS

__all__ = ["LANES", "THREADS", "Tiling"]

THREADS = 128  #: of a block
LANES = 16  #: that share a row of scores
_ROOM = (
    4096  #: floats of a tile: two and the scores fit what a block has without asking
)


@attrs.frozen
class Tiling:
    """
    What the text of a kernel depends on.

    Attributes
    ----------
    kinds
        Element types of queries, keys, values and the result.
    depth, width
        Values of a head of keys, and of values; at most 256 each.
    columns
        Queries of a tile, a multiple of 8.
    wide
        Elements of queries, keys and values that are loaded together: 1, 2 or 4.
    biases
        Kinds of what is added to the scores.
    sink
        Element type of a score for each head that has no value, ``zero`` for 0, or empty.
    split
        Keys are cut into parts.
    threads
        Of a block, a multiple of 32.
    """

    kinds: tuple[str, str, str, str]
    depth: int
    width: int
    columns: int
    span: Span = FIXED
    wide: tuple[int, int, int] = (1, 1, 1)
    biases: tuple[str, ...] = ()
    capped: bool = False
    sink: str = ""
    split: bool = False
    threads: int = THREADS

    @property
    def keys(self) -> int:
        """Give the keys of a tile."""
        most = _ROOM // max(self.depth, self.width)
        return next((n for n in (32, 16) if n <= most), 8)

    @staticmethod
    def most_columns(depth: int, width: int) -> int:
        """Give the most queries of a tile for heads of so many values."""
        most = _ROOM // max(depth, width)
        return next((n for n in (64, 32, 16) if n <= most), 8)

    def constants(self) -> dict[str, int]:
        """Give the constants that the text names: sizes, and the counts of a thread."""
        lines = self.threads // LANES  # rows of scores side by side
        over = self.columns // lines
        across, beside = -(-self.keys // LANES), -(-self.width // LANES)
        return {
            "DEPTH": self.depth,
            "WIDTH": self.width,
            "COLUMNS": self.columns,
            "KEYS": self.keys,
            "OVER": over,
            "ACROSS": across,
            "BESIDE": beside,
            "SCORES": over * across,
            "SUMS": over * beside,
            "MOST": max(across, beside),
            "QUERY_ROOM": self.columns * (self.depth + 1),
            "KEY_ROOM": self.keys * (max(self.depth, self.width) + 1),
            "WEIGHT_ROOM": self.columns * (self.keys + 1),
            "THREADS": self.threads,
            "LANES": LANES,
            "LINES": lines,
        }

    def parameters(self) -> dict[str, str]:
        """Give the kernel's parameters by name, with their types."""
        found: dict[str, str] = {}
        for index, name in enumerate("qkvy"):
            stored = ELEMENTS[self.kinds[index]].stored
            if index < 3 and self.wide[index] > 1:
                stored = f"uint{16 * self.wide[index]}"
            found[name] = f"{stored}*"
            found |= {f"{name}_{by}": "int64" for by in ("batch", "head", "row")}
        found |= self.span.parameters()
        for index, kind in enumerate(self.biases):
            found |= Bias.parameters(kind, f"bias{index}")
        if self.sink not in ("", "zero"):
            found["sinks"] = f"{ELEMENTS[self.sink].stored}*"
        if self.capped:
            found["cap"] = "float32"
        if self.split:
            found |= {"parts": "float32*", "levels": "float32*"}
        names = ("heads", "group", "tiles", "splits", "causal", "left", "right")
        return found | dict.fromkeys(names, "int64") | {"scale": "float32"}
