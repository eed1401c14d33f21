"""From a path, bytes, a proto or an IR model to an IR model that is safe to read."""

from __future__ import annotations

import os
import warnings

import attrs
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from seamline.cloning import copy_model
from seamline.errors import ModelError
from seamline.external_data import DataFolder, Mappings
from seamline.inline_data import InlineTensors
from seamline.limits import LoadLimits
from seamline.mounting import StandIns, mount_tensors
from seamline.proto_scan import scan_proto
from seamline.sparse import SparseTensors
from seamline.versions import check_versions

__all__ = ["OpenedModel", "read_model"]

_LARGE = 1 << 20  # bytes of a file from which its initializers are worth a look
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
    try:
        if isinstance(source, ir.Model):
            check_versions(file, source.ir_version or 0, source.opset_imports.items())
            model = copy_model(source, file, limits)
            mount_tensors(model, home, limits, trust_base_dir=folder is None)
        else:
            model = _read_proto(source, home, limits)
    except BaseException:
        mappings.close()
        raise
    return OpenedModel(model, file, mappings)


def _read_proto(
    source: str | os.PathLike[str] | bytes | bytearray | onnx.ModelProto,
    home: DataFolder,
    limits: LoadLimits,
) -> ir.Model:
    if isinstance(source, onnx.ModelProto):
        return _from_proto(source, home, limits, borrowed=True)
    if isinstance(source, (bytes, bytearray)):
        return _from_proto(_parse(source, home.file), home, limits)
    home = DataFolder.of_model(source, home.mappings)
    proto, inline = _parse_file(os.fspath(source), home)
    return _from_proto(proto, home, limits, inline)


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


def _parse_file(
    path: str, home: DataFolder
) -> tuple[onnx.ModelProto, tuple[StandIns, ...]]:
    os.stat(path)  # what is missing is reported under the name that was given
    resolved = os.path.realpath(path)
    try:
        data = home.mappings.file(resolved)
    except OSError as error:
        if error.errno is not None:
            raise
        raise ModelError(home.file, "", str(error)) from error
    if not data.size:
        raise ModelError(home.file, "", "the file is empty")
    inline = InlineTensors(home.file, data)
    with memoryview(data.buffer()) as view:
        large = data.size >= _LARGE
        proto = _parse(inline.without(view) if large else view, home.file)
    if not inline:
        home.mappings.drop(resolved)
        return proto, ()
    return proto, (inline,)


def _parse(data: bytes | bytearray | memoryview, file: str) -> onnx.ModelProto:
    if len(data) >= 1 << 31:
        raise ModelError(
            file,
            "",
            f"it has {len(data)} bytes besides its large initializers, and protobuf "
            "reads less than 2 GiB; save its tensors as external data",
        )
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)  # pyright: ignore[reportArgumentType]
    except DecodeError as error:
        raise ModelError(
            file,
            "",
            "protobuf cannot read it: it is no ONNX model, is cut off, or nests deeper "
            f"than protobuf's 100 messages, about 30 bodies ({error})",
        ) from error
    return proto


def _from_proto(
    proto: onnx.ModelProto,
    home: DataFolder,
    limits: LoadLimits,
    stand_ins: tuple[StandIns, ...] = (),
    *,
    borrowed: bool = False,
) -> ir.Model:
    file = home.file
    try:
        imports = [(item.domain, item.version) for item in proto.opset_import]
        check_versions(file, proto.ir_version, imports)
        scan = scan_proto(proto, file, limits)
        if scan.sparse:
            if borrowed:
                proto = _copy_of(proto)
            sparse = SparseTensors(file, limits)
            sparse.take_out(proto)
            stand_ins += (sparse,)
        model = _to_ir(proto, quiet=scan.odd_external)
        mount_tensors(model, home, limits, stand_ins=stand_ins)
    except (ModelError, OSError, MemoryError):
        raise
    except Exception as error:
        raise _invalid(file, error) from error
    return model


def _invalid(file: str, error: BaseException) -> ModelError:
    """Put into words what the IR's own code ran into over a broken proto."""
    while error.__cause__ is not None:
        error = error.__cause__
    said = f"{type(error).__name__}: {error}"[:500]
    return ModelError(file, "", f"it is not a valid model ({said})")


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
