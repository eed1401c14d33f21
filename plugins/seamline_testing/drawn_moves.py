"""How the inputs of operators that move or choose elements are drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from seamline.provider import Array
from seamline_testing.drawing import Drawer, Drawn, Form, Inputs

__all__ = ["MOVES", "ints"]

_FIRST, _LAST = -(2**63), 2**63 - 1
#: Start, end and step of slices that keep much of a long axis.
_PARTS = ((0, _LAST, 1), (1, -1, 2), (_LAST, _FIRST, -1), (-2, _FIRST, -3))


def ints(*values: int) -> Array:
    """Give a vector of int64."""
    return np.array(values, np.int64)


def _transpose(d: Drawer) -> Inputs:
    shape = d.shape()
    axes = range(len(shape))
    if d.form is Form.DRAWN:
        perm = list(d.draw(st.permutations(axes)))
    else:
        perm = list(d.pick(axes[::-1], (*axes[1:], 0), (*axes[:-2], *axes[:-3:-1])))
    return [d.values(shape)], {"perm": perm} if perm else {}


def _reshape(d: Drawer) -> Inputs:
    shape = d.shape(smallest=1)
    x = d.values(shape)
    to = d.pick((x.size,), (-1,), (1, -1), (*shape[::-1],), (*shape, 1))
    return [x, ints(*to)], {}


def _flatten(d: Drawer) -> Inputs:
    shape = d.shape()
    return [d.values(shape)], {
        "axis": int(d.draw(st.integers(-len(shape), len(shape))))
    }


def _squeeze(d: Drawer) -> Inputs:
    shape = d.shape(1)
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    return [d.values(shape), *([ints(*axes)] if axes else [])], {}


def _unsqueeze(d: Drawer) -> Inputs:
    shape = d.shape(most=3)
    return [d.values(shape), ints(d.axis(len(shape) + 1))], {}


def _concat(d: Drawer) -> Inputs:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    inputs: list[Array | None] = []
    drawn = st.lists(st.integers(0, 4), min_size=1, max_size=4)
    for size in d.formed(drawn, (1, shape[axis], 2)):
        shape[axis] = size
        inputs.append(d.values(tuple(shape)))
    return inputs, {"axis": axis}


def _split(d: Drawer) -> Inputs:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    half, rest = divmod(shape[axis], 2)
    drawn = st.lists(st.integers(0, 3), min_size=1, max_size=4)
    sizes = d.formed(drawn, (rest, half, 0, half))
    shape[axis] = sum(sizes)
    return [d.values(tuple(shape)), ints(*sizes)], {"axis": axis}


def _slice(d: Drawer) -> Inputs:
    shape = d.shape(1)
    axes = sorted(d.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    parts = st.sampled_from(_PARTS)
    if d.form is Form.DRAWN:
        bounds = st.one_of(st.integers(-7, 7), st.sampled_from([_FIRST, _LAST]))
        parts = st.tuples(bounds, bounds, st.sampled_from([1, 2, 3, -1, -2]))
    starts, ends, steps = zip(*(d.draw(parts) for _ in axes), strict=True)
    return [d.values(shape), *(ints(*one) for one in (starts, ends, axes, steps))], {}


def _gather(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    many = (shape[axis],) if d.form is not Form.DRAWN else d.shape(most=2)
    return [d.values(shape), d.indices(many, shape[axis])], {"axis": axis}


def _gather_elements(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    wanted = list(shape)
    wanted[axis] = d.formed(st.integers(1, 4), shape[axis])
    return [d.values(shape), d.indices(tuple(wanted), shape[axis])], {"axis": axis}


def _expand(d: Drawer) -> Inputs:
    to, shape = d.broadcasting(2)
    return [d.values(shape), ints(*to)], {}


def _tile(d: Drawer) -> Inputs:
    shape = d.shape()
    once = (*(1 for _ in shape[1:]), 2)
    drawn = st.lists(st.integers(0, 3), min_size=len(shape), max_size=len(shape))
    repeats = d.formed(drawn, once)
    return [d.values(shape), ints(*repeats)], {}


def _pad(d: Drawer) -> Inputs:
    shape = d.shape(1, 3, 2)
    pads = [int(d.draw(st.integers(0, 1))) for _ in range(2 * len(shape))]
    mode = d.pick("constant", "edge", "reflect", "wrap")
    fill = [d.values(())] if mode == "constant" and d.draw(st.booleans()) else []
    return [d.values(shape), ints(*pads), *fill], {"mode": mode}


def _topk(d: Drawer) -> Inputs:
    shape = d.shape(1, smallest=1)
    axis = d.axis(len(shape))
    k = d.formed(st.integers(0, shape[axis]), shape[axis] // 2 + 1)
    return [d.values(shape), ints(k)], {"axis": axis, "largest": d.pick(0, 1)}


def _trilu(d: Drawer) -> Inputs:
    k = np.asarray(d.draw(st.integers(-4, 4)), np.int64)
    return [d.values(d.shape(2)), k], {"upper": d.pick(0, 1)}


def _depth(d: Drawer) -> Inputs:
    b, (n, c, h, w) = (
        d.pick(1, 2, 3),
        (d.formed(st.integers(0, 3), formed) for formed in (2, 5, 31, 43)),
    )
    deep = d.operator == "DepthToSpace"
    shape = (n, c * b * b, h, w) if deep else (n, c, h * b, w * b)
    attributes = (
        {"blocksize": b, "mode": d.pick("DCR", "CRD")} if deep else {"blocksize": b}
    )
    return [d.values(shape)], attributes


#: Operator -> how its inputs are drawn.
MOVES: Mapping[str, Drawn] = {
    "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten,
    "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Concat": _concat, "Split": _split,
    "Slice": _slice, "Gather": _gather, "GatherElements": _gather_elements,
    "Expand": _expand, "Tile": _tile, "Pad": _pad, "TopK": _topk, "Trilu": _trilu,
    "DepthToSpace": _depth, "SpaceToDepth": _depth,
}  # fmt: skip
