"""
The plugins of this process: what they offer, which failed, which are blocked.

:func:`seamline.discovery.discover` makes a :class:`Plugins`; a session asks it for
providers by name. Sessions share specs; each opens providers of its own.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from seamline.caller import caller_level
from seamline.errors import ProviderClashError, UnknownProviderError, near
from seamline.observers import Observers, PluginWarning
from seamline.offers import Blocked, Offered, Origin, PluginFailure
from seamline.provider import Provider
from seamline.settings import Settings, normal_name

__all__ = ["Plugins"]


@attrs.define(eq=False)
class Plugins:
    """
    Everything that was found, one way to ask for it.

    Attributes
    ----------
    offers
        Every provider offered, in order of entry point and distribution.
    failures, blocked
        Plugins that could not be used, or may not be.
    hooks
        Tells observers what happens.
    commands
        Who adds commands to the command line, and the hook that does it.
    """

    settings: Settings
    offers: tuple[Offered, ...]
    failures: tuple[PluginFailure, ...]
    blocked: tuple[Blocked, ...]
    hooks: Observers
    commands: tuple[tuple[Origin, Callable[..., Any]], ...] = ()
    _by_name: dict[str, tuple[Offered, ...]] = attrs.field(factory=dict, init=False)
    _warned: bool = attrs.field(default=False, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        for offer in self.offers:
            for name in offer.names:
                self._by_name[name] = (*self._by_name.get(name, ()), offer)

    @property
    def specs(self) -> Mapping[str, Offered]:
        """Give the providers whose name only one distribution claims, by name."""
        return {
            offer.spec.name: offer
            for offer in self.offers
            if len(self._by_name[offer.spec.name]) == 1
        }

    @property
    def clashes(self) -> Mapping[str, tuple[Offered, ...]]:
        """Give every name or alias that more than one plugin claims."""
        return {
            name: offers for name, offers in self._by_name.items() if len(offers) > 1
        }

    def find(self, name: str) -> Offered:
        """
        Find a provider by its name or an alias.

        Raises
        ------
        UnknownProviderError
            Nobody offers it; names what is near, whether it is blocked, and what
            failed to load, with the exception as cause where it is that very plugin.
        ProviderClashError
            More than one plugin offers it; names both distributions.
        """
        offers = self._by_name.get(name, ())
        if len(offers) > 1:
            raise ProviderClashError(name, *(_claimant(offer) for offer in offers[:2]))
        if offers:
            return offers[0]
        wanted = normal_name(name)
        for failure in self.failures:
            if wanted in map(normal_name, failure.origin.names):
                error = UnknownProviderError(name, self.specs, str(failure))
                raise error from failure.error
        raise UnknownProviderError(name, self.specs, self._hint(name))

    def open(self, name: str, options: Mapping[str, Any] | None = None) -> Provider:
        """
        Find a provider and make it; see :meth:`find` and :meth:`Offered.open`.

        The first call warns, once, of the plugins that could not be loaded.
        """
        offered = self.find(name)
        self.warn_of_failures()
        return offered.open(options)

    def warn_of_failures(self) -> None:
        """Warn, once, of the plugins that could not be loaded."""
        with self._lock:
            warned, self._warned = self._warned, True
        if warned or not self.failures:
            return
        lines = "".join(f"\n  {failure}" for failure in self.failures)
        text = f"plugins set aside:{lines}\n`seamline providers` shows each traceback; "
        text += "block or uninstall what you do not need"
        warnings.warn(text, PluginWarning, stacklevel=caller_level())

    def _hint(self, name: str) -> str:
        wanted = normal_name(name)
        for blocked in self.blocked:
            if wanted in map(normal_name, (*blocked.origin.names, blocked.provider)):
                return f"A plugin of {blocked.origin} is not used: {blocked.why}"
        if name.lower() in self._by_name:
            return f"Names are lower-case: {name.lower()!r}"
        aliases = [known for known in self._by_name if known not in self.specs]
        hint = near(name, aliases).removeprefix("; did you mean ")
        hint = f"Aliases like it: {hint.rstrip('?')}. " if hint else ""
        if self.failures:
            failed = ", ".join(repr(failure.origin.plugin) for failure in self.failures)
            hint += f"Plugins that failed: {failed}; see `seamline providers`"
        return hint


def _claimant(offer: Offered) -> str:
    return f"{offer.origin} (entry point {offer.origin.plugin!r})"
