"""Ensembles of trees, against a walk in Python and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from tests.cpu.test_machine_learning import agrees, refused, run

MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
)
COMPARE = dict(
    zip(
        MODES,
        (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal),
        strict=True,
    )
)
LEAVES = [3, 4, 5, 6]


def stump(mode="BRANCH_LEQ", trees=1, targets=1, missing=0):
    """Give trees of depth 2 over features 0 and 1, with four leaves each."""
    spread = np.random.default_rng(3)
    nodes = {
        "nodes_treeids": [tree for tree in range(trees) for _ in range(7)],
        "nodes_nodeids": list(range(7)) * trees,
        "nodes_featureids": [0, 1, 1, 0, 0, 0, 0] * trees,
        "nodes_modes": [*[mode] * 3, *["LEAF"] * 4] * trees,
        "nodes_values": [0.5, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0] * trees,
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0] * trees,
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0] * trees,
        "nodes_missing_value_tracks_true": [missing] * 3 * trees + [0] * 4 * trees,
    }
    nodes["nodes_missing_value_tracks_true"] = [
        missing,
        missing,
        missing,
        0,
        0,
        0,
        0,
    ] * trees
    pairs = [
        (tree, leaf, t)
        for tree in range(trees)
        for leaf in LEAVES
        for t in range(targets)
    ]
    weights = spread.integers(-8, 9, len(pairs)) / 4
    return nodes, pairs, weights.tolist()


def regressor(mode="BRANCH_LEQ", trees=1, targets=1, missing=0, **more):
    nodes, pairs, weights = stump(mode, trees, targets, missing)
    return {
        **nodes, "n_targets": targets, "target_treeids": [p[0] for p in pairs],
        "target_nodeids": [p[1] for p in pairs], "target_ids": [p[2] for p in pairs],
        "target_weights": weights, **more,
    }  # fmt: skip


def classifier(trees=2, targets=3, weights=None, ids=None, **more):
    nodes, pairs, drawn = stump("BRANCH_LEQ", trees, targets)
    return {
        **nodes, "class_treeids": [p[0] for p in pairs],
        "class_nodeids": [p[1] for p in pairs], "class_ids": ids or [p[2] for p in pairs],
        "class_weights": weights or drawn, **more,
    }  # fmt: skip


def walked(x, settings):
    """Follow each row by hand; give the weights it comes to by target."""
    found = []
    weights = list(
        zip(
            settings["target_treeids"], settings["target_nodeids"],
            settings["target_ids"], settings["target_weights"], strict=True,
        )
    )  # fmt: skip
    for row in x:
        got = [[] for _ in range(settings["n_targets"])]
        for tree in dict.fromkeys(settings["nodes_treeids"]):
            at, base = 0, tree * 7
            while settings["nodes_modes"][base + at] != "LEAF":
                value = row[settings["nodes_featureids"][base + at]]
                compare = COMPARE[settings["nodes_modes"][base + at]]
                yes = compare(value, settings["nodes_values"][base + at])
                track = settings["nodes_missing_value_tracks_true"][base + at]
                yes = yes or (np.isnan(value) and track)
                side = "nodes_truenodeids" if yes else "nodes_falsenodeids"
                at = settings[side][base + at]
            for one, node, target, weight in weights:
                if (one, node) == (tree, at):
                    got[target].append(weight)
        found.append(got)
    return found


ROWS = np.array(
    [
        [0.5, -1],
        [0.5, 2],
        [1, 2],
        [1, 3],
        [-3, -2],
        [np.nan, 2],
        [1, np.nan],
        [0, np.inf],
    ],
    np.float32,
)


@pytest.mark.parametrize("opset", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_comparison_and_nan_go_where_the_text_says(mode, opset):
    for missing in (0, 1):
        settings = regressor(mode, missing=missing)
        want = [[sum(one) for one in row] for row in walked(ROWS, settings)]
        got = run("TreeEnsembleRegressor", ROWS, opset=opset, **settings)
        np.testing.assert_array_equal(got, np.array(want, np.float32))


@pytest.mark.parametrize(
    ("aggregate", "join"),
    [("SUM", sum), ("AVERAGE", lambda w: sum(w) / 5), ("MIN", min), ("MAX", max)],
)
def test_leaves_join_as_the_aggregate_says(aggregate, join):
    settings = regressor(trees=5, targets=2, aggregate_function=aggregate)
    want = [[join(one) for one in row] for row in walked(ROWS[:5], settings)]
    got = run("TreeEnsembleRegressor", ROWS[:5], **settings)
    np.testing.assert_allclose(got, np.array(want, np.float32), rtol=1e-6)
    agrees("TreeEnsembleRegressor", ROWS[:5], **settings)


def test_base_values_and_transforms_agree_with_the_peer():
    settings = regressor(trees=3, targets=2, base_values=[0.5, -1.5])
    agrees("TreeEnsembleRegressor", ROWS[:5], **settings)
    agrees("TreeEnsembleRegressor", ROWS[:5].astype(np.float64), **settings)
    agrees("TreeEnsembleRegressor", ROWS[:5], **settings, post_transform="SOFTMAX")


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integers_go_where_their_values_say(dtype):
    settings = regressor(trees=3)
    x = np.array([[0, -1], [1, 2], [1, 3]])
    want = [[sum(one) for one in row] for row in walked(x.astype(float), settings)]
    got = run("TreeEnsembleRegressor", x.astype(dtype), **settings)
    np.testing.assert_array_equal(got, np.array(want, np.float32))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_three_classes_agree_with_the_peer(transform):
    agrees(
        "TreeEnsembleClassifier", ROWS[:5], outputs=2, post_transform=transform,
        **classifier(classlabels_strings=["a", "b", "c"], base_values=[0.1, 0.2, 0.3]),
    )  # fmt: skip


def test_one_score_of_two_classes_agrees_with_the_peer():
    labels = {"classlabels_int64s": [10, 20]}
    likely = classifier(1, 1, weights=[0.1, 0.9, 0.5, 0.6], ids=[0] * 4, **labels)
    agrees("TreeEnsembleClassifier", ROWS[:5], outputs=2, **likely)
    apart = classifier(2, 1, ids=[0] * 8, base_values=[0.25], **labels)
    for transform in ("NONE", "LOGISTIC"):
        agrees(
            "TreeEnsembleClassifier", ROWS[:5], outputs=2, post_transform=transform,
            **apart,
        )  # fmt: skip
    said = refused(
        "TreeEnsembleClassifier", ROWS, outputs=2, post_transform="SOFTMAX", **apart
    )
    assert "not defined" in said


def test_two_classes_with_a_score_each_take_the_larger():
    # onnxruntime 1.32 gives labels 0 and 1 here, which are not among the class labels.
    settings = classifier(
        1,
        2,
        weights=[0.7, 0.3, 0.1, 0.9, 0.2, 0.8, 0.6, 0.4],
        classlabels_int64s=[10, 20],
    )
    labels, scores = run("TreeEnsembleClassifier", ROWS[:4], outputs=2, **settings)
    assert labels.tolist() == [10, 20, 20, 10]
    want = [[0.7, 0.3], [0.1, 0.9], [0.2, 0.8], [0.6, 0.4]]
    np.testing.assert_allclose(scores, want, rtol=1e-6)


def five(**changed):
    """Give TreeEnsemble 5 with one node that asks for 2, 3 or 5, and one for x1 > 0."""
    tensors = {
        "nodes_modes": np.array([6, 3], np.uint8),
        "nodes_splits": np.array([0, 0], np.float32),
        "leaf_weights": np.array([1, 10, 100], np.float32),
        "membership_values": np.array([2, 3, 5, np.nan], np.float32),
    }
    lists = {
        "tree_roots": [0], "nodes_featureids": [0, 1],
        "nodes_truenodeids": [0, 1], "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2], "nodes_falseleafs": [0, 1],
        "leaf_targetids": [0, 1, 0], "n_targets": 2,
    }  # fmt: skip
    given = {**lists, **tensors, **changed}
    return {
        name: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for name, v in given.items()
    }


def test_version_5_asks_for_membership():
    x = np.array([[3, 0], [4, 1], [4, 0], [np.nan, 1]], np.float32)
    got = run("TreeEnsemble", x, opset=5, **five())
    np.testing.assert_array_equal(got, [[1, 0], [0, 10], [100, 0], [0, 10]])
    half = five(
        nodes_splits=np.array([0, 0], np.float16),
        leaf_weights=np.array([1, 10, 100], np.float16),
        membership_values=np.array([2, 3, 5, np.nan], np.float16),
    )
    got = run("TreeEnsemble", x.astype(np.float16), opset=5, **half)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, [[1, 0], [0, 10], [100, 0], [0, 10]])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nodes_falsenodeids": [0, 2]}, "lead back to themselves"),
        ({"nodes_falsenodeids": [7, 2]}, "not there"),
        ({"nodes_falsenodeids": [1, 9]}, "not there"),
        ({"leaf_targetids": [0, 5, 0]}, "target 5 of 2"),
        ({"nodes_featureids": [0, 8]}, "feature 8 of 2"),
        ({"membership_values": np.zeros(0, np.float32)}, "lists of members"),
    ],
)
def test_numbers_that_point_nowhere_are_refused_before_the_compiled_loop(changed, said):
    x = np.ones((2, 2), np.float32)
    with pytest.raises(Exception, match=said):
        run("TreeEnsemble", x, opset=5, **five(**changed))
