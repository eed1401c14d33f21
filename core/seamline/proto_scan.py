"""
What is checked in a proto before the IR is made of it.

The IR takes a proto at its word: the later of two initializers of one name wins, a
sparse initializer is passed over, a body as deep as the file likes is walked by
recursion. So this looks first, by loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import onnx
import onnx_ir as ir

from seamline.errors import ModelError, UnsafeModelError
from seamline.limits import LoadLimits, too_deep, too_many_nodes

__all__ = ["ProtoScan", "scan_proto"]

_KIND = onnx.AttributeProto
_DTYPES = frozenset(int(member) for member in ir.DataType) - {0}
_EXTERNAL_KEYS = frozenset(("location", "offset", "length", "checksum", "basepath"))


@attrs.define
class ProtoScan:
    """
    What a proto holds that needs care.

    Attributes
    ----------
    nodes
        How many nodes there are, bodies and functions included.
    sparse
        Whether there is a sparse tensor anywhere.
    odd_external
        Whether external data has keys beyond the standard's (runtimes add their own).
    """

    nodes: int = 0
    sparse: bool = False
    odd_external: bool = False


def scan_proto(model: onnx.ModelProto, file: str, limits: LoadLimits) -> ProtoScan:
    """
    Look through a whole model.

    Raises
    ------
    ModelError
        A name is given twice in one graph, or a tensor's form is wrong.
    UnsafeModelError
        It goes past a limit on nodes or depth.
    """
    scan = ProtoScan()
    if not model.HasField("graph"):
        raise ModelError(
            file, "", "it has no graph, so it is cut off, or no ONNX model"
        )
    _check_text([one.domain for one in model.opset_import], file, "its opset imports")
    stack: list[tuple[onnx.GraphProto, int]] = [(model.graph, 0)]
    known: set[tuple[str, str, str]] = set()
    for function in model.functions:
        _check_function(function, file)
        identity = (function.domain, function.name, function.overload)
        if identity in known:
            raise ModelError(
                file,
                f"function {function.domain}::{function.name}",
                "the model has two functions of that name; only one could be meant",
            )
        known.add(identity)
        _check_nodes(function.node, 0, stack, scan, file, limits)
        for attr in function.attribute_proto:
            _check_attribute(attr, 0, stack, scan, file)
    while stack:
        graph, depth = stack.pop()
        if depth > limits.max_depth:
            raise too_deep(file, f"graph {graph.name!r}", depth, limits)
        _check_graph(graph, scan, file)
        _check_nodes(graph.node, depth, stack, scan, file, limits)
    return scan


def _check_function(function: onnx.FunctionProto, file: str) -> None:
    where = f"function {function.domain}::{function.name}"
    imports = [one.domain for one in function.opset_import]
    texts = (function.name, function.domain, *imports, *function.output)
    _check_text((*texts, *function.attribute), file, where)
    _check_names(function.input, (), function.node, file, where)
    given = {*function.input, *(out for n in function.node for out in n.output)}
    for name in function.output:
        if name not in given:
            raise ModelError(file, where, f"nothing gives its output {name!r}")


def _check_graph(graph: onnx.GraphProto, scan: ProtoScan, file: str) -> None:
    stored = [tensor.name for tensor in graph.initializer]
    if graph.sparse_initializer:
        scan.sparse = True
        stored += [sparse.values.name for sparse in graph.sparse_initializer]
    for tensor in graph.initializer:
        _check_tensor(tensor, scan, file)
    inputs = [info.name for info in graph.input]
    outputs = [info.name for info in graph.output]
    _check_text((graph.name, *outputs), file, f"graph {graph.name!r}")
    _check_names(inputs, stored, graph.node, file, f"graph {graph.name!r}")


def _check_text(names: Iterable[str], file: str, where: str) -> None:
    """Refuse names that are not UTF-8; protobuf hands those over as bytes."""
    try:
        "".join(names)
    except TypeError as error:
        raise ModelError(file, where, "a name in it is not UTF-8") from error


def _check_names(
    inputs: Sequence[str],
    stored: Sequence[str],
    nodes: Sequence[onnx.NodeProto],
    file: str,
    where: str,
) -> None:
    """Refuse a name that two things of one graph have; an input may have a default."""
    for kind, names in (("input", inputs), ("initializer", stored)):
        _check_text(names, file, where)
        if "" in names:
            raise ModelError(file, where, f"it has an {kind} without a name")
        if len(set(names)) < len(names):
            twice = next(name for name in names if list(names).count(name) > 1)
            raise ModelError(file, where, f"two {kind}s have the name {twice!r}")
    known = {*inputs, *stored}
    for node in nodes:
        for name in node.output:
            if name in known:
                raise ModelError(
                    file,
                    f"node {node.name or node.op_type!r}",
                    f"its output {name!r} is given already by another node, an input "
                    f"or an initializer of {where}",
                )
            if name:
                known.add(name)


def _check_nodes(
    nodes: Sequence[onnx.NodeProto],
    depth: int,
    stack: list[tuple[onnx.GraphProto, int]],
    scan: ProtoScan,
    file: str,
    limits: LoadLimits,
) -> None:
    scan.nodes += len(nodes)
    if scan.nodes > limits.max_nodes:
        raise too_many_nodes(file, scan.nodes, limits)
    for node in nodes:
        text = (node.op_type, node.domain, node.name, *node.input, *node.output)
        _check_text(text, file, "a node")
        names: set[str] = set()
        for attr in node.attribute:
            if attr.name in names:
                raise ModelError(
                    file,
                    f"node {node.name or node.op_type!r}",
                    f"it has two attributes {attr.name!r}",
                )
            names.add(attr.name)
            _check_text((attr.name, attr.ref_attr_name), file, f"node {node.name!r}")
            _check_attribute(attr, depth, stack, scan, file)


def _check_attribute(
    attr: onnx.AttributeProto,
    depth: int,
    stack: list[tuple[onnx.GraphProto, int]],
    scan: ProtoScan,
    file: str,
) -> None:
    kind = attr.type
    if kind in (_KIND.GRAPH, _KIND.GRAPHS):
        graphs = [attr.g] if kind == _KIND.GRAPH else attr.graphs
        stack += [(graph, depth + 1) for graph in graphs]
    elif kind in (_KIND.TENSOR, _KIND.TENSORS) and not attr.ref_attr_name:
        for tensor in _tensors(attr):
            _check_tensor(tensor, scan, file)
    elif kind in (_KIND.SPARSE_TENSOR, _KIND.SPARSE_TENSORS):
        scan.sparse = True


def _tensors(attr: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attr.type == _KIND.TENSOR:
        yield attr.t
    else:
        yield from attr.tensors


def _check_tensor(tensor: onnx.TensorProto, scan: ProtoScan, file: str) -> None:
    where = f"tensor {tensor.name!r}"
    if tensor.data_type not in _DTYPES:
        raise ModelError(
            file,
            where,
            f"its element type {tensor.data_type} is not one that onnx knows",
        )
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    if tensor.data_type == onnx.TensorProto.STRING:
        raise ModelError(file, where, "strings cannot be external data")
    seen = set()
    for entry in tensor.external_data:
        if entry.key in seen:
            raise ModelError(file, where, f"its external data has two {entry.key!r}")
        seen.add(entry.key)
        if entry.key not in _EXTERNAL_KEYS:
            scan.odd_external = True
        # int() would also take signs, spaces and underscores.
        number = entry.value.isascii() and entry.value.isdecimal()
        if entry.key in ("offset", "length") and not number:
            raise ModelError(
                file, where, f"its {entry.key} {entry.value!r} is not a whole number"
            )
    if "location" not in seen:
        raise UnsafeModelError(file, where, "its external data has no location")
