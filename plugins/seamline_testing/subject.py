"""The provider under test, as a value that another process can open as well."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from seamline.opened import Opened, open_providers
from seamline.pipeline import Pipeline

if TYPE_CHECKING:
    import onnx

__all__ = ["Subject"]


@attrs.frozen
class Subject:
    """
    A provider by name, with options, and the modules of plugins that are not installed.

    Attributes
    ----------
    plugins
        Names of modules that hold hook implementations, tried beside installed plugins.
    """

    provider: str
    options: Mapping[str, Any] = attrs.field(factory=dict)
    plugins: tuple[str, ...] = ()

    def modules(self) -> tuple[Any, ...]:
        """Import the plugins that are not installed."""
        return tuple(importlib.import_module(name) for name in self.plugins)

    def open(
        self,
        source: onnx.ModelProto,
        *others: str,
        pins: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Open a model over this provider, then over others where it declines."""
        return Pipeline.open(
            source,
            providers=[(self.provider, self.options), *others],
            pins=pins,
            plugins=self.modules(),
        )

    def opened(self) -> Opened:
        """Open the provider itself, with no model."""
        return open_providers(
            [(self.provider, self.options)], "error", None, self.modules()
        )
