"""
ONNX's own suites as cases: the node suite, and the models stored in the onnx package.

They come from the onnx that is installed, so a newer onnx brings its newer cases.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx

from seamline.tensors import dtype_name, onnx_dtype
from seamline_testing.values import plain

__all__ = ["STORED_KINDS", "Case", "node_cases", "operator_of", "stored_cases"]

#: Kinds of models whose files lie in the onnx package.
STORED_KINDS = ("simple", "pytorch-converted", "pytorch-operator")
#: onnx's converter leaves these slopes one per channel; opset 7 aligns the last axes.
_MISCONVERTED = frozenset(f"test_PReLU_{rank}d_multiparam" for rank in (1, 2, 3))
_OLDEST = 7  #: opsets below it are converted, which is what the core's error says to do


@attrs.frozen(eq=False)
class Case:
    """
    A model with inputs, and what its author says comes of them.

    Attributes
    ----------
    data
        Pairs of inputs and outputs in the model's order; outputs are empty where nothing
        is stored.
    operator, opset, dtype
        What it is about; ``dtype`` is that of its first tensor.
    not_right
        Why the model itself cannot be held to its values; empty for nearly all.
    """

    id: str
    model: onnx.ModelProto
    data: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    operator: str
    opset: int
    dtype: str
    not_right: str = ""

    def feeds(self, index: int = 0) -> dict[str, Any]:
        """Give the inputs of a data set by name, as a session takes them."""
        fixed = {tensor.name for tensor in self.model.graph.initializer}
        inputs = list(self.model.graph.input)
        given = self.data[index][0]
        if len(given) < len(inputs):
            inputs = [one for one in inputs if one.name not in fixed]
        return {
            one.name: plain(value) for one, value in zip(inputs, given, strict=False)
        }

    def stored(self, index: int = 0) -> list[Any]:
        """Give the outputs of a data set."""
        return [plain(value) for value in self.data[index][1]]

    @property
    def operators(self) -> frozenset[str]:
        """Give the types of its nodes, bodies left out."""
        return frozenset(node.op_type for node in self.model.graph.node)

    @property
    def only_node(self) -> onnx.NodeProto | None:
        """Give its node if it has one alone, of ONNX's own domain and without bodies."""
        nodes = self.model.graph.node
        if len(nodes) != 1 or nodes[0].domain or self.model.functions:
            return None
        bodies = any(attribute.HasField("g") for attribute in nodes[0].attribute)
        return None if bodies else nodes[0]


@functools.cache
def node_cases() -> tuple[Case, ...]:
    """Give every case of the installed onnx's node suite."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # onnx makes some inputs by division by zero
        from onnx.backend.test.case.node import collect_testcases

        found: Any = collect_testcases(None)
    return tuple(
        Case(
            f"numerics/node/{case.name.removeprefix('test_')}",
            case.model,
            tuple((tuple(given), tuple(wanted)) for given, wanted in case.data_sets),
            operator_of(case.name, case.model),
            opset_of(case.model),
            dtype_of(case.model),
        )
        for case in found
    )


def operator_of(name: str, model: onnx.ModelProto) -> str:
    """Give the operator that a case is about, whether or not it is written out."""
    graph = model.graph
    node = graph.node[-1]
    if len(graph.node) == 1:
        return f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    # A function that is written out prefixes its values with the operator's name.
    inner = next(
        (n for item in graph.node for n in item.output if f"_{name}_" in n), ""
    )
    return inner.partition("_test_")[0] or node.op_type


def opset_of(model: onnx.ModelProto) -> int:
    """Give the version of the domain that the model is about."""
    imports = {entry.domain: entry.version for entry in model.opset_import}
    domain = model.graph.node[-1].domain if model.graph.node else ""
    return int(imports.get(domain, imports.get("", 0)))


def dtype_of(model: onnx.ModelProto) -> str:
    """Give the element type of the first input, or output, that is a tensor."""
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.tensor_type.elem_type
        if kind:
            return dtype_name(onnx_dtype_of(kind))
    return ""


def onnx_dtype_of(kind: int) -> Any:
    """Give onnx_ir's member for a number of ``TensorProto``."""
    return type(onnx_dtype("float32"))(kind)


@functools.cache
def stored_cases(kind: str) -> tuple[Case, ...]:
    """Give the models of a kind that lie in the onnx package, read when first asked for."""
    from onnx.backend.test.loader import load_model_tests

    return tuple(
        _stored(case.name, Path(case.model_dir), kind)
        for case in load_model_tests(kind=kind)
        if case.model_dir
    )


def _stored(name: str, folder: Path, kind: str) -> Case:
    model = onnx.load(folder / "model.onnx")
    fixed = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in fixed]
    data = tuple(
        (
            tuple(_values(one, "input", inputs)),
            tuple(_values(one, "output", list(model.graph.output))),
        )
        for one in sorted(folder.glob("test_data_set_*"))
    )
    short = name.removeprefix("test_")
    return Case(
        f"numerics/{kind}/{short}", _readable(model), data, operator_of(name, model),
        opset_of(model), dtype_of(model),
        "onnx's converter to opset 7 misplaces its slopes" if name in _MISCONVERTED else "",
    )  # fmt: skip


def _readable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a model older than what is read, as the error of the core says to do."""
    from onnx import version_converter

    version = next((e.version for e in model.opset_import if not e.domain), _OLDEST)
    if version >= _OLDEST:
        return model
    return version_converter.convert_version(model, _OLDEST)


def _values(folder: Path, stem: str, protos: list[Any]) -> Iterator[Any]:
    for index, proto in enumerate(protos):
        path = folder / f"{stem}_{index}.pb"
        if path.exists():
            message: Any = {
                "sequence_type": onnx.SequenceProto,
                "optional_type": onnx.OptionalProto,
            }.get(proto.type.WhichOneof("value"), onnx.TensorProto)()
            message.ParseFromString(path.read_bytes())
            yield message
