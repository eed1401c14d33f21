"""Whether weights, states and lengths of LSTM, GRU and RNN fit one another."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamline.fitting import dims, unlike
from seamline.provider import NodeView

__all__ = ["WAYS", "unfit_recurrent", "within_steps"]

_Array = np.ndarray[Any, Any]
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WAYS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def unfit_recurrent(view: NodeView) -> str | None:
    """Refuse inputs whose sizes differ from what X, R and the attributes say."""
    x, r = dims(view, 0), dims(view, 2)
    if x is None or r is None:
        return None
    way = view.attributes.get("direction", "forward")
    if len(x) != 3 or len(r) != 3 or way not in WAYS:
        return f"X has {len(x)} axes and R has {len(r)}, not 3, or its direction is {way!r}"
    ways, size = WAYS[way], view.attributes.get("hidden_size", r[2])
    if not isinstance(size, int):
        return None
    steps, batch, depth = x
    state: tuple[Any, ...] = (ways, batch, size)
    if view.attributes.get("layout", 0):
        steps, batch = batch, steps
        state = (batch, ways, size)
    wide = _GATES[view.op_type] * size
    return (
        unlike(view, 1, "W", (ways, wide, depth))
        or unlike(view, 2, "R", (ways, wide, size))
        or unlike(view, 3, "B", (ways, 2 * wide))
        or unlike(view, 4, "sequence_lens", (batch,))
        or unlike(view, 5, "initial_h", state)
        or unlike(view, 6, "initial_c", state)
        or unlike(view, 7, "P", (ways, 3 * size))
    )


def within_steps(lengths: _Array | None, steps: int) -> None:
    """
    Hold sequence lengths to the number of steps.

    Raises
    ------
    ValueError
        A length is negative or longer; names it and its entry of the batch.
    """
    if lengths is None or not lengths.size:
        return
    if lengths.min() < 0 or lengths.max() > steps:
        entry = int(np.flatnonzero((lengths < 0) | (lengths > steps))[0])
        raise ValueError(
            f"sequence_lens of entry {entry} is {lengths[entry]}, outside [0, {steps}]"
        )
