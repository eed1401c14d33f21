"""From a path, bytes, a proto or an IR model to an IR model that is safe to read."""

from __future__ import annotations

import mmap
import os
import stat
import warnings

import attrs
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from seamline.cloning import copy_model
from seamline.errors import ModelError
from seamline.external_data import DataFolder, Mappings
from seamline.limits import LoadLimits
from seamline.mounting import mount_tensors
from seamline.proto_scan import scan_proto
from seamline.sparse import SparseTensors
from seamline.versions import check_versions

__all__ = ["OpenedModel", "read_model"]

Source = str | os.PathLike[str] | bytes | bytearray | onnx.ModelProto | ir.Model


@attrs.frozen(eq=False)
class OpenedModel:
    """A model, what messages call it, and what must live as long as its data."""

    model: ir.Model
    file: str
    keep: Mappings


def read_model(
    source: Source,
    limits: LoadLimits,
    folder: str | os.PathLike[str] | None = None,
) -> OpenedModel:
    """
    Read a model and check it; the data of its tensors stays where it is.

    Parameters
    ----------
    folder
        Where external data lies if the source is not a path.

    Raises
    ------
    ModelError, UnsafeModelError
        See :func:`seamline.graph.load`.
    """
    file = _name_of(source)
    mappings = Mappings()
    home = DataFolder(file, (), mappings)
    if folder is not None:
        home = attrs.evolve(home, beside=(os.path.realpath(folder),))
    if isinstance(source, ir.Model):
        check_versions(file, source.ir_version or 0, source.opset_imports.items())
        model = copy_model(source, file, limits)
        mount_tensors(model, home, limits, trust_base_dir=folder is None)
        return OpenedModel(model, file, mappings)
    if isinstance(source, (str, os.PathLike)):
        home = DataFolder.of_model(source, mappings)
        proto = _parse_file(os.fspath(source), file)
    elif isinstance(source, onnx.ModelProto):
        proto = source
    else:
        proto = _parse(source, file)
    try:
        model = _from_proto(proto, source is proto, home, limits)
    except BaseException:
        mappings.close()
        raise
    return OpenedModel(model, file, mappings)


def _name_of(source: Source) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(source, (bytes, bytearray)):
        return f"<{len(source)} bytes>"
    if isinstance(source, (onnx.ModelProto, ir.Model)):
        kind = "ModelProto" if isinstance(source, onnx.ModelProto) else "onnx_ir.Model"
        return f"<{kind} {source.graph.name!r}>"
    raise TypeError(
        "a model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model, not "
        f"{type(source).__name__}"
    )


def _parse_file(path: str, file: str) -> onnx.ModelProto:
    with open(path, "rb", opener=_open_quickly) as handle:
        found = os.fstat(handle.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(file, "", "it is not a regular file")
        if not found.st_size:
            raise ModelError(file, "", "the file is empty")
        if found.st_size >= 1 << 31:
            raise ModelError(
                file,
                "",
                f"it has {found.st_size} bytes, and protobuf reads less than 2 GiB; "
                "save its tensors as external data",
            )
        with (
            mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            return _parse(view, file)


def _open_quickly(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(data: bytes | bytearray | memoryview, file: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            file,
            "",
            "protobuf cannot read it: it is no ONNX model, is cut off, or nests deeper "
            f"than protobuf's 100 messages, about 30 bodies ({error})",
        ) from error
    return proto


def _from_proto(
    proto: onnx.ModelProto, borrowed: bool, home: DataFolder, limits: LoadLimits
) -> ir.Model:
    file = home.file
    sparse = None
    try:
        imports = [(item.domain, item.version) for item in proto.opset_import]
        check_versions(file, proto.ir_version, imports)
        scan = scan_proto(proto, file, limits)
        if scan.sparse:
            if borrowed:
                proto = _copy_of(proto)
            sparse = SparseTensors(file, limits)
            sparse.take_out(proto)
        model = _to_ir(proto, quiet=scan.odd_external)
        mount_tensors(model, home, limits, sparse=sparse)
    except (ModelError, OSError, MemoryError):
        raise
    except Exception as error:
        # The IR answers a broken proto with whatever its own code runs into.
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        said = f"{type(root).__name__}: {root}"[:500]
        raise ModelError(file, "", f"it is not a valid model ({said})") from error
    return model


def _copy_of(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _to_ir(proto: onnx.ModelProto, *, quiet: bool) -> ir.Model:
    if not quiet:
        return ir.from_proto(proto)
    with warnings.catch_warnings():  # onnx warns of keys that are not the standard's
        warnings.simplefilter("ignore")
        return ir.from_proto(proto)
