"""
Which vector instructions compiled kernels may use here, and why.

A *variant* is a way to emit the same kernel. Numba compiles for the processor that it runs
on unless ``NUMBA_CPU_NAME`` or ``NUMBA_CPU_FEATURES`` say otherwise, so what counts is what
Numba compiles for: an instruction outside of it would not be selected. Tiles of AMX must
moreover be asked of the system, once in a process and before they are touched.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform

import attrs

from seamline_cpu.ir import binding, config

__all__ = ["INT8", "Choice", "choose", "converts_half", "features", "lacking"]

#: Variants of 8-bit products, the preferred one first.
INT8 = ("avx512vnni", "avxvnni", "avx2", "portable")

_NEEDED = {
    "amx": ("amx-tile", "amx-bf16", "avx512f", "avx512bw", "avx512vl"),
    "avx512vnni": ("avx512vnni", "avx512f", "avx512bw", "avx512vl"),
    "avxvnni": ("avxvnni", "avx2", "fma", "f16c"),
    "avx2": ("avx2", "fma", "f16c"),
    "portable": (),
}
_X86 = ("x86_64", "AMD64")
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@attrs.frozen
class Choice:
    """A variant, and why it was taken, in words for a claim."""

    variant: str
    because: str


@functools.cache
def features() -> frozenset[str]:
    """Give the processor features that Numba compiles for, by LLVM's names."""
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        named = str(config.CPU_FEATURES or "").split(",")
        return frozenset([name[1:] for name in named if name.startswith("+")])
    try:
        found = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this system
        return frozenset()
    return frozenset([name for name, there in found.items() if there])


def lacking(variant: str) -> str | None:
    """
    Say why a variant cannot be used here, or None where it can.

    Raises
    ------
    ValueError
        No such variant.
    """
    if variant not in _NEEDED:
        raise ValueError(
            f"no variant {variant!r}; there are {', '.join(sorted(_NEEDED))}"
        )
    needed = _NEEDED[variant]
    if needed and platform.machine() not in _X86:
        return f"{variant} is for x86-64, and this is {platform.machine()}"
    missing = [name for name in needed if name not in features()]
    if missing:
        return f"this processor does not report {', '.join(missing)}"
    return _tiles_refused() if variant == "amx" else None


def choose(variants: tuple[str, ...] = INT8, forced: str | None = None) -> Choice:
    """
    Give the first variant that can be used here, or the forced one.

    Raises
    ------
    ValueError
        The forced one cannot be used, or there is no such; says why.
    """
    if forced is not None:
        if forced not in variants:
            raise ValueError(
                f"no variant {forced!r} here; there are {', '.join(variants)}"
            )
        if (reason := lacking(forced)) is not None:
            raise ValueError(f"variant {forced!r} was asked for, but {reason}")
        return Choice(forced, f"{forced} was asked for")
    passed: list[str] = []
    for variant in variants:
        reason = lacking(variant)
        if reason is None:
            needed = _NEEDED[variant]
            has = f"the processor reports {', '.join(needed)}" if needed else ""
            return Choice(variant, "; ".join(filter(None, (has, *passed))))
        passed.append(f"not {variant}: {reason}")
    raise ValueError("; ".join(passed))


def converts_half() -> bool:
    """Tell whether float16 is an instruction away from float32; else LLVM calls a library."""
    return not features().isdisjoint(("f16c", "avx512f", "neon", "fullfp16"))


@functools.cache
def _tiles_refused() -> str | None:
    """Ask Linux for the tiles' state, which it gives to processes that ask; else say why."""
    if not hasattr(os, "fork") or platform.system() != "Linux":
        return f"{platform.system()} has no known way to ask for AMX tiles"
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) != 0:
        # A container's filter or a kernel before 5.16.
        code = ctypes.get_errno()
        return f"the system refused AMX tiles: {os.strerror(code)} (errno {code})"
    return None
