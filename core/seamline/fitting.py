"""
Whether the shapes of a node's inputs fit one another.

Compiled code trusts sizes: it takes as many bias values as there are channels, however
many the bias has. ONNX's inference does not compare inputs everywhere, so each kernel over
addresses does, when it is claimed: with the sizes that are known then, and again once all
of them are. A size that is not known yet fits everything.
"""

from __future__ import annotations

from collections.abc import Callable

from seamline.provider import NodeView
from seamline.tensors import Dim

__all__ = ["Check", "all_of", "dims", "unlike"]

Check = Callable[[NodeView], str | None]


def dims(view: NodeView, index: int) -> tuple[Dim, ...] | None:
    """Give the shape of an input that is given and whose rank is known."""
    kind = view.tensor(index)
    return None if kind is None else kind.shape


def unlike(
    view: NodeView, index: int, name: str, *forms: tuple[Dim, ...] | None
) -> str | None:
    """
    Say that an input has none of the shapes that it may have.

    Parameters
    ----------
    name
        What the operator calls the input.
    forms
        Shapes; a size of None fits every size, and so does a form of None.
    """
    shape = dims(view, index)
    if shape is None or any(form is None or _fits(shape, form) for form in forms):
        return None
    wanted = " or ".join(str(_plain(form)) for form in forms if form is not None)
    return f"its {name} is {_plain(shape)}, not {wanted}"


def _fits(shape: tuple[Dim, ...], form: tuple[Dim, ...]) -> bool:
    return len(shape) == len(form) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(shape, form, strict=True)
    )


def _plain(shape: tuple[Dim, ...]) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in shape)}]"


def all_of(*checks: Check) -> Check:
    """Join checks into one that gives the first reason."""

    def check(view: NodeView) -> str | None:
        for one in checks:
            if reason := one(view):
                return reason
        return None

    return check
