"""
ONNX's backend interface, for the standard's own test suite and for tools that speak it.

Devices are spelled as ONNX spells them: ``CPU``, ``CUDA``, ``CUDA:1``. A device stands for
the provider of that name.

Source: ``onnx.backend.base``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep as OnnxBackendRep

from seamline.discovery import discover
from seamline.errors import FeedError, ModelError, PlanError, ProviderError
from seamline.session import InferenceSession
from seamline.tensors import dtype_name, onnx_dtype

__all__ = [
    "Backend",
    "BackendRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class BackendRep(OnnxBackendRep):
    """
    A prepared model.

    Attributes
    ----------
    session
        The session that runs it.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """
        Run the model.

        Parameters
        ----------
        inputs
            Values in the order of the model's inputs, or a mapping by name, or one array
            for a model of one input.

        Raises
        ------
        FeedError
            The inputs do not fit.
        """
        _no_options(kwargs)
        names = [arg.name for arg in self.session.get_inputs()]
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(names):
                raise FeedError(
                    f"{len(inputs)} inputs were given, the model has {names}"
                )
            inputs = dict(zip(names, inputs, strict=False))
        return tuple(self.session.run(None, inputs))


class Backend(OnnxBackend):
    """Seamline as a backend; every method is of the class, as ONNX has them."""

    @classmethod
    def is_compatible(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> bool:
        """Tell whether a model can be opened on a device."""
        try:
            cls.prepare(model, device, **kwargs).session.close()
        except (ModelError, PlanError, ProviderError):
            return False
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> BackendRep:
        """
        Open a model on a device.

        Parameters
        ----------
        kwargs
            Keywords of :class:`~seamline.session.InferenceSession`; ``providers`` among
            them takes the place of the device.

        Raises
        ------
        ProviderError
            The device is none, or cannot be used here.
        """
        kwargs.setdefault("providers", _providers(device))
        return BackendRep(InferenceSession(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Open a model, run it once, close it."""
        prepared = cls.prepare(model, device, **kwargs)
        with prepared.session:
            return prepared.run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """
        Run one node.

        Parameters
        ----------
        inputs
            Arrays for the inputs that the node is given, in order; one array for one.
        outputs_info
            Element type and shape of each output; inferred where left out.
        kwargs
            ``opset_version`` (the newest that ONNX defines where left out), and keywords
            of :class:`~seamline.session.InferenceSession`.
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        model = _model_of(node, [np.asarray(a) for a in arrays], outputs_info, opset)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether a device's provider can be used here."""
        try:
            (entry,) = _providers(device)
            return discover().find(entry[0]).probe().usable
        except (ProviderError, ValueError):
            return False


def _providers(device: str) -> list[tuple[str, dict[str, Any]]]:
    kind, _, index = device.partition(":")
    options: dict[str, Any] = {}
    if index and (not index.isdigit() or (kind.upper() == "CPU" and int(index))):
        raise ProviderError(
            kind.lower(), f"there is no device {device!r}; an example: CUDA:1"
        )
    if index and int(index):
        options["device_id"] = int(index)
    return [(kind.lower(), options)]


def _no_options(given: Mapping[str, Any]) -> None:
    if given:
        raise TypeError(
            f"BackendRep.run takes no keyword {', '.join(map(repr, given))}"
        )


def _model_of(
    node: onnx.NodeProto,
    arrays: Sequence[np.ndarray[Any, Any]],
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None,
    opset: int,
) -> onnx.ModelProto:
    """Put a graph around a node."""
    names = list(dict.fromkeys(name for name in node.input if name))
    if len(names) != len(arrays):
        raise FeedError(f"the node reads {names}; {len(arrays)} inputs were given")
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx_dtype(dtype_name(a.dtype)), a.shape
        )
        for name, a in zip(names, arrays, strict=True)
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    if outputs_info is not None:
        outputs = [
            onnx.helper.make_tensor_value_info(
                value.name, onnx_dtype(dtype_name(np.dtype(dtype))), shape
            )
            for value, (dtype, shape) in zip(outputs, outputs_info, strict=True)
        ]
    graph = onnx.helper.make_graph([node], node.op_type, inputs, outputs)
    imports = [onnx.helper.make_opsetid("", opset)]
    if node.domain:
        imports.append(onnx.helper.make_opsetid(node.domain, 1))
    model = onnx.helper.make_model(graph, opset_imports=imports)
    model.ir_version = min(model.ir_version, 10)
    return (
        model if outputs_info is not None else onnx.shape_inference.infer_shapes(model)
    )


def is_compatible(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
    """See :meth:`Backend.is_compatible`."""
    return Backend.is_compatible(model, device, **kwargs)


def prepare(model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
    """See :meth:`Backend.prepare`."""
    return Backend.prepare(model, device, **kwargs)


def run_model(
    model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
) -> tuple[Any, ...]:
    """See :meth:`Backend.run_model`."""
    return Backend.run_model(model, inputs, device, **kwargs)


def run_node(
    node: onnx.NodeProto,
    inputs: Any,
    device: str = "CPU",
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """See :meth:`Backend.run_node`."""
    return Backend.run_node(node, inputs, device, outputs_info, **kwargs)


def supports_device(device: str) -> bool:
    """See :meth:`Backend.supports_device`."""
    return Backend.supports_device(device)
