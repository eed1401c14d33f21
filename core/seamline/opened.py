"""The providers of one session: found by name, opened in order, closed in reverse."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import attrs

from seamline.checked_calls import close
from seamline.discovery import discover
from seamline.errors import ProviderError
from seamline.observers import Observers
from seamline.plugins import Plugins
from seamline.provider import Provider
from seamline.settings import Settings
from seamline.timings import Profile

__all__ = ["LAST_RESORT", "Opened", "open_providers"]

LAST_RESORT = "cpu"  #: takes what named providers leave, unless fallback is "error"
_counter = itertools.count()


@attrs.define(eq=False)
class Opened:
    """
    Providers of a session.

    Attributes
    ----------
    providers
        By name, most preferred first.
    named
        Those the caller asked for; the rest is fallback.
    notes
        Providers that were dropped, and why.
    """

    providers: Mapping[str, Provider]
    options: Mapping[str, Mapping[str, Any]]
    named: tuple[str, ...]
    notes: tuple[str, ...]
    hooks: Observers
    session: str
    _stack: ExitStack

    def watching(self, profile: Profile | None) -> Profile | None:
        """Add the observers of segments, if there are any, to who hears of a run."""
        if not self.hooks.watch_segments:
            return profile
        return _Watching(self.hooks, profile)

    def run_finished(self, start: int, end: int, error: BaseException | None) -> None:
        """Tell observers that a run is over."""
        self.hooks.run_finished(
            session=self.session, start_ns=start, end_ns=end, error=error
        )

    def close(self) -> None:
        """Close the providers, the last opened first."""
        self._stack.close()


@attrs.define(eq=False)
class _Watching:
    hooks: Observers
    profile: Profile | None

    def event(
        self,
        name: str,
        category: str,
        start_ns: int,
        end_ns: int,
        args: Mapping[str, object],
    ) -> None:
        if self.profile is not None:
            self.profile.event(name, category, start_ns, end_ns, args)
        if category == "Segment":
            provider = str(args["provider"])
            self.hooks.segment_finished(
                segment=name, provider=provider, start_ns=start_ns, end_ns=end_ns
            )


def open_providers(
    wanted: Sequence[str | tuple[str, Mapping[str, Any]]],
    fallback: Literal["error", "warn", "allow"],
    settings: Settings | None,
    plugins: tuple[Any, ...],
    model: str = "",
) -> Opened:
    """
    Open the providers that a session names.

    Raises
    ------
    ProviderError
        One is unknown, unavailable or broken, and ``fallback`` is "error"; or none is left.
    """
    found = discover(settings, plugins)
    providers: dict[str, Provider] = {}
    options: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    problems: list[ProviderError] = []
    with ExitStack() as stack:
        for entry in wanted:
            name, given = (entry, {}) if isinstance(entry, str) else entry
            try:
                _open(found, name, given, providers, options, stack)
            except ProviderError as error:
                if fallback == "error":
                    raise
                problems.append(error)
                notes.append(f"dropped: {error}")
        named = tuple(providers)
        if fallback != "error" and LAST_RESORT not in providers:
            try:
                _open(found, LAST_RESORT, {}, providers, options, stack)
            except ProviderError as error:
                problems.append(error)
                notes.append(f"no last resort: {error}")
        if not providers:
            raise (
                problems[0] if problems else ProviderError("", "no provider was named")
            )
        session = f"session-{next(_counter)}"
        found.hooks.session_opened(
            session=session, model=model, providers=tuple(providers)
        )
        return Opened(
            providers,
            options,
            named,
            tuple(notes),
            found.hooks,
            session,
            stack.pop_all(),
        )


def _open(
    found: Plugins,
    name: str,
    given: Mapping[str, Any],
    providers: dict[str, Provider],
    options: dict[str, Mapping[str, Any]],
    stack: ExitStack,
) -> None:
    known = found.find(name).spec.name
    if known in providers:
        return
    provider = found.open(name, given)
    stack.callback(close, provider)
    providers[known] = provider
    options[known] = getattr(provider, "options", dict(given))
