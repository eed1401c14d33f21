"""
Inputs and outputs bound once and used by many runs.

A bound input is read anew by every run, so what its owner writes between two runs counts.
Bound outputs are written when the whole run is done and every one of them fits: an input
and an output may share memory, as the state of a decoder does, and a run that fails
leaves all of them as they were.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seamline.errors import FeedError, near
from seamline.ortvalue import OrtValue, element_name, require_host
from seamline.tensors import (
    TensorType,
    ValueType,
    dtype_name,
    numpy_dtype,
    type_of_array,
)

if TYPE_CHECKING:
    from seamline.session import InferenceSession

__all__ = ["IOBinding"]


class IOBinding:
    """
    What a session reads and writes in :meth:`InferenceSession.run_with_iobinding`.

    Everything lies on the host; another device raises
    :class:`~seamline.unsupported.UnsupportedError`.

    Parameters
    ----------
    session
        The session whose inputs and outputs are bound.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._input_names = [arg.name for arg in session.get_inputs()]
        self._input_names += [
            arg.name for arg in session.get_overridable_initializers()
        ]
        self._output_names = [arg.name for arg in session.get_outputs()]
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, OrtValue | None] = {}
        self._results: dict[str, OrtValue] = {}

    @property
    def session(self) -> InferenceSession:
        """Give the session that it belongs to."""
        return self._session

    @property
    def feeds(self) -> Mapping[str, Any]:
        """Give the inputs bound so far."""
        return self._inputs

    @property
    def output_names(self) -> list[str]:
        """Give the outputs bound so far, in the order of binding."""
        return list(self._targets)

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array, or anything that :meth:`InferenceSession.run` takes; not copied."""
        self._inputs[self._known("input", name, self._input_names)] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value."""
        self._inputs[self._known("input", name, self._input_names)] = _value(ortvalue)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """
        Bind memory of the host by its address.

        Parameters
        ----------
        element_type
            A NumPy dtype, or a number of ``onnx.TensorProto``.
        shape
            Sizes; the elements lie in C order.
        buffer_ptr
            Address of the first byte. The owner keeps the memory alive, at this address,
            until the input is bound anew or cleared; nothing here can check that.
        """
        require_host(f"input {name!r}", device_type, device_id)
        known = self._known("input", name, self._input_names)
        self._inputs[known] = _array_at(name, buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """
        Bind an output: to memory by its address, or to memory that each run allocates.

        Parameters
        ----------
        element_type, shape, buffer_ptr
            As for :meth:`bind_input`, all three; without an address the run allocates
            and the other two are not needed.
        """
        require_host(f"output {name!r}", device_type, device_id)
        self._known("output", name, self._output_names)
        target = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise FeedError(
                    f"output {name!r}: buffer_ptr needs element_type and shape"
                )
            array = _array_at(name, buffer_ptr, element_type, shape)
            target = OrtValue(
                array, type_of_array(array)
            )  # never a copy, as of() may make
        self._bind_target(name, target)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """
        Bind an output to a tensor, which runs write into.

        Raises
        ------
        FeedError
            The model declares another element type, or the memory is read-only.
        """
        self._known("output", name, self._output_names)
        value = _value(ortvalue)
        declared = self._session.output_type(name)
        if not value.is_tensor():
            raise FeedError(
                f"output {name!r}: only a tensor can be written into, not {value}"
            )
        if isinstance(declared, TensorType):
            _check_target(name, value, declared.dtype, None)
        if not value.value.flags.writeable:
            raise FeedError(f"output {name!r}: the memory bound to it is read-only")
        self._bind_target(name, value)

    def _bind_target(self, name: str, target: OrtValue | None) -> None:
        self._targets[name] = target
        self._results.pop(name, None)

    def deliver(self, results: Sequence[Any]) -> None:
        """
        Take the results of a run, in the order of ``output_names``.

        Raises
        ------
        FeedError
            A result does not fit the memory bound for it; none is written then.
        """
        pairs = list(zip(self._targets.items(), results, strict=True))
        for (name, target), result in pairs:
            if target is not None:
                _check_target(name, target, dtype_name(result.dtype), result.shape)
        for (name, target), result in pairs:
            if target is None:
                self._results[name] = OrtValue.of(result, self._kind_of(name, result))
            else:
                target.update_inplace(result)
                self._results[name] = target

    def _kind_of(self, name: str, result: Any) -> ValueType | None:
        return (
            None if isinstance(result, np.ndarray) else self._session.output_type(name)
        )

    def get_outputs(self) -> list[OrtValue]:
        """
        Give the outputs of the last run, in the order of binding.

        Raises
        ------
        FeedError
            No run has filled one that is bound.
        """
        empty = [name for name in self._targets if name not in self._results]
        if empty:
            raise FeedError(
                f"outputs {empty} have no value yet; run_with_iobinding first"
            )
        return [self._results[name] for name in self._targets]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Give the same as :meth:`get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Give copies of the outputs of the last run as arrays."""
        return [value.numpy() for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Bind no input."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Bind no output, and forget the results."""
        self._targets.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Return at once: inputs on the host are read when the run begins."""

    def synchronize_outputs(self) -> None:
        """Return at once: a run returns when its outputs are complete."""

    def _known(self, what: str, name: str, names: Sequence[str]) -> str:
        if name not in names:
            known = ", ".join(names) or "none"
            raise FeedError(
                f"Invalid {what} name: {name!r}{near(name, names)} (there are: {known})"
            )
        return name


def _value(ortvalue: object) -> OrtValue:
    if not isinstance(ortvalue, OrtValue):
        raise FeedError(
            f"{type(ortvalue).__name__} is no OrtValue; wrap it by OrtValue.ortvalue_from_numpy"
        )
    return ortvalue


def _check_target(
    name: str, target: OrtValue, dtype: str, shape: tuple[int, ...] | None
) -> None:
    array = target.value
    if dtype_name(array.dtype) != dtype or shape not in (None, array.shape):
        sizes = "" if shape is None else str(list(shape))
        raise FeedError(
            f"output {name!r} is {dtype}{sizes}; the memory bound to it is "
            f"{dtype_name(array.dtype)}{list(array.shape)}"
        )


def _array_at(
    name: str, address: int, element_type: Any, shape: Sequence[int]
) -> np.ndarray[Any, Any]:
    """Give an array over memory that somebody else owns."""
    sizes = tuple(int(size) for size in shape)
    dtype = numpy_dtype(element_name(element_type))
    if dtype.hasobject:
        raise FeedError(f"{name!r}: strings have no address; bind an OrtValue")
    if any(size < 0 for size in sizes):
        raise FeedError(f"{name!r}: sizes are 0 or more, not {list(sizes)}")
    count = math.prod(sizes)
    if not count:
        return np.empty(sizes, dtype)
    if address <= 0:
        raise FeedError(f"{name!r}: {address!r} is no address")
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.asarray(memory).view(dtype).reshape(sizes)
