"""
The command ``seamline``.

Commands stand in modules of their own, ``commands_*``, that import what is heavy inside
the command: ``--help`` and ``--version`` load no plugin and no onnx. A command that is
not one of seamline's own is looked for in the plugins, which only then are loaded.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from seamline import (
    commands_bench,
    commands_explain,
    commands_providers,
    commands_run,
    commands_warm,
)

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Seamline's own commands; then those of plugins, which ``--help`` leaves out."""

    # The types are typer's own click: which package that is depends on its version.
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or ctx.resilient_parsing:
            return own
        from seamline.commands_of_plugins import find_command

        return find_command(cmd_name)


app: typer.Typer = typer.Typer(
    name="seamline",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Plugins add commands of their own; 'seamline providers' lists them.",
)
app.command("run")(commands_run.run)
app.command("explain")(commands_explain.explain)
app.command("bench")(commands_bench.bench)
app.command("warm")(commands_warm.warm)
app.command("providers")(commands_providers.providers)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        try:
            number = metadata.version("seamline")
        except metadata.PackageNotFoundError:
            number = "(from a source tree that is not installed)"
        typer.echo(f"seamline {number}")
        raise typer.Exit


@app.callback()
def seamline(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Run ONNX models across providers, with every seam between them in the open."""


def main() -> None:
    """
    Run the command line.

    An error that seamline raises on purpose is printed in one piece and ends with
    status 1; anything else is a defect and keeps its traceback. A warning is printed
    as its text: there is no line of the user's to point at.
    """
    from seamline.errors import SeamlineError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            app()
    except SeamlineError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del filename, lineno, file, line
    typer.echo(f"{category.__name__}: {message}", err=True)
