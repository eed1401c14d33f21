"""``seamline warm``: have code compiled before it is needed, and kept on disk."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamline import command_options as options

if TYPE_CHECKING:
    from seamline.pipeline import Pipeline

__all__ = ["warm"]

_RUNS = 2  #: the first run compiles what is called lazily; at the second, segments are recorded


def warm(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Models whose kernels are compiled; without one, all that a provider has.",
        ),
    ] = None,
    *,
    provider: options.Providers = None,
    pin: options.Pins = None,
    fallback: options.Fallbacks = "error",
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile kernels into the cache on disk, so that later processes only load them."""
    rows = []
    if not models:
        rows = [_whole(text) for text in provider or ["cpu"]]
    for model in models or ():
        start = time.perf_counter()
        pipeline = options.open_pipeline(model, provider, pin, fallback)
        try:
            for one in pipeline.providers.values():
                getattr(one, "warming", _nothing)()
            feeds = options.feeds_for(pipeline, inputs, shape, dim, seed)
            said = _run(pipeline, feeds)
            facts = _facts(pipeline)
        finally:
            pipeline.close()
        took = time.perf_counter() - start
        rows.append({"what": model, "seconds": took, "note": said, "providers": facts})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        _tell(row)


def _nothing() -> None:
    """Stand for ``warming`` where a provider has none."""


def _whole(text: str) -> dict[str, Any]:
    """Have a provider compile all that it has."""
    from seamline.discovery import discover

    start = time.perf_counter()
    name, chosen = options.named_provider(text)
    made = discover().find(name).open(chosen)
    note = ""
    try:
        compile_all = getattr(made, "warm", None)
        if compile_all is None:
            note = "it compiles nothing beforehand"
        else:
            with options.progress(f"compiling the kernels of {name}"):
                note = str(compile_all())
        facts = {name: _facts_of(made)}
    finally:
        made.close()
    took = time.perf_counter() - start
    return {"what": name, "seconds": took, "note": note, "providers": facts}


def _run(pipeline: Pipeline, feeds: dict[str, Any]) -> str:
    """Run until everything is compiled and recorded; say what went wrong, if anything."""
    from seamline.errors import KernelError

    try:
        with options.progress("running"):
            for _ in range(_RUNS):
                pipeline.run(feeds)
    except KernelError as error:
        # Made-up inputs may be none that the model takes; kernels were compiled before.
        return f"its run failed, so that something may be left to compile: {error}"
    return ""


def _facts(pipeline: Pipeline) -> dict[str, Any]:
    return {name: _facts_of(one) for name, one in pipeline.providers.items()}


def _facts_of(provider: Any) -> dict[str, Any]:
    say: Any = getattr(provider, "cached", None)
    return dict(say()) if say is not None else {}


def _tell(row: dict[str, Any]) -> None:
    typer.echo(f"{row['what']}: {row['seconds']:.2f} s")
    if row["note"]:
        typer.echo(f"  {row['note']}")
    for name, facts in row["providers"].items():
        if "compiled" in facts:
            typer.echo(
                f"  {name}: {facts['compiled']} kernels compiled, {facts['loaded']} loaded "
                f"from the cache; kept in {facts['cache'] or 'no folder'}"
            )
