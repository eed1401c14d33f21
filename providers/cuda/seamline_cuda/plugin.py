"""
The CUDA provider's hook: a spec that is found, and says that it cannot be used yet.

The name is taken so that asking for it gives a reason, and not "unknown". Nothing of
CUDA is imported and no device is looked for: with a driver or without one, this release
has no kernels for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seamline.errors import UnavailableProviderError
from seamline.hookspecs import hookimpl
from seamline.provider import Availability, Provider, ProviderSpec

__all__ = ["CONTRACT_VERSION", "seamline_providers"]

CONTRACT_VERSION = 1

_WHY = (
    "the CUDA provider is not part of this release of seamline, "
    "whether or not this machine has a device and its driver"
)
_FIX = "take 'cuda' out of the list of providers; 'cpu' runs on every machine"


def _probe() -> Availability:
    return Availability(False, _WHY, _FIX)


def _create(options: Mapping[str, Any]) -> Provider:
    raise UnavailableProviderError("cuda", _WHY, _FIX)


@hookimpl
def seamline_providers() -> Iterable[ProviderSpec]:
    """Offer ``cuda``, which no probe finds usable in this release."""
    return [
        ProviderSpec(
            "cuda",
            _create,
            "NVIDIA GPUs; not part of this release",
            probe=_probe,
            aliases=("CUDAExecutionProvider",),
        )
    ]
