"""The providers of one session: found by name, opened in order, closed in reverse."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import attrs

from seamline.checked_calls import close
from seamline.discovery import discover
from seamline.errors import DeadlineError, ProviderError
from seamline.observers import Observers
from seamline.plugins import Plugins
from seamline.provider import Provider
from seamline.settings import Settings
from seamline.timings import Profile
from seamline.watch import Watch
from seamline.watched import WatchedProvider

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
    aliases
        Provider by any of its names.
    """

    providers: Mapping[str, Provider]
    options: Mapping[str, Mapping[str, Any]]
    named: tuple[str, ...]
    notes: tuple[str, ...]
    hooks: Observers
    session: str
    aliases: Mapping[str, str]
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
        if category in ("Segment", "Chain"):
            # A replay that covers several segments is told by the first one's name.
            self.hooks.segment_finished(
                segment=str(args.get("first", name)),
                provider=str(args["provider"]),
                start_ns=start_ns,
                end_ns=end_ns,
            )


def open_providers(
    wanted: Sequence[str | tuple[str, Mapping[str, Any]]],
    fallback: Literal["error", "warn", "allow"],
    settings: Settings | None,
    plugins: tuple[Any, ...],
    model: str = "",
    deadline: float | None = None,
) -> Opened:
    """
    Open the providers that a session names.

    Parameters
    ----------
    deadline
        Seconds that any call on a provider may take, its probe and factory included;
        None to wait for ever.

    Raises
    ------
    ProviderError
        One is unknown, unavailable or broken, and ``fallback`` is "error"; or none is left.
    """
    found = discover(settings, plugins)
    notes: list[str] = []
    problems: list[ProviderError] = []
    with ExitStack() as stack:
        opening = _Opening(found, deadline, stack)
        for entry in wanted:
            name, given = (entry, {}) if isinstance(entry, str) else entry
            try:
                opening.add(name, given)
            except ProviderError as error:
                if fallback == "error":
                    raise
                problems.append(error)
                notes.append(f"dropped: {error}")
        named = tuple(opening.providers)
        if fallback != "error" and LAST_RESORT not in opening.providers:
            try:
                opening.add(LAST_RESORT, {})
            except ProviderError as error:
                problems.append(error)
                notes.append(f"no last resort: {error}")
        if not opening.providers:
            raise (
                problems[0] if problems else ProviderError("", "no provider was named")
            )
        return opening.finish(named, tuple(notes), model)


@attrs.define(eq=False)
class _Opening:
    """Providers opened so far."""

    found: Plugins
    deadline: float | None
    stack: ExitStack
    providers: dict[str, Provider] = attrs.field(factory=dict)
    options: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)
    aliases: dict[str, str] = attrs.field(factory=dict)

    def add(self, name: str, given: Mapping[str, Any]) -> None:
        """Open a provider, unless it is open under another of its names."""
        offered = self.found.find(name)
        known = offered.spec.name
        self.aliases.update(dict.fromkeys(offered.names, known))
        if known in self.providers:
            return
        provider = self._opened(known, given)
        self.stack.callback(close, provider)
        self.providers[known] = provider
        self.options[known] = getattr(provider, "options", dict(given))

    def _opened(self, name: str, given: Mapping[str, Any]) -> Provider:
        if self.deadline is None:
            return self.found.open(name, given)
        watch = Watch(name, self.deadline)
        try:
            made = watch.call("opening it", self.found.open, name, given, close=close)
        except DeadlineError as error:
            watch.end()
            raise ProviderError(name, error.why) from error
        except BaseException:
            watch.end()
            raise
        return WatchedProvider(made, watch)

    def finish(
        self, named: tuple[str, ...], notes: tuple[str, ...], model: str
    ) -> Opened:
        """Tell observers, and hand the providers over."""
        hooks, session = self.found.hooks, f"session-{next(_counter)}"
        hooks.session_opened(
            session=session, model=model, providers=tuple(self.providers)
        )
        return Opened(
            self.providers,
            self.options,
            named,
            notes,
            hooks,
            session,
            self.aliases,
            self.stack.pop_all(),
        )
