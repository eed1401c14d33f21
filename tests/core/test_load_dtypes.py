from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from seamline.errors import ModelError
from seamline.graph import load
from seamline.tensors import dtype_name

VALUES = [1.0, -2.0, 0.5, 3.0, -0.25]
# The bit patterns of VALUES, from the definitions of the formats.
BITS = {
    TensorProto.FLOAT16: [0x3C00, 0xC000, 0x3800, 0x4200, 0xB400],
    TensorProto.BFLOAT16: [0x3F80, 0xC000, 0x3F00, 0x4040, 0xBE80],
    TensorProto.FLOAT8E4M3FN: [0x38, 0xC0, 0x30, 0x44, 0xA8],
    TensorProto.FLOAT8E5M2: [0x3C, 0xC0, 0x38, 0x42, 0xB4],
}
TWO_BYTES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def model_of(*tensors):
    nodes = [helper.make_node("Identity", [t.name], [f"y_{t.name}"]) for t in tensors]
    outputs = [
        helper.make_tensor_value_info(f"y_{t.name}", t.data_type, list(t.dims))
        for t in tensors
    ]
    graph = helper.make_graph(nodes, "g", [], outputs, list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def tensor_of(dtype, dims=(5,), **fields):
    tensor = TensorProto(name="weights", data_type=dtype)
    tensor.dims.extend(dims)
    for field, items in fields.items():
        if field == "raw_data":
            tensor.raw_data = items
        else:
            getattr(tensor, field).extend(items)
    return tensor


def loaded(tensor):
    return load(model_of(tensor)).constant("weights")


@pytest.mark.parametrize("dtype", BITS)
def test_small_floats_are_read_by_bits_from_either_field(dtype):
    width = 2 if dtype in TWO_BYTES else 1
    raw = b"".join(bits.to_bytes(width, "little") for bits in BITS[dtype])
    for fields in ({"raw_data": raw}, {"int32_data": BITS[dtype]}):
        array = loaded(tensor_of(dtype, **fields))
        assert dtype_name(array.dtype) == dtype_name(ir.DataType(dtype))
        assert array.astype(np.float32).tolist() == VALUES


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (TensorProto.UINT4, [1, 2, 15, 8, 7]),
        (TensorProto.INT4, [1, 2, -1, -8, 7]),
        (TensorProto.FLOAT4E2M1, [0.5, 1.0, -6.0, -0.0, 6.0]),
    ],
)
def test_four_bit_types_lie_two_to_a_byte_the_low_half_first(dtype, values):
    packed = [0x21, 0x8F, 0xF7]  # 1, 2, 15, 8, 7, filler
    for fields in ({"raw_data": bytes(packed)}, {"int32_data": packed}):
        array = loaded(tensor_of(dtype, **fields))
        assert array.shape == (5,)
        assert array.astype(np.float32).tolist() == values


@pytest.mark.parametrize(
    ("dtype", "field", "items", "expected"),
    [
        (TensorProto.FLOAT, "float_data", [0.5, -1.5], np.float32([0.5, -1.5])),
        (TensorProto.DOUBLE, "double_data", [0.1, 2], np.float64([0.1, 2])),
        (TensorProto.INT64, "int64_data", [-(2**63), 1], np.int64([-(2**63), 1])),
        (TensorProto.UINT64, "uint64_data", [2**64 - 1, 1], np.uint64([2**64 - 1, 1])),
        (TensorProto.UINT32, "uint64_data", [2**32 - 1, 1], np.uint32([2**32 - 1, 1])),
        (TensorProto.INT8, "int32_data", [-128, 127], np.int8([-128, 127])),
        (TensorProto.UINT16, "int32_data", [65535, 1], np.uint16([65535, 1])),
        (TensorProto.BOOL, "int32_data", [1, 0], np.array([True, False])),
        (
            TensorProto.COMPLEX64,
            "float_data",
            [1, 2, 3, 4],
            np.complex64([1 + 2j, 3 + 4j]),
        ),
    ],
)
def test_each_type_is_read_from_its_own_field(dtype, field, items, expected):
    array = loaded(tensor_of(dtype, (2,), **{field: items}))
    assert array.dtype == expected.dtype
    assert array.tolist() == expected.tolist()


def test_a_scalar_and_an_empty_tensor_keep_their_shapes():
    assert loaded(tensor_of(TensorProto.FLOAT, (), float_data=[2])).shape == ()
    assert loaded(tensor_of(TensorProto.FLOAT, (3, 0, 2))).shape == (3, 0, 2)
    assert loaded(tensor_of(TensorProto.INT4, (0,))).dtype == ml_dtypes.int4


def test_constants_refuse_to_be_written():
    array = loaded(tensor_of(TensorProto.FLOAT, (1,), float_data=[2]))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (
            tensor_of(TensorProto.FLOAT, (3,), raw_data=b"12345678"),
            "needs 12 bytes.*has 8",
        ),
        (
            tensor_of(TensorProto.FLOAT, (1,), raw_data=b"12345678"),
            "needs 4 bytes.*has 8",
        ),
        (
            tensor_of(TensorProto.FLOAT, (3,), float_data=[1, 2]),
            "needs 3 in float_data.*has 2",
        ),
        (tensor_of(TensorProto.FLOAT, (3,)), "needs 3 in float_data; it has 0"),
        (tensor_of(TensorProto.FLOAT, (2,), int32_data=[1, 2]), "float_data; it has 0"),
        (
            tensor_of(TensorProto.FLOAT, (1,), float_data=[1], int64_data=[2]),
            "FLOAT and int64_data holds data",
        ),
        (
            tensor_of(TensorProto.FLOAT, (1,), raw_data=b"1234", float_data=[2]),
            "FLOAT and float_data holds data",
        ),
        (tensor_of(TensorProto.INT4, (5,), raw_data=b"12"), "needs 3 bytes.*has 2"),
        (tensor_of(TensorProto.FLOAT, (-1,), float_data=[1]), "negative"),
        (tensor_of(TensorProto.FLOAT, (2**62, 2**62)), "limit"),
        (tensor_of(TensorProto.FLOAT, [1] * 65, float_data=[1]), "65 dimensions"),
        (tensor_of(0, (1,)), "element type 0"),
        (tensor_of(99, (1,)), "element type 99"),
    ],
)
def test_a_tensor_that_does_not_hold_what_it_declares_is_refused(tensor, why):
    with pytest.raises(ModelError, match=rf"weights.*{why}"):
        load(model_of(tensor))


def test_a_tensor_in_an_attribute_is_checked_too():
    tensor = tensor_of(TensorProto.FLOAT, (3,), float_data=[1])
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    node.attribute.append(onnx.AttributeProto(name="value", type=4, t=tensor))
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [shape], [out])
    with pytest.raises(ModelError, match=r"weights.*needs 3"):
        load(helper.make_model(graph))
