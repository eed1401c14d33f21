"""Operators that move data, over an emulated driver: warm-up, recording and replays."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.emulation import emulated
from tests.cuda.held import Case, hold, opened
from tests.cuda.move_cases import (
    CUTS,
    FILLS,
    GATHERS,
    MASKS,
    PADS,
    RESIZES,
    SCATTERS,
    SPREADS,
    TRANSPOSES,
)
from tests.cuda.test_formulas import refusal

from seamline.errors import KernelError

FAMILIES = {
    "transpose": TRANSPOSES, "cut": CUTS, "spread": SPREADS, "gather": GATHERS,
    "scatter": SCATTERS, "pad": PADS, "mask": MASKS, "fill": FILLS,
    "resize": RESIZES,
}  # fmt: skip
CASES = {f"{family}: {n}": c for family, cases in FAMILIES.items() for n, c in cases.items()}  # fmt: skip


@pytest.fixture(autouse=True)
def device():
    with emulated() as driver:
        yield driver


@pytest.mark.parametrize("name", CASES)
def test_a_move_is_what_the_standard_says_run_recorded_and_replayed(name):
    _, events = hold(CASES[name])
    assert all(one[:1] in ([], ["recorded"]) for one in events)


LAUNCHED = {
    "transpose: rows and columns": ["transposed_0"],
    "transpose: a batch of squares": ["transposed_2"],
    "transpose: heads": ["move_4_s"],
    "transpose: nothing moves": ["copy of Transpose"],
    "cut: rows": ["copy of Slice"],
    "cut: parts of the first axis": ["copy of Split"] * 3,
    "cut: joined rows": ["copy of Concat"] * 2,
    "cut: joined columns": ["move_2_t"] * 2,
    "gather: a constant row": ["copy of Gather"],
    "gather: constant neighbours backwards": ["move_2_s"],
    "gather: constants in no order": ["gather"],
    "scatter: elements in place": ["elementwise_neg", "scatter_elements_2"],
    "scatter: data as its own updates": [
        "elementwise_neg", "copy of ScatterElements", "scatter_elements_2",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_part_in_one_piece_is_one_copy_and_any_other_one_kernel(name):
    assert hold(CASES[name], runs=2)[0] == LAUNCHED[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [("gather: rows", 5), ("gather: rows", -6), ("gather: tuples", 4), ("gather: elements", -5),
     ("scatter: elements", 6), ("scatter: tuples", -6), ("scatter: add of float elements", 4),
     ("scatter: add of tuples", 1 << 40)],
)  # fmt: skip
def test_an_index_outside_is_an_error_that_names_the_node_and_the_next_run_is_right(
    name, value
):
    case = CASES[name]
    pipeline = opened(case.model)
    try:
        for seed in range(4):
            feeds = case.feeds(seed)
            if seed % 2:
                feeds["i"].reshape(-1)[-1] = value
                with pytest.raises(
                    KernelError, match=r"outside|out of bounds"
                ) as error:
                    pipeline.run(feeds)
                assert error.value.node == pipeline.graph.nodes[-1].name
                continue
            (got,) = pipeline.run(feeds)
            np.testing.assert_allclose(got, case.wanted(feeds)["y"], rtol=1e-5)
    finally:
        pipeline.close()


def test_a_start_that_comes_with_a_run_is_followed_and_recorded_again():
    case = Case(
        """g (float[6,3] x, int64[1] s, int64[1] e) => (float[2,3] y)
        { y = Slice(x, s, e) }"""
    )
    pipeline = opened(case.model)
    try:
        for start in (1, 1, 3, 0, 0):
            feeds = case.feeds(start) | {"s": np.array([start]), "e": np.array([start + 2])}  # fmt: skip
            (got,) = pipeline.run(feeds)
            np.testing.assert_array_equal(got, feeds["x"][start : start + 2])
    finally:
        pipeline.close()


def test_a_length_beyond_the_steps_is_an_error():
    case = CASES["mask: sequences in rows"]
    pipeline = opened(case.model)
    try:
        feeds = case.feeds(0) | {"n": np.array([1, 6, 2])}
        with pytest.raises(KernelError, match=r"sequence_lens leave \[0, 5\]"):
            pipeline.run(feeds)
    finally:
        pipeline.close()


REFUSED = {
    "whole numbers between samples": (
        'g (uint8[9] x) => (uint8[3] y) <int64[1] s = {3}> { y = Resize<mode = "linear">(x, , , s) }',
        "mode linear of uint8",
    ),
    "too many axes of a cubic": (
        'g (float[2,2,2] x) => (float[3,3,3] y) <int64[3] s = {3,3,3}> { y = Resize<mode = "cubic">(x, , , s) }',
        "up to 2 are accepted",
    ),
    "a size that follows from data": (
        "g (float[9] x) => (int64[1,N] y) { y = NonZero(x) }",
        "known only after running",
    ),
    "a mode of Pad": (
        'g (float[9] x) => (float[9] y) <int64[2] p = {0,0}> { y = Pad<mode = "odd">(x, p) }',
        "none of constant, reflect, edge, wrap",
    ),
    "a vector's diagonal": (
        "g (float[9] x) => (float[9] y) { y = Trilu(x) }",
        "less than a matrix has",
    ),
    "floats in order by one thread": (
        'g (float[9] x, int64[5000] i, float[5000] u) => (float[9] y) { y = ScatterElements<reduction = "add">(x, i, u) }',
        "folded in order by one thread",
    ),
    "a truth value that is added": (
        'g (bool[9] x, int64[5] i, bool[5] u) => (bool[9] y) { y = ScatterElements<reduction = "add">(x, i, u) }',
        "bool has no reduction",
    ),
    "strings": ("g (string[9] x) => (string[9] y) { y = Transpose(x) }", "string"),
    "a huge tensor": (
        "g (int8[65536,65536] x) => (int8[65536,65536] y) { y = Transpose(x) }",
        "2147483648 elements or more",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_kernel_is_for_is_refused_with_what_would_be_accepted(what):
    text, said = REFUSED[what]
    assert said in refusal(text)


def test_a_region_that_comes_with_a_run_is_followed_by_recordings():
    case = Case(
        """g (float[4,4] x, float[4] r) => (float[2,2] y) <int64[2] s = {2, 2}>
        { y = Resize<coordinate_transformation_mode = "tf_crop_and_resize",
            mode = "linear">(x, r, , s) }""",
        rtol=1e-5,
    )
    regions = [(0, 0, 1, 1), (0, 0, 1, 1), (0.5, 0, 1, 1), (0.5, 0, 1, 1), (0, 0.5, 0.25, 1)]  # fmt: skip
    pipeline = opened(case.model)
    try:
        for seed, region in enumerate(regions):
            feeds = case.feeds(seed) | {"r": np.array(region, np.float32)}
            (got,) = pipeline.run(feeds)
            np.testing.assert_allclose(got, case.wanted(feeds)["y"], rtol=1e-5)
        (segment,) = pipeline.runner.latest().captured.values()
        lost = "no longer held: host input 'r' is baked into it and has another value now; record it again"  # fmt: skip
        assert segment.events == ["recorded", *[lost, "recorded again"] * 2]
    finally:
        pipeline.close()


def test_arithmetic_of_shapes_is_no_seam_and_launches_nothing():
    text = """g (float[B,S,12] x) => (float[B,3,S,4] y)
        <int64[1] zero = {0}, int64[1] end = {1}, int64 one = {1}, int64[2] tail = {3, 4}> {
        sizes = Shape(x)
        b = Slice(sizes, zero, end)
        s = Gather(sizes, one)
        sv = Unsqueeze(s, zero)
        shape = Concat<axis = 0>(b, sv, tail)
        heads = Reshape(x, shape)
        y = Transpose<perm = [0, 2, 1, 3]>(heads) }"""
    pipeline = opened(Case(text).model, seams="error")
    try:
        for sizes in ((2, 5), (2, 5), (1, 3), (1, 3)):
            x = (
                np.random.default_rng(1)
                .standard_normal((*sizes, 12))
                .astype(np.float32)
            )
            (got,) = pipeline.run({"x": x})
            want = x.reshape(*sizes, 3, 4).transpose(0, 2, 1, 3)
            np.testing.assert_array_equal(got, want)
            (segment,) = pipeline.runner.latest().captured.values()
            names = [one.kernel for one in segment.executable.launches]
            moves = [name for name in names if not name.startswith("copy")]
            assert moves == [f"move_{4 if sizes[0] > 1 else 3}_s"]
    finally:
        pipeline.close()


@pytest.mark.parametrize(("given", "made", "to"), [("float", "int32", 6), ("int64", "double", 11), ("float16", "bfloat16", 16)])  # fmt: skip
def test_bits_are_shown_as_another_type_of_their_width(given, made, to):
    text = f"""g ({given}[3,4] x) => ({made}[3,4] y)
        {{ t = Abs(x)  u = BitCast<to = {to}>(t)  y = Identity(u) }}"""
    case = Case(text, opset=26)
    feeds = case.feeds(0)
    pipeline = opened(case.model)
    try:
        for _ in range(3):
            (got,) = pipeline.run(feeds)
            assert got.tobytes() == np.abs(feeds["x"]).tobytes()
    finally:
        pipeline.close()


def test_bits_of_another_width_are_refused():
    text = "g (float[3] x) => (int64[3] y) { y = BitCast<to = 7>(x) }"
    assert "types of one width are accepted" in refusal(text, 26)
