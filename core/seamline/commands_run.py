"""``seamline run``: run a model once, show or keep what it gives."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from seamline import command_options as options

__all__ = ["run"]


def run(
    model: options.Model,
    *,
    provider: options.Providers = None,
    pin: options.Pins = None,
    fallback: options.Fallbacks = "error",
    optimize: options.Optimize = "all",
    seam_form: options.SeamForms = "auto",
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    seed: options.Seed = 0,
    save: Annotated[
        Path | None, typer.Option(help="Keep the outputs in this .npz file.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace, for ui.perfetto.dev.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run a model; inputs that are not given are made up from their types."""
    from seamline.profiling import Profile

    pipeline = options.open_pipeline(
        model, provider, pin, fallback, optimize, seam_form
    )
    try:
        feeds = options.feeds_for(pipeline, inputs, shape, dim, seed)
        trace = Profile("seamline") if profile else None
        with options.progress("running"):
            results = pipeline.run(feeds, profile=trace)
        names = pipeline.graph.outputs
        if save:
            with options.writing("--save", save):
                _save(save, dict(zip(names, results, strict=True)))
        if trace is not None and profile:
            with options.writing("--profile", profile):
                trace.write(profile)
    finally:
        pipeline.close()
    rows = [_describe(name, value) for name, value in zip(names, results, strict=True)]
    if as_json:
        typer.echo(json.dumps({"model": model, "outputs": rows}, indent=2))
        return
    for row in rows:
        typer.echo(f"{row['name']}: {row['type']}  {row['values']}")


def _describe(name: str, value: Any) -> dict[str, Any]:
    import numpy as np

    from seamline.tensors import type_of_array

    if not isinstance(value, np.ndarray):
        length = "absent" if value is None else f"{len(value)} elements"
        return {"name": name, "type": length, "values": []}
    shown = value.ravel()[:8]
    values = [str(v) if value.dtype.kind == "O" else v.astype("O") for v in shown]
    plain = [v if isinstance(v, int | float | str | bool) else str(v) for v in values]
    return {"name": name, "type": str(type_of_array(value)), "values": plain}


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write beside, then rename: an interrupted run leaves no half of a file."""
    import numpy as np

    from seamline.errors import RunError

    arrays = {}
    for name, value in results.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OV":
            raise RunError(f"output {name!r} cannot be kept in an .npz file")
        arrays[name] = value
    beside = path.with_name(f".{path.name}.{os.getpid()}.npz")
    try:
        np.savez(beside, allow_pickle=False, **arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
