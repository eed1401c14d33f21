"""Whether scales and biases of normalizations have the sizes of what they scale."""

from __future__ import annotations

from seamline.fitting import Check, dims, unlike
from seamline.provider import NodeView
from seamline.tensors import Dim

__all__ = ["unfit_by_channel", "unfit_skip", "unfit_trailing"]


def unfit_by_channel(*indices: int) -> Check:
    """Give the check of inputs that hold one value for each channel of the input."""

    def check(view: NodeView) -> str | None:
        x = dims(view, 0)
        if x is None:
            return None
        if not x:
            return "its input is a scalar, which has no channels"
        form: tuple[Dim, ...] = (x[1] if len(x) > 1 else 1,)
        groups = view.attributes.get("num_groups")
        if groups is not None:
            channels = form[0]
            if groups < 1 or (isinstance(channels, int) and channels % groups):
                return f"{channels} channels do not divide into {groups} groups"
            form = (groups,) if view.since_version < 21 else form
        if not view.attributes.get("spatial", 1):
            form = x[1:]
        for index in indices:
            if reason := unlike(view, index, f"input {index}", form):
                return reason
        return None

    return check


def unfit_trailing(view: NodeView) -> str | None:
    """Refuse a scale or bias that does not broadcast to the axes normalized."""
    x = dims(view, 0)
    if not view.has_input(1):
        return "its scale is not given"
    if x is None:
        return None
    axis = view.attributes.get("axis", -1)
    if not -len(x) <= axis < max(len(x), 1):
        return f"its axis is {axis}, and its input has {len(x)} axes"
    for index, name in ((1, "scale"), (2, "bias")):
        shape = dims(view, index)
        if shape is None:
            continue
        behind = x[len(x) - len(shape) :] if len(shape) <= len(x) else None
        if behind is None or any(
            isinstance(own, int) and isinstance(size, int) and own not in (1, size)
            for own, size in zip(shape, behind, strict=True)
        ):
            return f"its {name} is {list(shape)} and its input {list(x)}"
    return None


def unfit_skip(view: NodeView) -> str | None:
    """Refuse what does not fit rows that are added and then normalized."""
    x = dims(view, 0)
    if not view.has_input(2):
        return "its gamma is not given"
    if x is None:
        return None
    if not x:
        return "its input is a scalar"
    row = (x[-1],)
    return (
        unlike(view, 1, "skip", x, *((x[1:], (1, *x[1:])) if len(x) == 3 else ()))
        or unlike(view, 2, "gamma", row)
        or unlike(view, 3, "input 3", row)
        or unlike(view, 4, "bias", row)
    )
