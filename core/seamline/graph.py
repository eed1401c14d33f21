"""
The ONNX graph as seamline reads it: frozen, sorted, every name unique.

A :class:`Graph` is a view over an ``onnx_ir`` model. What it adds is what the later
stages rely on: nodes stand in topological order, functions are inlined, ``Constant``
nodes have become constants, a name means one value in the whole model (bodies of
control flow included), and every body knows which outer values it captures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import attrs
import numpy as np
import onnx_ir as ir

from seamline.collector import collector_paused
from seamline.errors import ModelError
from seamline.external_data import MappedTensor
from seamline.limits import LoadLimits
from seamline.tensors import ValueType

if TYPE_CHECKING:
    import onnx

__all__ = ["Graph", "Node", "load"]


@attrs.frozen(eq=False)
class Node:
    """
    One node.

    Attributes
    ----------
    name
        Unique in the model.
    since_version
        The opset version that last changed the operator, for this model's imports;
        the import's own version where ONNX has no definition of the operator.
    inputs, outputs
        Value names; '' for one that is left out.
    attributes
        Python values: int, float, str, tuples of them, ndarrays for tensors.
    bodies
        Sub-graphs by attribute name.
    captures
        Outer values that the bodies read, at any depth, each once, in first use.
    source
        The node in the IR.
    """

    name: str
    op_type: str
    domain: str
    since_version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    source: ir.Node = attrs.field(repr=False)
    bodies: Mapping[str, Graph] = attrs.field(factory=dict, repr=False)
    captures: tuple[str, ...] = ()

    #: Every value the node depends on, captures included.
    reads: tuple[str, ...] = attrs.field(
        init=False,
        repr=False,
        default=attrs.Factory(lambda node: _reads(node), takes_self=True),
    )
    #: The outputs that are asked for.
    writes: tuple[str, ...] = attrs.field(
        init=False,
        repr=False,
        default=attrs.Factory(lambda node: _given(node.outputs), takes_self=True),
    )

    @property
    def qualified_op(self) -> str:
        """Give ``domain::Op``, or the bare name for ONNX's own domain."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def to_proto(self) -> onnx.NodeProto:
        """Give the node in ONNX's own form."""
        return ir.to_proto(self.source)

    def __str__(self) -> str:
        return f"{self.name} ({self.qualified_op})"


