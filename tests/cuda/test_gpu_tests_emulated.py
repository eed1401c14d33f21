"""
The tests of a real device, over the emulated one: what stands for a thing passes its tests.

Those marked ``hardware`` ask what only a device can answer, and say what.
"""

from __future__ import annotations

import pytest
from tests.gpu import (
    test_device,
    test_device_memory,
    test_device_sessions,
    test_edges,
    test_remapping,
    test_result_arrays,
    test_seams,
)

MODULES = (
    test_device,
    test_device_memory,
    test_device_sessions,
    test_edges,
    test_remapping,
    test_result_arrays,
    test_seams,
)


def _is_for_hardware(test):
    return any(mark.name == "hardware" for mark in getattr(test, "pytestmark", ()))


def _tests():
    for module in MODULES:
        for name, found in vars(module).items():
            if name.startswith("test_") and found.__module__ == module.__name__:
                yield name, found


globals().update({n: f for n, f in _tests() if not _is_for_hardware(f)})
pytestmark = pytest.mark.usefixtures("device_is_there")


def test_each_test_that_is_left_to_a_device_says_why():
    left = {n: f for n, f in _tests() if _is_for_hardware(f)}
    assert len(left) < len(list(_tests())) / 4
    for name, found in left.items():
        (mark,) = [m for m in found.pytestmark if m.name == "hardware"]
        assert len(mark.args[0].split()) > 3, name
