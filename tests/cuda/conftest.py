"""A rig over the emulated device, for tests that are written for a real one."""

from __future__ import annotations

import pytest
from tests.cuda.emulation import emulated
from tests.gpu.rig import Rig

#: Importing it emulates for good: a search for examples would do so to every test.
collect_ignore = ["emulation/everywhere.py"]

#: What makes a process of its own emulate as well.
PRELUDE = "from tests.cuda.emulation import install\ninstall()\n"


@pytest.fixture
def device_is_there():
    with emulated() as driver:
        yield driver


@pytest.fixture
def driver(device_is_there):
    return device_is_there


@pytest.fixture
def rig(device_is_there):
    made = Rig()
    yield made
    made.close()


@pytest.fixture
def prelude():
    return PRELUDE
