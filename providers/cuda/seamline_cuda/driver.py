"""
The only place where NVIDIA's driver is called.

Every call goes through :func:`call`, which turns each result other than success into a
:class:`~seamline_cuda.errors.CudaError`. Where a microsecond counts, :func:`prepared` gives
the driver's function itself, and :func:`check` looks at what it gave.

Nothing is loaded before the first call. A process that was forked after that has no
device: the driver's state cannot be copied, so that every call in the child is refused
with the reason, instead of a hang or a crash later.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from seamline_cuda.errors import CudaError

__all__ = [
    "SUCCESS",
    "LinkError",
    "call",
    "call_host",
    "check",
    "constant",
    "enumeration",
    "linked",
    "prepared",
    "touched",
    "version",
]

SUCCESS = 0
_state = {"used": False, "forked": False}


def _after_fork() -> None:
    _state["forked"] = _state["used"]


os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def _driver() -> Any:
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

    return driver


def call(name: str, *given: Any) -> Any:
    """
    Call one function of the driver.

    Returns
    -------
    object
        What it gives beside its result: nothing, one value, or a tuple of them.

    Raises
    ------
    CudaError
        The result is no success, there is no driver, or the process was forked.
    """
    return check(name, prepared(name)(*given))


def prepared(name: str) -> Callable[..., Any]:
    """
    Give a function of the driver as it is: its result comes first in what it gives.

    Raises
    ------
    CudaError
        The process was forked after its first call.
    """
    touched(name)
    found: Callable[..., Any] = getattr(_driver(), name)
    return found


def touched(name: str) -> None:
    """
    Note that the process uses the device, by the driver or a library on top of it.

    Raises
    ------
    CudaError
        The process was forked after it first did.
    """
    if _state["forked"]:
        raise CudaError(
            name,
            "FORKED",
            -1,
            "the process was forked after it first used the device, and a child cannot "
            "use it; to fix: start processes by spawn, or fork before the first session",
        )
    _state["used"] = True


def check(name: str, given: tuple[Any, ...]) -> Any:
    """Give a prepared call's values, or raise its result as a :class:`CudaError`."""
    if given[0] != SUCCESS:
        raise _error(name, given[0])
    if len(given) == 2:
        return given[1]
    return given[1:] if len(given) > 2 else None


def _error(name: str, result: Any) -> CudaError:
    text = _driver().cuGetErrorString(result)[1]
    said = text.decode() if text else "an unknown result"
    return CudaError(name, getattr(result, "name", str(result)), int(result), said)


def call_host(stream: Any, function: int) -> None:
    """
    Have a stream call a function of the host, at its address, and wait for it to return.

    Not through the bindings: there, a graph that holds such a call crashed when launched.

    Raises
    ------
    CudaError
        The driver refused it.
    """
    name = "cuLaunchHostFunc"
    touched(name)
    result = _by_ctypes(name)(int(stream), function, 0)
    if result != SUCCESS:
        raise _error(name, enumeration("CUresult", "CUDA_SUCCESS").__class__(result))


@functools.cache
def _by_ctypes(name: str) -> Callable[..., int]:
    found = getattr(ctypes.CDLL("libcuda.so.1"), name)
    found.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    found.restype = ctypes.c_int
    return cast("Callable[..., int]", found)


def enumeration(kind: str, name: str) -> Any:
    """Give a member of one of the driver's enumerations, such as a kind of memory."""
    return getattr(getattr(_driver(), kind), name)


def constant(name: str) -> Any:
    """Give a structure or constant of the driver."""
    return getattr(_driver(), name)


def version() -> tuple[int, int]:
    """
    Give the newest CUDA that the driver knows; opens no device.

    Raises
    ------
    CudaError
        There is no driver, or it answers with an error.
    """
    try:
        result, number = _driver().cuDriverGetVersion()
    except RuntimeError as error:  # the bindings' own, where the library is missing
        raise CudaError("cuDriverGetVersion", "NO_DRIVER", -1, str(error)) from error
    check("cuDriverGetVersion", (result, number))
    return number // 1000, number % 1000 // 10


class LinkError(CudaError):
    """
    A kernel's PTX could not be made into machine code.

    Attributes
    ----------
    log
        What NVIDIA's assembler said.
    """

    def __init__(self, code: str, log: str) -> None:
        self.log = log
        super().__init__("nvJitLink", code, -1, log or "it gave no reason")


def linked(ptx: bytes, options: Sequence[str]) -> tuple[bytes, str]:
    """
    Assemble PTX into a cubin by NVIDIA's linker library; needs no device.

    Parameters
    ----------
    options
        The library's, such as ``-arch=sm_90`` and ``-Xptxas=-v``.

    Returns
    -------
    tuple
        The cubin, and what the assembler said (registers and spills, where asked).

    Raises
    ------
    LinkError
        The assembler refused it.
    """
    from cuda.bindings import (  # pyright: ignore[reportAttributeAccessIssue]
        nvjitlink as link,  # pyright: ignore[reportAttributeAccessIssue]
    )

    handle = link.create(len(options), list(options))
    try:
        link.add_data(handle, link.InputType.PTX, ptx, len(ptx), "kernel")
        link.complete(handle)
        cubin = bytearray(link.get_linked_cubin_size(handle))
        link.get_linked_cubin(handle, cubin)
        return bytes(cubin), _log(link.get_info_log_size, link.get_info_log, handle)
    except link.nvJitLinkError as error:
        log = _log(link.get_error_log_size, link.get_error_log, handle)
        raise LinkError(str(error), log) from error
    finally:
        link.destroy(handle)


def _log(size: Callable[[Any], int], give: Callable[..., Any], handle: Any) -> str:
    text = bytearray(size(handle))
    if text:
        give(handle, text)
    return text.decode(errors="replace").strip("\0\n ")
