"""
A user's model as cases: each node with the shapes, types and values that it really meets.

The model is run once over onnxruntime, or onnx.reference, with every intermediate value
asked for; each node then becomes a model of one node. Weights stay constants, so that
they are folded and packed as in the model itself. Where neither runs the model, types are
inferred and values made up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from seamline.errors import SeamlineError
from seamline.provider import Array
from seamline.samples import sample_feeds
from seamline.tensors import TensorType, dtype_name, onnx_dtype
from seamline_testing.numerics import case_check
from seamline_testing.oracles import by_onnxruntime, by_reference
from seamline_testing.results import Check
from seamline_testing.suites import Case, onnx_dtype_of
from seamline_testing.values import plain

__all__ = ["ModelCasesError", "cases_of", "model_checks"]

_SIZE = 2  #: what a size that the model leaves open counts as


class ModelCasesError(SeamlineError):
    """The model cannot be read, or gives no case."""


def model_checks(path: Path) -> tuple[Check, ...]:
    """
    Give one check for each node of a model's main graph.

    Raises
    ------
    ModelCasesError
        The file is no model, or no node of it has values.
    """
    return tuple(map(case_check, cases_of(path)))


@functools.cache
def cases_of(path: Path) -> tuple[Case, ...]:
    """Give one case for each node whose inputs are tensors that are known."""
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's and the system's errors have no common root
        raise ModelCasesError(f"{path}: {type(error).__name__}: {error}") from error
    values, stored = _values(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    found = [
        _case(path, model, index, node, values, weights, stored=stored)
        for index, node in enumerate(model.graph.node)
        if _is_case(node, values)
    ]
    if not found:
        raise ModelCasesError(f"{path}: no node of it has tensors of known values")
    return tuple(found)


def _is_case(node: onnx.NodeProto, values: Mapping[str, Any]) -> bool:
    if node.op_type == "Constant" or any(a.HasField("g") for a in node.attribute):
        return False
    names = [name for name in (*node.input, *node.output) if name]
    return all(isinstance(values.get(name), np.ndarray) for name in names)


def _values(model: onnx.ModelProto) -> tuple[dict[str, Any], bool]:
    """Give every value that can be found by name, and whether a runtime gave them."""
    held = {t.name: plain(t) for t in model.graph.initializer}
    feeds = _feeds(model, held)
    names = [name for node in model.graph.node for name in node.output if name]
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    outputs = {value.name for value in wide.graph.output}
    known = _types(model)
    for name in dict.fromkeys(names):
        if name not in outputs:
            wide.graph.output.append(known.get(name, onnx.ValueInfoProto(name=name)))
    for ask in (by_onnxruntime, by_reference):
        try:
            given = ask(wide, feeds)
        except Exception:  # the next one is asked, and then nobody is
            continue
        made = [value.name for value in wide.graph.output]
        return {
            **held,
            **feeds,
            **dict(zip(made, map(plain, given), strict=True)),
        }, True
    made_up = sample_feeds({n: _kind(v) for n, v in known.items() if _kind(v)}, dims={})
    return {**made_up, **held, **feeds}, False


def _types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # inference refuses what a runtime may well run
        inferred = model
    return {value.name: value for value in inferred.graph.value_info}


def _feeds(model: onnx.ModelProto, held: Mapping[str, Any]) -> dict[str, Array]:
    types = {
        value.name: _kind(value)
        for value in model.graph.input
        if value.name not in held
    }
    open_ = [
        d for k in types.values() if k for d in k.shape or () if isinstance(d, str)
    ]
    return sample_feeds(types, dims=dict.fromkeys(open_, _SIZE))


def _kind(value: onnx.ValueInfoProto) -> TensorType | None:
    tensor = value.type.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    dims = [
        int(d.dim_value) if d.HasField("dim_value") else d.dim_param or f"?{axis}"
        for axis, d in enumerate(tensor.shape.dim)
    ]
    return TensorType(dtype_name(onnx_dtype_of(tensor.elem_type)), tuple(dims))


def _case(
    path: Path,
    model: onnx.ModelProto,
    index: int,
    node: onnx.NodeProto,
    values: Mapping[str, Array],
    weights: Iterable[str],
    *,
    stored: bool,
) -> Case:
    constant = {name: values[name] for name in node.input if name and name in weights}
    fed = {
        name: values[name]
        for name in dict.fromkeys(node.input)
        if name and name not in constant
    }
    made = {name: values[name] for name in node.output if name}
    graph = helper.make_graph(
        [node], "one", _infos(fed), _infos(made),
        [onnx.numpy_helper.from_array(_storable(x), name) for name, x in constant.items()],
    )  # fmt: skip
    one = helper.make_model(
        graph, opset_imports=list(model.opset_import), ir_version=model.ir_version,
        functions=list(model.functions),
    )  # fmt: skip
    name = re.sub(r"[^\w.:-]+", "_", node.name or f"{node.op_type}_{index}")
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    first = next(iter((*fed.values(), *made.values())), None)
    return Case(
        f"model/{path.stem}/{index:04}_{name}", one,
        ((tuple(fed.values()), tuple(made.values()) if stored else ()),), operator,
        opsets.get(node.domain, 0), "" if first is None else dtype_name(first.dtype),
    )  # fmt: skip


def _storable(x: Array) -> Array:
    return x.astype(str) if x.dtype == object else x


def _infos(values: Mapping[str, Array]) -> Sequence[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(
            name, int(onnx_dtype(dtype_name(x.dtype))), x.shape
        )
        for name, x in values.items()
    ]
