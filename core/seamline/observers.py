"""
Telling observers: plugins that watch sessions and runs, and can break neither.

An observer that raises is told no more in this process; see :mod:`seamline.hookspecs`
for what each is told, and when.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import attrs
import pluggy

from seamline.caller import caller_level

__all__ = ["Observers", "PluginWarning", "one_line"]


def one_line(error: BaseException) -> str:
    """Give an exception's type and message; some cannot even say their message."""
    try:
        said = str(error)
    except Exception:
        said = "(its message cannot be shown)"
    return f"{type(error).__name__}: {said}".removesuffix(": ")


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
        Plugins that raised while they were told something, with the traceback as text:
        the exception itself would hold the run's arrays.
    """

    manager: pluggy.PluginManager
    quarantined: dict[str, str] = attrs.field(factory=dict, init=False)

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
        text = "".join(traceback.format_exception(error))
        if self.quarantined.setdefault(plugin, text) is not text:
            return  # another thread was told at the same time
        self.manager.unregister(name=plugin)
        warnings.warn(
            f"plugin {plugin!r}: {hook} raised {one_line(error)}. "
            "It is told nothing more in this process.",
            PluginWarning,
            stacklevel=caller_level(),
        )
