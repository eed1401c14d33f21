"""``seamline providers``: what was found, what can be used, and why the rest cannot."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from seamline.offers import Offered
    from seamline.plugins import Plugins

__all__ = ["describe_plugins", "providers"]


def providers(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    block: Annotated[
        list[str] | None,
        typer.Option(help="Do not import this distribution or plugin; repeatable."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Import no other distribution or plugin; repeatable."),
    ] = None,
) -> None:
    """List providers: usable or not and why, options, blocked plugins, failures."""
    from seamline.discovery import discover
    from seamline.settings import load_settings

    with _kept_stdout() if as_json else contextlib.nullcontext():
        plugins = discover(load_settings(block=block or None, allow=allow or None))
        facts = describe_plugins(plugins)
    if as_json:
        typer.echo(json.dumps(facts, indent=2, default=str))
    else:
        _print(facts)


@contextlib.contextmanager
def _kept_stdout() -> Iterator[None]:
    """
    Send to standard error what anything below Python writes to standard output.

    Libraries that a plugin loads greet their users too. Only for a command: the file
    descriptor is the whole process's.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        if os.name == "posix":
            ctypes.CDLL(None).fflush(None)  # C has a buffer of its own
        os.dup2(kept, 1)
        os.close(kept)


def describe_plugins(plugins: Plugins) -> dict[str, Any]:
    """
    Say everything about the plugins as plain values, ready for JSON.

    Probes every provider. Keys: ``providers``, ``clashes``, ``blocked``, ``failures``,
    ``commands``.
    """
    from seamline.commands_of_plugins import collect_commands
    from seamline.offers import prints_to_stderr

    with prints_to_stderr():
        offered = [_describe(offer) for offer in plugins.offers]
    commands, broken = collect_commands(plugins)
    failures = [
        {
            "plugin": failure.origin.plugin,
            "distribution": failure.origin.distribution,
            "version": failure.origin.version,
            "stage": failure.stage,
            "reason": failure.reason,
            "traceback": failure.traceback,
        }
        for failure in (*plugins.failures, *broken)
    ]
    return {
        "providers": offered,
        "clashes": {
            name: [str(offer.origin) for offer in offers]
            for name, offers in plugins.clashes.items()
        },
        "blocked": [
            {
                "plugin": blocked.origin.plugin,
                "distribution": blocked.origin.distribution,
                "version": blocked.origin.version,
                "provider": blocked.provider,
                "why": blocked.why,
            }
            for blocked in plugins.blocked
        ],
        "failures": failures,
        "commands": [
            {
                "command": command.name,
                "plugin": command.origin.plugin,
                "distribution": command.origin.distribution,
                "version": command.origin.version,
            }
            for command in commands
        ],
    }


def _describe(offer: Offered) -> dict[str, Any]:
    answer = offer.probe()
    return {
        "name": offer.spec.name,
        "summary": offer.spec.summary,
        "distribution": offer.origin.distribution,
        "version": offer.origin.version,
        "plugin": offer.origin.plugin,
        "usable": answer.usable,
        "why": answer.why,
        "fix": answer.fix,
        "here": _found_here(offer) if answer.usable else {},
        "aliases": list(offer.spec.aliases),
        "options": [
            {
                "name": option.name,
                "kind": option.kind.__name__,
                "default": option.default,
                "help": option.help,
                "choices": list(option.choices),
                "minimum": option.minimum,
            }
            for option in offer.spec.options
        ],
    }


def _found_here(offer: Offered) -> dict[str, str]:
    """Ask what it finds on this machine; an error is what is found."""
    if offer.spec.here is None:
        return {}
    try:
        return {str(name): str(said) for name, said in offer.spec.here().items()}
    except Exception as error:  # a plugin's own
        return {"error": f"{type(error).__name__}: {error}"}


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console

    # text comes from plugins: it is printed as it is, and never read as markup
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    _print_table(console, facts["providers"])
    for found in facts["providers"]:
        _print_provider(console, found)
    for name, who in facts["clashes"].items():
        console.print(f"clash: {name!r} is offered by {' and '.join(who)}; block one")
    for out in facts["blocked"]:
        what = f"provider {out['provider']!r}" if out["provider"] else "plugin"
        console.print(f"blocked: {what} {_whose(out)}: {out['why']}")
    for command in facts["commands"]:
        console.print(f"command: {command['command']} {_whose(command)}")
    for failure in facts["failures"]:
        console.print(f"\nfailed at {failure['stage']}: plugin {_whose(failure)}")
        console.print(failure["traceback"].rstrip())


def _whose(facts: dict[str, Any]) -> str:
    origin = f"{facts['distribution']} {facts['version']}".rstrip()
    return f"{facts['plugin']!r} of {origin}"


def _print_table(console: Console, offered: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("provider", "usable", "distribution", "version", "summary")
    for found in offered:
        cells = [found[key] for key in ("distribution", "version", "summary")]
        usable = "yes" if found["usable"] else "no"
        table.add_row(*[Text(cell) for cell in (found["name"], usable, *cells)])
    console.print(table, soft_wrap=False)


def _print_provider(console: Console, found: dict[str, Any]) -> None:
    console.print(f"\n{found['name']}")
    if not found["usable"]:
        console.print(f"  unavailable: {found['why']}\n  to fix: {found['fix']}")
    for name, said in found["here"].items():
        console.print(f"  here, {name}: {said}")
    if found["aliases"]:
        console.print(f"  also called: {', '.join(found['aliases'])}")
    for option in found["options"]:
        values = " | ".join(map(str, option["choices"])) or option["kind"]
        least = "" if option["minimum"] is None else f", {option['minimum']:g} or more"
        console.print(
            f"  {option['name']}: {values}{least}, default {option['default']!r}"
            f"{'; ' if option['help'] else ''}{option['help']}"
        )
