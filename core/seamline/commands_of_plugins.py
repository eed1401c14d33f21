"""Commands that plugins add to ``seamline``, each plugin in an application of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import typer
from typer.main import get_command

from seamline.discovery import discover
from seamline.errors import SeamlineError
from seamline.offers import Origin, PluginFailure, prints_to_stderr
from seamline.plugins import Plugins

__all__ = ["CommandClashError", "PluginCommand", "collect_commands", "find_command"]


class CommandClashError(SeamlineError):
    """Two plugins add a command of the same name."""

    def __init__(self, command: str, first: Origin, second: Origin) -> None:
        self.command = command
        self.origins: tuple[Origin, Origin] = (first, second)
        super().__init__(
            f"command {command!r}: added by both {first} (plugin {first.plugin!r}) and "
            f"{second} (plugin {second.plugin!r}); block one of them, or uninstall it"
        )


@attrs.frozen(eq=False)
class PluginCommand:
    """A command, and the plugin that adds it."""

    name: str
    origin: Origin
    command: Any


def collect_commands(
    plugins: Plugins,
) -> tuple[tuple[PluginCommand, ...], tuple[PluginFailure, ...]]:
    """Give the commands that plugins add, and the plugins that raised instead."""
    commands: list[PluginCommand] = []
    failures: list[PluginFailure] = []
    for origin, hook in plugins.commands:
        try:
            with prints_to_stderr():
                commands += _commands_of(origin, hook)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            failures.append(PluginFailure(origin, "commands", error))
    return tuple(commands), tuple(failures)


def _commands_of(origin: Origin, hook: Callable[..., Any]) -> list[PluginCommand]:
    app = typer.Typer(add_completion=False)
    app.callback()(lambda: None)  # with it one command is a group too, and has a name
    hook(app=app)
    group: Any = get_command(app)
    return [PluginCommand(name, origin, made) for name, made in group.commands.items()]


def find_command(name: str) -> Any:
    """
    Give the command that a plugin adds under a name, or None.

    Raises
    ------
    CommandClashError
        Two plugins add it.
    """
    plugins = discover()
    commands, failures = collect_commands(plugins)
    found = [command for command in commands if command.name == name]
    if len(found) > 1:
        raise CommandClashError(name, found[0].origin, found[1].origin)
    if found:
        return found[0].command
    # whoever asks for a plugin's command must hear which plugin could not bring it
    for failure in (*plugins.failures, *failures):
        typer.echo(str(failure), err=True)
    return None
