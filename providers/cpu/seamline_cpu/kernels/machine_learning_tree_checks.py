"""Whether an ensemble of trees is one: its numbers point somewhere, and never back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from seamline_cpu.kernels.machine_learning_trees import Forest

__all__ = ["checked", "hold_lengths"]


def hold_lengths(attributes: Mapping[str, Any], count: int) -> None:
    """Hold lists to one entry a node, or a leaf; and numbers to zero and more."""
    leaves = len(attributes["leaf_weights"])
    for name, given in attributes.items():
        parts = {"nodes": count, "leaf": leaves}.get(name.partition("_")[0])
        if parts is not None and len(given) not in (
            (0, parts) if name == "nodes_missing_value_tracks_true" else (parts,)
        ):
            raise ValueError(f"{name} has {len(given)} entries, not {parts}")
    for name in ("tree_roots", "nodes_truenodeids", "nodes_falsenodeids"):
        if min(attributes[name], default=0) < 0:
            raise ValueError(f"{name} has {min(attributes[name])}, a negative number")


def checked(forest: Forest) -> Forest:
    """Follow every child from the roots: the compiled loop trusts the numbers."""
    inner, leaves = len(forest.features), len(forest.leaves) - 1
    if inner and forest.features.min() < 0:
        raise ValueError("a feature's number is negative")
    for numbers in (forest.roots, forest.yes, forest.no):
        if numbers.size and not -leaves <= numbers.min() <= numbers.max() < inner:
            raise ValueError("a node or leaf is asked for that is not there")
    state = np.zeros(inner, np.uint8)  # 1: above what is looked at, 2: done
    for root in forest.roots[forest.roots >= 0].tolist():
        stack = [root]
        while stack:
            at = stack[-1]
            below = [c for c in (int(forest.yes[at]), int(forest.no[at])) if c >= 0]
            fresh = [c for c in below if state[c] == 0]
            if state[at] == 0:
                state[at] = 1
                if any(state[c] == 1 for c in below):
                    raise ValueError("nodes lead back to themselves")
                stack += fresh
            else:
                state[at] = 2
                stack.pop()
    return forest
