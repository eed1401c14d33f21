"""Gather, GatherElements, GatherND, GatherBlockQuantized: values, bounds, every type."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import Bound, agrees, give, gives, node_of

from seamline_cpu.kernels.gathering import unpacked

F = np.float32
TABLE = np.arange(12, dtype=F).reshape(4, 3)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "dtype", [F, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, bool, object]
)
def test_gather_takes_slices_of_every_type(dtype):
    x = (
        TABLE.astype(str).astype(object)
        if dtype is object
        else (TABLE % 7).astype(dtype)
    )
    at = np.array([[0, -1], [-4, 3]])
    gives("Gather", [x, at], x[at], fixed=(1,))
    gives("Gather", [x, at.astype(np.int32)], x[at], fixed=(1,), opset=11)
    gives("Gather", [x, np.array(-2)], x[:, 1].copy(), fixed=(1,), axis=1)
    gives("Gather", [x[0], np.array(1)], x[0, 1:2].reshape(()), fixed=(1,))
    gives("GatherND", [x, ints(0, -1)], x[0, 2:].reshape(()), fixed=(1,))
    want = np.take_along_axis(x[:, :2], at, 0)
    gives("GatherElements", [x, at], want, fixed=(1,))


def test_a_gather_too_large_for_numpys_check_is_checked_by_ours():
    x = np.arange(40_000, dtype=F).reshape(4, 10_000)
    gives("Gather", [x, ints(3, -4, 1)], x[[3, 0, 1]])
    for wrong in (4, -5):
        with pytest.raises(Exception, match=rf"index {wrong} is out of bounds.*0.*4"):
            give("Gather", [x, ints(0, wrong)], x[:2])


def test_a_constant_scalar_index_reads_what_lies_there_at_run_time():
    x = ints(1, 2, 3)
    bound = Bound(node_of("Gather", [x, x]), [x, np.array(1)], [np.array(0)], 23, (1,))
    assert bound.run()[0] == 2
    bound.views["x0"][...] = 9
    assert bound.run()[0] == 9


@pytest.mark.parametrize("fixed", [(), (1,)])
@pytest.mark.parametrize("wrong", [4, -5, 2**31 - 1, -(2**62)])
def test_an_index_outside_names_itself_the_axis_and_the_size(wrong, fixed):
    said = rf"index {wrong} is out of bounds for axis 0 with size 4"
    with pytest.raises(Exception, match=said):
        give("Gather", [TABLE, ints(0, wrong)], TABLE[:2], constant=fixed)
    with pytest.raises(Exception, match=said):
        give(
            "GatherElements",
            [TABLE, ints(0, wrong, 1)[None]],
            TABLE[:1],
            constant=fixed,
        )
    with pytest.raises(Exception, match=said):
        give("GatherND", [TABLE, ints(wrong, 0)[None]], TABLE[0, :1], constant=fixed)
    with pytest.raises(
        Exception, match=r"index 3 is out of bounds for axis 1 with size 3"
    ):
        give("GatherND", [TABLE, ints(0, 3)[None]], TABLE[0, :1], constant=fixed)


def test_nothing_can_be_taken_from_nothing():
    empty = np.zeros((0, 3), F)
    gives(
        "Gather",
        [empty, np.zeros((0, 2), np.int64)],
        np.zeros((0, 2, 3), F),
        fixed=(1,),
    )
    gives("Gather", [TABLE, np.zeros(0, np.int64)], TABLE[:0], fixed=(1,))
    gives("GatherElements", [TABLE, np.zeros((0, 3), np.int64)], TABLE[:0], fixed=(1,))
    gives("GatherND", [empty, np.zeros((0, 1), np.int64)], empty, fixed=(1,))
    for op in ("Gather", "GatherElements", "GatherND"):
        with pytest.raises(Exception, match="out of bounds"):
            give(op, [empty, np.zeros((1, 1), np.int64)], np.zeros((1, 1, 3), F))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_agrees_with_numpy_along_every_axis(axis):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((3, 4, 5)).astype(F)
    at = rng.integers(-3, 3, (3, 4, 5))
    gives(
        "GatherElements",
        [x, at],
        np.take_along_axis(x, at, axis),
        fixed=(1,),
        axis=axis,
    )
    part = at[:2, :3, :4].copy()
    agrees("GatherElements", [x, part], fixed=(1,), axis=axis)


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd_agrees_with_onnxruntime(batch, depth):
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((2, 3, 4, 5)).astype(F)
    at = rng.integers(-2, 2, (*x.shape[:batch], 3, depth))
    agrees("GatherND", [x, at], fixed=(1,), batch_dims=batch, opset=13)


def quantised(rows, columns, block, seed):
    rng = np.random.default_rng(seed)
    blocks = -(-columns // block)
    signs = rng.choice([-0.25, 0.25], (rows, blocks))
    scales = (rng.integers(1, 5, (rows, blocks)) * signs).astype(F)
    return (
        rng.integers(0, 16, (rows, columns)),
        scales,
        rng.integers(0, 16, (rows, blocks)),
    )


def packed(values):
    return (values[:, 0::2] | (values[:, 1::2] << 4)).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "columns", "block", "with_zeros"),
    [
        ("uint4", 40, 16, True),
        ("uint4", 40, 16, False),
        ("uint4", 33, 32, True),
        ("uint4", 17, 16, False),
        ("uint8", 96, 16, True),
        ("uint8", 96, 32, False),
        ("int4", 40, 16, True),
    ],
)
def test_rows_of_a_quantised_table_use_their_own_blocks(
    kind, columns, block, with_zeros
):
    q, scales, zeros = quantised(7, columns, block, columns)
    at = np.array([[0, 3, -1], [6, -7, 2]])
    if kind == "int4":
        q, zeros = q - 8, zeros - 8
    low = zeros if with_zeros else np.full_like(zeros, 8 if kind == "uint8" else 0)
    block_of = np.arange(columns) // block
    want = ((q - low[:, block_of]) * scales[:, block_of]).astype(F)[at]
    if kind == "uint8":
        tables = [packed(q), packed(zeros)]
    else:
        tables = [
            q.astype(getattr(ml_dtypes, kind)),
            zeros.astype(getattr(ml_dtypes, kind)),
        ]
    for dtype in (F, np.float16, ml_dtypes.bfloat16):
        inputs = [tables[0], at, scales.astype(dtype)] + tables[1:] * with_zeros
        bits = {"bits": 4} if kind == "uint8" else {}
        gives(
            "GatherBlockQuantized", inputs, want.astype(dtype), domain="com.microsoft",
            gather_axis=0, quantize_axis=1, block_size=block, **bits,
        )  # fmt: skip


def test_bytes_of_eight_bits_and_another_gather_axis():
    q = np.arange(64, dtype=np.uint8).reshape(2, 2, 16)
    scales = np.array([[[1.0], [2.0]], [[3.0], [4.0]]], F)
    want = ((q.astype(F) - 128) * scales)[:, [1, 1, 0]]
    gives(
        "GatherBlockQuantized", [q, ints(1, -1, 0), scales], want, domain="com.microsoft",
        gather_axis=1, quantize_axis=2, block_size=16, bits=8,
    )  # fmt: skip


def test_quantised_indices_outside_give_zeros_and_none_give_nothing():
    q, scales, _ = quantised(7, 32, 16, 0)
    table = q.astype(ml_dtypes.uint4)
    settings = {
        "domain": "com.microsoft",
        "gather_axis": 0,
        "quantize_axis": 1,
        "block_size": 16,
    }
    none = np.zeros((1, 0), np.int64)
    gives(
        "GatherBlockQuantized",
        [table, none, scales],
        np.zeros((1, 0, 32), F),
        **settings,
    )
    want = np.zeros((3, 32), F)
    want[1] = q[6] * np.repeat(scales[6], 16)
    given = [table, ints(7, 6, -8), scales]
    gives("GatherBlockQuantized", given, want, **settings)


def test_low_bits_come_first():
    byte = np.array([0b11_10_01_00], np.uint8)
    assert unpacked(byte, 2).tolist() == [0, 1, 2, 3]
    assert unpacked(byte, 4).tolist() == [0b0100, 0b1110]
    assert unpacked(byte, 8).tolist() == byte.tolist()
