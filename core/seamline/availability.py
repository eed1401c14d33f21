"""Which providers there are, and which of them can be used on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from seamline.discovery import discover

__all__ = [
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
]

_FIRST = ("cuda", "cpu")


def get_all_providers() -> list[str]:
    """Give every provider that an installed plugin offers, usable here or not."""
    return _ordered(discover().specs)


def get_available_providers() -> list[str]:
    """
    Give the providers that can be used here: ``cuda`` and ``cpu`` first, the rest by name.

    ``seamline providers`` says of the others why not, and how to change it.
    """
    specs = discover().specs
    return [name for name in _ordered(specs) if specs[name].probe().usable]


def get_device() -> str:
    """Give "GPU" if the ``cuda`` provider can be used here, otherwise "CPU"."""
    cuda = discover().specs.get("cuda")
    return "GPU" if cuda is not None and cuda.probe().usable else "CPU"


def get_version_string() -> str:
    """Give the installed version; "unknown" where seamline is not installed."""
    try:
        return metadata.version("seamline")
    except metadata.PackageNotFoundError:
        return "unknown"


def _ordered(names: Iterable[str]) -> list[str]:
    known = sorted(names)
    return [n for n in _FIRST if n in known] + [n for n in known if n not in _FIRST]
