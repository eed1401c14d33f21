"""
What kernels say of their recording: for which nodes they are made of compiled commands.

A kernel is registered with one of these checks, or several, as ``not_capturable``; a kernel
that says nothing runs in Python. A claim depends on the node alone: element types, sizes, and
which inputs are constant. The layout of an array in memory is known only when a node is bound,
so a kernel that was claimed as commands may still be bound to NumPy; its segment's recording
then names it among those that were ``left``.
"""

from __future__ import annotations

from collections.abc import Mapping

from seamline.fitting import Check
from seamline.provider import NodeView
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.table import IN_PYTHON

__all__ = [
    "OF_BYTES",
    "OF_FLOAT32",
    "OF_FLOATS",
    "constant",
    "converted",
    "in_python",
    "known",
    "moved",
    "only",
    "stated",
]


def in_python(reason: str) -> str:
    """Say that a kernel runs in Python, and why."""
    return f"{IN_PYTHON}: {reason}"


def only(*dtypes: str) -> Check:
    """Accept some element types of input 0."""
    accepted = frozenset(dtypes)
    reason = in_python(f"only {', '.join(sorted(accepted))} has compiled commands")

    def check(node: NodeView) -> str | None:
        kind = node.tensor(0)
        return None if kind is not None and kind.dtype in accepted else reason

    return check


OF_FLOAT32 = only("float32")
OF_FLOATS = only("bfloat16", "float16", "float32")
OF_BYTES = only("int8", "uint8")


def stated(check: Check) -> Check:
    """State the reasons of another check as ones to run in Python."""

    def stating(node: NodeView) -> str | None:
        reason = check(node)
        return in_python(reason) if reason else None

    return stating


def moved(node: NodeView) -> str | None:
    """Accept elements of any type but text, which stay as they are."""
    kind = node.tensor(0)
    text = kind is not None and kind.dtype == "string"
    return in_python("text is not moved by commands") if text else None


def known(*indices: int) -> Check:
    """Accept nodes of which some inputs' values are known when they are bound."""

    def check(node: NodeView) -> str | None:
        for index in indices:
            if node.has_input(index) and node.constant(index) is None:
                return in_python(f"input {index} is not known before it runs")
        return None

    return check


def constant(names: Mapping[int, str]) -> Check:
    """Accept nodes of which some inputs, that have names, are packed before any run."""

    def check(node: NodeView) -> str | None:
        for index, what in names.items():
            if node.has_input(index) and node.constant(index) is None:
                return in_python(f"its {what} is not constant")
        return None

    return check


def converted(index: int = 0) -> Check:
    """Accept an input that is no float16, or any where the processor converts them."""

    def check(node: NodeView) -> str | None:
        kind = node.tensor(index)
        if kind is not None and kind.dtype == "float16" and not converts_half():
            return in_python("this processor does not convert float16")
        return None

    return check
