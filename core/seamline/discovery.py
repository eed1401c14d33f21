"""
Finding plugins: each by itself, none able to take the others along.

Nothing is imported before someone calls :func:`discover`. What a plugin must be, and the
order in which it is checked, stands in :mod:`seamline.hookspecs`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import attrs
import pluggy

from seamline.errors import ContractError
from seamline.observers import Observers
from seamline.offers import Blocked, Offered, Origin, PluginFailure, prints_to_stderr
from seamline.plugin_checks import call_providers, check_plugin, new_manager
from seamline.plugins import Plugins
from seamline.settings import Settings, load_settings, normal_name

__all__ = ["GROUP", "discover"]

GROUP = "seamline"  #: the entry point group that plugins stand in

_lock = threading.RLock()
_found: dict[Settings, Plugins] = {}
_loading = False


def discover(
    settings: Settings | None = None,
    extra: Iterable[Any] = (),
    *,
    refresh: bool = False,
) -> Plugins:
    """
    Find the plugins that are installed and permitted.

    Parameters
    ----------
    settings
        Block and allow lists; taken from the environment and the configuration file
        when left out.
    extra
        Plugins (modules or instances) beside those installed; lists do not apply to
        the plugins themselves, only to the providers that they offer.
    refresh
        Look again at what is installed. Without it the answer for the same settings is
        kept for the process; with ``extra`` it never is.

    Returns
    -------
    Plugins
        Failures are in it; none is raised.

    Raises
    ------
    SettingsError
        The environment or the configuration file cannot be understood.
    ContractError
        A plugin called this while it was being loaded.
    """
    settings = load_settings() if settings is None else settings
    given = tuple(extra)
    with _lock:
        if not given and not refresh and settings in _found:
            return _found[settings]
        plugins = _discover(settings, given)
        if not given:
            _found[settings] = plugins
        return plugins


def _discover(settings: Settings, given: tuple[Any, ...]) -> Plugins:
    global _loading
    if _loading:
        why = "it asks for the plugins while they are being loaded; do that later"
        raise ContractError("(loading)", why)
    _loading = True
    try:
        search = _Search(settings)
        search.installed()
        for plugin in given:
            search.given(plugin)
        return search.result()
    finally:
        _loading = False


@attrs.define(eq=False)
class _Search:
    """One look at everything installed."""

    settings: Settings
    offers: list[Offered] = attrs.field(factory=list)
    failures: list[PluginFailure] = attrs.field(factory=list)
    blocked: list[Blocked] = attrs.field(factory=list)
    commands: list[tuple[Origin, Callable[..., Any]]] = attrs.field(factory=list)
    manager: pluggy.PluginManager = attrs.field(factory=new_manager)

    def installed(self) -> None:
        entries, broken = _entry_points()
        self.failures += broken
        origins = [(_origin(entry), entry) for entry in entries]
        origins.sort(key=lambda pair: attrs.astuple(pair[0]))
        out: dict[str, str] = {}
        for origin, entry in origins:
            if why := self.settings.why_blocked(*origin.names):
                out[_module(entry)] = why
        for origin, entry in origins:
            # by module too, or a blocked plugin would come back under another name
            why = self.settings.why_kept_out(*origin.names) or out.get(
                _module(entry), ""
            )
            if why:
                self.blocked.append(Blocked(origin, why))
            else:
                self.load(origin, entry.load)

    def given(self, plugin: Any) -> None:
        name = getattr(plugin, "__name__", None) or type(plugin).__name__
        self.load(Origin(name), lambda: plugin)

    def load(self, origin: Origin, get: Callable[[], Any]) -> None:
        stage = "import"
        try:
            with prints_to_stderr():
                plugin = get()
                stage = "contract"
                alone = check_plugin(origin.plugin, plugin)
                stage = "providers"
                specs = call_providers(origin.plugin, alone)
            if self.manager.is_registered(plugin):
                return  # a second entry point of the same plugin adds nothing
            self.manager.register(plugin, self.label(origin))
            if alone.hook.seamline_commands.get_hookimpls():
                self.commands.append((origin, alone.hook.seamline_commands))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.failures.append(PluginFailure(origin, stage, error))
            return
        for spec in specs:
            self.offer(Offered(spec, origin))

    def label(self, origin: Origin) -> str:
        label = f"{origin.plugin} of {origin}"
        while self.manager.has_plugin(label):
            label += "'"  # two of the caller's may be of one class
        return label

    def offer(self, offered: Offered) -> None:
        # known by name only now: a blocked name stays out whichever plugin offers it
        why = self.settings.why_blocked(*offered.names)
        if why:
            self.blocked.append(Blocked(offered.origin, why, offered.spec.name))
        else:
            self.offers.append(offered)

    def result(self) -> Plugins:
        return Plugins(
            self.settings,
            tuple(self.offers),
            tuple(self.failures),
            tuple(self.blocked),
            Observers(self.manager),
            tuple(self.commands),
        )


def _entry_points() -> tuple[list[metadata.EntryPoint], list[PluginFailure]]:
    """Give the group's entry points, and the distributions that cannot be read."""
    try:
        return list(metadata.entry_points(group=GROUP)), []
    except Exception:
        return _entry_points_one_by_one()


def _entry_points_one_by_one() -> tuple[list[metadata.EntryPoint], list[PluginFailure]]:
    entries: dict[str, list[metadata.EntryPoint]] = {}
    failures = []
    for distribution in metadata.distributions():
        try:
            if f"[{GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
                continue
            found = list(distribution.entry_points.select(group=GROUP))
        except Exception as error:
            origin = Origin("(entry points)", *_identity(distribution))
            failures.append(PluginFailure(origin, "metadata", error))
        else:  # of two versions, the first on the path is the one in force
            entries.setdefault(normal_name(_identity(distribution)[0]), found)
    return [entry for found in entries.values() for entry in found], failures


def _identity(distribution: metadata.Distribution | None) -> tuple[str, str]:
    """Give a distribution's name and version, as far as its metadata can be read."""
    if distribution is None:
        return "(unknown)", ""
    try:
        return distribution.name or "(unnamed)", distribution.version or ""
    except Exception:  # metadata is other people's text; the plugin may still be good
        return "(unreadable metadata)", ""


def _origin(entry: metadata.EntryPoint) -> Origin:
    return Origin(entry.name, *_identity(entry.dist), entry.value)


def _module(entry: metadata.EntryPoint) -> str:
    return entry.value.partition(":")[0].strip()


def _in_a_child() -> None:
    """Free the lock, which a thread that the child does not have may hold."""
    global _lock, _loading
    _lock, _loading = threading.RLock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_child)
