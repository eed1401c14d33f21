"""A device for each test of this folder: skipped without one, or failed where it is required."""

from __future__ import annotations

import pytest
from tests.gpu.rig import Rig

from seamline_cuda.probe import probe


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def device_is_there(request):
    """Skip with the probe's reason; ``--require-device cuda`` makes that a failure."""
    found = probe()
    if found.usable:
        return
    said = f"{found.why}; to fix: {found.fix}"
    if str(request.config.getoption("--require-device", "")).startswith("cuda"):
        pytest.fail(f"a CUDA device is required: {said}")
    pytest.skip(said)


@pytest.fixture
def rig(device_is_there):
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def prelude():
    """Give the lines that a process of its own begins with: none, over a real device."""
    return ""
