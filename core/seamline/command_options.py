"""Options that several commands share, and the pipeline that they describe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seamline.pipeline import Pipeline
    from seamline.tensors import ValueType

__all__ = [
    "Dims",
    "Fallbacks",
    "Inputs",
    "Json",
    "Model",
    "Optimize",
    "Pins",
    "Providers",
    "SeamForms",
    "Seed",
    "Shapes",
    "at_least",
    "feeds_for",
    "named_provider",
    "open_pipeline",
    "progress",
    "shapes_of",
    "writing",
]

Model = Annotated[str, typer.Argument(help="A model file.", show_default=False)]
Providers = Annotated[
    list[str] | None,
    typer.Option(
        "--provider",
        "-p",
        help="A provider, NAME or NAME:OPTION=VALUE,...; repeat in order of preference; "
        "default: cpu.",
    ),
]
Pins = Annotated[
    list[str] | None,
    typer.Option("--pin", help="NODE, PATTERN or OPERATOR=PROVIDER; repeatable."),
]
Fallbacks = Annotated[
    str,
    typer.Option("--fallback", help="error, warn or allow: may cpu take what is left?"),
]
SeamForms = Annotated[
    str,
    typer.Option(
        "--seam-form",
        help="How recordings leave for the host: auto, eager, mailbox or host_node.",
    ),
]
Optimize = Annotated[
    str,
    typer.Option("--optimize", help="Rewrite the graph: none, basic, extended or all."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="NAME=FILE.npy or NAME=JSON; repeatable."),
]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="NAME=1,3,224,224; repeatable.")
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", help="SYMBOL=SIZE, for sizes left open; 1 where not given."),
]
Seed = Annotated[int, typer.Option(help="Seed of inputs that are made up.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def at_least(option: str, value: int, least: int) -> None:
    """Refuse a number that is too small, as seamline's own error."""
    from seamline.errors import SeamlineError

    if value < least:
        raise SeamlineError(f"{option} {value}: it is at least {least}")


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Turn what the system says of a file that cannot be written into one line."""
    from seamline.errors import SeamlineError

    try:
        yield
    except OSError as error:
        raise SeamlineError(f"{option} {path}: {error.strerror or error}") from error


def progress(text: str) -> Any:
    """Show that something is going on, on standard error, where a person watches."""
    from rich.console import Console

    return Console(stderr=True).status(text)


def named_provider(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``NAME`` or ``NAME:OPTION=VALUE,...``."""
    from seamline.samples import parse_pairs

    name, colon, options = text.partition(":")
    pairs = options.split(",") if colon else []
    return name, parse_pairs(pairs, f"--provider {name}")


def open_pipeline(
    model: str,
    providers: list[str] | None,
    pins: list[str] | None,
    fallback: str,
    optimize: str = "all",
    seam_form: str = "auto",
) -> Pipeline:
    """Open a model as the shared options say."""
    from seamline.errors import ModelError, PlanError
    from seamline.levels import level_of
    from seamline.pipeline import Pipeline
    from seamline.samples import parse_pairs
    from seamline.seam_policy import check_form

    if fallback not in ("error", "warn", "allow"):
        raise PlanError(f"--fallback {fallback!r}: it is error, warn or allow")
    try:
        level = level_of(optimize)
    except ValueError as error:
        raise PlanError(f"--optimize: {error}") from error
    try:
        check_form(seam_form)
    except ValueError as error:
        raise PlanError(f"--seam-form: {error}") from error
    try:
        with progress(f"opening {model}"):
            return Pipeline.open(
                model,
                providers=[named_provider(text) for text in providers or ["cpu"]],
                pins=parse_pairs(pins, "--pin"),
                fallback=fallback,  # type: ignore[arg-type]
                graph_optimization_level=level,
                seam_form=seam_form,  # type: ignore[arg-type]
            )
    except OSError as error:
        raise ModelError(model, "", error.strerror or str(error)) from error


def shapes_of(shapes: list[str] | None) -> dict[str, list[int]]:
    """Read sizes by input name."""
    from seamline.errors import FeedError
    from seamline.samples import parse_pairs

    found = {}
    for name, text in parse_pairs(shapes, "--shape").items():
        try:
            found[name] = [int(size) for size in text.split(",") if size]
        except ValueError as error:
            raise FeedError(
                f"--shape {name}={text}: sizes are whole numbers"
            ) from error
        if min(found[name], default=0) < 0:
            raise FeedError(f"--shape {name}={text}: a size is not negative")
    return found


def feeds_for(
    pipeline: Pipeline,
    inputs: list[str] | None,
    shapes: list[str] | None,
    dims: list[str] | None,
    seed: int,
) -> dict[str, Any]:
    """Make and check the feeds that the shared options describe."""
    from seamline.errors import FeedError, near
    from seamline.feeds import FeedCheck
    from seamline.samples import parse_pairs, sample_feeds

    at_least("--seed", seed, 0)
    types = {name: pipeline.types.get(name) for name in pipeline.runner.region.inputs}
    sizes = {}
    for name, text in parse_pairs(dims, "--dim").items():
        if not text.isdigit():
            raise FeedError(f"--dim {name}={text}: a size is a whole number")
        symbols = _symbols(types.values())
        if name not in symbols:
            raise FeedError(
                f"--dim {name}={text}: no input has a size called {name!r}"
                f"{near(name, symbols)} (there are: {', '.join(sorted(symbols)) or 'none'})"
            )
        sizes[name] = int(text)
    feeds = sample_feeds(
        types,
        files=parse_pairs(inputs, "--input"),
        shapes=shapes_of(shapes),
        dims=sizes,
        seed=seed,
    )
    return FeedCheck(types)(feeds)


def _symbols(types: Iterable[ValueType | None]) -> set[str]:
    """Give the names of sizes that inputs leave open."""
    shapes = [getattr(kind, "shape", None) or () for kind in types]
    return {dim for shape in shapes for dim in shape if isinstance(dim, str)}