def _given(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([name for name in names if name])


def _reads(node: Node) -> tuple[str, ...]:
    return _given(node.inputs) + node.captures


@attrs.frozen(eq=False)
class Graph:
    """
    A graph, or the body of a control-flow node.

    Attributes
    ----------
    file
        Where the model came from, for messages.
    inputs, outputs
        In the order of the file. An input that has a default is in ``constants`` too, see
        ``overridable``; an output may be an input, a constant, or named twice.
    types
        Declared types, by name, for the whole model (names are unique in it); a value
        that declares none is left out. Inference adds more.
    constants
        Initializers and values of Constant nodes, of this graph alone. Their data stays
        in the file until asked for.
    opsets
        Imported version by domain; '' is ONNX's own.
    captures
        Outer values that are read here or in bodies of it; empty for a main graph.
    values
        The IR's value for each name of the whole model.
    model
        The IR model; shared with bodies.
    keep
        Whatever must live as long as the graph; the mappings of external data close when
        the last graph that holds them is gone.
    """

    name: str
    file: str
    nodes: tuple[Node, ...] = attrs.field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, ValueType | None] = attrs.field(repr=False)
    constants: Mapping[str, ir.TensorProtocol] = attrs.field(repr=False)
    opsets: Mapping[str, int]
    values: Mapping[str, ir.Value] = attrs.field(repr=False)
    model: ir.Model = attrs.field(repr=False)
    captures: tuple[str, ...] = ()
    keep: object = attrs.field(default=None, repr=False)
    _arrays: dict[str, np.ndarray[Any, Any]] = attrs.field(factory=dict, repr=False)
    _unpacked: MutableMapping[str, np.ndarray[Any, Any]] = attrs.field(
        factory=WeakValueDictionary, repr=False
    )

    @property
    def overridable(self) -> tuple[str, ...]:
        """
        Give the inputs that have a default (an initializer of the same name).

        ``constant`` gives the default; it is no constant once a caller feeds the input.
        """
        return tuple(name for name in self.inputs if name in self.constants)

    def walk(self) -> Iterator[Node]:
        """Give every node, those of bodies after their owner, without recursion."""
        stack = [iter(self.nodes)]
        while stack:
            for node in stack[-1]:
                yield node
                if node.bodies:
                    stack += [
                        iter(body.nodes)
                        for body in reversed(list(node.bodies.values()))
                    ]
                    break
            else:
                stack.pop()

    def graphs(self) -> Iterator[Graph]:
        """Give this graph and every body in it, at any depth."""
        yield self
        for node in self.walk():
            yield from node.bodies.values()

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """
        Give a constant of this graph as a read-only array, or None.

        External data is a view of the mapped file; packed 4-bit types are unpacked.

        Raises
        ------
        ModelError
            Its numbers are none that its element type has, or its file has changed.
        """
        array = self._arrays.get(name, self._unpacked.get(name))
        if array is None and name in self.constants:
            tensor = self.constants[name]
            try:
                array = read_only(tensor)
            except ValueError as error:  # numbers that its element type does not have
                raise ModelError(self.file, f"tensor {name!r}", str(error)) from error
            # What is unpacked is no view of the file: kept while somebody has it.
            packed = tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth < 8
            kept = self._unpacked if packed else self._arrays
            kept[name] = array
        return array

    def rest(self, name: str) -> None:
        """Let go of the memory of a constant in a file; asked for again, it is read again."""
        tensor = self.constants.get(name)
        if isinstance(tensor, MappedTensor):
            # A copy, where the file's bytes are not aligned.
            self._arrays.pop(name, None)
            tensor.rest()


def read_only(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """Give a tensor's value as an array that refuses to be written."""
    if tensor.dtype == ir.DataType.STRING:
        # Not through tensor.numpy(): NumPy's bytes type cuts trailing NULs.
        flat = [item.decode("utf-8") for item in tensor.string_data()]  # type: ignore[attr-defined]
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        array = array.reshape(tuple(tensor.shape.numpy()))
    else:
        array = np.asarray(tensor.numpy()).view()
        if not array.flags.aligned:  # compiled kernels read whole elements
            array = array.copy()
    array.flags.writeable = False
    return array


def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    *,
    limits: LoadLimits | None = None,
    strict: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> Graph:
    """
    Load a model.

    Nothing in a model is run, and no setting is read from it. The source is not changed.
    Large tensors are read from the files, mapped, whenever they are used: replace such a
    file by another one, but do not write into it while the graph is in use.

    Parameters
    ----------
    source
        A path, the bytes of a model, a ``ModelProto`` or an ``onnx_ir.Model``. A
        ``ModelProto`` stays referenced by the tensors in it: do not change it afterwards.
    limits
        Caps for files that nobody vouches for; see :class:`seamline.limits.LoadLimits`.
    strict
        Refuse what the standard forbids and files in use do all the same: nodes out of
        order, and names of an outer graph defined again in a body.
    folder
        Where external data lies if ``source`` is not a path; without it such data is
        refused.

    Returns
    -------
    Graph
        The model's main graph.

    Raises
    ------
    ModelError
        It is no model, or not a valid one, or needs a newer ONNX; names file and subject.
    UnsafeModelError
        Its external data leaves its folder, or it goes past a limit.
    FileNotFoundError, PermissionError
        As ``open`` raises them, for the model's own file.
    """
    # These modules read this one's classes; the front door stays here all the same.
    from seamline.building import build_graph
    from seamline.model_file import read_model

    limits = limits or LoadLimits()
    with collector_paused():
        opened = read_model(source, limits, folder)
        try:
            return build_graph(opened, limits, strict=strict)
        except BaseException:
            # The error's traceback would keep the model's files mapped.
            opened.keep.close()
            raise
