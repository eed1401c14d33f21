from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx.parser
import pytest

import seamline
from seamline.notes import SeamlineWarning
from seamline.pipeline import Pipeline
from seamline.provider import Availability, ProviderSpec

TEXT = """
<ir_version: 10, opset_import: ["": 21]>
agraph (float[2] x) => (float[2] y) { y = Relu(x) }
"""


def _never(_options):
    raise AssertionError("it is not available")


class Absent:
    """A plugin whose provider is not there."""

    CONTRACT_VERSION = 1

    @seamline.hookimpl
    def seamline_providers(self):
        return [
            ProviderSpec(
                "absent",
                _never,
                probe=lambda: Availability(False, "no such device", "buy one"),
            )
        ]


def test_a_warning_names_the_line_that_opened_a_pipeline():
    with pytest.warns(SeamlineWarning, match="no such device") as caught:
        Pipeline.open(
            onnx.parser.parse_model(TEXT).SerializeToString(),
            providers=["absent", "cpu"], fallback="warn", plugins=[Absent()],
        ).close()  # fmt: skip
    assert {one.filename for one in caught} == {__file__}


def test_a_warning_names_the_line_that_made_a_session_and_the_one_that_ran_it():
    options = seamline.SessionOptions()
    options.log_verbosity_level = 3
    model = onnx.parser.parse_model(TEXT).SerializeToString()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = seamline.InferenceSession(model, options, providers=["cpu"])
        run = seamline.RunOptions()
        run.log_verbosity_level = 3
        session.run(None, {"x": np.ones(2, np.float32)}, run)
    assert caught
    assert {one.filename for one in caught} == {__file__}
