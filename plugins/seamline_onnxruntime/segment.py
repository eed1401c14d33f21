"""
A segment that onnxruntime compiled, bound to fixed addresses.

Values at the edge are bound by address, so onnxruntime reads and writes them in place.
Two kinds cannot be: strings, which go through lists, and outputs whose size is found by
running, which onnxruntime allocates and we copy.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from seamline.errors import BuildError, ContractError, KernelError, RecordingError
from seamline.provider import Array, Recording, SegmentSpec, View
from seamline.tensors import dtype_name, numpy_dtype, onnx_dtype
from seamline_onnxruntime.model import SegmentModel, model_of
from seamline_onnxruntime.trial import reason_of

__all__ = ["OnnxRuntimeSegment"]

_PROVIDER = "onnxruntime"
_LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class OnnxRuntimeSegment:
    """
    A session over one segment. Implements :class:`~seamline.provider.Executable`.

    Raises
    ------
    BuildError
        onnxruntime does not load the segment; names the node.
    """

    def __init__(self, spec: SegmentSpec, options: Mapping[str, Any]) -> None:
        self.spec = spec
        model = model_of(spec, _PROVIDER)
        self._outside = model.outside  # the session reads these arrays, and keeps none
        try:
            self._session: Any = _session(model, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise self._failed(
                BuildError, error, _culprit(spec, error, options)
            ) from error
        self._run: Callable[[], Mapping[str, Array] | None] = _unbound
        self._held: Mapping[str, View] = {}

    def bind(
        self,
        views: Mapping[str, View],
        workspaces: Mapping[str, View],
        host: Mapping[str, Array] | None = None,
    ) -> None:
        """Bind inputs and outputs to the arrays given."""
        edge = [views[n] for n in self.spec.inputs]
        edge += [views[n] for n in self.spec.outputs if n in views]
        if any(dtype_name(array.dtype) == "string" for array in edge) or any(
            "string" in output.type for output in self._session.get_outputs()
        ):
            self._run = self._by_copy(views)
        else:
            self._run = self._in_place(views)

    def run(self) -> Mapping[str, Array] | None:
        """Run the session; give outputs that had no place, by name."""
        try:
            return self._run()
        except ContractError:
            raise
        except Exception as error:  # its exceptions share no base below Exception
            node = _named_in(self.spec, str(error))
            raise self._failed(KernelError, error, node) from error

    def record(self) -> Recording:
        """Refuse: onnxruntime's work cannot be replayed from outside."""
        raise RecordingError(
            "onnxruntime runs it behind its own interface, which cannot be recorded",
            provider=_PROVIDER,
            segment=self.spec.name,
            node=self.spec.nodes[0].name,
        )

    def close(self) -> None:
        """Give the session back."""
        self._session = None
        self._run = _unbound
        self._held = {}
        self._outside = {}

    def _in_place(
        self, views: Mapping[str, View]
    ) -> Callable[[], Mapping[str, Array] | None]:
        binding = self._session.io_binding()
        for name in self.spec.inputs:
            binding.bind_input(name, *_place(views[name]))
        found = [name for name in self.spec.outputs if name not in views]
        for name in self.spec.outputs:
            binding.bind_output(
                name, *(_place(views[name]) if name in views else ("cpu",))
            )
        run, order = self._session.run_with_iobinding, self.spec.outputs
        quiet = _quiet()
        self._held = dict(views)  # the binding knows addresses only

        def call() -> Mapping[str, Array] | None:
            for name in found:  # else it would be held to the size of the run before
                binding.bind_output(name, "cpu")
            run(binding, quiet)
            if not found:
                return None
            given = dict(zip(order, binding.get_outputs(), strict=True))
            return {name: _copied(given[name]) for name in found}

        return call

    def _by_copy(
        self, views: Mapping[str, View]
    ) -> Callable[[], Mapping[str, Array] | None]:
        feeds = {name: views[name] for name in self.spec.inputs}
        order = list(self.spec.outputs)
        session, quiet = self._session, _quiet()

        def call() -> Mapping[str, Array] | None:
            found = {}
            for name, result in zip(
                order, session.run(order, feeds, quiet), strict=True
            ):
                if name in views:
                    views[name][...] = result
                else:
                    found[name] = result
            return found or None

        return call

    def _failed(
        self, kind: type[BuildError | KernelError], error: Exception, node: str
    ) -> BuildError | KernelError:
        return kind(
            reason_of(error), provider=_PROVIDER, segment=self.spec.name, node=node
        )


def _quiet() -> Any:
    """Say nothing on standard error: what it would print is in the error that it raises."""
    options = ort.RunOptions()
    options.log_severity_level = 4
    return options


def _unbound() -> None:
    raise ContractError(_PROVIDER, "run was called on a segment that is not bound")


def _session(model: SegmentModel, options: Mapping[str, Any]) -> Any:
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = options.get("num_threads", 0)
    chosen.inter_op_num_threads = 1
    chosen.log_severity_level = (
        3  # its warnings are about models; these are our segments
    )
    chosen.graph_optimization_level = _LEVELS[
        options.get("graph_optimization_level", "all")
    ]
    spinning = "1" if options.get("allow_spinning", False) else "0"
    chosen.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    if model.outside:
        chosen.add_external_initializers(
            list(model.outside), [_value(a) for a in model.outside.values()]
        )
    return ort.InferenceSession(
        model.proto.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
    )


def _value(array: Array) -> Any:
    """Give a value over an array's own bytes."""
    kind = onnx_dtype(dtype_name(array.dtype))
    plain = array
    if plain.dtype.kind == "V":  # onnxruntime does not know ml_dtypes' types
        plain = plain.view(f"u{array.dtype.itemsize}")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(plain, int(kind))


def _place(array: Array) -> tuple[Any, ...]:
    kind = int(onnx_dtype(dtype_name(array.dtype)))
    return "cpu", 0, kind, array.shape, array.ctypes.data


def _copied(value: Any) -> Array:
    """Copy a value out of onnxruntime; works for types that its own copy does not know."""
    dtype = numpy_dtype(dtype_name(ir.DataType(value.element_type())))
    shape = tuple(value.shape())
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    raw = (ctypes.c_byte * nbytes).from_address(value.data_ptr())
    return np.frombuffer(memoryview(raw), dtype).reshape(shape).copy()


def _culprit(spec: SegmentSpec, error: Exception, options: Mapping[str, Any]) -> str:
    """Name the node that onnxruntime does not load: by its words, else by trying each."""
    named = _named_in(spec, str(error))
    if named or len(spec.nodes) == 1:
        return named or spec.nodes[0].name
    for node in spec.nodes:
        inputs = tuple(n for n in node.node.inputs if n and node.constants(n) is None)
        alone = SegmentSpec(node.name, (node,), inputs, node.node.writes, spec.opsets)
        try:
            _session(model_of(alone, _PROVIDER), options)
        except Exception:  # the first that fails alone is the answer
            return node.name
    return ""


def _named_in(spec: SegmentSpec, message: str) -> str:
    names = {node.name for node in spec.nodes}
    quoted = re.findall(r"""['"]([^'"]+)['"]""", message)
    return next((name for name in quoted if name in names), "")
