"""TreeEnsemble and TreeEnsembleRegressor; see :mod:`machine_learning_trees`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.kernels.machine_learning import ML, NUMERIC
from seamline_cpu.kernels.machine_learning_scores import refuse_transform, transformed
from seamline_cpu.kernels.machine_learning_trees import (
    AGGREGATES,
    MODES,
    Forest,
    forest_of_5,
    forest_of_lists,
)
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _refuse_ensemble(node: NodeView) -> str | None:
    aggregate = node.attributes.get("aggregate_function", 1)
    if aggregate not in range(len(AGGREGATES)):
        return f"aggregate_function is {aggregate}, not 0 to 3"
    if not node.attributes.get("n_targets", 1) > 0:
        return f"n_targets is {node.attributes['n_targets']}"
    modes = np.asarray(node.attributes.get("nodes_modes", ()))
    if modes.size and modes.max() >= len(MODES):
        return f"nodes_modes has {modes.max()}, which is no comparison"
    return refuse_transform(node)


@TABLE.kernel(
    "TreeEnsemble", domain=ML, dtypes=("float32", "float64", "float16"),
    when=_refuse_ensemble,
)  # fmt: skip
def tree_ensemble(call: Call) -> Run:
    """Send each row down every tree, and join the weights of the leaves it comes to."""
    forest = forest_of_5(call.view.attributes)
    targets = call.attr("n_targets", int(forest.targets.max(initial=0)) + 1)
    aggregate = call.attr("aggregate_function", 1)
    return _bound(call, forest, targets, aggregate, None)


def _bound(
    call: Call, forest: Forest, targets: int, aggregate: int, start: Array | None
) -> Run:
    if forest.targets.size and not 0 <= forest.targets.max() < targets:
        raise ValueError(f"a leaf has target {forest.targets.max()} of {targets}")
    x, out = call.inputs[0], call.outputs[0]
    transform = call.attr("post_transform", 0)

    def run() -> None:
        scores, _ = forest.scores(x.reshape(-1, x.shape[-1]), targets, aggregate)
        out[...] = transformed(scores if start is None else scores + start, transform)

    return run


def _refuse_regressor(node: NodeView) -> str | None:
    aggregate = node.attributes.get("aggregate_function", "SUM")
    if aggregate not in AGGREGATES:
        return (
            f"aggregate_function is {aggregate!r}, not one of {', '.join(AGGREGATES)}"
        )
    for name in ("n_targets", "nodes_modes"):
        if name not in node.attributes:
            return f"it has no {name}"
    odd = {*node.attributes["nodes_modes"]} - {"LEAF", *MODES[:-1]}
    return f"nodes_modes has {odd.pop()!r}" if odd else refuse_transform(node)


@TABLE.kernel(
    "TreeEnsembleRegressor", domain=ML, since=(3, 3), dtypes=NUMERIC,
    when=_refuse_regressor,
)  # fmt: skip
def tree_ensemble_regressor(call: Call) -> Run:
    """Do as TreeEnsemble, from the older lists, and add each target's base value."""
    forest, start = _regressor(call.view.attributes)
    aggregate = AGGREGATES.index(call.attr("aggregate_function", "SUM"))
    return _bound(call, forest, call.attr("n_targets"), aggregate, start)


def _regressor(attributes: Any) -> tuple[Forest, Array | None]:
    tensor = attributes.get("base_values_as_tensor")
    start = np.asarray(
        attributes.get("base_values", ()) if tensor is None else tensor, np.float64
    )
    if start.size not in (0, 1, attributes["n_targets"]):
        raise ValueError(
            f"{start.size} base values for {attributes['n_targets']} targets"
        )
    return forest_of_lists(attributes, "target"), start if start.size else None


# Version 1 has no inference in ONNX, so its output's size is only found by running.
@TABLE.simple(
    "TreeEnsembleRegressor", domain=ML, since=(1, 1), dtypes=NUMERIC,
    when=_refuse_regressor,
)  # fmt: skip
def tree_ensemble_regressor_1(
    x: Array,
    *,
    n_targets: int,
    nodes_modes: Sequence[str],
    nodes_treeids: Sequence[int],
    nodes_nodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_truenodeids: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    target_treeids: Sequence[int],
    target_nodeids: Sequence[int],
    target_ids: Sequence[int],
    target_weights: Sequence[float],
    nodes_values: Sequence[float] = (),
    nodes_hitrates: Sequence[float] = (),
    nodes_missing_value_tracks_true: Sequence[int] = (),
    base_values: Sequence[float] = (),
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
) -> Array:
    """Do as version 3; the trees are read again in each run."""
    attributes = dict(locals())  # the parameters, by the attributes' names
    forest, start = _regressor(attributes)
    aggregate = AGGREGATES.index(aggregate_function)
    scores, _ = forest.scores(np.atleast_2d(x), n_targets, aggregate)
    scores = scores if start is None else scores + start
    return transformed(scores, post_transform).astype(np.float32)
