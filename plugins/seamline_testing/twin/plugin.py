"""
Offers the provider ``twin``. Not an entry point: a session names this module itself.

``plugins=[seamline_testing.twin.plugin]`` gives the twin as it is; an instance of
:class:`TwinPlugin` gives one whose faults a test holds in its hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seamline.hookspecs import hookimpl
from seamline.provider import Availability, Option, Provider, ProviderSpec

if TYPE_CHECKING:
    from seamline_testing.twin.faults import Faults

__all__ = ["CONTRACT_VERSION", "TwinPlugin", "seamline_providers"]

CONTRACT_VERSION = 1

_OPTIONS = (
    Option("copy_delay", float, 0.0, "seconds that each copy takes", minimum=0),
    Option("deadline", float, 10.0, "seconds that the host waits for it", minimum=0),
    Option(
        "answer_deadline", float, 10.0, "seconds that it waits for the host", minimum=0
    ),
    Option("edge_limit", int, 0, "bytes of a copy that recordings take in", minimum=0),
    Option("memory_limit", int, 0, "bytes that it has; 0 for no limit", minimum=0),
    Option("kernels", str, "cpu", "the host provider whose kernels it runs"),
    Option("faults", str, "", "what goes wrong: step:nth:how, joined by commas"),
)


def _probe() -> Availability:
    from seamline.mapping_calls import supported

    if supported():
        return Availability(True)
    why = "it maps anonymous files, which only Linux has"
    return Availability(False, why, "run it on Linux")


class TwinPlugin:
    """
    A plugin that offers the twin with faults that the caller keeps.

    Attributes
    ----------
    made
        The twins that sessions opened through this plugin.
    """

    CONTRACT_VERSION = CONTRACT_VERSION

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults
        self.made: list[Any] = []

    @hookimpl
    def seamline_providers(self) -> Sequence[ProviderSpec]:
        """Offer ``twin``."""
        return [_spec(self)]

    def create(self, options: Mapping[str, Any]) -> Provider:
        """Make a twin."""
        # Compiled kernels take half a second to import: only when the provider is used.
        from seamline_testing.twin.provider import Twin

        made = Twin(options, self.faults)
        self.made.append(made)
        return made


def _spec(plugin: TwinPlugin) -> ProviderSpec:
    return ProviderSpec(
        "twin",
        plugin.create,
        "a simulated device: its own memory, streams, recordings and faults",
        contract_version=CONTRACT_VERSION,
        probe=_probe,
        options=_OPTIONS,
    )


@hookimpl
def seamline_providers() -> Sequence[ProviderSpec]:
    """Offer ``twin``."""
    return [_spec(TwinPlugin())]
