"""The oracle of the moves is one with onnxruntime, wherever that has the operator and type."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.cuda.held import same
from tests.cuda.test_moves import CASES

#: Cases that it opens and then refuses to run.
REFUSED = {
    "scatter: add of float16 elements", "scatter: mul of float16 elements",
    "scatter: max of float16 elements", "scatter: min of float16 elements",
    "pad: reflected more than once",
}  # fmt: skip
onnxruntime.set_default_logger_severity(4)


def peers():
    for name, case in CASES.items():
        model = case.model
        try:
            yield name, onnxruntime.InferenceSession(model.SerializeToString())
        except Exception:  # it says by its own classes that it has no such kernel
            continue


SESSIONS = dict(peers())


def test_the_peer_has_most_of_the_cases():
    assert len(SESSIONS) > 0.8 * len(CASES)


@pytest.mark.parametrize("name", sorted(SESSIONS.keys() - REFUSED))
def test_onnxruntime_gives_what_the_oracle_does(name):
    case = CASES[name]
    feeds = case.feeds(7)
    names = [value.name for value in case.model.graph.output]
    got = dict(zip(names, SESSIONS[name].run(None, feeds), strict=True))
    for key, want in case.wanted(feeds).items():
        same(got[key], np.asarray(want), case.rtol, key)
