"""GatherBlockQuantized: every type and width of codes, on any axes, recorded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.helper as oh
import pytest
from onnx import numpy_helper
from tests.cpu.movement import give, gives, peer
from tests.cpu.packed_weights import packed_codes

from seamline.pipeline import Pipeline

R = np.random.default_rng(29)
F = np.float32
CONTRIB = "com.microsoft"
ML = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": F}


def settings(block, bits=None, on=0, along=1):
    given = {"gather_axis": on, "quantize_axis": along, "block_size": block}
    return {"domain": CONTRIB, **given, **({} if bits is None else {"bits": bits})}


def table(rows, columns, block, bits, points=True):
    """Give packed codes, scales, packed zero points, and the table."""
    blocks = -(-columns // block)
    q = R.integers(0, 1 << bits, (rows, columns))
    scale = (R.integers(1, 64, (rows, blocks)) / 16).astype(F)
    z = R.integers(0, 1 << bits, (rows, blocks))
    filler = -blocks % (8 // bits)
    zeros = packed_codes(np.pad(z, ((0, 0), (0, filler))), bits)
    if not points:
        z, zeros = np.full_like(z, 1 << (bits - 1)), None
    owner = np.arange(columns) // block
    return packed_codes(q, bits), scale, zeros, (q - z[:, owner]) * scale[:, owner]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("columns", "block"), [(96, 32), (80, 16), (48, 32), (16, 64)])
def test_packed_codes_of_every_width_with_odd_counts_of_blocks(
    bits, points, columns, block
):
    codes, scale, zeros, whole = table(7, columns, block, bits, points)
    at = np.array([[3, -1], [0, 6]], np.int64)
    inputs = [codes, at, scale, *([zeros] if points else [])]
    gives("GatherBlockQuantized", inputs, whole[at].astype(F), **settings(block, bits))


@pytest.mark.parametrize("name", list(ML))
@pytest.mark.parametrize("indices", [np.int32, np.int64])
def test_scales_of_every_type(name, indices):
    codes, scale, zeros, whole = table(5, 64, 32, 4)
    at = np.array([4, 0, -3], indices)
    inputs = [codes, at, scale.astype(ML[name]), zeros]
    gives("GatherBlockQuantized", inputs, whole[at].astype(ML[name]), **settings(32, 4))


def test_scales_of_float16_keep_infinity_nan_and_the_least_numbers():
    codes = packed_codes(np.full((4, 16), 9), 4)
    scale = np.array([[np.inf], [np.nan], [2.0**-24], [-65504.0]], np.float16)
    at = np.arange(4)
    want = np.repeat(scale, 16, axis=1)
    given = [codes, at, scale]
    (got,) = give("GatherBlockQuantized", given, want, **settings(16, 4))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("on", [0, 1, 2])
@pytest.mark.parametrize("along", [0, 1, 2])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_any_two_axes(on, along, kind):
    if on == along:
        on = (on + 1) % 3
    sizes = (32, 48, 64)
    low = -8 if kind == "int4" else 0
    q = R.integers(low, low + 16, sizes)
    shape = [n // 16 if axis == along else n for axis, n in enumerate(sizes)]
    scale = (R.integers(1, 64, shape) / 16).astype(F)
    z = R.integers(low, low + 16, shape)
    wide = [np.repeat(x, 16, axis=along) for x in (z, scale)]
    at = np.array([5, -2])
    want = ((q - wide[0]) * wide[1]).take(at, on).astype(F)
    dtype = getattr(ml_dtypes, kind)
    inputs = [q.astype(dtype), at, scale, z.astype(dtype)]
    gives("GatherBlockQuantized", inputs, want, **settings(16, on=on, along=along))


@pytest.mark.parametrize(
    "kind",
    [
        "float4_e2m1fn",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
    ],
)
@pytest.mark.parametrize("form", ["blocks", "rows", "tensor"])
def test_tables_of_small_floats(kind, form):
    bits = (
        4 if kind.startswith("float4") else 7
    )  # the high half of 8 bits holds NaN too
    q = (
        R.integers(0, 1 << bits, (6, 64))
        .astype(np.uint8)
        .view(getattr(ml_dtypes, kind))
    )
    shape = {"blocks": (6, 4), "rows": (6, 1), "tensor": (1, 1)}[form]
    scale = (R.integers(1, 64, shape) / 16).astype(F)
    block = 16 if form == "blocks" else 0
    wide = np.repeat(scale, 16, axis=1) if block else scale
    at = np.array([5, 0, -2])
    want = (q.astype(F) * wide)[at]
    gives("GatherBlockQuantized", [q, at, scale], want, **settings(block))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_onnxruntime_agrees_with_indices_outside_too(bits):
    codes, scale, zeros, _ = table(6, 64, 16, bits)
    at = np.array([0, 5, -6, 6, -7, 2])
    inputs = [codes, at, scale, zeros]
    (theirs,) = peer("GatherBlockQuantized", inputs, opset=21, **settings(16, bits))
    assert not theirs[3:5].any()
    gives("GatherBlockQuantized", inputs, theirs, **settings(16, bits))


@pytest.mark.parametrize("dtype", [F, np.float16])
def test_a_gather_is_recorded_and_keeps_nothing_of_its_table(dtype):
    codes, scale, zeros, whole = table(300, 64, 32, 4)
    node = oh.make_node("GatherBlockQuantized", ["q", "i", "s", "z"], ["y"], name="take",
                        **settings(32, 4))  # fmt: skip
    stored = {"q": codes, "s": scale.astype(dtype), "z": zeros}
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info("i", 7, ["T"])],
        [oh.make_tensor_value_info("y", kind, ["T", 64])],
        [numpy_helper.from_array(x, name) for name, x in stored.items()],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(CONTRIB, 1)]
    pipeline = Pipeline.open(oh.make_model(graph, opset_imports=imports, ir_version=10))
    for at in ([1, 2], [299, 0], [7, 7]):
        (y,) = pipeline.run({"i": np.array(at)})
        np.testing.assert_array_equal(y, whole[at].astype(dtype))
    plan = pipeline.explain().data["plan"]
    assert plan["segments"][0]["capture"]["state"] == "recorded"
    assert not plan["segments"][0]["capture"]["left"]
    assert sum(m["resident_nbytes"] for m in plan["memory"].values()) == 0


def test_a_table_that_the_head_multiplies_with_stays_one_mapping():
    codes, scale, _, whole = table(48, 64, 32, 4, points=False)
    stored = {"q": codes.reshape(48, 2, 16), "s": scale, "sizes": np.array([48, 32])}
    nodes = [
        oh.make_node("Reshape", ["q", "sizes"], ["rows"]),
        oh.make_node("GatherBlockQuantized", ["rows", "i", "s"], ["e"], **settings(32, 4)),
        oh.make_node("MatMulNBits", ["e", "q", "s"], ["y"], domain=CONTRIB, K=64, N=48,
                     bits=4, block_size=32),
    ]  # fmt: skip
    graph = oh.make_graph(
        nodes, "g", [oh.make_tensor_value_info("i", 7, ["T"])],
        [oh.make_tensor_value_info("y", 1, ["T", 48])],
        [numpy_helper.from_array(x, name) for name, x in stored.items()],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(CONTRIB, 1)]
    pipeline = Pipeline.open(oh.make_model(graph, opset_imports=imports, ir_version=10))
    for at in ([0, 47], [5, 5], [9, 1]):
        (y,) = pipeline.run({"i": np.array(at)})
        np.testing.assert_allclose(y, whole[at] @ whole.T, rtol=1e-4)
    table_of_rows = pipeline.engine.constants.get("rows")
    assert np.shares_memory(table_of_rows, pipeline.engine.constants.get("q"))
    assert pipeline.folding.nbytes == 0
