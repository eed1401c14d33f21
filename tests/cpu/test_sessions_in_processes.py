"""Whole sessions on ``cpu`` in processes of their own: threads, forks, and no place to cache."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import os, threading, warnings
import numpy as np
import seamline
from onnx import parser

MODEL = parser.parse_model('''
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[600, 400] x, float[400, 8] w) => (float[600, 8] y, float s)
    { t = Tanh(x) y = MatMul(t, w) s = ReduceSum <keepdims = 0> (x) }''')
X = np.arange(240000, dtype=np.float32).reshape(600, 400) % 7 - 3
W = np.ones((400, 8), np.float32)
WANT = np.tanh(X.astype(np.float64)).sum(1)

def opened():
    return seamline.InferenceSession(
        MODEL.SerializeToString(), providers=[("cpu", {"num_threads": 2})]
    )

def right(session):
    y, s = session.run(None, {"x": X, "w": W})
    return np.allclose(y, WANT[:, None], atol=1e-3) and s == X.sum(dtype=np.float64)
"""


def ends_well(tail, **environment):
    """Run a program in a new interpreter; give what it wrote to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(tail)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def test_threads_share_one_session_and_have_their_own():
    ends_well("""
    shared, wrong = opened(), []
    def work():
        mine = opened()
        for session in (shared, mine) * 5:
            if not right(session):
                wrong.append(1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_goes_on_with_its_parents_session():
    ends_well("""
    warnings.simplefilter("ignore", DeprecationWarning)
    session = opened()
    assert right(session)
    child = os.fork()
    if not child:
        os._exit(0 if right(session) and right(opened()) else 3)
    status = os.waitpid(child, 0)[1]
    assert status == 0, status
    assert right(session)
    """)


def test_a_home_that_is_no_folder_costs_at_most_one_warning(tmp_path):
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "below")
    said = ends_well(
        "session = opened()\nassert right(session) and right(session)",
        HOME=below,
        XDG_CACHE_HOME=below,
        NUMBA_CACHE_DIR=below,
    )
    # Numba then keeps its code beside the sources, where it may; else one warning says so.
    assert said.count("RuntimeWarning") <= 1, said
