"""Copies between strided places, by commands: the same bytes as NumPy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.core.toys import model

import seamline_cpu.moving as moving
from seamline.errors import KernelError
from seamline.pipeline import Pipeline
from seamline_cpu.kernels import gather_commands, transposing
from seamline_cpu.kernels.gather_commands import bind_gather
from seamline_cpu.kernels.transposing import bind_turn, merged
from seamline_cpu.moving import bind_move
from seamline_cpu.strides import folded, three_loops

DTYPES = [
    np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.int32, np.float64, np.complex64,
    np.complex128,
]  # fmt: skip


@pytest.fixture(params=[1, 2, 5])
def threads(request, monkeypatch):
    monkeypatch.setattr(moving, "_SHARED_RUNS", 0)
    monkeypatch.setattr(moving, "_SHARED_ELEMENTS", 0)
    monkeypatch.setattr(gather_commands, "_SHARED_FROM", 0)
    monkeypatch.setattr(transposing, "_THREADED_ELEMENTS", 0)
    return request.param


def drawn(shape, dtype, seed=0):
    raw = np.random.default_rng(seed).integers(
        0, 256, size=(*shape, np.dtype(dtype).itemsize)
    )
    if dtype == np.bool_:
        return np.asarray(raw[..., 0] & 1, bool)
    return raw.astype(np.uint8).view(dtype)[..., 0]


def bits(array):
    return np.ascontiguousarray(array).tobytes()


VIEWS = {
    "whole": lambda x: x,
    "reversed": lambda x: x[::-1, :, ::-1],
    "every_other": lambda x: x[::2, 1::3],
    "permuted": lambda x: x.transpose(2, 0, 1),
    "backwards_permuted": lambda x: x.transpose(1, 2, 0)[:, ::-2],
    "inner_part": lambda x: x[1:5, 2:, 3:17],
    "one_column": lambda x: x[..., 4:5],
    "spread": lambda x: np.broadcast_to(x[:, None, :1], (7, 6, 1, 20)),
    "repeated": lambda x: np.broadcast_to(x[0, 0], (5, 20)),
    "number": lambda x: np.broadcast_to(x[3, 2, 1], (4, 9)),
    "scalar": lambda x: x[3:4, 2, 1].reshape(()),
    "four_axes": lambda x: x.reshape(7, 3, 3, 20).transpose(2, 0, 3, 1)[::2],
    "five_axes": lambda x: x.reshape(7, 3, 3, 4, 5).transpose(4, 2, 0, 3, 1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_a_copy_has_every_byte_where_it_belongs_and_writes_nothing_else(
    view, dtype, threads
):
    source = view(drawn((7, 9, 20), dtype))
    room = drawn((*source.shape, 2), dtype, seed=1)
    before = room[..., 1].copy()
    bind_move(source, room[..., 0], threads)()
    assert bits(room[..., 0]) == bits(source)
    assert bits(room[..., 1]) == bits(before)
    flat = np.empty(source.shape, dtype)
    bind_move(source, flat, threads)()
    assert bits(flat) == bits(source)


def test_what_a_command_cannot_copy_is_left_to_numpy():
    x = np.arange(6.0)
    assert bind_move(x, np.empty(6, np.float32)) is None
    assert bind_move(x[:5], x[1:]) is None
    assert bind_move(np.array(["a"], object), np.empty(1, object)) is None
    assert bind_move(np.empty((0, 3)), np.empty((0, 3))) is None
    assert bind_move(x[::2], x[1::2], apart=True) is not None


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 17, 33), (3, 64, 5), (1, 100, 9)])
def test_turned_planes_have_rows_for_columns(shape, dtype, threads):
    x = drawn(shape, dtype)
    out = np.empty((shape[0], shape[2], shape[1]), dtype)
    bind_turn(x, out, *shape, threads)()
    assert bits(out) == bits(x.transpose(0, 2, 1))


def test_neighbours_that_stay_neighbours_move_as_one_axis():
    assert merged((1, 128, 12, 64), (0, 2, 3, 1)) == ((128, 768), (1, 0))
    assert folded((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ([2, 12], [[12, 1], [0, 1]])
    out = np.empty((2, 3, 4, 5, 6))
    assert three_loops(out, [np.empty((3, 1, 5, 1))]) is None


# --- gather ---------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_gather_takes_the_slices_that_its_indices_name(axis, kind, dtype, threads):
    x = drawn((5, 6, 7), dtype)
    size = x.shape[axis]
    at = np.array([[0, -1, size - 1], [-size, 2, 2]], kind)
    want = x.take(at, axis)
    out = np.empty(want.shape, dtype)
    bind_gather(x, at, axis, out, threads)()
    assert bits(out) == bits(want)


@pytest.mark.parametrize("wrong", [-6, 5, 2**40, -(2**62)])
def test_gather_names_an_index_outside_and_goes_on_with_the_next_run(wrong):
    x, out = np.arange(5.0), np.empty(2)
    at = np.array([1, wrong])
    run = bind_gather(x, at, 0, out, 1)
    with pytest.raises(
        IndexError, match=f"index {wrong} is out of bounds for axis 0 with size 5"
    ):
        run()
    at[1] = -1
    run()
    assert out.tolist() == [1, 4]


def test_an_index_outside_is_named_with_its_node_from_within_a_list():
    text = """g (float[3] x, int64[2] i, int64[2] j) => (y) {
        [a] a = Neg(x) [b] b = Gather(a, i) [c] c = Gather(a, j) [d] y = Mul(b, c) }"""
    pipeline = Pipeline.open(model(text), providers=[("cpu", {"num_threads": 1})])
    x, inside = np.arange(3, dtype=np.float32), np.array([2, -3])
    for _ in range(3):
        (y,) = pipeline.run({"x": x, "i": inside, "j": inside})
        assert y.tolist() == [4, 0]
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["left"] == {}
    for name, node in (("i", "b"), ("j", "c")):
        feeds = {"x": x, "i": inside, "j": inside, name: np.array([0, 3])}
        with pytest.raises(KernelError, match="index 3 is out of bounds") as caught:
            pipeline.run(feeds)
        assert caught.value.node == node
    (y,) = pipeline.run({"x": x, "i": inside, "j": inside})
    assert y.tolist() == [4, 0]


def test_gather_from_no_elements_is_an_error_and_reads_nothing():
    run = bind_gather(np.empty((0, 4)), np.array([0]), 0, np.empty((1, 4)), 1)
    with pytest.raises(
        IndexError, match="index 0 is out of bounds for axis 0 with size 0"
    ):
        run()


# --- whole operators ------------------------------------------------------------------

MOVES = {
    "transpose": ([3, 4, 5], "y = Transpose <perm = [2,0,1]> (x)"),
    "concat": ([3, 4], "y = Concat <axis = 1> (x, x, x)"),
    "split": ([6, 4], "y, z = Split <num_outputs = 2> (x)"),
    "slice": ([6, 4], """s = Constant <value_ints = [-1]> () e = Constant <value_ints = [-9]> ()
        a = Constant <value_ints = [0]> () t = Constant <value_ints = [-2]> ()
        y = Slice(x, s, e, a, t)"""),
    "pad_reflect": ([2, 5], """p = Constant <value_ints = [1,2,1,4]> ()
        y = Pad <mode = "reflect"> (x, p)"""),
    "pad_constant": ([2, 5], """p = Constant <value_ints = [1,2,0,3]> ()
        v = Constant <value_float = 3.0> () y = Pad(x, p, v)"""),
    "expand": ([3, 1], "s = Constant <value_ints = [2,3,4]> () y = Expand(x, s)"),
    "tile": ([3, 2], "s = Constant <value_ints = [2,3]> () y = Tile(x, s)"),
    "gather": ([3, 2], "i = Constant <value_ints = [2,-3]> () y = Gather(x, i)"),
    "resize": ([1, 1, 3, 4], """n = Constant <value_floats = [1.0,1.0,2.0,2.0]> ()
        y = Resize <mode = "nearest"> (x, , n)"""),
    "depth_to_space": ([1, 8, 2, 3], "y = DepthToSpace <blocksize = 2> (x)"),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "body"), MOVES.values(), ids=MOVES)
def test_operators_that_move_data_leave_nothing_in_python(shape, body):
    source = model(f"g (float{shape} given) => (y) {{ x = Neg(given) {body} }}")
    pipeline = Pipeline.open(source, providers=[("cpu", {"num_threads": 1})])
    defined = Pipeline.open(source, providers=["reference"])
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        (got,), (want,) = pipeline.run({"given": x}), defined.run({"given": x})
        np.testing.assert_array_equal(got, want)
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["state"] == "recorded"
    assert segment["capture"]["left"] == {}
