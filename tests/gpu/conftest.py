"""A device for each test of this folder: skipped without one, or failed where it is required."""

from __future__ import annotations

import contextlib

import pytest
from tests.gpu.rig import Rig
from tests.gpu.turns import turn

from seamline_cuda.device import Gpu
from seamline_cuda.probe import probe


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def context():
    """
    Hold the device's context while tests open and close theirs; gives the device's name.

    Making a context takes longer than most tests. That the last one to close gives it back is
    shown by a process of its own.
    """
    with contextlib.ExitStack() as stack:
        with turn(alone=False):
            gpu = stack.enter_context(Gpu.open(0)) if probe().usable else None
        yield gpu.name if gpu else ""


def lacking(found, name):
    """Say why tests cannot run on a device, or nothing where they can."""
    if not found.usable:
        return f"{found.why}; to fix: {found.fix}"
    if "emulated" in name.lower():
        return f"{name} is no device; to fix: take away what emulates one"
    return ""


@pytest.fixture(autouse=True)
def device_is_there(request, context):
    """Skip with the reason; ``--require-device cuda`` makes that a failure."""
    said = lacking(probe(), context)
    if said:
        if str(request.config.getoption("--require-device", "")).startswith("cuda"):
            pytest.fail(f"a CUDA device is required: {said}")
        pytest.skip(said)
    with turn(alone=request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture
def rig(device_is_there):
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def prelude():
    """Give the lines that a process of its own begins with: none, over a real device."""
    return ""
