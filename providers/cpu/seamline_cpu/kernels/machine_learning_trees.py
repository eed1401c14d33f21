"""
Ensembles of decision trees, and how their leaves add up.

All versions become one form, made once for each node of a model: arrays over the inner
nodes, and arrays over the leaves, of which each holds a run of (target, weight) pairs. A
child is an inner node's number, or ``-1 - leaf``. Features and splits are compared in
float64, which holds every value of the types allowed; sums are float64 too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from seamline.provider import Array
from seamline_cpu.jit import jit
from seamline_cpu.kernels.machine_learning_tree_checks import checked, hold_lengths

__all__ = ["AGGREGATES", "MODES", "Forest", "forest_of_5", "forest_of_lists"]

#: Comparisons, by their number in TreeEnsemble 5.
MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER",
)  # fmt: skip
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@attrs.frozen(eq=False)
class Forest:
    """
    Trees in the one form.

    Attributes
    ----------
    roots
        A child's number for each tree.
    features, modes, splits, yes, no, missing
        Of each inner node; ``missing``: NaN goes to ``yes``.
    starts, members
        Of nodes that ask for membership: where each one's values begin in ``members``,
        and behind them all the end.
    leaves, targets, weights
        Where each leaf's pairs begin, and behind them all the end; the pairs.
    """

    roots: Array
    features: Array
    modes: Array
    splits: Array
    yes: Array
    no: Array
    missing: Array
    starts: Array
    members: Array
    leaves: Array
    targets: Array
    weights: Array

    def scores(self, x: Array, targets: int, aggregate: int) -> tuple[Array, Array]:
        """
        Give the scores of rows, and how many leaves had a part in each.

        Raises
        ------
        ValueError
            A node asks for a feature that the rows do not have, a leaf adds to a target
            that there is not.
        """
        if x.ndim != 2:
            raise ValueError(f"the input has {x.ndim} axes, not rows of features")
        if self.targets.size and not (
            self.targets.min() >= 0 and self.targets.max() < targets
        ):
            bad = self.targets.min() if self.targets.min() < 0 else self.targets.max()
            raise ValueError(f"a leaf adds to target {bad} of {targets}")
        if self.features.size and self.features.max() >= x.shape[1]:
            raise ValueError(
                f"feature {self.features.max()} of {x.shape[1]} is asked for"
            )
        out = np.zeros((x.shape[0], targets))
        parts = np.zeros((x.shape[0], targets), np.int64)
        _add_leaves(
            x.astype(np.float64), self.roots, self.features, self.modes, self.splits,
            self.yes, self.no, self.missing, self.starts, self.members, self.leaves,
            self.targets, self.weights, aggregate, out, parts,
        )  # fmt: skip
        if aggregate == _AVERAGE:
            out /= max(len(self.roots), 1)
        return out, parts


@jit
def _goes_yes(value: Any, mode: Any, split: Any, missing: Any, members: Array) -> bool:
    if np.isnan(value) and missing:
        return True
    if mode == 0:
        return bool(value <= split)
    if mode == 1:
        return bool(value < split)
    if mode == 2:
        return bool(value >= split)
    if mode == 3:
        return bool(value > split)
    if mode == 4:
        return bool(value == split)
    if mode == 5:
        return bool(value != split)
    for member in members:  # noqa: SIM110 - compiled as a loop
        if member == value:
            return True
    return False


@jit
def _add_leaves(
    x: Array, roots: Array, features: Array, modes: Array, splits: Array, yes: Array,
    no: Array, missing: Array, starts: Array, members: Array, leaves: Array,
    targets: Array, weights: Array, aggregate: int, out: Array, parts: Array,
) -> None:  # fmt: skip
    for row in range(x.shape[0]):
        for root in roots:
            at = root
            while at >= 0:
                own = members[starts[at] : starts[at + 1]]
                value = x[row, features[at]]
                went = _goes_yes(value, modes[at], splits[at], missing[at], own)
                at = yes[at] if went else no[at]
            for pair in range(leaves[-1 - at], leaves[-at]):
                target, weight = targets[pair], weights[pair]
                if parts[row, target] == 0 or aggregate < 2:
                    out[row, target] += weight
                elif aggregate == 2:
                    out[row, target] = min(out[row, target], weight)
                else:
                    out[row, target] = max(out[row, target], weight)
                parts[row, target] += 1


def _flags(given: Any, count: int) -> Array:
    return np.array(
        given if given is not None and len(given) else [0] * count, np.uint8
    )


def forest_of_5(attributes: Mapping[str, Any]) -> Forest:
    """
    Read TreeEnsemble 5: inner nodes and leaves in lists of their own.

    Raises
    ------
    ValueError
        A number in it points to nothing, or nodes lead back to themselves.
    """
    modes = np.asarray(attributes["nodes_modes"], np.int64)
    count = len(modes)
    hold_lengths(attributes, count)
    yes, no = (
        _children(attributes[f"nodes_{side}nodeids"], attributes[f"nodes_{side}leafs"])
        for side in ("true", "false")
    )
    lists = _member_lists(attributes.get("membership_values"))
    asks = modes == MODES.index("BRANCH_MEMBER")
    if int(asks.sum()) > len(lists):
        raise ValueError(
            f"{int(asks.sum())} nodes ask for {len(lists)} lists of members"
        )
    sizes = np.zeros(count, np.int64)
    sizes[asks] = [len(one) for one in lists[: int(asks.sum())]]
    weights = np.asarray(attributes["leaf_weights"], np.float64)
    # A tree that is one leaf is written as a node with that leaf on both sides.
    return checked(
        Forest(
            np.array(attributes["tree_roots"], np.int64),
            np.array(attributes["nodes_featureids"], np.int64),
            modes,
            np.asarray(attributes["nodes_splits"], np.float64),
            yes,
            no,
            _flags(attributes.get("nodes_missing_value_tracks_true"), count),
            np.concatenate([[0], np.cumsum(sizes)]),
            np.array([value for one in lists for value in one], np.float64),
            np.arange(len(weights) + 1),
            np.array(attributes["leaf_targetids"], np.int64),
            weights,
        )
    )


def _children(ids: Sequence[int], leaf: Sequence[int]) -> Array:
    at = np.array(ids, np.int64)
    return np.where(np.array(leaf, np.int64) != 0, -1 - at, at)


def _member_lists(values: Any) -> list[list[float]]:
    """Cut members apart at the NaN behind each list."""
    lists: list[list[float]] = [[]]
    for value in np.asarray(() if values is None else values, np.float64).tolist():
        if np.isnan(value):
            lists.append([])
        else:
            lists[-1].append(value)
    return lists if lists[-1] else lists[:-1]


def forest_of_lists(attributes: Mapping[str, Any], leaf: str) -> Forest:
    """
    Read the ensembles before version 5: leaves among the nodes, which trees number.

    Parameters
    ----------
    leaf
        ``target`` or ``class``: what the lists of leaves' weights begin with.

    Raises
    ------
    ValueError
        A number in it points to nothing, or nodes lead back to themselves.
    """
    trees, ids = attributes["nodes_treeids"], attributes["nodes_nodeids"]
    modes: Sequence[str] = attributes["nodes_modes"]
    inner = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    names = {(trees[i], ids[i]): place for place, i in enumerate(inner)}
    ends = [i for i, mode in enumerate(modes) if mode == "LEAF"]
    names |= {(trees[i], ids[i]): -1 - place for place, i in enumerate(ends)}
    pairs = _pairs(attributes, leaf, names)
    counts = np.bincount([place for place, _, _ in pairs], minlength=len(ends))
    splits = _floats(attributes, "nodes_values")
    first = {tree: names[tree, ids[i]] for i, tree in reversed(list(enumerate(trees)))}
    yes, no = (
        np.array([_named(names, trees[i], attributes[key][i]) for i in inner], np.int64)
        for key in ("nodes_truenodeids", "nodes_falsenodeids")
    )
    tracks = _flags(attributes.get("nodes_missing_value_tracks_true"), len(modes))
    return checked(
        Forest(
            np.array([first[tree] for tree in dict.fromkeys(trees)], np.int64),
            np.array([attributes["nodes_featureids"][i] for i in inner], np.int64),
            np.array([MODES.index(modes[i]) for i in inner], np.int64),
            splits[inner],
            yes,
            no,
            tracks[inner],
            np.zeros(len(inner) + 1, np.int64),
            np.empty(0),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([target for _, target, _ in pairs], np.int64),
            np.array([weight for _, _, weight in pairs], np.float64),
        )
    )


def _pairs(
    attributes: Mapping[str, Any], leaf: str, names: Mapping[tuple[int, int], int]
) -> list[tuple[int, int, float]]:
    """Give (leaf, target, weight), by leaf; a weight of an inner node counts nowhere."""
    places = [
        -1 - _named(names, tree, node)
        for tree, node in zip(
            attributes[f"{leaf}_treeids"], attributes[f"{leaf}_nodeids"], strict=True
        )
    ]
    weights = _floats(attributes, f"{leaf}_weights").tolist()
    found = zip(places, attributes[f"{leaf}_ids"], weights, strict=True)
    return sorted((pair for pair in found if pair[0] >= 0), key=lambda pair: pair[0])


def _named(names: Mapping[tuple[int, int], int], tree: int, node: int) -> int:
    if (tree, node) not in names:
        raise ValueError(f"tree {tree} has no node {node}")
    return names[tree, node]


def _floats(attributes: Mapping[str, Any], name: str) -> Array:
    tensor = attributes.get(f"{name}_as_tensor")
    given = attributes.get(name, ()) if tensor is None else tensor
    return np.asarray(given, np.float64)
