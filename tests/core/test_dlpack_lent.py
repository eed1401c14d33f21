"""Memory that DLPack lends: the capsule says what lies where, and keeps its owner alive."""

import gc
import weakref

import numpy as np
import pytest

from seamline import dlpack
from seamline.tensors import TensorType


class Owner:
    pass


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_carries_address_device_type_and_sizes(version):
    kind = TensorType("bfloat16", (3, 5))
    capsule = dlpack.lent(0x7000, kind, (2, 1), Owner(), max_version=version)
    tensor = dlpack._tensor_in(capsule)
    assert tensor.data == 0x7000
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (2, 1, 2)
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (4, 16, 1)


def test_what_is_lent_on_the_host_is_the_same_memory():
    held = np.arange(6, dtype=np.float32)

    class View:
        def __dlpack_device__(self):
            return dlpack.HOST_DEVICE

        def __dlpack__(self, **request):
            kind = TensorType("float32", (2, 3))
            return dlpack.lent(
                held.ctypes.data, kind, dlpack.HOST_DEVICE, held, **request
            )

    seen = dlpack.from_dlpack(View())
    held[4] = 40
    np.testing.assert_array_equal(seen, [[0, 1, 2], [3, 40, 5]])


def test_the_owner_lives_as_long_as_the_consumer_holds_the_memory():
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = dlpack.lent(64, TensorType("int8", (4,)), (2, 0), owner)
    del owner
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("asked", [{"copy": True}, {"dl_device": (1, 0)}])
def test_a_copy_or_another_device_is_refused(asked):
    with pytest.raises(BufferError, match="lent where it lies"):
        dlpack.lent(64, TensorType("float32", (4,)), (2, 0), Owner(), **asked)


def test_a_type_without_a_form_in_dlpack_is_refused():
    with pytest.raises(BufferError, match="no form for int4"):
        dlpack.lent(64, TensorType("int4", (4,)), (2, 0), Owner())
