"""Conv and ConvTranspose over the emulated device: the definition, then onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.emulation import check, drawn, opened, peer

from seamline.errors import PlanError
from seamline_cuda import convolution_sizes, convolution_transposed


def text_of(x, w, *, op="Conv", bias=0, kind="float", **attributes):
    """Give a model of one convolution; its output's sizes are left to inference."""
    dims = [",".join(map(str, sizes)) for sizes in (x, w)]
    given = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    more, last = (f", {kind}[{bias}] b", ", b") if bias else ("", "")
    return (
        f"g ({kind}[{dims[0]}] x, {kind}[{dims[1]}] w{more}) => ({kind}[{','.join('?' * len(x))}] y) "
        f"{{ y = {op}{f'<{given}>' if given else ''}(x, w{last}) }}"
    )


def wide(x, w, bias, window, groups):
    """Convolve in float64 by the standard's sum; window has strides, dilations, pads."""
    strides, dilations, pads = window
    rank = x.ndim - 2
    x = np.pad(x.astype(float), [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    outs = [
        (n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, strides, strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *outs))
    takes, makes = w.shape[1], w.shape[0] // groups
    for m in range(w.shape[0]):
        part = x[:, m // makes * takes :][:, :takes]
        for place in np.ndindex(*outs):
            cut = tuple(
                slice(place[i] * strides[i], place[i] * strides[i] + spans[i], dilations[i])
                for i in range(rank)
            )  # fmt: skip
            y[(slice(None), m, *place)] = (part[(slice(None), slice(None), *cut)] * w[m].astype(float)).reshape(len(x), -1).sum(1)  # fmt: skip
    if bias is not None:
        y += bias.astype(float).reshape(1, -1, *[1] * rank)
    return y


FORMS = {
    "a single tap": ((2, 3, 4, 5), (6, 3, 1, 1), {}),
    "a single tap of groups": ((2, 4, 3, 5), (6, 2, 1, 1), {"group": 2}),
    "a single tap, every other pixel": ((1, 3, 5, 6), (4, 3, 1, 1), {"strides": "[2, 2]"}),
    "three by three": ((2, 3, 6, 5), (4, 3, 3, 3), {"pads": "[1, 1, 1, 1]"}),
    "all of it": (
        (2, 2, 9, 8), (3, 2, 3, 2),
        {"pads": "[2, 0, 1, 3]", "strides": "[2, 3]", "dilations": "[2, 1]"},
    ),
    "one axis": ((2, 3, 12), (4, 3, 4), {"strides": "[3]", "pads": "[1, 2]"}),
    "three axes": ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), {"pads": "[1, 0, 1, 0, 1, 0]"}),
    "channel by channel": ((2, 4, 6, 5), (4, 1, 3, 3), {"group": 4, "pads": "[1, 1, 1, 1]"}),
    "channel by channel, several each": ((1, 3, 7, 5), (6, 1, 3, 2), {"group": 3, "strides": "[2, 1]", "dilations": "[1, 2]"}),
    "groups with many channels": ((2, 20, 4, 3), (20, 10, 2, 2), {"group": 2}),
    "one axis, channel by channel": ((1, 3, 9), (3, 1, 4), {"group": 3, "pads": "[2, 1]"}),
    "as wide, more at the end": ((1, 2, 5, 4), (3, 2, 2, 2), {"auto_pad": '"SAME_UPPER"', "strides": "[2, 1]"}),
    "as wide, more at the begin": ((1, 2, 5, 4), (3, 2, 2, 2), {"auto_pad": '"SAME_LOWER"', "strides": "[2, 1]"}),
    "nothing padded": ((1, 2, 5, 4), (3, 2, 2, 2), {"auto_pad": '"VALID"'}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_convolutions_by_their_forms(name):
    x, w, given = FORMS[name]
    text = text_of(x, w, bias=w[0] if "axis" not in name else 0, **given)
    check(text, drawn(text), oracle=peer)


def test_a_convolution_by_the_sum_that_defines_it():
    text = text_of((2, 4, 6, 5), (6, 2, 3, 2), bias=6, group=2, pads="[1, 0, 0, 1]", strides="[2, 1]")  # fmt: skip

    def oracle(_, f):
        window = (2, 1), (1, 1), ((1, 0), (0, 1))
        return [wide(f["x"], f["w"], f["b"], window, 2).astype(np.float32)]

    check(text, drawn(text), oracle=oracle)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "double"])
@pytest.mark.parametrize("groups", [1, 4])
def test_convolutions_by_types(kind, groups):
    text = text_of(
        (1, 4, 5, 6), (4, 4 // groups, 3, 3), bias=4, kind=kind, group=groups
    )

    def oracle(_, f):
        window = (1, 1), (1, 1), ((0, 0), (0, 0))
        made = wide(f["x"], f["w"], f["b"], window, groups)
        return [made.astype(f["x"].dtype)]

    check(text, drawn(text), oracle=oracle, atol=0.02 if "16" in kind else None)


@pytest.mark.parametrize("nbytes", [700, 2500])
def test_columns_are_made_in_slabs_of_places_or_of_images(monkeypatch, nbytes):
    monkeypatch.setattr(convolution_sizes, "SLAB", nbytes)
    text = text_of((3, 2, 6, 5), (4, 2, 3, 3), bias=4, pads="[1, 1, 1, 1]")
    check(text, drawn(text), oracle=peer)
    with opened(text) as pipeline:
        pipeline.run(drawn(text))
        claim = pipeline.runner.latest().plan.choices["Conv_0"].claim
        assert 0 < claim.workspace_nbytes <= nbytes


TRANSPOSED = {
    "plain": ((2, 3, 4, 5), (3, 2, 2, 2), 2, {}),
    "apart": ((1, 3, 3, 4), (3, 2, 3, 3), 2, {"strides": "[2, 3]", "pads": "[1, 0, 0, 2]"}),
    "dilated, and longer": (
        (1, 2, 3, 3), (2, 3, 2, 3), 3,
        {"strides": "[2, 2]", "dilations": "[2, 1]", "output_padding": "[1, 1]"},
    ),
    "groups": ((2, 20, 3, 2), (20, 10, 2, 2), 20, {"group": 2, "strides": "[2, 1]"}),
    "channel by channel": ((2, 3, 4, 3), (3, 1, 3, 2), 3, {"group": 3, "strides": "[2, 2]", "dilations": "[1, 2]"}),
    "channel by channel, several each": ((1, 4, 3, 3), (4, 3, 2, 2), 6, {"group": 2, "pads": "[1, 0, 0, 1]"}),
    "one axis": ((1, 2, 5), (2, 3, 3), 3, {"strides": "[2]"}),
    "three axes": ((1, 2, 2, 3, 2), (2, 2, 2, 1, 2), 2, {"strides": "[1, 2, 2]"}),
    "a size that is asked for": ((1, 2, 3, 3), (2, 2, 3, 3), 2, {"strides": "[2, 2]", "output_shape": "[7, 6]"}),
    "as wide as strides say": ((1, 2, 3, 4), (2, 2, 3, 3), 2, {"strides": "[2, 2]", "auto_pad": '"SAME_UPPER"'}),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_by_their_forms(name):
    x, w, outputs, given = TRANSPOSED[name]
    text = text_of(x, w, op="ConvTranspose", bias=outputs, **given)
    check(text, drawn(text), oracle=peer)


@pytest.mark.parametrize("kind", ["float16", "double"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_is_the_transpose_of_one(kind, groups):
    text = text_of((1, 4, 3, 3), (4, 2, 2, 2), op="ConvTranspose", kind=kind, group=groups, strides="[2, 2]")  # fmt: skip

    def oracle(_, f):
        x, w = f["x"].astype(float), f["w"].astype(float)
        y = np.zeros((1, 2 * groups, 6, 6))
        for c, i, j in np.ndindex(4, 3, 3):
            to = c // (4 // groups) * 2
            y[0, to : to + 2, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += (
                x[0, c, i, j] * w[c]
            )
        return [y.astype(f["x"].dtype)]

    check(text, drawn(text), oracle=oracle, atol=0.01 if "16" in kind else None)


@pytest.mark.parametrize("nbytes", [400, 1500])
def test_a_transposed_convolution_takes_channels_or_images_in_turn(monkeypatch, nbytes):
    monkeypatch.setattr(convolution_transposed, "SLAB", nbytes)
    for groups in (1, 2):
        text = text_of((3, 20, 3, 3), (20, 10, 2, 2), op="ConvTranspose", group=groups)
        check(text, drawn(text), oracle=peer)


@pytest.mark.parametrize(
    "points", ["", "uint8 p", "uint8 p, int8 q", "uint8 p, int8[4] q"]
)
@pytest.mark.parametrize("groups", [1, 2])
def test_bytes_are_convolved_less_their_zero_points(points, groups):
    takes = 4 // groups
    more = f", {points}" if points else ""
    last = "".join(f", {each.split()[1]}" for each in points.split(", ") if each)
    text = f"""g (uint8[2,4,4,3] x, int8[4,{takes},2,2] w{more}) => (int32[n,m,h,v] y) {{
        y = ConvInteger<group = {groups}, pads = [1, 0, 1, 1], strides = [1, 2]>(x, w{last}) }}"""

    def oracle(_, f):
        x = f["x"].astype(int) - int(f.get("p", 0))
        w = f["w"].astype(int) - np.asarray(f.get("q", 0)).astype(int).reshape(
            -1, 1, 1, 1
        )
        return [
            wide(x, w, None, ((1, 2), (1, 1), ((1, 1), (0, 1))), groups).astype(
                np.int32
            )
        ]

    check(text, drawn(text), oracle=oracle)


def test_nothing_in_gives_nothing_out():
    text = text_of((0, 3, 4, 5), (6, 3, 3, 3))
    check(text, drawn(text), oracle=lambda *_: [np.zeros((0, 6, 2, 3), np.float32)])


def test_convolutions_one_after_another_are_one_segment():
    text = """g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[4,1,3,3] v, float[2,4,1,1] u)
        => (float[1,2,8,8] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w, b) c = Relu(a)
        d = Conv<pads = [1, 1, 1, 1], group = 4>(c, v) e = Clip(d) y = Conv(e, u) }"""
    check(text, drawn(text), oracle=peer)
    with opened(model(text, 23)) as pipeline:
        pipeline.run(drawn(text))
        plan = pipeline.runner.latest().plan
        variants = [plan.choices[n.name].claim.variant for n in pipeline.graph.nodes if n.op_type == "Conv"]  # fmt: skip
        assert variants == ["cublaslt", "direct", "cublaslt"]
        assert not plan.seams


def test_a_rank_that_is_found_by_running_is_the_weights():
    text = """g (bool b, float[1,3,9] x) => (float[n,m,p] y) <float[1,3,3] w = {1,2,3,4,5,6,7,8,9}>
        { t = If(b) <then_branch = q () => (float[1,3,9] u) { u = Neg(x) },
            else_branch = e () => (float[3,9] v) <int64[1] k = {0}> { v = Squeeze(x, k) }>
          y = Conv(t, w) }"""
    x = np.arange(27, dtype=np.float32).reshape(1, 3, 9)
    weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    want = [-(x[0, :, at : at + 3] * weights).sum() for at in range(7)]
    with opened(text) as pipeline:
        (found,) = pipeline.run({"x": x, "b": np.array(True)})
        assert found.tolist() == [[want]]
        with pytest.raises(PlanError, match="at least rank 3"):
            pipeline.run({"x": x, "b": np.array(False)})
