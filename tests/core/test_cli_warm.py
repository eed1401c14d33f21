"""The command warm: what it compiles, counts and says."""

import json
import os
import subprocess
import sys

import pytest
from onnx import parser

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 3] x, int64[2] i) => (float y) {
  a = Sigmoid (x)  b = Gather (a, i)  c = Mul (b, b)
  y = ReduceSum <keepdims = 0> (c)
}
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return str(path)


def warm(*arguments, **environment):
    """Run the command in a process of its own; give its status, output and errors."""
    done = subprocess.run(
        [sys.executable, "-c", "from seamline.cli import main; main()", "warm", *arguments],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_model_that_was_warmed_compiles_nothing_in_the_next_process(path, tmp_path):
    kept, said = tmp_path / "kept", []
    for _ in range(2):
        status, out, err = warm(
            path, "--dim", "N=4", "-i", "i=[1, 3]", "--json", NUMBA_CACHE_DIR=str(kept)
        )
        assert status == 0, err
        (row,) = json.loads(out)
        assert (row["what"], row["note"]) == (path, "")
        said.append(row["providers"]["cpu"])
    assert said[0]["compiled"] > 0
    assert str(kept) in said[0]["cache"]
    assert said[1]["compiled"] == 0
    assert said[1]["loaded"] > 0


def test_a_run_that_fails_on_made_up_inputs_is_said_and_is_no_failure(path):
    status, out, err = warm(path, "--dim", "N=1", "-i", "i=[1, 3]")
    assert status == 0, err
    assert "its run failed" in out
    assert "out of bounds" in out
    assert "loaded from the cache" in out


def test_a_provider_that_compiles_nothing_says_so():
    status, out, err = warm("-p", "reference")
    assert status == 0, err
    assert "it compiles nothing beforehand" in out


def test_a_model_that_is_not_there_is_told_in_one_line():
    status, _, err = warm("nowhere.onnx")
    assert status == 1
    assert err.startswith("ModelError: nowhere.onnx")
    assert err.count("\n") == 1
