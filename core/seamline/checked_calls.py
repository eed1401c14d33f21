"""
Calls on providers, checked: what comes back is what the contract says, or who broke it.

A provider's own exception says nothing of seamline's; here it becomes an error that names
the provider and the call. What a call gives is looked at before anything rests on it: a
buffer shorter than was asked for would be written past its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import attrs
import numpy as np

from seamline.device_tensor import DeviceTensor, taking
from seamline.engine import Engine
from seamline.errors import (
    BuildError,
    ContractError,
    KernelError,
    RunError,
    SeamlineError,
)
from seamline.fetched_arrays import giving
from seamline.planned import Segment
from seamline.provider import (
    Array,
    Buffer,
    Device,
    Executable,
    Gauges,
    Growing,
    GrowingMemory,
    Memory,
    Provider,
    SegmentSpec,
    View,
    VirtualMemory,
)
from seamline.tensors import TensorType, ValueType, numpy_dtype

__all__ = ["CheckedMemory", "built", "check_found", "close", "memory_of"]

T = TypeVar("T")
_MEMORY = ("allocate", "view", "write", "read", "synchronize", "gauges")
_EXECUTABLE = ("bind", "run", "record", "close")


@attrs.frozen(eq=False)
class CheckedMemory:
    """
    A provider's memory whose failures name the provider and the call.

    Implements :class:`~seamline.provider.Memory`.
    """

    inner: Memory
    provider: str

    @property
    def device(self) -> Device:
        """Say which device."""
        return self.inner.device

    @property
    def virtual(self) -> VirtualMemory | None:
        """Give the device's virtual memory, if it has any."""
        return self.inner.virtual

    def allocate(self, nbytes: int) -> Buffer:
        """
        Allocate bytes.

        Raises
        ------
        BuildError
            It raised an error that is none of seamline's.
        ContractError
            What it gave is no buffer of at least so many bytes.
        """
        what = f"allocate {nbytes} bytes"
        buffer = self._call(BuildError, what, self.inner.allocate, nbytes)
        given = getattr(buffer, "nbytes", None)
        if not isinstance(given, int) or given < nbytes:
            if hasattr(buffer, "close"):
                buffer.close()
            gave = f"a buffer of {given} bytes" if given is not None else repr(buffer)
            raise ContractError(self.provider, f"{what}: it gave {gave}")
        return buffer

    def reserve(self, nbytes: int) -> Growing:
        """
        Reserve addresses for a buffer that grows.

        Raises
        ------
        ContractError
            The provider's memory has no such buffers.
        """
        if not self.grows:
            why = f"its memory has no reserve(); {nbytes} bytes were to grow"
            raise ContractError(self.provider, why)
        reserve: Callable[[int], Growing] = cast(Any, self.inner).reserve
        return self._call(BuildError, f"reserve {nbytes} bytes", reserve, nbytes)

    @property
    def grows(self) -> bool:
        """Tell whether it offers buffers that grow."""
        return getattr(self.inner, "grows", isinstance(self.inner, GrowingMemory))

    def view(self, buffer: Buffer, offset: int, kind: TensorType) -> View:
        """Show bytes of a buffer as a tensor."""
        give = self.inner.view
        return self._call(BuildError, f"view {kind}", give, buffer, offset, kind)

    def write(self, target: View, source: Array) -> None:
        """Copy from the host."""
        what = f"write {source.nbytes} bytes"
        self._call(KernelError, what, self.inner.write, target, source)

    def read(self, source: View, target: Array) -> None:
        """Copy to the host."""
        what = f"read {target.nbytes} bytes"
        self._call(KernelError, what, self.inner.read, source, target)

    @property
    def gives_arrays(self) -> bool:
        """Say whether it gives arrays for what is read."""
        return giving(self.inner) is not None

    def array(self, kind: TensorType) -> Array:
        """
        Give an array to read into.

        Raises
        ------
        ContractError
            What it gave is no array of that type, or cannot be written.
        """
        give = cast("Any", self.inner).array
        made: object = self._call(KernelError, f"give an array of {kind}", give, kind)
        if (
            not isinstance(made, np.ndarray)
            or (made.shape, made.dtype) != (kind.sizes, numpy_dtype(kind.dtype))
            or not (made.flags.writeable and made.flags.c_contiguous)
        ):
            raise ContractError(
                self.provider, f"give an array of {kind}: it gave {made!r:.80}"
            )
        return made

    @property
    def takes_tensors(self) -> bool:
        """Say whether tensors of other libraries can be fed to it."""
        return taking(self.inner) is not None

    def take(self, target: View, source: DeviceTensor) -> None:
        """Copy a tensor that was fed on the device."""
        what = f"take a tensor of {source.kind}"
        self._call(KernelError, what, cast("Any", self.inner).take, target, source)

    def fetch(self, source: DeviceTensor, target: Array) -> None:
        """Copy a tensor that was fed to the host."""
        what = f"fetch a tensor of {source.kind}"
        self._call(KernelError, what, cast("Any", self.inner).fetch, source, target)

    def synchronize(self) -> None:
        """Wait for everything that was submitted."""
        self._call(KernelError, "synchronize", self.inner.synchronize)

    def gauges(self) -> Gauges:
        """Give the bytes held now."""
        return self.inner.gauges()

    def _call(
        self, kind: type[RunError], what: str, function: Callable[..., T], *given: Any
    ) -> T:
        try:
            return function(*given)
        except SeamlineError:
            raise
        except Exception as error:
            said = f"{what} on {self.device}: {type(error).__name__}: {error}"
            raise kind(said, provider=self.provider) from error


