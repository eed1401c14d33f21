"""Random operators by their distribution and their seeds; Dropout in and out of training."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, give, gives, node_of

F = np.float32
MANY = np.zeros((200, 100), F)


def drawn(op, inputs, like, runs=1, opset=22, **attributes):
    bound = Bound(node_of(op, inputs, **attributes), inputs, [like], opset)
    return [bound.run()[0].copy() for _ in range(runs)]


@pytest.mark.parametrize("dtype", [F, np.float16, np.float64, ml_dtypes.bfloat16])
def test_normal_and_uniform_have_their_moments(dtype):
    like = MANY.astype(dtype)
    code = {"float32": 1, "float16": 10, "float64": 11, "bfloat16": 16}[like.dtype.name]
    (x,) = drawn(
        "RandomNormal",
        [],
        like,
        shape=[200, 100],
        mean=3.0,
        scale=2.0,
        dtype=code,
        seed=1.0,
    )
    x = x.astype(np.float64)
    assert abs(x.mean() - 3) < 0.1
    assert abs(x.std() - 2) < 0.1
    (x,) = drawn(
        "RandomUniformLike", [MANY], like, low=-1.0, high=3.0, dtype=code, seed=1.0
    )
    x = x.astype(np.float64)
    assert x.min() >= -1
    assert x.max() <= 3
    assert abs(x.mean() - 1) < 0.1
    assert abs(x.std() - 4 / np.sqrt(12)) < 0.1


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike"])
def test_a_seed_repeats_in_every_run_and_session_and_none_does_not(op):
    a, b = drawn(op, [MANY], MANY, runs=2, seed=7.0)
    (c,) = drawn(op, [MANY], MANY, seed=7.0)
    (d,) = drawn(op, [MANY], MANY, seed=7.5)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)
    assert (a != d).mean() > 0.99
    a, b = drawn(op, [MANY], MANY, runs=2)
    (c,) = drawn(op, [MANY], MANY)
    assert (a != b).mean() > 0.99
    assert (a != c).mean() > 0.99


def test_bernoulli_gives_one_with_its_probability():
    p = np.broadcast_to(np.linspace(0, 1, 11, dtype=F), (4000, 11)).copy()
    (x,) = drawn("Bernoulli", [p], p.astype(np.int32), dtype=6, seed=3.0)
    assert set(np.unique(x)) == {0, 1}
    np.testing.assert_allclose(x.mean(axis=0), p[0], atol=0.03)
    assert (x[:, 0] == 0).all()
    assert (x[:, -1] == 1).all()


def test_multinomial_draws_by_exponentials_and_never_what_cannot_be():
    scores = np.log(np.array([[1, 0, 2, 1], [0, 0, 5, 0]], F) + 0.0, where=[[1, 0, 1, 1], [0, 0, 1, 0]],
                    out=np.full((2, 4), -np.inf, F)) + 50  # fmt: skip
    like = np.zeros((2, 8000), np.int64)
    (x,) = drawn("Multinomial", [scores], like, sample_size=8000, dtype=7, seed=5.0)
    shares = [(x[0] == c).mean() for c in range(4)]
    np.testing.assert_allclose(shares, [0.25, 0, 0.5, 0.25], atol=0.03)
    assert (x[0] != 1).all()
    assert (x[1] == 2).all()
    bad = np.array([[0, 0], [-np.inf, -np.inf]], F)
    with pytest.raises(Exception, match="row 1 has no finite"):
        drawn("Multinomial", [bad], np.zeros((2, 1), np.int32), sample_size=1)


X = np.array([[[1, 2, 3], [-4, 0, 4]], [[5, 7, 6], [8, 0, -8]]], F)
KEPT = np.ones(X.shape, bool)


@pytest.mark.parametrize(
    ("ratio", "training"),
    [(0.9, None), (0.9, False), (None, None), (0.0, True), (None, False)],
)
@pytest.mark.parametrize("opset", [12, 13, 22])
def test_dropout_outside_training_gives_the_input_and_keeps_all(opset, ratio, training):
    given = [None if ratio is None else np.array(ratio, F)]
    given += [] if training is None else [np.array(training)]
    inputs = [X, *given] if given != [None] else [X]
    gives("Dropout", inputs, [X, KEPT], fixed=(1, 2), opset=opset)
    gives("Dropout", inputs, [X, None], fixed=(1, 2), opset=opset)
    gives("Dropout", inputs, [None, KEPT], fixed=(1, 2), opset=opset)


def test_dropout_before_opset_12_never_drops():
    gives("Dropout", [X], [X, KEPT], opset=10, ratio=0.9)
    gives("Dropout", [X], [X, KEPT.astype(F)], opset=7, ratio=0.9)
    gives("Dropout", [X], X, opset=7)


def test_dropout_in_training_drops_its_share_and_scales_the_rest():
    x = np.full((300, 100), 3, F)
    inputs = [x, np.array(0.25, F), np.array(True)]
    y, mask = give("Dropout", inputs, [x, x != 0], opset=13, seed=4)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y, np.where(mask, 4, 0))
    again, _ = give("Dropout", inputs, [x, x != 0], opset=13, seed=4)
    np.testing.assert_array_equal(y, again)
    node = node_of("Dropout", inputs, 2)
    bound = Bound(node, inputs, [x, x != 0], 13, share=[(0, 0)])
    y, mask = bound.run()
    np.testing.assert_allclose(y, np.where(mask, 4, 0))


def test_dropout_decides_at_run_where_training_is_fed():
    inputs = [X, None, np.array(False)]
    bound = Bound(node_of("Dropout", inputs, 2), inputs, [X, KEPT], 13)
    y, mask = bound.run()
    np.testing.assert_array_equal(y, X)
    assert mask.all()
    bound.views["x2"][...] = True
    seen = [bound.run()[1].copy() for _ in range(20)]
    assert 0.2 < np.mean(seen) < 0.8


def test_a_ratio_of_one_has_no_scale():
    with pytest.raises(Exception, match=r"ratio is 1\.0"):
        give("Dropout", [X, np.array(1.0, F), np.array(True)], X, opset=13)
