"""
From a kernel's text to machine code for one compute capability, once and for all processes.

Numba's NVVM makes PTX, NVIDIA's linker library makes a cubin of it and says what it took
of the device: registers, and bytes spilled to memory. Neither needs a GPU. The cubin is
kept on disk under the hash of everything that it depends on; a file that is damaged or
cannot be written costs a compilation and a warning, never a failure.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import re
import warnings
from pathlib import Path
from typing import Any

import attrs

from seamline.kept_files import cache_folder, keep, kept
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.driver import linked

__all__ = ["Compiled", "compiled", "counts", "folder", "ptx_of"]

_PARTS = ("numba", "numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "llvmlite")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")

#: Kernels that this process compiled, and that it found compiled.
counts: dict[str, int] = {"compiled": 0, "loaded": 0}


@attrs.frozen
class Compiled:
    """
    Machine code of one kernel for one compute capability.

    Attributes
    ----------
    cubin
        What the driver loads.
    entry
        The kernel's name in it.
    registers
        For each thread; None where the assembler did not say.
    spilled
        Bytes for each thread that did not fit in registers, stored and loaded.
    """

    cubin: bytes = attrs.field(repr=False)
    entry: str
    registers: int | None
    spilled: int


def folder() -> Path:
    """Give the folder that compiled kernels are kept in."""
    return cache_folder("cuda")


def compiled(kernel: DeviceKernel, capability: tuple[int, int]) -> Compiled:
    """
    Give a kernel's machine code, from the cache or made now.

    Raises
    ------
    LinkError
        NVIDIA's assembler refused it.
    """
    path = folder() / f"{kernel.name}.{_key(kernel, capability)}.cubin"
    found = _loaded(path)
    if found is not None:
        counts["loaded"] += 1
        return found
    made = _made(kernel, capability)
    counts["compiled"] += 1
    facts = {n: v for n, v in attrs.asdict(made).items() if n != "cubin"}
    try:
        keep(path, json.dumps(facts).encode() + b"\n" + made.cubin)
    except OSError as error:
        _warn(path.parent, error)
    return made


def ptx_of(kernel: DeviceKernel, capability: tuple[int, int]) -> bytes:
    """Compile a kernel's text to PTX."""
    from numba import types

    from seamline_cuda.intrinsics import GLOBALS

    scope = dict(GLOBALS)
    exec(compile(kernel.text, f"<{kernel.name}>", "exec"), scope)
    signature = types.void(*(_type(types, name) for name in kernel.signature))
    # No fast math: NaN, infinity, denormals and the order of sums are the standard's.
    code, _ = GLOBALS["cuda"].compile(
        scope[kernel.name],
        signature,
        device=False,
        abi="numba",
        cc=capability,
        output="ptx",
    )
    text = code.decode() if isinstance(code, bytes) else str(code)
    entry = _ENTRY.search(text)
    if entry is None:
        raise RuntimeError(f"the compiler made no kernel of {kernel.name}")
    # Numba numbers what a process compiles, which would be in every name.
    return text.replace(entry[1], kernel.name).encode()


def _made(kernel: DeviceKernel, capability: tuple[int, int]) -> Compiled:
    ptx = ptx_of(kernel, capability)
    major, minor = capability
    # The library's own cache would give the cubin without the assembler's report.
    options = (f"-arch=sm_{major}{minor}", "-no-cache", "-Xptxas=-v")
    cubin, log = linked(ptx, options)
    registers = _REGISTERS.search(log)
    spilled = sum(int(a) + int(b) for a, b in _SPILLS.findall(log))
    used = int(registers[1]) if registers is not None else None
    return Compiled(cubin, kernel.name, used, spilled)


def _type(types: Any, name: str) -> Any:
    if name.endswith("*"):
        return types.CPointer(getattr(types, name[:-1]))
    return getattr(types, name)


def _loaded(path: Path) -> Compiled | None:
    try:
        content = kept(path)
        if content is None:
            return None
        facts, _, cubin = content.partition(b"\n")
        return Compiled(cubin, **json.loads(facts))
    except (OSError, ValueError, TypeError) as error:
        _warn(path.parent, error)
        return None


def _key(kernel: DeviceKernel, capability: tuple[int, int]) -> str:
    major, minor = capability
    return f"{kernel.digest}.{_versions()}.sm_{major}{minor}"


@functools.cache
def _versions() -> str:
    told = hashlib.blake2b(digest_size=8)
    for name in _PARTS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "none"  # a toolkit of the system's stands for NVIDIA's packages
        told.update(f"{name} {version}\n".encode())
    return told.hexdigest()


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=5)


def _warn(place: Path, error: Exception) -> None:
    _warn_once(
        f"compiled kernels are not cached in {str(place)!r} ({type(error).__name__}: "
        f"{error}); they are compiled again in each process. To fix: make the folder "
        "writable, remove damaged files from it, or set SEAMLINE_CACHE_DIR to another one."
    )
