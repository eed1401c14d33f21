"""
Which keys a query sees, and what is added to its scores: text that attention's kernels share.

An entry of the batch has ``fresh`` rows of queries, the first of them at position
``first``, and ``end`` keys. Where these are data they are read by every kernel that needs
them, so that one recording serves all lengths. What does not fit leaves the entry without
rows and keys; whoever writes its rows says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from seamline_cuda.elements import ELEMENTS

__all__ = ["ENDS", "FIXED", "Bias", "Span", "bounds_text", "sink_text", "widened"]

ENDS = "ends"  #: the kind of a bias that is the end of each entry's keys


@attrs.frozen
class Span:
    """
    Where an entry's rows and keys come from.

    Attributes
    ----------
    kind
        ``fixed``: numbers of the plan; ``filled``: a length for each entry, whose rows
        are the last (``nonpad_kv_seqlen``); ``grouped``: the number of each entry's
        tokens, less one (``seqlens_k``).
    lengths
        Element type of the lengths.
    counts
        Element type of the new rows of each entry, empty where they follow from the
        lengths.
    """

    kind: str = "fixed"
    lengths: str = ""
    counts: str = ""

    def parameters(self) -> dict[str, str]:
        """Give the kernel's parameters by name, with their types."""
        found = {"rows": "int64"}
        if self.lengths:
            found["lengths"] = f"{self.lengths}*"
        if self.counts:
            found["counts"] = f"{self.counts}*"
        more = {"fixed": ("before", "limit"), "filled": ("limit",)}
        names = more.get(self.kind, ("before", "limit"))
        return found | dict.fromkeys(names, "int64")

    def text(self) -> list[str]:
        """Give lines that set ``first``, ``end`` and ``fresh`` of ``entry``."""
        if self.kind == "fixed":
            return ["first = before", "end = limit", "fresh = rows"]
        if self.kind == "filled":
            return [
                "length = np.int64(lengths[entry])",
                "first = length - rows",
                "end = min(max(length, 0), limit)",
                "fresh = rows",
            ]
        given = "np.int64(counts[entry])" if self.counts else "held"
        return [
            "last = np.int64(lengths[entry])",
            "held = min(rows, last + 1)",
            f"fresh = {given}",
            "end = last + 1",
            "first = end - fresh",
            "fits = last >= 0 and end <= limit and first <= before",
            "if not fits or fresh < 0 or fresh > held:",
            "    first = end = fresh = np.int64(0)",
            "    fits = False",
        ]


FIXED = Span()  #: numbers of the plan


def bounds_text() -> list[str]:
    """
    Give lines that set ``lowest`` and ``highest``, the bounds of the keys that ``row`` sees.

    A row that is none of the entry's sees nothing.
    """
    return [
        "at = first + row",
        "lowest = max(0, at - left) if left >= 0 else np.int64(0)",
        "highest = min(end, at + 1) if causal else end",
        "if right >= 0:",
        "    highest = min(highest, at + right + 1)",
        "if row >= fresh:",
        "    highest = np.int64(0)",
    ]


@attrs.frozen
class Bias:
    """
    What is added to scores: numbers, masks whose zeros stand for one number, or ends.

    Attributes
    ----------
    kind
        Element type of what is read, or :data:`ENDS`.
    address
        Of the first element.
    steps
        Elements from one entry, head, row and key to the next; 0 where it is broadcast.
    filler
        What a mask's zero adds.
    starts
        Of :data:`ENDS`: behind the ends lie the starts of each entry's keys.
    """

    kind: str
    address: int
    steps: tuple[int, int, int, int] = (0, 0, 0, 0)
    filler: float = float("-inf")
    starts: int = 0

    @staticmethod
    def parameters(kind: str, name: str) -> dict[str, str]:
        """Give the kernel's parameters for a bias, with their types."""
        if kind == ENDS:
            names = (f"{name}_filler", f"{name}_starts")
            return {name: "int32*", names[0]: "float32", names[1]: "int64"}
        stored = ELEMENTS[kind].stored
        steps = {f"{name}_{by}": "int64" for by in ("batch", "head", "row", "key")}
        return {name: f"{stored}*", f"{name}_filler": "float32", **steps}

    def values(self, name: str) -> Mapping[str, float]:
        """Give a value for each of the parameters."""
        by = zip(("batch", "head", "row", "key"), self.steps, strict=True)
        return {
            name: self.address,
            f"{name}_filler": self.filler,
            f"{name}_starts": self.starts,
            **{f"{name}_{axis}": step for axis, step in by},
        }

    @staticmethod
    def text(kind: str, name: str, head: str, row: str, key: str) -> str:
        """Give the expression that reads it for a head, row and key of ``entry``."""
        if kind == ENDS:
            start = f"(not {name}_starts or {key} >= {name}[{name}_starts + entry])"
            seen = f"{key} < {name}[entry] and {start}"
        else:
            at = f"entry * {name}_batch + {head} * {name}_head"
            at += f" + {row} * {name}_row + {key} * {name}_key"
            if kind in ("float32", "float16", "bfloat16"):
                return widened(kind, f"{name}[{at}]")
            seen = f"{name}[{at}] != 0"
        return f"(np.float32(0) if {seen} else {name}_filler)"


def widened(kind: str, value: str) -> str:
    """Give the expression for a stored value as float32."""
    return ELEMENTS[kind].load.format(value)


def sink_text(kind: str, head: str) -> list[str]:
    """
    Give lines that add a score that has no value to a row's ``sum``, and set ``shrink``.

    ``most`` is the greatest score so far, minus infinity where there was none.
    """
    if not kind:
        return ["shrink = np.float32(1)"]
    value = "np.float32(0)" if kind == "zero" else widened(kind, f"sinks[{head}]")
    return [
        f"sink = {value}",
        "above = greatest(most, sink)",
        "shrink = libdevice.expf(most - above)",
        "sum = sum * shrink + libdevice.expf(sink - above)",
    ]
