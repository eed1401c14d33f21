"""Pools by their definition over padded copies, and by onnxruntime."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from tests.cuda.emulation import check, drawn, peer
from tests.cuda.worked import node_worked

from seamline.provider import Refusal

spread = np.random.default_rng(6)
#: Pixels, and the window's attributes.
WINDOWS = {
    "one axis": ((9,), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
    "two axes": ((7, 8), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    "dilated": ((9, 8), {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 1, 0, 2]}),
    "beyond the end": ((6, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [0, 1, 0, 1]}),
    "three axes": ((4, 5, 6), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 1]}),
    "same, more behind": ((7, 6), {"kernel_shape": [2, 4], "strides": [2, 1], "auto_pad": "SAME_UPPER"}),
    "same, more before": ((7, 6), {"kernel_shape": [2, 4], "strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    "without padding": ((7, 6), {"kernel_shape": [2, 3], "auto_pad": "VALID"}),
}  # fmt: skip


def taps(sizes, attributes):
    """Give for each place of the window the indices in the input, and in input or padding."""
    rank, kernel = len(sizes), attributes["kernel_shape"]
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * 2 * rank
    mode = attributes.get("auto_pad", "")
    axes = []
    for i, size in enumerate(sizes):
        wide = (kernel[i] - 1) * dilations[i] + 1
        before, after = pads[i], pads[i + rank]
        if mode.startswith("SAME"):
            total = max(0, (-(-size // strides[i]) - 1) * strides[i] + wide - size)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            after = total - before
        room = size + before + after - wide
        count = room // strides[i] + 1
        if attributes.get("ceil_mode"):
            count = -(-room // strides[i]) + 1
            count -= (count - 1) * strides[i] >= size + before
        places = []
        for o in range(count):
            at = [o * strides[i] - before + k * dilations[i] for k in range(kernel[i])]
            places.append(
                (
                    [a for a in at if 0 <= a < size],
                    len([a for a in at if a < size + after]),
                )
            )
        axes.append(places)
    return axes


def pooled(x, attributes, make):
    """Make a value of each window: ``make(values, indices in the plane, padded places)``."""
    sizes = x.shape[2:]
    axes = taps(sizes, attributes)
    out = np.empty((*x.shape[:2], *map(len, axes)), object)
    numbered = np.arange(np.prod(sizes)).reshape(sizes)
    for at in np.ndindex(out.shape):
        chosen = [axes[i][a] for i, a in enumerate(at[2:])]
        inside = np.ix_(*(c[0] for c in chosen))
        counted = int(np.prod([c[1] for c in chosen]))
        out[at] = make(x[at[:2]][inside].ravel(), numbered[inside].ravel(), counted)
    return out


def made(op, x, like, **attributes):
    names = [f"o{i}" for i in range(len(like))]
    node = onnx.helper.make_node(op, ["x"], names, **attributes)
    found = node_worked(node, [x], like)
    assert not isinstance(found, Refusal), str(found)
    return found


def drawn_input(name):
    sizes, attributes = WINDOWS[name]
    return spread.standard_normal((2, 3, *sizes)).astype(np.float32), attributes


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_the_largest_is_found_and_where_it_stands(name, columns):
    x, attributes = drawn_input(name)
    x = np.round(x, 1)  # some are equal, and the first of them counts
    want = pooled(x, attributes, lambda v, at, n: v.max()).astype(np.float32)
    places = pooled(x, attributes, lambda v, at, n: at[v.argmax()]).astype(np.int64)
    if columns:
        found = np.unravel_index(places, x.shape[2:])
        places = np.ravel_multi_index(found, x.shape[2:], order="F")
    planes = np.arange(6).reshape(2, 3, *[1] * (x.ndim - 2)) * int(np.prod(x.shape[2:]))
    y, i = made("MaxPool", x, [want, places], storage_order=columns, **attributes)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(i, places + planes)
    np.testing.assert_array_equal(made("MaxPool", x, [want], **attributes)[0], want)


@pytest.mark.parametrize("padded", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_mean_is_over_the_input_or_its_padding_too(name, padded):
    x, attributes = drawn_input(name)
    want = pooled(
        x, attributes, lambda v, at, n: v.sum(dtype=float) / (n if padded else len(v))
    )
    want = want.astype(np.float32)
    (y,) = made("AveragePool", x, [want], count_include_pad=padded, **attributes)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("name", ["two axes", "dilated", "beyond the end"])
def test_a_norm_is_of_the_order_that_is_asked_for(name, p):
    x, attributes = drawn_input(name)
    norm = lambda v, at, n: (np.abs(v).astype(float) ** p).sum() ** (1 / p)  # noqa: E731
    want = pooled(x, attributes, norm).astype(np.float32)
    (y,) = made("LpPool", x, [want], p=p, **attributes)
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize(
    "kind", [np.int8, np.uint8, np.float16, ml_dtypes.bfloat16, np.float64]
)
def test_every_element_type_has_a_largest(kind):
    x = (spread.standard_normal((1, 2, 6, 6)) * 50).astype(kind)
    if kind is np.int8:
        x[...] = -128  # as small as can be, and more than padding
    want = pooled(x, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, lambda v, at, n: v.max()).astype(kind)  # fmt: skip
    (y,) = made("MaxPool", x, [want], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    np.testing.assert_array_equal(y.view(np.uint8), want.view(np.uint8))


def test_a_nan_is_the_largest_of_its_window_and_means_keep_it():
    x = np.zeros((1, 1, 6), np.float32)
    x[0, 0, 2] = np.nan
    like = [x[..., :3], np.zeros((1, 1, 3), np.int64)]
    y, i = made("MaxPool", x, like, kernel_shape=[2], strides=[2])
    assert np.isnan(y).ravel().tolist() == [False, True, False]
    assert i.ravel().tolist() == [0, 2, 4]
    (y,) = made("AveragePool", x, [x[..., :3]], kernel_shape=[2], strides=[2])
    assert np.isnan(y).ravel().tolist() == [False, True, False]


GLOBAL = {
    "GlobalMaxPool": lambda x, axes: x.max(axes, keepdims=True),
    "GlobalAveragePool": lambda x, axes: x.mean(axes, keepdims=True),
    "GlobalLpPool": lambda x, axes: (
        (np.abs(x) ** 3).sum(axes, keepdims=True) ** (1 / 3)
    ),
}


@pytest.mark.parametrize("sizes", [(3,), (5, 7), (2, 3, 4), (30, 40)], ids=str)
@pytest.mark.parametrize("op", GLOBAL)
def test_a_global_pool_is_over_all_pixels(op, sizes):
    x = spread.standard_normal((2, 3, *sizes)).astype(np.float32)
    want = GLOBAL[op](x.astype(float), tuple(range(2, x.ndim)))
    order = {"p": 3} if op == "GlobalLpPool" else {}
    (y,) = made(op, x, [want.astype(np.float32)], **order)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


REFUSED = {
    "four axes": ("MaxPool", (1, 1, 2, 2, 2, 2), {"kernel_shape": [1] * 4}, "1 to 3"),
    "a kernel of another rank": ("AveragePool", (1, 1, 4, 4), {"kernel_shape": [2]}, "2 axes of pixels"),
    "padding as wide as the kernel": ("MaxPool", (1, 1, 4), {"kernel_shape": [2], "pads": [2, 0]}, "as wide"),
    "no pixels": ("GlobalMaxPool", (2, 3), {}, "channels and pixels"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_why(what):
    op, sizes, attributes, why = REFUSED[what]
    x = np.ones(sizes, np.float32)
    found = node_worked(onnx.helper.make_node(op, ["x"], ["y"], **attributes), [x], [x])
    assert isinstance(found, Refusal)
    assert why in str(found)


@pytest.mark.parametrize("oracle", [None, peer])
def test_a_session_is_right_eager_and_recorded(oracle):
    text = """g (float[1,4,9,8] x) => (float[1,4,4,4] y, float[1,4,1,1] z)
        { t = AveragePool<kernel_shape = [2, 2], count_include_pad = 1, pads = [0, 1, 1, 0]>(x)
          u = Relu(t)  y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [0, 1, 0, 0]>(u)
          z = GlobalAveragePool(y) }"""
    check(text, drawn(text), oracle=oracle, opset=21)


def test_windows_of_one_text_serve_every_size():
    from tests.cuda.plain import nodes_of

    from seamline_cuda.pooling import pool_text

    texts = set()
    for size, stride in itertools.product((8, 12), (1, 2)):
        out = (size - 2) // stride + 1
        text = f"g (float[1,2,{size},{size}] x) => (float[1,2,{out},{out}] y) {{ y = MaxPool<kernel_shape = [2, 2], strides = [{stride}, {stride}]>(x) }}"
        (node,), _ = nodes_of(text)
        texts.add(pool_text(node, "float32", 2).written())
    assert len(texts) == 1
