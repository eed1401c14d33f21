"""
LinearRegressor, LinearClassifier and TreeEnsembleClassifier.

The text says little of two classes with one score, s. What onnxruntime does is kept where
it does one thing: the second class is likely by s, and the first by 1 - s, -s or, after
LOGISTIC, by the logistic of -s. Where implementations disagree the node is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.kernels.machine_learning import ML, NUMERIC
from seamline_cpu.kernels.machine_learning_scores import refuse_transform, transformed
from seamline_cpu.kernels.machine_learning_trees import MODES, forest_of_lists
from seamline_cpu.table import TABLE

__all__: list[str] = []

_SUM = 1  #: the place of SUM among aggregates
_ONE_SCORE = ("NONE", "LOGISTIC")


def _linear(x: Array, coefficients: Sequence[float], rows: int) -> Array:
    """Give x times the transposed coefficients, in float64; a vector is one row."""
    table = np.array(coefficients, np.float64).reshape(rows, -1)
    samples = np.atleast_2d(x).astype(np.float64)
    if samples.shape[1] != table.shape[1]:
        raise ValueError(
            f"{table.size} coefficients for {rows} targets and {samples.shape[1]} features"
        )
    return np.asarray(samples @ table.T)


def _refuse_regressor(node: NodeView) -> str | None:
    given, targets = node.attributes, node.attributes.get("targets", 1)
    if targets < 1 or len(given.get("coefficients", ())) % targets:
        return (
            f"{len(given.get('coefficients', ()))} coefficients for {targets} targets"
        )
    if len(given.get("intercepts", ())) not in (0, targets):
        return f"{len(given['intercepts'])} intercepts for {targets} targets"
    return refuse_transform(node)


@TABLE.simple("LinearRegressor", domain=ML, dtypes=NUMERIC, when=_refuse_regressor)
def linear_regressor(
    x: Array,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    """Give one weighted sum for each target."""
    scores = _linear(x, coefficients, targets)
    if intercepts:
        scores = scores + np.array(intercepts)
    return transformed(scores, post_transform).astype(np.float32)


def _labels(attributes: Mapping[str, Any], whole: str) -> Array:
    texts = attributes.get("classlabels_strings", ())
    if not texts:
        return np.array(attributes.get(whole, ()), np.int64)
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def _refuse_linear(node: NodeView) -> str | None:
    given = node.attributes
    labels = len(_labels(given, "classlabels_ints"))
    rows = len(given.get("intercepts", ())) or labels
    if not rows or len(given.get("coefficients", ())) % rows:
        return f"{len(given.get('coefficients', ()))} coefficients for {rows} scores"
    if rows != labels and (rows, labels) != (1, 2):
        return f"{rows} scores for {labels} labels"
    transform = given.get("post_transform", "NONE")
    if rows == 1 and (labels != 2 or transform not in _ONE_SCORE):
        return f"one score for {labels} labels, after {transform}, is not defined"
    return refuse_transform(node)


@TABLE.kernel("LinearClassifier", domain=ML, dtypes=NUMERIC, when=_refuse_linear)
def linear_classifier(call: Call) -> Run:
    """Give the label of the largest weighted sum, and all of them after a transform."""
    labels = _labels(call.view.attributes, "classlabels_ints")
    intercepts = np.array(call.attr("intercepts", ()), np.float64)
    rows = len(intercepts) or len(labels)
    coefficients, x = call.attr("coefficients"), call.inputs[0]

    def run() -> None:
        scores = _linear(x, coefficients, rows)
        scores = scores + intercepts if len(intercepts) else scores
        if rows == 1:
            _give(
                call, labels, (scores[:, 0] > 0).astype(np.int64), _paired(call, scores)
            )
        else:
            _give(call, labels, scores.argmax(axis=1), _transformed(call, scores))

    return run


def _transformed(call: Call, scores: Array) -> Array:
    return transformed(scores, call.attr("post_transform", "NONE"))


def _paired(call: Call, scores: Array, *, signed: bool = False) -> Array:
    """Give the scores of two classes from the second one's."""
    if call.attr("post_transform", "NONE") == "LOGISTIC":
        return _transformed(call, np.hstack([-scores, scores]))
    return np.hstack([-scores if signed else 1 - scores, scores])


def _give(call: Call, labels: Array, chosen: Array, scores: Array) -> None:
    label, out = call.output(0), call.output(1)
    if label is not None:
        label[...] = labels[chosen].reshape(label.shape)
    if out is not None:
        out[...] = scores.reshape(out.shape)


def _one_id(attributes: Mapping[str, Any], labels: int) -> bool:
    return labels == 2 and len(set(attributes["class_ids"])) == 1


def _weights(attributes: Mapping[str, Any]) -> Array:
    tensor = attributes.get("class_weights_as_tensor")
    given = attributes.get("class_weights", ()) if tensor is None else tensor
    return np.asarray(given, np.float64)


def _base(attributes: Mapping[str, Any]) -> Array:
    tensor = attributes.get("base_values_as_tensor")
    given = attributes.get("base_values", ()) if tensor is None else tensor
    return np.asarray(given, np.float64)


def _refuse_trees(node: NodeView) -> str | None:
    given = node.attributes
    for name in ("nodes_modes", "class_ids"):
        if name not in given:
            return f"it has no {name}"
    odd = {*given["nodes_modes"]} - {"LEAF", *MODES[:-1]}
    if odd:
        return f"nodes_modes has {odd.pop()!r}"
    labels = len(_labels(given, "classlabels_int64s"))
    if not all(0 <= one < labels for one in given["class_ids"]):
        return f"class_ids asks for a class of {labels} that is not there"
    if _one_id(given, labels):
        return _refuse_one_id(node)
    if len(_base(given)) not in (0, labels):
        return f"{len(_base(given))} base values for {labels} classes"
    return refuse_transform(node)


def _refuse_one_id(node: NodeView) -> str | None:
    given = node.attributes
    transform = given.get("post_transform", "NONE")
    positive = _weights(given).min(initial=0) >= 0
    if set(given["class_ids"]) != {0} or len(_base(given)) > 1:
        return "two classes with weights of the second alone, or two base values, is not defined"
    if transform not in _ONE_SCORE or (positive and transform != "NONE"):
        return f"one score for two classes, after {transform}, is not defined"
    return None


@TABLE.kernel(
    "TreeEnsembleClassifier", domain=ML, since=(1, 3), dtypes=NUMERIC,
    when=_refuse_trees,
)  # fmt: skip
def tree_ensemble_classifier(call: Call) -> Run:
    """Give the label of the largest sum over the trees, and all sums after a transform."""
    attributes = call.view.attributes
    forest = forest_of_lists(attributes, "class")
    labels = _labels(attributes, "classlabels_int64s")
    base = _base(attributes)
    one = _one_id(attributes, len(labels))
    signed = bool(_weights(attributes).min(initial=0) < 0)
    x = call.inputs[0]

    def run() -> None:
        samples = np.atleast_2d(x)
        scores, _ = forest.scores(samples, 1 if one else len(labels), _SUM)
        scores = scores + base if len(base) else scores
        if one:
            # Weights that are never negative are probabilities, and else distances.
            chosen = (scores[:, 0] > (0 if signed else 0.5)).astype(np.int64)
            _give(call, labels, chosen, _paired(call, scores, signed=signed))
        else:
            _give(call, labels, scores.argmax(axis=1), _transformed(call, scores))

    return run
