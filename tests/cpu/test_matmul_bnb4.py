"""MatMulBnb4: both types of codes, blocks within rows and rows within blocks, recorded."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.helper as oh
import pytest
from onnx import numpy_helper
from tests.cpu.movement import give, peer
from tests.cpu.packed_weights import error

from seamline.pipeline import Pipeline
from seamline_cpu.kernels.nbits_codebooks import CODEBOOKS

R = np.random.default_rng(13)
F = np.float32
CONTRIB = "com.microsoft"
TYPES = {"fp4": 0, "nf4": 1}


def weights(n, k, block, kind, dtype=F):
    """Give codes, scales, attributes, and the N by K matrix."""
    q = R.integers(0, 16, n * k)
    scale = R.uniform(0.5, 2, -(-n * k // block)).astype(dtype)
    w = np.array(CODEBOOKS[kind])[q] * np.repeat(scale.astype(float), block)[: n * k]
    codes = (q[::2] << 4 | q[1::2]).astype(np.uint8)
    given = {"K": k, "N": n, "block_size": block, "quant_type": TYPES[kind]}
    return codes, scale, {**given, "domain": CONTRIB}, w.reshape(n, k)


@pytest.mark.parametrize("kind", list(TYPES))
@pytest.mark.parametrize(
    ("n", "k", "block"), [(40, 96, 32), (18, 64, 16), (24, 32, 64), (20, 6, 12)]
)
@pytest.mark.parametrize("rows", [1, 6, 20])
def test_both_types_give_the_definition(kind, n, k, block, rows):
    codes, scale, given, w = weights(n, k, block, kind)
    a = R.standard_normal((rows, k)).astype(F)
    for constant in ((), (1, 2)):
        (y,) = give("MatMulBnb4", [a, codes, scale], np.zeros((rows, n), F),
                    constant=constant, **given)  # fmt: skip
        assert error(y, a.astype(float) @ w.T) < 2e-6


@pytest.mark.parametrize("kind", list(TYPES))
def test_onnxruntime_agrees(kind):
    codes, scale, given, _ = weights(48, 64, 32, kind)
    a = R.standard_normal((3, 64)).astype(F)
    (theirs,) = peer("MatMulBnb4", [a, codes, scale], opset=21, **given)
    (y,) = give("MatMulBnb4", [a, codes, scale], np.zeros((3, 48), F), **given)
    assert error(y, theirs) < 2e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits(dtype):
    codes, scale, given, w = weights(48, 64, 32, "nf4", dtype)
    a = R.standard_normal((3, 64)).astype(dtype)
    (y,) = give("MatMulBnb4", [a, codes, scale], np.zeros((3, 48), dtype),
                constant=(1, 2), **given)  # fmt: skip
    assert error(y, a.astype(float) @ w.T) < (1e-3 if dtype == np.float16 else 8e-3)


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"transB": 0}, "transB 0"), ({"quant_type": 3}, "quant_type is 3"),
     ({"block_size": 40}, "blocks of 40")],
)  # fmt: skip
def test_other_forms_are_refused(changed, why):
    codes, scale, given, _ = weights(48, 64, 32, "nf4")
    a = R.standard_normal((3, 64)).astype(F)
    with pytest.raises(NotImplementedError, match=why):
        give(
            "MatMulBnb4",
            [a, codes, scale],
            np.zeros((3, 48), F),
            **{**given, **changed},
        )


def test_a_product_of_table_codes_is_recorded():
    codes, scale, given, w = weights(48, 64, 32, "nf4")
    node = oh.make_node("MatMulBnb4", ["a", "b", "s"], ["y"], name="it", **given)
    graph = oh.make_graph(
        [node], "g", [oh.make_tensor_value_info("a", 1, ["M", 64])],
        [oh.make_tensor_value_info("y", 1, ["M", 48])],
        [numpy_helper.from_array(codes, "b"), numpy_helper.from_array(scale, "s")],
    )  # fmt: skip
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(CONTRIB, 1)]
    pipeline = Pipeline.open(oh.make_model(graph, opset_imports=imports, ir_version=10))
    a = R.standard_normal((2, 64)).astype(F)
    for _ in range(3):
        (y,) = pipeline.run({"a": a})
    assert error(y, a.astype(float) @ w.T) < 2e-6
    (segment,) = pipeline.explain().data["plan"]["segments"]
    assert segment["capture"]["state"] == "recorded"
    assert not segment["capture"]["left"]
