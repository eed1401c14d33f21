"""Whose turn it is among test processes of a device: locks of files, which threads take too."""

from __future__ import annotations

import fcntl
import threading

import pytest
from tests.faults.test_deadlines import until
from tests.gpu.conftest import lacking
from tests.gpu.turns import turn

from seamline.provider import Availability


class Taking(threading.Thread):
    """Takes a turn in a thread of its own, and keeps it until told."""

    def __init__(self, folder, *, alone):
        super().__init__(daemon=True)
        self.given = folder, alone
        self.taken, self.enough = threading.Event(), threading.Event()
        self.start()

    def run(self):
        folder, alone = self.given
        with turn(alone=alone, folder=folder):
            self.taken.set()
            self.enough.wait(20)

    def end(self):
        self.enough.set()
        self.join(20)
        assert not self.is_alive()


def is_held(folder):
    (path,) = folder.glob("*.door")
    with path.open("w") as door:
        try:
            fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_tests_run_together_and_one_that_is_alone_waits_for_them(tmp_path):
    one, two = (Taking(tmp_path, alone=False) for _ in range(2))
    assert one.taken.wait(20)
    assert two.taken.wait(20)
    last = Taking(tmp_path, alone=True)
    one.end()
    assert not last.taken.wait(0.05)
    two.end()
    assert last.taken.wait(20)
    last.end()


def test_nobody_begins_while_one_is_alone_or_waits_to_be(tmp_path):
    first = Taking(tmp_path, alone=False)
    assert first.taken.wait(20)
    alone = Taking(tmp_path, alone=True)
    until(lambda: is_held(tmp_path))
    late = Taking(tmp_path, alone=False)
    assert not late.taken.wait(0.05)
    first.end()
    assert alone.taken.wait(20)
    assert not late.taken.wait(0.05)
    alone.end()
    assert late.taken.wait(20)
    late.end()


def test_a_turn_that_ends_by_an_error_is_over(tmp_path):
    with pytest.raises(KeyError), turn(alone=True, folder=tmp_path):
        raise KeyError
    with turn(alone=True, folder=tmp_path):
        pass


def test_an_emulated_device_is_no_device():
    assert lacking(Availability(True), "NVIDIA H200") == ""
    said = lacking(Availability(True), "Emulated H200")
    assert said == "Emulated H200 is no device; to fix: take away what emulates one"
    assert (
        lacking(Availability(False, "none", "buy one"), "") == "none; to fix: buy one"
    )
