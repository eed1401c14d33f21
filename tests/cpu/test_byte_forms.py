"""
Products and convolutions of bytes in both forms, pairs and fours, and how their sums end.

Fours are VNNI's form. Every variant multiplies them exactly, so they are tested wherever
the tests run, and that VNNI's instruction is what they become, for processors that have it.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cpu.rewritten import model_of
from tests.cpu.test_convolution import defined
from tests.cpu.test_vectors import EVERY, assembly

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline
from seamline.windows import Window
from seamline_cpu.instruction_sets import INT8, lacking
from seamline_cpu.integer_tiles import emit_bytes, emit_taps
from seamline_cpu.kernels.activation_loops import clip
from seamline_cpu.kernels.byte_endings import Ending
from seamline_cpu.kernels.byte_panels import BytePanels
from seamline_cpu.kernels.byte_product import bind_bytes
from seamline_cpu.kernels.byte_repacking import bind_repacking
from seamline_cpu.kernels.convolution_endings import ENDING_BYTES, ConvolutionEnding
from seamline_cpu.kernels.convolution_tiles import pack_bias
from seamline_cpu.kernels.convolution_words import bind_words
from seamline_cpu.kernels.epilogues import Epilogue
from seamline_cpu.kernels.word_blocks import pack_channels, words_bytes
from seamline_cpu.tiles import COLUMNS, ROWS

R = np.random.default_rng(23)
GROUPS = pytest.mark.parametrize("group", [2, 4])
SIZES = [(1, 1, 1), (1, 5, 40), (5, 64, 7), (13, 31, 50), (7, 130, 16), (2, 0, 3), (601, 9, 33)]  # fmt: skip


def whole(dtype, *shape):
    info = np.iinfo(dtype)
    x = R.integers(info.min, info.max, shape, endpoint=True)
    x.flat[: x.size // 4] = info.min
    return x.astype(dtype)


def of(rows, columns, dtype="float32"):
    return np.zeros((rows, columns), dtype)


def exact(a, p, b, q):
    return (a.astype(np.int64) - p.reshape(-1, 1)) @ (b.astype(np.int64) - q)


def case(sizes, left="uint8", right="int8", by_row=False):
    m, k, n = sizes
    a, b = whole(left, m, k), whole(right, k, n)
    return a, whole(left, m if by_row else 1), b, whole(right, n)


def multiplied(a, p, b, q, group, y, variant="portable", threads=2):
    panels = BytePanels.of(b, group)
    bind_bytes(a, p, panels, panels.zeros(q), y, threads, variant)()
    return y.y if isinstance(y, Ending) else y


@EVERY
@GROUPS
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8")])
def test_a_product_is_exact_in_either_form(variant, group, sizes, kinds):
    a, p, b, q = case(sizes, *kinds, by_row=sizes[0] > 1)
    got = multiplied(a, p, b, q, group, of(len(a), b.shape[1], np.int32), variant)
    np.testing.assert_array_equal(got, exact(a, p, b, q))


@GROUPS
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    "shape", [(1, 5, 9, 7), (4, 7, 16, 33), (3, 1, 31, 40), (2, 13, 2, 16)]
)
def test_right_sides_that_change_are_packed_in_each_run(group, kind, shape):
    items, m, k, n = shape
    a, b = whole("uint8", items, m, k), whole(kind, items, k, n)
    p, q = whole("uint8", 1), whole(kind, n)
    y = of(items * m, n, np.int32)
    pack, panels, zeros = bind_repacking(b, q, group, 2)
    run = bind_bytes(a, p, panels, zeros, y, 2, "portable")
    for _ in range(2):
        b[...], q[...] = whole(kind, *b.shape), whole(kind, n)
        pack()
        run()
        want = (a.astype(np.int64) - p) @ (b.astype(np.int64) - q)
        np.testing.assert_array_equal(y.reshape(want.shape), want)


@GROUPS
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("by_row", [False, True])
def test_sums_end_as_floats_with_bias_residual_and_activation(group, sizes, by_row):
    a, p, b, q = case(sizes)
    m, n = len(a), b.shape[1]
    rows = R.uniform(0.01, 0.02, m if by_row else 1).astype(np.float32)
    columns, bias = R.normal(size=n).astype(np.float32), R.normal(size=n)
    more = R.normal(size=(m, n)).astype(np.float32)
    limits = np.array([-50, 80], np.float32)
    epilogue = Epilogue(clip, limits, more)
    ending = Ending(of(m, n), rows, columns, bias.astype(np.float32), epilogue=epilogue)
    got = multiplied(a, p, b, q, group, ending)
    want = (
        exact(a, p, b, q) * rows.reshape(-1, 1).astype(np.float64) * columns
        + bias
        + more
    )
    np.testing.assert_allclose(got, np.clip(want, *limits), rtol=1e-5, atol=1e-3)


@GROUPS
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("sizes", SIZES)
def test_sums_end_as_bytes_halves_to_even_and_saturated(group, sizes, dtype):
    a, p, b, q = case(sizes)
    n, info = b.shape[1], np.iinfo(dtype)
    bias = R.integers(-500, 500, n).astype(np.int32)
    scale, last = np.array([0.5], np.float32), np.array([64], np.float32)
    zero = whole(dtype, 1)
    ending = Ending(
        of(len(a), n, dtype),
        scale,
        np.ones(1, np.float32),
        None,
        last,
        zero,
        added=bias,
    )
    got = multiplied(a, p, b, q, group, ending)
    real = np.rint((exact(a, p, b, q) + bias) / 128) + zero.astype(int)
    np.testing.assert_array_equal(got, np.clip(real, info.min, info.max))


WINDOWS = {
    "a_pixel": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    "odd_channels": ((2, 5, 9, 20), (7, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "rows_narrower_than_a_tile": ((1, 6, 13, 5), (6, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    "every_second_pixel": ((1, 3, 11, 70), (13, 3, 3, 3), {"strides": [2, 2], "pads": [0, 1, 2, 1]}),
    "groups": ((2, 6, 7, 33), (9, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "dilated": ((1, 9, 20, 30), (4, 9, 3, 2), {"dilations": [3, 5]}),
    "longer_than_the_cache": ((1, 700, 1, 150), (6, 700, 1, 2), {"pads": [0, 1, 0, 0]}),
}  # fmt: skip


def window_of(x, w, out, given):
    pads = given.get("pads", [0] * 4)
    lists = (
        given.get("strides", [1, 1]),
        given.get("dilations", [1, 1]),
        pads[:2],
        pads[2:],
    )
    ones = ((1,), (1,), (0,), (0,))
    steps = [tuple(one) + tuple(many) for one, many in zip(ones, lists, strict=True)]
    sizes = [(1, *array.shape[2:]) for array in (x, out, w)]
    return Window(*sizes, *steps)


def convolved(group, name, kind, ending=None):
    """Convolve bytes directly, and give the sums as they should be too."""
    shape, kernel, given = WINDOWS[name]
    groups = given.get("group", 1)
    x, zero = whole(kind, *shape), whole(kind, 1)
    w = R.integers(-128, 127, kernel, endpoint=True).astype(np.int16)
    bias = R.integers(-999, 999, kernel[0]).astype(np.int32)
    want = defined(x.astype(np.int64) - int(zero[0]), w.astype(np.int64), **given)
    want += bias.reshape(1, -1, 1, 1)
    out = np.zeros(want.shape, np.int32)
    window, threads = window_of(x, w, out, given), 2
    need = words_bytes(window, shape[1] // groups, kernel[0] // groups, threads, group)
    scratch = np.full(need + threads * ENDING_BYTES + 64, 0xA5, np.uint8)
    totals = pack_bias(
        w.reshape(len(w), -1).sum(1, dtype=np.int32), len(w), groups, np.int32
    )
    made = None if ending is None else ending(out)
    run = bind_words(
        x, pack_channels(w, groups, group), pack_bias(bias, len(w), groups, np.int32), out,
        window, scratch, threads, zero, made, totals,
    )  # fmt: skip
    run()
    return out if made is None else made.y, want


@GROUPS
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_convolution_is_exact_in_either_form(group, name, kind):
    got, want = convolved(group, name, kind)
    np.testing.assert_array_equal(got, want)


@GROUPS
@pytest.mark.parametrize("name", WINDOWS)
def test_a_convolutions_sums_end_as_floats_in_their_place(group, name):
    (count, *_), limits = WINDOWS[name][1], np.array([-30, 40], np.float32)
    scale, weights = (
        np.array([0.01], np.float32),
        R.normal(size=count).astype(np.float32),
    )
    bias = R.normal(size=count).astype(np.float32)
    added = R.integers(-5000, 5000, count).astype(np.int32)
    held = []

    def ending(out):
        held.append(R.normal(size=out.shape).astype(np.float32))
        epilogue = Epilogue(clip, limits, held[0])
        return ConvolutionEnding(
            out.view(np.float32), out, scale, weights, added, bias, epilogue=epilogue
        )

    got, want = convolved(group, name, "uint8", ending)
    column = (-1, 1, 1)
    want = want + added.reshape(column)
    want = want * (0.01 * weights.astype(np.float64)).reshape(column)
    want = np.clip(want + bias.reshape(column) + held[0], *limits)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


@GROUPS
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_convolutions_sums_end_as_bytes(group, dtype):
    one, last = np.ones(1, np.float32), np.array([64], np.float32)
    zero, info = whole(dtype, 1), np.iinfo(dtype)

    def ending(out):
        return ConvolutionEnding(out.astype(dtype), out, one, one, last=last, zero=zero)

    got, want = convolved(group, "odd_channels", "uint8", ending)
    real = np.rint(want / 64) + zero.astype(int)
    np.testing.assert_array_equal(got, np.clip(real, info.min, info.max))


@pytest.mark.parametrize(
    ("variant", "cpu"), [("avx512vnni", "sapphirerapids"), ("avxvnni", "alderlake")]
)
@pytest.mark.parametrize("rows", [1, 6])
def test_fours_become_the_instruction_of_vnni(variant, cpu, rows):
    def emit(v, *args):
        emit_bytes(v, 4, rows, args)

    each = COLUMNS // (16 if variant == "avx512vnni" else 8)
    text = assembly(variant, cpu, emit, 9)
    assert text.count("vpdpbusd") == each * rows
    assert "call" not in text
    text = assembly(variant, cpu, lambda v, *args: emit_taps(v, 4, args), 7)
    assert text.count("vpdpbusd") == each * ROWS
    assert "call" not in text


def test_pairs_are_multiplied_by_one_instruction_without_vnni():
    text = assembly("avx2", "znver3", lambda v, *args: emit_taps(v, 2, args), 7)
    assert text.count("vpmaddwd") == ROWS * COLUMNS // 8
    assert "vpmull" not in text


@pytest.mark.parametrize("variant", INT8)
def test_a_forced_variant_runs_or_is_refused_with_its_reason(variant):
    b = whole("int8", 33, 20)
    model = model_of("g (uint8[M,33] a) => (y) { y = MatMulInteger(a, b) }", b=b)
    providers = [("cpu", {"num_threads": 2, "int8_variant": variant})]
    a = whole("uint8", 9, 33)
    reason = lacking(variant)
    if reason is not None:
        with pytest.raises(SeamlineError) as raised:
            Pipeline.open(model, providers=providers).run({"a": a})
        assert reason in str(raised.value)
        return
    pipeline = Pipeline.open(model, providers=providers)
    (y,) = pipeline.run({"a": a})
    np.testing.assert_array_equal(y, a.astype(int) @ b.astype(int))
    (said,) = pipeline.explain().data["plan"]["nodes"].values()
    assert said["variant"] == variant
    assert f"{variant} was asked for" in said["because"]
    pipeline.close()
