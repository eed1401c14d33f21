"""
Tensors stored inside the model file, left there.

protobuf copies what it parses, and reads less than 2 GiB. So before it sees a large file
the bytes of large initializers are cut out, each tensor is marked with a word that no
file can know, and afterwards it is read through a mapping of the file, as external data
is. Nothing of the file is judged here: whatever looks odd is left for protobuf to refuse.

The wire format is protobuf's (https://protobuf.dev/programming-guides/encoding); the
field numbers are those of onnx.proto.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator

import attrs
import onnx_ir as ir

from seamline.errors import ModelError
from seamline.external_data import DataFile, MappedTensor
from seamline.tensor_data import stored_nbytes

__all__ = ["InlineTensors"]

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_RAW_DATA = 9
_TENSOR_DOC_STRING = 12
_TENSOR_DATA_LOCATION = 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SMALLEST = 4096  # below a page there is nothing to gain


class _OddError(Exception):
    """The bytes are not laid out as expected."""


@attrs.frozen
class _Field:
    """One field: its number, where its tag, its payload and the next field begin."""

    number: int
    wire: int
    tag: int
    begin: int
    end: int


class InlineTensors:
    """
    The large initializers of one model file.

    Parameters
    ----------
    file
        The model, for messages.
    data
        The mapped model file.
    """

    def __init__(self, file: str, data: DataFile) -> None:
        self._file = file
        self._data = data
        self._mark = secrets.token_hex(16)
        self._places: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def without(self, view: memoryview) -> bytes | memoryview:
        """Give the model's bytes without the data of large initializers."""
        try:
            return b"".join(self._model_pieces(view))
        except _OddError:
            self._places.clear()
            return view

    def given(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
        """
        Give the tensor over the file's bytes, or None for one that was not cut.

        Raises
        ------
        ModelError
            Its shape and its bytes do not agree.
        """
        place = self._places.get(tensor.doc_string or "")
        if place is None:
            return None
        offset, found = place
        wanted = -1
        if tensor.dtype != ir.DataType.STRING:
            wanted = stored_nbytes(tensor.dtype, math.prod(tensor.shape.numpy()))
        if wanted != found:
            raise ModelError(
                self._file,
                f"tensor {tensor.name!r}",
                f"{tensor.dtype.name}{list(tensor.shape.numpy())} does not have {found} "
                "bytes of raw_data",
            )
        mapped = MappedTensor(tensor, self._data, offset, found)
        mapped.doc_string = None
        return mapped

    def _model_pieces(self, view: memoryview) -> list[bytes | memoryview]:
        fields = [f for f in _fields(view, 0, len(view)) if f.number == _MODEL_GRAPH]
        if len(fields) != 1 or fields[0].wire != _BYTES:
            raise _OddError  # protobuf would merge two graphs
        graph = fields[0]
        inner = self._graph_pieces(view, graph)
        if not self._places:
            raise _OddError
        head = _head(_MODEL_GRAPH, sum(map(len, inner)))
        return [view[: graph.tag], head, *inner, view[graph.end :]]

    def _graph_pieces(
        self, view: memoryview, graph: _Field
    ) -> list[bytes | memoryview]:
        pieces: list[bytes | memoryview] = []
        kept = graph.begin
        for field in _fields(view, graph.begin, graph.end):
            if (
                field.number == _GRAPH_INITIALIZER
                and field.wire == _BYTES
                and field.end - field.begin >= _SMALLEST
                and (tensor := self._tensor_pieces(view, field))
            ):
                head = _head(_GRAPH_INITIALIZER, sum(map(len, tensor)))
                pieces += [view[kept : field.tag], head, *tensor]
                kept = field.end
        return [*pieces, view[kept : graph.end]]

    def _tensor_pieces(
        self, view: memoryview, tensor: _Field
    ) -> list[bytes | memoryview]:
        """Give a tensor without its data and with a mark, or nothing to leave it."""
        fields = list(_fields(view, tensor.begin, tensor.end))
        raw = [field for field in fields if field.number == _TENSOR_RAW_DATA]
        if len(raw) != 1 or any(f.number == _TENSOR_DATA_LOCATION for f in fields):
            return []
        (data,) = raw
        if data.wire != _BYTES or data.end - data.begin < _SMALLEST:
            return []
        key = f"{self._mark}-{len(self._places)}"
        self._places[key] = (data.begin, data.end - data.begin)
        # The last of two doc strings counts, so the mark comes last.
        mark = _head(_TENSOR_DOC_STRING, len(key)) + key.encode()
        return [view[tensor.begin : data.tag], view[data.end : tensor.end], mark]


def _fields(view: memoryview, begin: int, end: int) -> Iterator[_Field]:
    """Give the fields of one message."""
    place = begin
    while place < end:
        key, payload = _varint(view, place, end)
        wire = key & 7
        if wire == _BYTES:
            size, payload = _varint(view, payload, end)
            stop = payload + size
        elif wire == _VARINT:
            _, stop = _varint(view, payload, end)
        elif wire in (_FIXED64, _FIXED32):
            stop = payload + (8 if wire == _FIXED64 else 4)
        else:
            raise _OddError
        if stop > end:
            raise _OddError
        yield _Field(key >> 3, wire, place, payload, stop)
        place = stop


def _varint(view: memoryview, place: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= end:
            break
        byte = view[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise _OddError


def _head(number: int, size: int) -> bytes:
    """Give the tag and the length of a field of bytes."""
    out = bytearray([number << 3 | _BYTES])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)
