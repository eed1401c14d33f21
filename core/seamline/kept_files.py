"""
Files that stand for work done before: whole or not there, whoever writes and when.

A file starts with the digest of its content, is written aside and moved into place, so a
reader sees all of it or none, and one that was damaged is told from one that is not.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "keep", "kept"]

_DIGEST = 32


def cache_folder(*parts: str) -> Path:
    """
    Give the folder for what can be made again; it need not exist.

    ``SEAMLINE_CACHE_DIR`` names it, else it lies in the user's cache folder
    (``XDG_CACHE_HOME`` or ``~/.cache``; ``LOCALAPPDATA`` on Windows).
    """
    named = os.environ.get("SEAMLINE_CACHE_DIR")
    if named:
        return Path(named).joinpath(*parts)
    variable = "LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME"
    outer = os.environ.get(variable) or str(Path.home() / ".cache")
    return Path(outer, "seamline", *parts)


def keep(path: Path, content: bytes) -> None:
    """
    Write a file in one step.

    Raises
    ------
    OSError
        It cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.blake2b(content, digest_size=_DIGEST).digest()
    handle, aside = tempfile.mkstemp(".tmp", path.stem, path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(digest + content)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def kept(path: Path) -> bytes | None:
    """
    Give a file's content, or None where there is none.

    Raises
    ------
    ValueError
        It is damaged.
    OSError
        It cannot be read.
    """
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    digest, content = raw[:_DIGEST], raw[_DIGEST:]
    if hashlib.blake2b(content, digest_size=_DIGEST).digest() != digest:
        raise ValueError(f"{path.name} is damaged")
    return content
