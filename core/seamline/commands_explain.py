"""``seamline explain``: who runs what, why, where the seams are, and what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamline import command_options as options

if TYPE_CHECKING:
    from seamline.explain import Explanation
    from seamline.pipeline import Pipeline

__all__ = ["explain"]


Measure = Annotated[
    int, typer.Option(help="Run this often and state what steps and seams took.")
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--diff", help="Compare with an earlier --json; status 1 if it differs."
    ),
]
Baseline = Annotated[
    Path | None,
    typer.Option(help="Hold the seams to this file; status 1 if one is new."),
]
WriteBaseline = Annotated[
    Path | None, typer.Option(help="Write the seams to a file for --baseline.")
]
Html = Annotated[Path | None, typer.Option(help="Write a page of HTML.")]


def explain(
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
    measure: Measure = 0,
    against: Against = None,
    baseline: Baseline = None,
    write_baseline: WriteBaseline = None,
    html: Html = None,
    as_json: options.Json = False,
) -> None:
    """Explain claims, refusals, placement, segments, seams and memory."""
    options.at_least("--measure", measure, 0)
    pipeline = options.open_pipeline(
        model, provider, pin, fallback, optimize, seam_form
    )
    try:
        feeds = options.feeds_for(pipeline, inputs, shape, dim, seed)
        explanation = _explained(pipeline, feeds, measure)
    finally:
        pipeline.close()
    if html:
        _write("--html", html, _page(explanation))
    if write_baseline:
        from seamline.seam_baseline import baseline_of

        _write("--write-baseline", write_baseline, baseline_of(explanation.data))
    if baseline:
        _held(baseline, explanation, as_json=as_json)
    elif against:
        _compare(against, explanation, as_json=as_json)
    else:
        typer.echo(explanation.to_json() if as_json else str(explanation), nl=False)


def _explained(
    pipeline: Pipeline, feeds: Mapping[str, Any], measure: int
) -> Explanation:
    """Explain what inputs of these shapes would do, or did where they were measured."""
    if measure:
        with options.progress(f"running {measure} times"):
            timings = pipeline.measure(feeds, measure)
        return pipeline.explain(None, timings)
    shapes = {
        name: value.shape for name, value in feeds.items() if hasattr(value, "shape")
    }
    return pipeline.explain(shapes)


def _compare(against: Path, explanation: Explanation, *, as_json: bool) -> None:
    from seamline.explain import diff

    lines = diff(_earlier(against), explanation.data)
    text = "\n".join(lines) if lines else "no difference"
    typer.echo(json.dumps({"differences": list(lines)}) if as_json else text)
    if lines:
        raise typer.Exit(1)


def _earlier(path: Path) -> dict[str, Any]:
    from seamline.errors import SeamlineError
    from seamline.explain import FORMAT

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeamlineError(f"--diff {path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise SeamlineError(
            f"--diff {path}: it is no explanation of format {FORMAT}; make one with "
            "seamline explain --json"
        )
    return data


def _page(explanation: Explanation) -> str:
    from seamline.errors import SeamlineError

    try:
        return explanation.to_html()
    except ModuleNotFoundError as error:
        raise SeamlineError(f"--html: {error}") from error


def _held(path: Path, explanation: Explanation, *, as_json: bool) -> None:
    """Say which seams are new, and which are gone; leave with status 1 for a new one."""
    from seamline.seam_baseline import held, read_baseline

    found = held(read_baseline(path), explanation.data)
    if as_json:
        typer.echo(json.dumps({"new": list(found.new), "gone": list(found.gone)}))
    else:
        lines = [*found.new, *(f"gone: seam {name}" for name in found.gone)]
        typer.echo("\n".join(lines) or "no new seam")
    if found.new:
        raise typer.Exit(1)


def _write(option: str, path: Path, text: str) -> None:
    """Write beside, then rename: an interrupted command leaves no half of a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with options.writing(option, path):
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
