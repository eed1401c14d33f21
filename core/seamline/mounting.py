"""Every tensor of an IR model, checked and set over the bytes it will be read from."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from typing import Protocol

import attrs
import onnx_ir as ir
from onnx_ir.serde import TensorProtoTensor

from seamline.errors import ModelError
from seamline.external_data import DataFolder
from seamline.limits import LoadLimits
from seamline.naming import walk_graphs
from seamline.tensor_data import TensorBudget, check_stored, check_text

__all__ = ["StandIns", "mount_tensors"]

_KIND = ir.AttributeType
_Swap = Callable[[ir.TensorProtocol], ir.TensorProtocol]


class StandIns(Protocol):
    """Tensors that were taken out of a proto before the IR was made of it."""

    def given(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol | None:
        """Give what a tensor stands for, or None if it stands for itself."""


def mount_tensors(
    model: ir.Model,
    home: DataFolder,
    limits: LoadLimits,
    *,
    stand_ins: Sequence[StandIns] = (),
    trust_base_dir: bool = False,
) -> None:
    """
    Check each tensor, and map those whose data is external.

    Parameters
    ----------
    stand_ins
        Who knows which tensor stands in for another.
    trust_base_dir
        Take the folder from the tensors themselves: the caller made them.

    Raises
    ------
    ModelError, UnsafeModelError
        Names the tensor and the reason.
    """
    mount = _Mount(home, limits, stand_ins, trust_base_dir)
    roots = [model.graph, *(function.graph for function in model.functions.values())]
    for root in roots:
        for graph, nodes in walk_graphs(root):
            for value in graph.initializers.values():
                if value.const_value is not None:
                    value.const_value = mount(value.const_value)
            for node in nodes:
                if node.attributes:
                    _swap_attributes(node.attributes, mount)
    for function in model.functions.values():
        _swap_attributes(function.attributes, mount)


def _swap_attributes(attributes: MutableMapping[str, ir.Attr], swap: _Swap) -> None:
    for name, attr in list(attributes.items()):
        if attr.is_ref() or attr.value is None:
            continue
        if attr.type == _KIND.TENSOR:
            attributes[name] = ir.AttrTensor(name, swap(attr.as_tensor()))
        elif attr.type == _KIND.TENSORS:
            tensors = [swap(tensor) for tensor in attr.as_tensors()]
            attributes[name] = ir.AttrTensors(name, tensors)


def _dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    if isinstance(tensor, TensorProtoTensor):  # it makes a shape anew each time
        return tuple(tensor.raw.dims)
    return tuple(tensor.shape.numpy())


@attrs.define(eq=False)
class _Mount:
    """Gives the tensor to use in place of one that was read."""

    home: DataFolder
    limits: LoadLimits
    stand_ins: Sequence[StandIns]
    trust_base_dir: bool
    budget: TensorBudget = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.budget = TensorBudget(self.home.file, self.limits)

    def __call__(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        dims = _dims(tensor)
        nbytes = self.budget.spend(tensor.name, tensor.dtype, dims)
        for known in self.stand_ins:
            if (given := known.given(tensor)) is not None:
                return given
        if isinstance(tensor, ir.ExternalTensor):
            return self._folder_of(tensor).open(tensor, nbytes)
        if isinstance(tensor, TensorProtoTensor):
            check_stored(self.home.file, tensor.raw, nbytes)
        elif isinstance(tensor, ir.StringTensor):
            self._check_strings(tensor, dims)
        return tensor

    def _folder_of(self, tensor: ir.ExternalTensor) -> DataFolder:
        if self.trust_base_dir and tensor.base_dir:
            return attrs.evolve(self.home, beside=(os.path.realpath(tensor.base_dir),))
        return self.home

    def _check_strings(self, tensor: ir.StringTensor, dims: tuple[int, ...]) -> None:
        items = tensor.string_data()
        where = f"tensor {tensor.name!r}"
        if len(items) != tensor.size:
            raise ModelError(
                self.home.file,
                where,
                f"STRING{list(dims)} needs {tensor.size} strings; it has {len(items)}",
            )
        check_text(self.home.file, where, items)
