"""
A new provider's package, written from templates: complete, and right as it stands.

The folder appears at once or not at all: it is written beside its place and renamed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

import attrs

from seamline.discovery import discover
from seamline.errors import SeamlineError
from seamline.settings import normal_name

__all__ = ["Names", "ScaffoldError", "names_for", "write_package"]

#: What the core takes as a provider's name, without ``:``, which no distribution has.
_NAME = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
#: File of the package -> template beside this module.
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "$module/__init__.py": "init.py",
    "$module/plugin.py": "plugin.py",
    "$module/kernels.py": "kernels.py",
    "$module/known_gaps.toml": "known_gaps.toml",
    "tests/test_conformance.py": "test_conformance.py",
}


class ScaffoldError(SeamlineError):
    """The package cannot be written: its name will not do, or its place is taken."""


@attrs.frozen
class Names:
    """
    What a provider and its package are called.

    Attributes
    ----------
    name
        The provider's, as in ``--provider NAME``.
    distribution
        What ``pip`` installs; the folder's name too.
    module
        What Python imports.
    """

    name: str
    distribution: str
    module: str


def names_for(name: str) -> Names:
    """
    Check a provider's name, and give those of its package.

    Raises
    ------
    ScaffoldError
        No provider may have the name, or one that is installed has it, or its module
        would hide another.

    Examples
    --------
    >>> names_for("my.device")
    Names(name='my.device', distribution='seamline-my-device', module='seamline_my_device')
    """
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"{name!r} cannot name a provider: lower-case letters and digits, with '-', "
            "'_' or '.' between them, as in 'my-device'"
        )
    parts = re.split(r"[-_.]", name)
    found = Names(name, f"seamline-{'-'.join(parts)}", f"seamline_{'_'.join(parts)}")
    taken = {normal_name(taken) for offer in discover().offers for taken in offer.names}
    if normal_name(name) in taken:
        raise ScaffoldError(f"a provider {name!r} is installed already; choose another")
    if importlib.util.find_spec(found.module) is not None:
        raise ScaffoldError(
            f"a module {found.module!r} is installed already, which the package for "
            f"{name!r} would hide; choose another name"
        )
    return found


def write_package(names: Names, into: Path) -> tuple[Path, tuple[str, ...]]:
    """
    Write the package.

    Parameters
    ----------
    into
        An existing folder, in which the package's own folder is made.

    Returns
    -------
    folder, files
        The package's folder, and the files in it, relative to it.

    Raises
    ------
    ScaffoldError
        The folder exists already, or cannot be written; nothing is left behind.
    """
    folder = into / names.distribution
    if folder.exists() or folder.is_symlink():
        raise ScaffoldError(f"{folder} exists already; move it away, or use --into")
    beside = into / f".{names.distribution}.{os.getpid()}.part"
    texts = _texts(attrs.asdict(names))
    try:
        for file, text in texts.items():
            path = beside / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside.rename(folder)
    except OSError as error:
        raise ScaffoldError(f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder, tuple(texts)


def _texts(words: Mapping[str, str]) -> dict[str, str]:
    """Fill in every template; a word that is missing in one is a fault of ours, raised."""
    source = resources.files("seamline_testing") / "templates" / "provider"
    return {
        Template(file).substitute(words): Template(
            (source / f"{template}.template").read_text(encoding="utf-8")
        ).substitute(words)
        for file, template in _FILES.items()
    }
