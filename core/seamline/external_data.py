"""
Tensors whose data lies in another file: found, checked and mapped, never copied.

A location in a model is text that somebody else wrote. It is looked up beside the model
as named, then beside the file that this name resolves to (a hub cache holds links into
one folder of blobs); all links are followed; and what is found must be a regular file
below one of those two folders. A hard link cannot be told from its file and is let pass:
who can make one beside the model could have put the bytes there.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import Any

import attrs
import numpy as np
import onnx_ir as ir

from seamline.errors import ModelError, UnsafeModelError

__all__ = ["DataFile", "DataFolder", "MappedTensor", "Mappings"]

# Without O_NONBLOCK the opening of a pipe waits for somebody to write.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@attrs.define(eq=False)
class DataFile:
    """One file, mapped whole; maps again, if unchanged, after it was released."""

    path: str
    identity: tuple[int, ...]
    size: int
    mapped: mmap.mmap | None

    @classmethod
    def open(cls, path: str) -> DataFile:
        """Open a resolved path and map it; the checks are of the open file itself."""
        if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a device can act on it
            raise OSError("it is not a regular file")
        descriptor = os.open(path, _FLAGS)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it is not a regular file")
            # A folder on the way may have become a link since it was resolved.
            if os.path.realpath(path) != path or not os.path.samestat(
                found, os.lstat(path)
            ):
                raise OSError("it was changed while it was opened")
            mapped = None
            if found.st_size:
                mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return cls(path, identity, found.st_size, mapped)

    def buffer(self) -> mmap.mmap:
        """Give the mapping."""
        if self.mapped is None:
            again = DataFile.open(self.path)
            if again.identity != self.identity or again.mapped is None:
                raise ModelError(
                    self.path, "", "the file was changed since it was loaded"
                )
            self.mapped = again.mapped
        return self.mapped


class Mappings:
    """
    The mapped files of one model; when this goes, they are unmapped.

    Arrays that a caller still holds keep their mapping; nothing else does, although the
    IR, which is full of cycles, may wait for the collector.
    """

    def __init__(self) -> None:
        self._files: dict[str, DataFile] = {}

    def file(self, path: str) -> DataFile:
        """Give the file at a resolved path, mapped once for all tensors in it."""
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = DataFile.open(path)
        return found

    def drop(self, path: str) -> None:
        """Let go of one file that no tensor lies in."""
        self._files.pop(path, None)

    def close(self) -> None:
        """Let go of every mapping; a tensor that is read later maps its file again."""
        for file in self._files.values():
            file.mapped = None

    def __del__(self) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(file.mapped is not None for file in self._files.values())


class MappedTensor(ir.LazyTensor):
    """A tensor in a mapped file. ``numpy`` gives a view of it; 4-bit types unpack."""

    def __init__(
        self, tensor: ir.TensorProtocol, file: DataFile, offset: int, nbytes: int
    ) -> None:
        super().__init__(
            self._tensor_of_bytes,
            tensor.dtype,
            ir.Shape(tensor.shape.numpy(), frozen=True),
            name=tensor.name,
            doc_string=tensor.doc_string,
        )
        self._file = file
        self._offset = offset
        self._length = nbytes

    @property
    def stored(self) -> np.ndarray[Any, Any]:
        """Give the bytes as they lie in the file, 4-bit types packed."""
        if not self._length:
            return np.empty(0, np.uint8)
        return np.frombuffer(self._file.buffer(), np.uint8, self._length, self._offset)

    def rest(self) -> None:
        """
        Have the system forget the pages that hold the tensor; read again, they come back.

        They are of a file that is only read, so whoever else reads it sees no difference.
        Pages that are shared with a neighbour in the file stay.
        """
        mapped = self._file.mapped
        begin = -(-self._offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (self._offset + self._length) // mmap.PAGESIZE * mmap.PAGESIZE
        if mapped is not None and begin < end and hasattr(mmap, "MADV_DONTNEED"):
            with contextlib.suppress(OSError):  # a system that does not know the advice
                mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def _tensor_of_bytes(self) -> ir.TensorProtocol:
        if self.dtype.bitwidth < 8:
            return ir.PackedTensor(self.stored, self.dtype, shape=self.shape)
        kind = self.dtype.numpy().newbyteorder("<")
        array = self.stored.view(kind).reshape(self.shape.numpy())
        return ir.Tensor(array, self.dtype, shape=self.shape)


@attrs.frozen(eq=False)
class DataFolder:
    """
    Where the external data of one model may lie.

    Attributes
    ----------
    file
        The model, for messages.
    beside
        Folders to look a location up in, in order.
    mappings
        Who holds the mapped files.
    """

    file: str
    beside: tuple[str, ...]
    mappings: Mappings
    _paths: dict[str, str] = attrs.field(factory=dict, init=False)

    @classmethod
    def of_model(cls, path: str | os.PathLike[str], mappings: Mappings) -> DataFolder:
        """Give the folders of a model's path: as named, and as resolved."""
        named = os.path.realpath(Path(path).parent)
        resolved = os.path.dirname(os.path.realpath(path))
        return cls(str(path), tuple(dict.fromkeys((named, resolved))), mappings)

    def open(self, tensor: ir.ExternalTensor, nbytes: int) -> MappedTensor:
        """
        Give the tensor over mapped bytes.

        Parameters
        ----------
        nbytes
            What its type and shape come to.

        Raises
        ------
        UnsafeModelError
            The location leaves the folders, or is no regular file.
        ModelError
            There is no such file, or offset, length, shape and file do not agree.
        """
        location = os.fspath(tensor.location)
        where = f"tensor {tensor.name!r} (external data {location!r})"
        path = self._paths.get(location) or self._resolve(location, where)
        self._paths[location] = path
        try:
            file = self.mappings.file(path)
        except OSError as error:
            raise UnsafeModelError(self.file, where, f"{error}") from error
        offset = tensor.offset or 0
        if tensor.length is not None and tensor.length != nbytes:
            raise ModelError(
                self.file,
                where,
                f"its shape and type come to {nbytes} bytes, its length says "
                f"{tensor.length}",
            )
        if offset < 0 or offset + nbytes > file.size:
            raise ModelError(
                self.file,
                where,
                f"bytes {offset} to {offset + nbytes} are asked for and the file has "
                f"{file.size}",
            )
        return MappedTensor(tensor, file, offset, nbytes)

    def _resolve(self, location: str, where: str) -> str:
        """Give the resolved path of a location, if that is inside."""
        if reason := _bad_text(location):
            raise UnsafeModelError(self.file, where, reason)
        if not self.beside:
            raise UnsafeModelError(
                self.file,
                where,
                "the model has no folder of its own; load it from a path, or say "
                "folder=",
            )
        for folder in self.beside:
            path = os.path.realpath(os.path.join(folder, location))
            if not os.path.lexists(path):
                continue
            if not _is_below(path, self.beside):
                raise UnsafeModelError(
                    self.file,
                    where,
                    f"it leads to {path!r}, outside of the model's folder "
                    f"{' or '.join(map(repr, self.beside))}",
                )
            return path
        raise ModelError(
            self.file, where, f"no such file in {' or '.join(map(repr, self.beside))}"
        )


def _bad_text(location: str) -> str:
    """Say why a location is refused before any file is looked at, or nothing."""
    if not location:
        return "the location is empty"
    if "\0" in location:
        return "the location has a NUL in it"
    if os.path.isabs(location) or PureWindowsPath(location).anchor:
        return "the location is absolute; it must be relative to the model"
    if os.path.normpath(location).split(os.sep)[0] == os.pardir:
        return "the location leaves the model's folder by '..'"
    return ""


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(
        path != folder and os.path.commonpath((path, folder)) == folder
        for folder in folders
    )
