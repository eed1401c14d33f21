"""``seamline compare``: where two lists of providers part ways inside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamline import command_options as options

if TYPE_CHECKING:
    from seamline_testing.compare import Divergence
    from seamline_testing.compare_report import Told
    from seamline_testing.excerpts import Excerpt
    from seamline_testing.sides import Side

__all__ = ["Plugins", "compare"]

Npz = Annotated[
    Path | None, typer.Option("--inputs", help="Inputs by name, in a .npz file.")
]
Tolerance = Annotated[
    str,
    typer.Option(
        help="A number, relative and absolute, or a class of the kit's table (exact, "
        "sum, ...); each operator's own class where left out."
    ),
]
Into = Annotated[
    Path, typer.Option(help="Where the model of the diverging node is written.")
]
Effort = Annotated[
    float, typer.Option(help="Seconds for making the node's inputs smaller.")
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(help="A module of a plugin that is not installed; repeatable."),
]


def compare(
    model: options.Model,
    a: Annotated[str, typer.Argument(help="Providers, as in cpu or cpu,reference.")],
    b: Annotated[str, typer.Argument(help="Providers that are held to the first.")],
    *,
    npz: Npz = None,
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    dim: options.Dims = None,
    seed: options.Seed = 0,
    tolerance: Tolerance = "",
    into: Into = Path(),
    effort: Effort = 20.0,
    plugin: Plugins = None,
    as_json: options.Json = False,
) -> None:
    """
    Run two lists of providers side by side; find the first node where they differ.

    The node is written as a model of its own, as small as the difference stays; status 1
    where they differ. Inputs that are not given are made up from their types.
    """
    from seamline_testing.compare import compare as find
    from seamline_testing.compare_report import Told
    from seamline_testing.sides import CompareError, closeness_of, side_of

    if npz is not None and (inputs or shape or dim):
        raise CompareError(
            "--inputs gives every input; leave --input, --shape, --dim out"
        )
    sides = side_of(a, plugin or ()), side_of(b, plugin or ())
    closeness = closeness_of(tolerance)
    feeds = _feeds(model, sides[0], npz, (inputs, shape, dim, seed))
    with options.progress(f"comparing {a} and {b}"):
        told = Told(model, sides, closeness, find(model, sides, feeds, closeness))
    divergence = told.found.divergence
    if divergence is not None and divergence.excerpt is not None:
        with options.progress(f"shrinking {divergence.node.name}"):
            told = _reduced(told, divergence, divergence.excerpt, into, effort)
    text = json.dumps(told.data(), indent=2) if as_json else "\n".join(told.lines())
    typer.echo(text)
    if told.found.diverges:
        raise typer.Exit(1)


def _feeds(model: str, side: Side, npz: Path | None, given: Any) -> dict[str, Any]:
    """Make and check feeds, from a file and from what ``seamline run`` takes too."""
    from seamline.errors import ModelError
    from seamline.feeds import FeedCheck
    from seamline.tensors import TensorType, numpy_dtype
    from seamline_testing.compare_report import read_npz

    try:
        with options.progress(f"opening {model}"):
            pipeline = side.open(model)
    except OSError as error:
        raise ModelError(model, "", error.strerror or str(error)) from error
    try:
        if npz is None:
            return options.feeds_for(pipeline, *given)
        types = {name: pipeline.types.get(name) for name in pipeline.graph.inputs}
        dtypes = {
            name: numpy_dtype(kind.dtype)
            for name, kind in types.items()
            if isinstance(kind, TensorType)
        }
        check = FeedCheck(types, overridable=pipeline.graph.overridable)
        return check(read_npz(npz, dtypes))
    finally:
        pipeline.close()


def _reduced(
    told: Told, divergence: Divergence, excerpt: Excerpt, into: Path, effort: float
) -> Told:
    """Shrink what diverges, have it judged, and write it."""
    import attrs

    from seamline_testing.compare_report import reproducing, verdict, write_excerpt
    from seamline_testing.shrink import shrink
    from seamline_testing.sides import apart

    sides, closeness = told.sides, told.closeness
    shrunk = shrink(excerpt, lambda e: bool(apart(e, sides, closeness)[0]), effort)
    found = attrs.evolve(divergence, excerpt=shrunk.excerpt)
    stem = Path(told.model).stem
    whole = len(told.found.graph.nodes) == len(excerpt.nodes) and not divergence.owners
    stem += "-smaller" if whole else f"-{divergence.path}"
    files = write_excerpt(shrunk.excerpt, stem, into)
    said = f"{shrunk.tries} tries, to {shrunk.excerpt}"
    return attrs.evolve(
        told,
        found=attrs.evolve(told.found, divergence=found),
        judged=verdict(shrunk.excerpt, sides, closeness),
        shrunk=said if shrunk.finished else f"{said}, and time ran out",
        files=tuple(map(str, files)),
        line=reproducing(*files, sides, closeness),
    )
