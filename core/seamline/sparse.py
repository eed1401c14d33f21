"""
Sparse tensors: checked at load, made dense when they are read.

The IR has none, so a stand-in takes the place of each before the IR is made, marked by a
word that no file can know, and is exchanged afterwards.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.serde import TensorProtoTensor

from seamline.errors import ModelError, UnsafeModelError
from seamline.limits import LoadLimits
from seamline.tensor_data import check_stored, stored_nbytes

__all__ = ["SparseTensors"]

_KIND = onnx.AttributeProto
_ALWAYS = 1 << 20  # bytes that any sparse tensor may take when dense


class SparseTensors:
    """The sparse tensors of one model."""

    def __init__(self, file: str, limits: LoadLimits) -> None:
        self._file = file
        self._limits = limits
        self._mark = secrets.token_hex(16)
        self._made: dict[str, ir.TensorProtocol] = {}

    def take_out(self, model: onnx.ModelProto) -> None:
        """
        Put a stand-in for each sparse tensor; changes the proto.

        Raises
        ------
        ModelError
            Values, indices and shape of one do not fit together; names it.
        UnsafeModelError
            It is too large when dense, for what is stored.
        """
        for graph, nodes in _parts(model):
            for node in nodes:
                for attr in node.attribute:
                    self._take_attribute(attr, node)
            if graph is not None:
                for sparse in graph.sparse_initializer:
                    name = sparse.values.name
                    self._stand_in(sparse, name, graph.initializer.add())
                del graph.sparse_initializer[:]

    def _take_attribute(self, attr: onnx.AttributeProto, node: onnx.NodeProto) -> None:
        what = f"{attr.name} of node {node.name or node.op_type}"
        if attr.type == _KIND.SPARSE_TENSOR:
            self._stand_in(attr.sparse_tensor, what, attr.t)
            attr.ClearField("sparse_tensor")
            attr.type = _KIND.TENSOR
        elif attr.type == _KIND.SPARSE_TENSORS:
            for sparse in attr.sparse_tensors:
                self._stand_in(sparse, what, attr.tensors.add())
            del attr.sparse_tensors[:]
            attr.type = _KIND.TENSORS

    def _stand_in(
        self, sparse: onnx.SparseTensorProto, name: str, tensor: onnx.TensorProto
    ) -> None:
        key = f"{self._mark}-{len(self._made)}"
        self._made[key] = _dense_when_read(sparse, name, self._file, self._limits)
        tensor.name = name
        tensor.data_type = sparse.values.data_type
        tensor.dims.extend(sparse.dims)
        tensor.doc_string = key

    def given(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
        """Give the tensor that a stand-in stands for, or None for another tensor."""
        return self._made.get(tensor.doc_string or "")


def _parts(
    model: onnx.ModelProto,
) -> Iterator[tuple[onnx.GraphProto | None, list[onnx.NodeProto]]]:
    """Give every graph with its nodes; a function has nodes alone."""
    graphs = [model.graph]
    for function in model.functions:
        yield None, list(function.node)
        graphs += [g for node in function.node for g in _bodies(node)]
    while graphs:
        graph = graphs.pop()
        yield graph, list(graph.node)
        graphs += [g for node in graph.node for g in _bodies(node)]


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attr in node.attribute:
        if attr.type == _KIND.GRAPH:
            yield attr.g
        elif attr.type == _KIND.GRAPHS:
            yield from attr.graphs


def _dense_when_read(
    sparse: onnx.SparseTensorProto, name: str, file: str, limits: LoadLimits
) -> ir.TensorProtocol:
    where = f"sparse tensor {name!r}"
    if not name:
        raise ModelError(file, where, "it has no name")
    dims = tuple(sparse.dims)
    dtype = _checked_values(sparse, where, file)
    _check_size(sparse, dims, dtype, where, file, limits)
    flat = _flat_indices(sparse, dims, _refuser(file, where))
    stored = TensorProtoTensor(sparse.values)

    def dense() -> ir.TensorProtocol:
        array = np.zeros(math.prod(dims), dtype=dtype.numpy())
        array[flat] = stored.numpy()
        return ir.Tensor(array.reshape(dims), name=name)

    return ir.LazyTensor(dense, dtype, ir.Shape(dims), name=name)


def _refuser(file: str, where: str) -> Callable[[str], ModelError]:
    return lambda why: ModelError(file, where, why)


def _checked_values(
    sparse: onnx.SparseTensorProto, where: str, file: str
) -> ir.DataType:
    refuse = _refuser(file, where)
    for part, tensor in (("values", sparse.values), ("indices", sparse.indices)):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise refuse(f"its {part} are external data, which is not supported")
        if tensor.data_type in (0, onnx.TensorProto.STRING) or any(
            dim < 0 for dim in tensor.dims
        ):
            raise refuse(f"its {part} have no numeric type and shape")
        try:
            dtype = ir.DataType(tensor.data_type)
        except ValueError as error:
            raise refuse(
                f"the element type {tensor.data_type} of its {part} is not known"
            ) from error
        check_stored(
            file,
            tensor,
            stored_nbytes(dtype, math.prod(tensor.dims)),
            f"{where} ({part})",
        )
    if sparse.indices.data_type != onnx.TensorProto.INT64:
        raise refuse("its indices are not int64")
    return ir.DataType(sparse.values.data_type)


def _check_size(
    sparse: onnx.SparseTensorProto,
    dims: tuple[int, ...],
    dtype: ir.DataType,
    where: str,
    file: str,
    limits: LoadLimits,
) -> None:
    if any(dim < 0 for dim in dims):
        raise ModelError(file, where, f"its shape {dims} has a negative size")
    dense = stored_nbytes(dtype, math.prod(dims))
    stored = stored_nbytes(dtype, math.prod(sparse.values.dims))
    if dense > max(_ALWAYS, stored * limits.max_sparse_expansion):
        raise UnsafeModelError(
            file,
            where,
            f"it takes {dense} bytes when dense and stores {stored}, out of proportion; "
            "raise LoadLimits(max_sparse_expansion=) if you trust the file",
        )


def _flat_indices(
    sparse: onnx.SparseTensorProto,
    dims: tuple[int, ...],
    refuse: Callable[[str], ModelError],
) -> np.ndarray[Any, Any]:
    """Give the places of the values in the flat dense tensor, checked."""
    shape = tuple(sparse.values.dims)
    if len(shape) != 1:
        raise refuse(f"its values have shape {shape}, not one dimension")
    indices = TensorProtoTensor(sparse.indices).numpy().astype(np.int64)
    if indices.shape not in ((shape[0],), (shape[0], len(dims))):
        raise refuse(
            f"its indices have shape {indices.shape} for {shape[0]} values of rank "
            f"{len(dims)}; that needs ({shape[0]},) or ({shape[0]}, {len(dims)})"
        )
    bounds = np.array(dims if indices.ndim == 2 else math.prod(dims), dtype=np.int64)
    if ((indices < 0) | (indices >= bounds)).any():
        raise refuse(f"an index lies outside of its shape {dims}")
    flat = indices
    if indices.ndim == 2:
        strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
        flat = indices @ np.array(strides, dtype=np.int64)
    if (np.diff(flat) <= 0).any():
        raise refuse("its indices are not in ascending order, each once")
    return flat
