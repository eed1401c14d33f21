"""What the plugin manager loads: the CUDA provider's spec, and nothing of CUDA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seamline.hookspecs import hookimpl
from seamline.provider import Availability, Option, Provider, ProviderSpec

__all__ = ["CONTRACT_VERSION", "seamline_providers"]

CONTRACT_VERSION = 1

_OPTIONS = (
    Option("device_id", int, 0, "which GPU", minimum=0),
    Option("gpu_mem_limit", int, 0, "bytes that it may own; 0 for all", minimum=0),
    Option(
        "deadline",
        float,
        0.0,
        "seconds that the host waits for it; 0 for ever",
        minimum=0,
    ),
    Option(
        "pool_bytes",
        int,
        256 << 20,
        "bytes of device pages kept between two uses",
        minimum=0,
    ),
    Option(
        "answer_deadline",
        float,
        10.0,
        "seconds that a recording waits for the host",
        minimum=0,
    ),
    Option(
        "edge_limit",
        int,
        128 << 10,
        "bytes of the largest value whose copy a recording takes in; 0 for none",
        minimum=0,
    ),
    Option("tf32", bool, False, "round factors of float32 products to 10 bits"),
    Option(
        "measure_products", bool, True, "take the quickest algorithm for each product"
    ),
)


def _probe() -> Availability:
    from seamline_cuda.probe import probe

    return probe()


def _here() -> Mapping[str, str]:
    from seamline_cuda.blaslt import missing

    return {"products": missing() or "by cuBLASLt"}


def _create(options: Mapping[str, Any]) -> Provider:
    # The compiler takes a second to import: only when the provider is used.
    from seamline_cuda.provider import CudaProvider

    return CudaProvider(options)


@hookimpl
def seamline_providers() -> Iterable[ProviderSpec]:
    """Offer ``cuda``."""
    return [
        ProviderSpec(
            "cuda",
            _create,
            "NVIDIA GPUs: generated kernels, recorded as CUDA graphs",
            contract_version=CONTRACT_VERSION,
            probe=_probe,
            here=_here,
            options=_OPTIONS,
            aliases=("CUDAExecutionProvider",),
        )
    ]
