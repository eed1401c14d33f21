"""``seamline bench``: time a model, beside a peer where one is named, in alternation."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from seamline import command_options as options

__all__ = ["alternate", "bench"]


Peer = Annotated[
    str | None, typer.Option(help="A runtime to measure beside, such as onnxruntime.")
]
Threads = Annotated[int, typer.Option(help="Threads of both; 0: all cores.")]
Runs = Annotated[int, typer.Option(help="Timed runs of each.")]


def bench(
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
    peer: Peer = None,
    threads: Threads = 0,
    runs: Runs = 20,
    as_json: options.Json = False,
) -> None:
    """Time a model; with --peer, alternate with it and check that both agree."""
    options.at_least("--runs", runs, 1)
    options.at_least("--threads", threads, 0)
    named = [_with_threads(text, threads) for text in provider or ["cpu"]]
    pipeline = options.open_pipeline(model, named, pin, fallback, optimize, seam_form)
    try:
        feeds = options.feeds_for(pipeline, inputs, shape, dim, seed)
        sides: dict[str, Callable[[], list[Any]]] = {
            "seamline": lambda: pipeline.run(feeds)
        }
        if peer:
            other = _peer(peer, model, threads)
            sides[peer] = lambda: other(feeds)
        with options.progress(f"timing {' and '.join(sides)}"):
            facts = alternate(sides, runs)
    finally:
        pipeline.close()
    facts = {"model": model, "providers": named, "threads": threads, **facts}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    _print(facts, peer)


def _print(facts: Mapping[str, Any], peer: str | None) -> None:
    for name, took in facts["median_ms"].items():
        typer.echo(
            f"{name:14} {took:10.3f} ms  (fastest {facts['fastest_ms'][name]:.3f})"
        )
    if peer:
        typer.echo(
            f"ratio          {facts['ratio']:10.3f}  (seamline's time over {peer}'s)"
        )
        typer.echo(f"largest difference {facts['largest_difference']:.3g}")


def alternate(
    sides: Mapping[str, Callable[[], list[Any]]], runs: int
) -> dict[str, Any]:
    """
    Time functions in turns, so that a busy moment falls on all of them.

    Returns
    -------
    dict
        ``median_ms`` and ``fastest_ms`` by name; with two sides also ``ratio`` of the
        medians and ``largest_difference`` between what they give.
    """
    results = {name: side() for name, side in sides.items()}
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(max(runs, 1)):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            took[name].append((time.perf_counter() - start) * 1000)
    facts: dict[str, Any] = {
        "runs": max(runs, 1),
        "median_ms": {name: statistics.median(times) for name, times in took.items()},
        "fastest_ms": {name: min(times) for name, times in took.items()},
    }
    if len(sides) == 2:
        first, second = sides
        facts["ratio"] = facts["median_ms"][first] / facts["median_ms"][second]
        facts["largest_difference"] = _difference(results[first], results[second])
    return facts


def _difference(mine: list[Any], other: list[Any]) -> float:
    import numpy as np

    largest = 0.0
    for one, two in zip(mine, other, strict=True):
        one, two = np.asarray(one), np.asarray(two)
        if one.shape != two.shape:
            return float("inf")
        if one.dtype.kind in "OUS" or not one.size:
            largest = max(largest, 0.0 if np.array_equal(one, two) else float("inf"))
            continue
        gap = np.abs(one.astype(np.float64) - two.astype(np.float64))
        same = (one == two) | ((one != one) & (two != two))  # NaN equals NaN here
        largest = max(largest, float(np.where(same, 0.0, gap).max()))
    return largest


def _with_threads(text: str, threads: int) -> str:
    if not threads or "num_threads" in text:
        return text
    return f"{text}{',' if ':' in text else ':'}num_threads={threads}"


def _peer(
    name: str, model: str, threads: int
) -> Callable[[Mapping[str, Any]], list[Any]]:
    from seamline.discovery import discover
    from seamline.errors import UnknownProviderError

    plugins = discover()
    spec = plugins.find(name).spec
    if spec.peer is None:
        peers = [
            n for n, offered in plugins.specs.items() if offered.spec.peer is not None
        ]
        raise UnknownProviderError(
            name, peers, why="it wraps no other runtime to measure beside"
        )
    return spec.peer(model, threads)