def memory_of(provider: Provider) -> Memory | None:
    """
    Ask a provider for its device's memory.

    Raises
    ------
    ContractError
        It raised, or gave something that is no memory; names what is missing.
    """
    try:
        memory = provider.memory()
    except SeamlineError:
        raise
    except Exception as error:
        said = f"memory() raised {type(error).__name__}: {error}"
        raise ContractError(provider.name, said) from error
    if memory is None:
        return None
    _check_methods(provider.name, "memory", memory, _MEMORY)
    return CheckedMemory(memory, provider.name)


def close(provider: Provider) -> None:
    """
    Close a provider.

    Raises
    ------
    ContractError
        It raised an error that is none of seamline's.
    """
    try:
        provider.close()
    except SeamlineError:
        raise
    except Exception as error:
        said = f"close() raised {type(error).__name__}: {error}"
        raise ContractError(provider.name, said) from error


def built(engine: Engine, name: str, spec: SegmentSpec) -> Executable:
    """
    Have a provider build a segment.

    Raises
    ------
    ContractError
        What it gave is no executable; names what is missing.
    """
    executable = engine.providers[name].build(spec, engine.context(name))
    _check_methods(name, "build", executable, _EXECUTABLE)
    return executable


def _check_methods(
    provider: str, call: str, given: object, names: Iterable[str]
) -> None:
    missing = [n for n in names if not callable(getattr(given, n, None))]
    if missing:
        why = f"{call}() gave a {type(given).__name__} without {', '.join(missing)}"
        raise ContractError(provider, why)


def check_found(
    found: Mapping[str, Array], step: Segment, types: Mapping[str, ValueType | None]
) -> None:
    """
    Hold arrays whose sizes a kernel found to the types that the plan knows.

    Raises
    ------
    KernelError
        One is no array, or of another element type, rank or size.
    """
    for name in step.outputs:
        value, kind = found[name], types.get(name)
        if not isinstance(kind, TensorType):
            continue
        if not isinstance(value, np.ndarray):
            given = f"a {type(value).__name__}"
        elif value.dtype == numpy_dtype(kind.dtype) and _fits(value.shape, kind):
            continue
        else:
            given = f"{value.dtype}{list(value.shape)}"
        raise KernelError(
            f"output {name!r} is {given}, its type says {kind}",
            provider=step.provider,
            segment=step.id,
            node=step.nodes[0],
        )


def _fits(sizes: tuple[int, ...], kind: TensorType) -> bool:
    if kind.shape is None:
        return True
    return len(sizes) == len(kind.shape) and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(kind.shape, sizes, strict=True)
    )
