"""`seamline new-provider`: what it writes, what it refuses, and that it passes as written."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from onnx import parser
from tests.docs.code_blocks import ROOT

from seamline.pipeline import Pipeline
from seamline_testing.scaffold import ScaffoldError, names_for, write_package


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder, _ = write_package(names_for("my-device"), tmp_path_factory.mktemp("new"))
    return folder


def call(*words, cwd=None, **environment):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_file_is_written_and_no_placeholder_is_left(package):
    files = sorted(
        str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()
    )
    assert files == [
        "README.md",
        "pyproject.toml",
        "seamline_my_device/__init__.py",
        "seamline_my_device/kernels.py",
        "seamline_my_device/known_gaps.toml",
        "seamline_my_device/plugin.py",
        "tests/test_conformance.py",
    ]
    for file in files:
        text = (package / file).read_text("utf-8")
        assert "$module" not in text
        assert "$name" not in text
    assert "\n$ pytest\n" in (package / "README.md").read_text("utf-8")


def test_the_entry_point_names_the_provider(package):
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "seamline-my-device"
    assert project["entry-points"]["seamline"] == {
        "my-device": "seamline_my_device.plugin"
    }


def test_a_name_with_a_dot_is_one_key_of_the_project(tmp_path):
    folder, _ = write_package(names_for("my.device"), tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["seamline"] == {
        "my.device": "seamline_my_device.plugin"
    }


def test_its_code_is_what_the_linter_would_leave(package):
    call(
        sys.executable, "-m", "ruff", "check", "--isolated", "--select", "D,E,F,I,N,UP,ANN",
        "--ignore", "D203,D212,D100,D104,ANN401,E501", package,
    )  # fmt: skip
    call(sys.executable, "-m", "ruff", "format", "--isolated", "--check", package)


@pytest.mark.parametrize(
    "name", ["", "My", "a b", "-a", "a-", "a--b", "a:b", "a/b", "../a", "1,2", "naïve"]
)
def test_a_name_that_no_provider_may_have_is_refused(name):
    with pytest.raises(ScaffoldError, match="cannot name a provider"):
        names_for(name)


def test_the_name_of_an_installed_provider_is_refused():
    with pytest.raises(ScaffoldError, match="'cpu' is installed already"):
        names_for("cpu")


def test_a_module_that_would_hide_another_is_refused():
    with pytest.raises(ScaffoldError, match="'seamline_testing' is installed already"):
        names_for("testing")


def test_a_folder_that_exists_is_left_as_it_is(tmp_path):
    (tmp_path / "seamline-mine").mkdir()
    with pytest.raises(ScaffoldError, match="exists already"):
        write_package(names_for("mine"), tmp_path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "seamline-mine"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScaffoldError, match="file"):
        write_package(names_for("mine"), tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_its_kernels_run_a_model_as_defined(package, monkeypatch):
    monkeypatch.syspath_prepend(str(package))
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2, 3] x, float[3] z) => (float[2, 3] y) {
      a = Add (x, z)
      l = LeakyRelu <alpha = 0.5> (a)
      s = Softmax <axis = 0> (l)
      y = Relu (s)
    }
    """
    plugin = importlib.import_module("seamline_my_device.plugin")
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    z = np.array([1, 1, -9], np.float32)
    pipeline = Pipeline.open(
        parser.parse_model(text), providers=["my-device"], plugins=[plugin]
    )
    try:
        (y,) = pipeline.run({"x": x, "z": z})
    finally:
        pipeline.close()
    total = (x + z).astype(np.float64)
    raised = np.exp(np.where(total < 0, total / 2, total))
    np.testing.assert_allclose(y, raised / raised.sum(0), rtol=1e-6)


def test_it_passes_the_quick_kit_in_a_clean_environment(package, tmp_path):
    """Its only packages are those that the wheel and the package ask for."""
    wheels, home = tmp_path / "wheels", tmp_path / "environment"
    pip = ("-m", "pip", "--disable-pip-version-check")
    call(sys.executable, *pip, "wheel", ROOT, "--no-deps", "--wheel-dir", wheels)
    call(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    (wheel,) = wheels.glob("*.whl")
    call(python, *pip, "install", f"seamline[testing] @ {wheel.as_uri()}")
    call(python, *pip, "install", package)
    said = call(python, "-m", "pytest", "-q", "--quick", cwd=package)
    assert " passed" in said
    assert " failed" not in said
