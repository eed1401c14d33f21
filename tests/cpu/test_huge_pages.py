"""Memory on huge pages: zeroed, aligned, private, and given back."""

from __future__ import annotations

import gc
import pathlib

import pytest

from seamline_cpu.huge_pages import huge

MIB = 1 << 20


@pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, 2 * MIB, 5 * MIB + 3])
def test_bytes_are_zero_and_aligned(nbytes):
    x = huge(nbytes)
    assert x.nbytes == nbytes
    assert not x.any()
    x[...] = 7  # all of it can be written
    if nbytes:
        assert x.ctypes.data % (2 * MIB if nbytes >= 2 * MIB else 64) == 0


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/statm").exists(), reason="needs Linux's /proc"
)
def test_memory_is_given_back_when_no_array_refers_to_it():
    def pages():
        return int(pathlib.Path("/proc/self/statm").read_text("ascii").split()[1])

    before = pages()
    x = huge(64 * MIB)
    x[...] = 1
    part = x[MIB:]
    held = pages()
    assert held - before > 60 * MIB // 4096
    del x
    gc.collect()
    assert pages() > held - 1000  # a part holds all
    del part
    gc.collect()
    assert pages() < before + 4 * MIB // 4096
