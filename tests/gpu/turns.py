"""
Whose turn it is on the device, among test processes that run side by side.

A test that compares the driver's free memory needs the device for itself; all others may
run together. Each test holds a file lock, shared or exclusive. Linux grants shared locks
past one that waits for an exclusive lock, so that it could wait for ever: a second file, the
door, is held by whoever waits, and everybody passes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.gettempdir())


@contextlib.contextmanager
def turn(*, alone, folder=FOLDER):
    """Wait until nobody runs alone, or for ``alone`` until nobody runs, and hold that."""
    name = f"seamline-gpu-tests-{getpass.getuser()}"
    with (folder / f"{name}.lock").open("w") as device:
        with (folder / f"{name}.door").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(device, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
