"""What the plugin manager loads: the CPU provider's spec, and no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seamline.hookspecs import hookimpl
from seamline.provider import Option, Provider, ProviderSpec

__all__ = ["CONTRACT_VERSION", "seamline_providers"]

CONTRACT_VERSION = 1
_THREADS = Option(
    "num_threads",
    int,
    0,
    "threads for one node; 0 for as many as the process may use",
    minimum=0,
)
_PINNING = Option(
    "pinning",
    str,
    "auto",
    "where its worker threads run: auto (each on a core of its own, off the caller's), "
    "none, or cores such as 0+2",
)
_INT4 = Option(
    "int4_variant",
    str,
    "",
    "instructions for weights of 2, 4 and 8 bits; empty for the best there are",
    choices=("", "amx", "avx512vnni", "avxvnni", "avx2", "portable"),
)
_INT8 = Option(
    "int8_variant",
    str,
    "",
    "instructions for products and convolutions of bytes; empty for the best there are",
    choices=("", "avx512vnni", "avxvnni", "avx2", "portable"),
)
_CONVOLUTION = Option(
    "convolution",
    str,
    "",
    "how float32 convolutions are summed; empty for the fastest form, direct for sums of "
    "the products themselves",
    choices=("", "direct"),
)


def _create(options: Mapping[str, Any]) -> Provider:
    # Numba takes half a second to import: only when the provider is used.
    from seamline_cpu.provider import CpuProvider

    return CpuProvider(options)


def _here() -> Mapping[str, str]:
    # Asks the processor through LLVM, which is not imported before.
    from seamline_cpu.cores import current_core, usable
    from seamline_cpu.instruction_sets import INT8, choose

    chosen = choose(("amx", *INT8))
    kept = "a core of its own" if current_core() >= 0 else "wherever the system puts it"
    return {
        "num_threads": f"{usable()}, as many as the cores that this process may use",
        "pinning": f"each worker on {kept}; explain says what came of it once a model ran",
        "int4_variant": f"{chosen.variant}, since {chosen.because}",
    }


@hookimpl
def seamline_providers() -> Sequence[ProviderSpec]:
    """Offer the CPU provider."""
    return [
        ProviderSpec(
            "cpu",
            _create,
            "NumPy and Numba kernels on the host",
            contract_version=CONTRACT_VERSION,
            options=(_THREADS, _PINNING, _INT4, _INT8, _CONVOLUTION),
            aliases=("CPUExecutionProvider",),
            here=_here,
        )
    ]
