"""MatMulNBits in a session: recorded, explained, forced, and what it keeps in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx.helper as oh
import pytest
from onnx import numpy_helper
from tests.cpu.packed_weights import (
    BYTES,
    FLOATS,
    MIDDLE,
    error,
    packed,
    packed_codes,
    weights,
)

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline
from seamline_cpu.instruction_sets import lacking
from seamline_cpu.kernels.nbits_choice import VARIANTS
from seamline_cpu.kernels.nbits_layout import Source, pack, packed_nbytes

N, K = 48, 96


def model(level=4, dtype=np.float32, fed_bias=False):
    """Give a layer of two products with what stands between them, and its matrices."""
    codes, scale, _, first = weights(N, K, dtype=dtype)
    again, other, points, second = weights(
        K, N, zeros=BYTES, block=16, dtype=dtype, seed=1
    )
    constants = {
        "B1": codes, "s1": scale, "B2": again, "s2": other,
        "z2": packed_codes(np.pad(points, ((0, 0), (0, 1))), 4),
    }  # fmt: skip
    if not fed_bias:
        constants["bias"] = np.arange(N).astype(dtype)
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shared = {"domain": "com.microsoft", "bits": 4, "accuracy_level": level}
    nodes = [
        oh.make_node("MatMulNBits", ["x", "B1", "s1", "", "", "bias"], ["a"], name="first",
                     K=K, N=N, block_size=32, **shared),
        oh.make_node("Add", ["a", "a"], ["b"], name="twice"),
        oh.make_node("MatMulNBits", ["b", "B2", "s2", "z2"], ["y"], name="second",
                     K=N, N=K, block_size=16, **shared),
    ]  # fmt: skip
    sized = [oh.make_tensor_value_info(name, kind, ["M", K]) for name in ("x", "y")]
    inputs = sized[:1]
    if fed_bias:
        inputs.append(oh.make_tensor_value_info("bias", kind, [N]))
    graph = oh.make_graph(
        nodes, "g", inputs, sized[1:],
        [numpy_helper.from_array(x, name) for name, x in constants.items()],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    made = oh.make_model(graph, opset_imports=imports, ir_version=10)
    return made, lambda x: (2 * (x @ first.T + np.arange(N))) @ second.T


def opened(made, **options):
    return Pipeline.open(made, providers=[("cpu", {"num_threads": 2, **options})])


def rows_of(m, dtype=np.float32):
    return np.random.default_rng(m).standard_normal((m, K)).astype(dtype)


@pytest.mark.parametrize("level", [0, 4])
def test_a_step_of_products_leaves_python(level):
    made, matrix = model(level)
    pipeline = opened(made)
    for m in (1, 1, 1, 6, 6, 6):
        x = rows_of(m)
        (y,) = pipeline.run({"x": x})
        assert error(y, matrix(x.astype(float))) < (1e-6 if level == 0 else 1e-2)
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["state"] == "recorded"
    assert not segment["capture"]["left"]


def test_a_step_of_float16_leaves_python_but_for_its_addition():
    made, matrix = model(4, np.float16)
    pipeline = opened(made)
    for _ in range(3):
        x = rows_of(1, np.float16)
        (y,) = pipeline.run({"x": x})
    assert error(y, matrix(x.astype(float))) < 2e-2
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert set(segment["capture"]["left"]) == {"twice"}


def test_what_keeps_a_product_in_python_is_named():
    made, matrix = model(0, fed_bias=True)
    pipeline = opened(made)
    x, bias = rows_of(2), np.arange(N, dtype=np.float32)
    for _ in range(2):
        (y,) = pipeline.run({"x": x, "bias": bias})
    assert error(y, matrix(x.astype(float))) < 1e-6
    nodes = pipeline.explain().data["plan"]["nodes"]
    assert "bias is not constant" in nodes["first"]["not_capturable"]
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert "first" in segment["capture"]["left"]
    assert "second" not in segment["capture"]["left"]


def test_the_claim_names_the_variant_and_why():
    made, _ = model(4)
    pipeline = opened(made, int4_variant="portable")
    pipeline.run({"x": rows_of(1)})
    said = pipeline.explain().data["plan"]["nodes"]["first"]
    assert said["variant"] == "portable"
    assert "portable was asked for" in said["because"]
    assert "8-bit activations" in said["because"]
    assert said["not_capturable"] is None


def test_the_claim_of_float32_products_names_their_tiles_and_pieces():
    made, _ = model(0)
    pipeline = opened(made, int4_variant="portable")
    pipeline.run({"x": rows_of(1)})
    because = pipeline.explain().data["plan"]["nodes"]["first"]["because"]
    assert "float32" in because
    assert "below 4 rows" in because
    assert "pieces of 256 of K by 16 columns, for tiles of 3 rows" in because


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_forced_variant_runs_or_is_refused_with_its_reason(variant):
    made, matrix = model(4)
    if (reason := lacking(variant)) is None:
        x = rows_of(3)
        (y,) = opened(made, int4_variant=variant).run({"x": x})
        assert error(y, matrix(x.astype(float))) < 1e-2
        return
    with pytest.raises(SeamlineError) as raised:
        opened(made, int4_variant=variant).run({"x": rows_of(3)})
    assert reason in str(raised.value)
    assert variant in str(raised.value)


FORMS = [
    (4, 32, MIDDLE, np.float32),
    (4, 32, BYTES, np.float32),
    (4, 32, MIDDLE, np.float16),
    (4, 16, BYTES, np.float16),
    (4, 16, BYTES, np.float32),
    (4, 128, FLOATS, np.float16),
    (8, 32, BYTES, np.float16),
    (2, 64, BYTES, np.float32),
]


@pytest.mark.parametrize(("bits", "block", "zeros", "dtype"), FORMS)
def test_packed_weights_take_little_more_than_the_models(bits, block, zeros, dtype):
    codes, scale, points, _ = weights(1024, 512, bits, block, zeros, dtype)
    made = pack(Source(codes, scale, points, 512, bits))
    assert (
        packed_nbytes(1024, 512 // block, block, bits, scale, points)
        == made.data.nbytes
    )
    given = codes.nbytes + scale.nbytes
    if zeros == BYTES:
        given += -(-points.shape[1] * bits // 8) * len(points)
    elif zeros == FLOATS:
        given += points.nbytes
    assert made.data.nbytes <= 1.15 * given


def test_packing_takes_a_small_part_of_the_weights_for_itself():
    r = np.random.default_rng(0)
    codes = r.integers(0, 256, (16384, 32, 16), np.uint8)
    scale = r.random((16384, 32), np.float32)
    tracemalloc.start()
    try:
        made = pack(Source(codes, scale, None, 1024, 4))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # NumPy tells tracemalloc of its arrays; the packed weights are pages of their own.
    assert peak < 0.1 * made.data.nbytes
    assert not made.data.flags.owndata


def test_the_session_tells_the_bytes_that_it_keeps():
    made, _ = model(4)
    pipeline = opened(made)
    pipeline.run({"x": rows_of(1)})
    first, _ = packed(N, K)
    second, _ = packed(K, N, zeros=BYTES, block=16, seed=1)
    kept = first.data.nbytes + second.data.nbytes
    memory = pipeline.explain().data["plan"]["memory"]
    assert sum(m["resident_nbytes"] for m in memory.values()) == kept
