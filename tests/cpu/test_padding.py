"""Pad in all modes, with negative pads and axes; CenterCropPad."""

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.movement import agrees, give, gives

F = np.float32


def ints(*values):
    return np.array(values, np.int64)


def padded(x, pads, mode, value=0):
    """Pad by the definition: which element each place repeats, one place at a time."""
    rank = x.ndim
    before, after = pads[:rank], pads[rank:]
    for axis in range(rank):
        b, a = before[axis], after[axis]
        x = x[(slice(None),) * axis + (slice(max(-b, 0), x.shape[axis] + min(a, 0)),)]
        n = x.shape[axis]
        parts = []
        for i in range(-max(b, 0), n + max(a, 0)):
            if mode == "constant" and not 0 <= i < n:
                parts.append(np.full_like(x.take([0], axis), value))
                continue
            j = i
            if mode == "edge":
                j = min(max(i, 0), n - 1)
            elif mode == "wrap":
                j = i % n
            elif mode == "reflect":
                while n > 1 and not 0 <= j < n:
                    j = -j if j < 0 else 2 * (n - 1) - j
                j = j if n > 1 else 0
            parts.append(x.take([j], axis))
        x = np.concatenate(parts, axis)
    return x


MODES = ["constant", "reflect", "edge", "wrap"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "pads",
    [
        (0, 1, 2, 0, 3, 1),
        (0, -1, 2, 1, 3, -2),
        (2, 0, -1, 0, 0, -1),
        (5, 7, 9, 8, 6, 11),
        (0, 0, 0, 0, 0, 0),
    ],
)
def test_pads_repeat_what_their_mode_says(mode, pads):
    x = np.arange(2 * 4 * 3, dtype=F).reshape(2, 4, 3)
    gives(
        "Pad", [x, ints(*pads)], padded(x, pads, mode), fixed=(1,), opset=19, mode=mode
    )


@pytest.mark.parametrize("mode", MODES)
def test_pad_takes_axes_and_a_missing_value_before_them(mode):
    x = np.arange(12, dtype=F).reshape(3, 4)
    want = padded(x, (0, 1, 0, 2), mode)
    gives(
        "Pad", [x, ints(1, 2), None, ints(-1)], want, fixed=(1, 3), opset=19, mode=mode
    )
    swapped = padded(x, (2, 1, 0, 3), mode)
    axes = np.array([1, 0], np.int32)
    gives(
        "Pad",
        [x, ints(1, 2, 3, 0), None, axes],
        swapped,
        fixed=(1, 3),
        opset=19,
        mode=mode,
    )


@pytest.mark.parametrize(
    "dtype", [F, np.int8, np.float16, ml_dtypes.bfloat16, bool, object]
)
def test_constant_pads_of_every_type_and_their_default(dtype):
    x = np.array([[1, 0, 1]]).astype(dtype)
    if dtype is object:
        x = np.array([["a", "", "Grüße"]], object)
    zero = "" if dtype is object else 0
    value = np.array(["é" if dtype is object else 1]).astype(dtype)
    pads = (0, 2, 1, 0)
    gives("Pad", [x, ints(*pads)], padded(x, pads, "constant", zero), fixed=(1,))
    gives("Pad", [x, ints(*pads), value[0]], padded(x, pads, "constant", value[0]))
    gives("Pad", [x, ints(*pads), value], padded(x, pads, "constant", value[0]))


def test_pad_of_opset_2_has_attributes():
    x = np.arange(6, dtype=F).reshape(2, 3)
    for mode in ("constant", "reflect", "edge"):
        pads = [0, 1, 1, 2]
        want = padded(x, pads, mode, 1.5)
        gives("Pad", [x], want, opset=10, pads=pads, mode=mode, value=1.5)


def test_pad_of_nothing_and_of_scalars():
    gives("Pad", [np.zeros((0, 2), F), ints(1, 0, 1, 0)], np.zeros((2, 2), F))
    gives("Pad", [np.array(3, F), np.zeros(0, np.int64)], np.array(3, F))
    gives("Pad", [np.ones((3,), F), ints(-3, 2)], np.zeros(2, F))
    with pytest.raises(Exception, match="mode edge cannot pad axis 0"):
        give(
            "Pad",
            [np.zeros((0, 2), F), ints(1, 0, 1, 0)],
            np.zeros((2, 2), F),
            mode="edge",
        )


def test_a_fed_value_is_read_at_run():
    from tests.cpu.movement import Bound, node_of

    x, value = np.ones(1, F), np.array(5, F)
    inputs = [x, ints(1, 0), value]
    bound = Bound(node_of("Pad", inputs), inputs, [np.zeros(2, F)], 23, (1,))
    assert bound.run()[0].tolist() == [5, 1]
    bound.views["x2"][...] = 7
    assert bound.run()[0].tolist() == [7, 1]


def test_center_crop_pad_shifts_odd_remainders_left_for_crops_and_right_for_pads():
    x = np.arange(1, 6, dtype=F)
    gives("CenterCropPad", [x, ints(2)], np.array([2, 3], F), fixed=(1,))
    gives("CenterCropPad", [x, ints(3)], np.array([2, 3, 4], F), fixed=(1,))
    gives(
        "CenterCropPad", [x, ints(8)], np.array([0, 1, 2, 3, 4, 5, 0, 0], F), fixed=(1,)
    )
    grid = np.arange(30, dtype=F).reshape(2, 3, 5)
    agrees("CenterCropPad", [grid, ints(4, 2)], opset=18, fixed=(1,), axes=[-2, -1])
    agrees("CenterCropPad", [grid, ints(5, 3, 1)], opset=18, fixed=(1,))
