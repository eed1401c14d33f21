"""Fixtures for the tests of the core."""

import sys

import pytest


@pytest.fixture
def plugin_folder(tmp_path, monkeypatch):
    """Put a folder for distributions on the path; forget afterwards what was imported."""
    for variable in ("SEAMLINE_BLOCK", "SEAMLINE_ALLOW", "SEAMLINE_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]
