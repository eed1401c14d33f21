"""Tensors of torch and CuPy, fed where they lie; the same over other memory is in tests/cuda."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ALONE, model

import seamline_cuda.plugin
from seamline import InferenceSession

TEXT = (
    """g (float[N,8] x, float[8] b) => (float[N,8] y) { a = Relu(x)  y = Add(a, b) }"""
)
B = np.arange(8, dtype=np.float32)


def session():
    return InferenceSession(
        model(TEXT, 21),
        providers=["cuda"],
        settings=ALONE,
        plugins=[seamline_cuda.plugin],
    )


def fed(opened, made, value):
    """Run with a tensor, which may still be being made; nothing of it goes over the host."""
    memory = opened._pipeline.providers["cuda"].memory()
    before = memory.transfers.counts().get("bytes_in", 0)
    (y,) = opened.run(None, {"x": made, "b": B})
    # A run that records brings the other feed to its room, and a count of four bytes.
    moved = memory.transfers.counts()["bytes_in"] - before
    assert moved in (B.nbytes, 2 * B.nbytes + 4)
    np.testing.assert_array_equal(y, np.tile(value + B, (64, 1)))


def test_a_tensor_of_torch_on_any_of_its_streams_is_fed_uncopied():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with session() as opened:
        for step in range(4):
            fed(opened, torch.full((64, 8), 1.0 + step, device="cuda"), 1 + step)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            late = torch.full((64, 8), 9.0, device="cuda")
            fed(opened, late, 9)
            late.fill_(1.0)  # after the run, on a stream that waits for the copy
        fed(opened, late, 1)


def test_an_array_of_cupy_is_fed_uncopied():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    with session() as opened:
        for step in range(4):
            fed(opened, cupy.full((64, 8), 1.0 + step, cupy.float32), 1 + step)
