"""A child that is forked while another thread opens a model opens models of its own."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest
from onnx import parser

from seamline import discovery, shapes
from seamline.pipeline import Pipeline

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[2] x) => (float[2] y) { y = Add(x, x) }"""


def opened_and_right():
    pipeline = Pipeline.open(parser.parse_model(MODEL), providers=["reference"])
    try:
        (y,) = pipeline.run({"x": np.ones(2, np.float32)})
        return y.tolist() == [2, 2]
    finally:
        pipeline.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("module", [shapes, discovery])
def test_a_lock_that_another_thread_holds_is_free_in_a_child(module):
    held, done = threading.Event(), threading.Event()

    def hold():
        with module._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        child = os.fork()
    if not child:
        free = module._lock.acquire(timeout=10)
        os._exit(0 if free and opened_and_right() else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done.set()
    thread.join()
    assert status == 0
    assert opened_and_right()
