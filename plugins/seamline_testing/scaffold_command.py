"""``seamline new-provider``: write an installable package for a new provider."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["new_provider"]


def new_provider(
    name: Annotated[
        str, typer.Argument(help="The provider's name, as in 'my-device'.")
    ],
    *,
    into: Annotated[
        Path, typer.Option(help="The folder in which the package's folder is made.")
    ] = Path(),
) -> None:
    """Write an installable package: kernels, entry point, known gaps, and its test."""
    from seamline_testing.scaffold import names_for, write_package

    names = names_for(name)
    folder, files = write_package(names, into)
    typer.echo(f"wrote {folder}")
    for file in files:
        typer.echo(f"  {file}")
    typer.echo("next:")
    typer.echo(f"  cd {folder}")
    typer.echo("  pip install -e '.[test]'")
    typer.echo("  pytest")
