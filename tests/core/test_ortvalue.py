"""Values outside a session: shared with NumPy and DLPack, never on a device."""

import gc
import weakref

import ml_dtypes
import numpy as np
import onnx
import pytest

from seamline.errors import FeedError
from seamline.ortvalue import OrtValue, element_name
from seamline.tensors import OptionalType
from seamline.unsupported import UnsupportedError

BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


class Elsewhere:
    def __dlpack__(self, **request):
        raise AssertionError("never asked")

    def __dlpack_device__(self):
        return (2, 0)


def test_a_value_tells_what_it_holds():
    value = OrtValue.ortvalue_from_numpy(BASE)
    assert value.data_type() == "tensor(float)"
    assert value.element_type() == onnx.TensorProto.FLOAT
    assert value.shape() == [2, 3]
    assert value.device_name() == "cpu"
    assert value.tensor_size_in_bytes() == 24
    assert value.data_ptr() == BASE.ctypes.data
    assert value.is_tensor()
    assert value.has_value()
    assert not value.is_tensor_sequence()
    assert not value.is_sparse_tensor()


def test_numpy_gives_a_copy_and_asarray_shares():
    value = OrtValue.ortvalue_from_numpy(BASE.copy())
    value.numpy()[...] = 9
    assert value.numpy().tolist() == BASE.tolist()
    np.asarray(value)[0, 0] = 9
    assert value.numpy()[0, 0] == 9


def test_a_view_that_is_not_plain_is_copied_with_its_values():
    value = OrtValue.ortvalue_from_numpy(BASE.T)
    assert value.numpy().tolist() == BASE.T.tolist()
    assert np.asarray(value).flags.c_contiguous


def test_a_new_tensor_holds_zeros_and_new_text_is_empty():
    assert not OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64).numpy().any()
    words = OrtValue.ortvalue_from_shape_and_type([2], onnx.TensorProto.STRING)
    assert words.numpy().tolist() == ["", ""]


def test_bytes_can_be_given_another_type():
    bits = np.array([0x3F80, 0x4000], np.uint16)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    assert value.data_type() == "tensor(bfloat16)"
    assert value.numpy().astype(np.float32).tolist() == [1.0, 2.0]
    assert value.data_ptr() == bits.ctypes.data
    with pytest.raises(FeedError, match="2 and 4 bytes"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.FLOAT)


def test_an_update_writes_into_the_memory_that_is_there():
    memory = BASE.copy()
    value = OrtValue.ortvalue_from_numpy(memory)
    value.update_inplace(BASE + 1)
    assert memory.tolist() == (BASE + 1).tolist()
    with pytest.raises(
        FeedError, match=r"float64\[2, 3\] was given, the value is float32"
    ):
        value.update_inplace(BASE.astype(np.float64))
    with pytest.raises(FeedError, match="was given"):
        value.update_inplace(BASE[0])


def test_read_only_memory_is_not_written():
    memory = BASE.copy()
    memory.flags.writeable = False
    with pytest.raises(FeedError, match="read-only"):
        OrtValue.ortvalue_from_numpy(memory).update_inplace(BASE)


# --- DLPack -----------------------------------------------------------------------------------


def test_dlpack_shares_memory_both_ways():
    value = OrtValue.ortvalue_from_numpy(BASE.copy())
    shared = np.from_dlpack(value)
    back = OrtValue.from_dlpack(shared)
    np.asarray(value)[0, 0] = 42
    assert shared[0, 0] == 42
    assert back.numpy()[0, 0] == 42
    assert value.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
     "float8_e8m0fnu"],
)  # fmt: skip
def test_small_floats_pass_by_dlpack_though_numpy_has_no_form_for_them(name):
    array = np.array([1.0, 2.0, 4.0]).astype(getattr(ml_dtypes, name))
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        array.__dlpack__()
    value = OrtValue.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    assert np.asarray(value).dtype == array.dtype
    assert value.data_ptr() == array.ctypes.data
    assert value.numpy().astype(np.float32).tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_both_kinds_of_capsule_carry_the_true_type(version):
    array = np.ones(3, ml_dtypes.bfloat16)
    capsule = OrtValue.ortvalue_from_numpy(array).__dlpack__(max_version=version)
    name = "dltensor_versioned" if version else "dltensor"
    assert f'"{name}"' in repr(capsule)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint64", "float16", "float64", "complex64", "bool"]
)
def test_numpys_own_types_pass_by_dlpack(dtype):
    array = np.ones(4, dtype)
    value = OrtValue.from_dlpack(array)
    assert value.data_ptr() == array.ctypes.data
    assert value.numpy().dtype == dtype


def test_memory_lives_as_long_as_whoever_shares_it():
    array = np.arange(3, dtype=np.float32)
    alive = weakref.ref(array)
    shared = np.from_dlpack(OrtValue.ortvalue_from_numpy(array))
    del array
    gc.collect()
    assert alive() is not None
    assert shared.tolist() == [0, 1, 2]
    del shared
    gc.collect()
    assert alive() is None


def test_four_bit_types_and_text_have_no_capsule():
    for array in (np.ones(2, ml_dtypes.int4), np.array(["a"], object)):
        with pytest.raises(BufferError, match="DLPack has no form"):
            np.from_dlpack(OrtValue.ortvalue_from_numpy(array))


def test_memory_of_a_device_is_refused():
    with pytest.raises(FeedError, match="it lies on cuda:0"):
        OrtValue.from_dlpack(Elsewhere())


# --- what is no tensor, and what is not supported -----------------------------------------------


def test_a_sequence_and_an_absent_value_say_what_they_are():
    many = OrtValue.of([BASE, BASE[:1]])
    assert many.is_tensor_sequence()
    assert many.data_type() == "seq(tensor(float))"
    assert [item.shape for item in many.numpy()] == [(2, 3), (1, 3)]
    none = OrtValue.of(None, OptionalType(None))
    assert not none.has_value()
    assert none.numpy() is None
    with pytest.raises(UnsupportedError, match="needs a tensor"):
        many.shape()


def test_another_device_is_refused():
    with pytest.raises(UnsupportedError, match="cuda:1"):
        OrtValue.ortvalue_from_numpy(BASE, "cuda", 1)
    with pytest.raises(UnsupportedError, match="cpu:3"):
        OrtValue.ortvalue_from_shape_and_type([1], np.float32, "cpu", 3)


def test_sparse_values_and_addresses_of_text_are_refused():
    with pytest.raises(UnsupportedError, match="sparse"):
        OrtValue.ort_value_from_sparse_tensor(None)
    with pytest.raises(UnsupportedError, match="data_ptr of strings"):
        OrtValue.ortvalue_from_numpy(np.array(["a"])).data_ptr()


@pytest.mark.parametrize(
    "bad", [object(), 999, "no such type", True, "tensor(nothing)"]
)
def test_what_names_no_element_type_is_refused(bad):
    with pytest.raises(FeedError, match="is no element type"):
        element_name(bad)
