"""Kept files: all of it or none, whoever writes at the same time."""

import os
import threading
from pathlib import Path

import pytest

from seamline.kept_files import cache_folder, keep, kept


def test_what_is_kept_is_read_and_what_is_not_there_is_none(tmp_path):
    path = tmp_path / "a" / "b" / "file.bin"
    assert kept(path) is None
    keep(path, b"content")
    assert kept(path) == b"content"
    keep(path, b"")
    assert kept(path) == b""
    assert os.listdir(path.parent) == ["file.bin"]


@pytest.mark.parametrize("cut", [0, 1, 31, 33, -1])
def test_a_file_that_was_cut_short_or_changed_is_told(tmp_path, cut):
    path = tmp_path / "file"
    keep(path, b"a long enough content")
    raw = path.read_bytes()
    path.write_bytes(raw[:cut])
    with pytest.raises(ValueError, match="file is damaged"):
        kept(path)
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(ValueError, match="file is damaged"):
        kept(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path, monkeypatch
):
    path = tmp_path / "file"
    keep(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        keep(path, b"new")
    assert kept(path) == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_reader_beside_writers_sees_one_content_or_another(tmp_path):
    path, wrong, over = tmp_path / "file", [], threading.Event()
    contents = [bytes([n]) * 100_000 for n in range(4)]
    keep(path, contents[0])

    def read():
        while not over.is_set():
            if kept(path) not in contents:
                wrong.append(True)

    reader = threading.Thread(target=read)
    writers = [
        threading.Thread(target=lambda c=c: [keep(path, c) for _ in range(10)])
        for c in contents
    ]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    assert not wrong
    assert os.listdir(tmp_path) == ["file"]


def test_the_folder_is_the_one_that_is_named_or_the_users_own(monkeypatch):
    monkeypatch.setenv("SEAMLINE_CACHE_DIR", "/somewhere")
    assert cache_folder("cuda") == Path("/somewhere/cuda")
    monkeypatch.delenv("SEAMLINE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder("cuda") == Path("/caches/seamline/cuda")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "seamline"
