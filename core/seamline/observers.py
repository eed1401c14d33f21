"""
Telling observers: plugins that watch sessions and runs, and can break neither.

An observer that raises is told no more in this process; see :mod:`seamline.hookspecs`
for what each is told, and when.
"""

from __future__ import annotations

import warnings
from typing import Any

import attrs
import pluggy

__all__ = ["Observers", "PluginWarning"]


class PluginWarning(UserWarning):
    """A plugin was set aside; the work went on without it."""


@attrs.define(eq=False)
class Observers:
    """
    The way from the core to the plugins that watch.

    Parameters
    ----------
    manager
        Holds the plugins that passed every check.

    Attributes
    ----------
    quarantined
        Plugins that raised while they were told something, with what they raised.
    """

    manager: pluggy.PluginManager
    quarantined: dict[str, BaseException] = attrs.field(factory=dict, init=False)

    @property
    def watch_segments(self) -> bool:
        """Tell whether anyone would hear of segments; look once a run, not for each."""
        return bool(self.manager.hook.seamline_segment_finished.get_hookimpls())

    def session_opened(
        self, *, session: str, model: str, providers: tuple[str, ...]
    ) -> None:
        """Tell :func:`seamline.hookspecs.seamline_session_opened`."""
        self._tell(
            self.manager.hook.seamline_session_opened,
            {"session": session, "model": model, "providers": providers},
        )

    def segment_finished(
        self, *, segment: str, provider: str, start_ns: int, end_ns: int
    ) -> None:
        """Tell :func:`seamline.hookspecs.seamline_segment_finished`."""
        self._tell(
            self.manager.hook.seamline_segment_finished,
            {
                "segment": segment,
                "provider": provider,
                "start_ns": start_ns,
                "end_ns": end_ns,
            },
        )

    def run_finished(
        self,
        *,
        session: str,
        start_ns: int,
        end_ns: int,
        error: BaseException | None = None,
    ) -> None:
        """Tell :func:`seamline.hookspecs.seamline_run_finished`."""
        self._tell(
            self.manager.hook.seamline_run_finished,
            {
                "session": session,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "error": error,
            },
        )

    def _tell(self, hook: pluggy.HookCaller, facts: dict[str, Any]) -> None:
        # One by one, and not by calling the hook: pluggy stops at the first that raises.
        for heard in hook.get_hookimpls():
            try:
                heard.function(*[facts[name] for name in heard.argnames])
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._quarantine(heard.plugin_name, hook.name, error)

    def _quarantine(self, plugin: str, hook: str, error: BaseException) -> None:
        if plugin in self.quarantined:
            return  # another thread was told at the same time
        self.quarantined[plugin] = error
        self.manager.unregister(name=plugin)
        warnings.warn(
            f"plugin {plugin!r}: {hook} raised {type(error).__name__}: {error}. "
            "It is told nothing more in this process.",
            PluginWarning,
            stacklevel=4,
        )
