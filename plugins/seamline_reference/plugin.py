"""What seamline finds when it looks for plugins; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seamline.hookspecs import hookimpl
from seamline.provider import Provider, ProviderSpec

__all__ = ["CONTRACT_VERSION", "seamline_providers"]

CONTRACT_VERSION = 1


def _create(options: Mapping[str, Any]) -> Provider:
    from seamline_reference.provider import ReferenceProvider

    return ReferenceProvider()


@hookimpl
def seamline_providers() -> tuple[ProviderSpec, ...]:
    """Offer ``reference``."""
    return (
        ProviderSpec(
            "reference",
            _create,
            "any operator through onnx.reference: the last resort, only when named",
            contract_version=CONTRACT_VERSION,
        ),
    )
