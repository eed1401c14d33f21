"""
Times what happens before a run, by the size of the graph: load, claim, place, plan, build.

    python -m tests.bench.bench_planning [--no-record] [NODES ...]

A stage that is linear has a slope of 1: twice the nodes, twice the time.
"""

from __future__ import annotations

import argparse
import gc
import time

import numpy as np
from tests.bench.chains import chain
from tests.bench.measuring import machine, table, write_record

from seamline.claims import collect
from seamline.constants import Constants
from seamline.graph import load
from seamline.pipeline import Pipeline
from seamline.placement import place
from seamline.plan import partition, whole

STAGES = ("load", "claim", "place", "plan", "open and first run")
SIZES = (1000, 2000, 5000, 10000, 20000)


def stages(model, provider_name="cpu"):
    """Give seconds by stage, for one model."""
    pipeline = Pipeline.open(chain(1), providers=[provider_name])
    providers = dict(pipeline.providers)
    devices = {name: provider.device for name, provider in providers.items()}
    taken, clock = {}, time.perf_counter
    gc.collect()

    start = clock()
    graph = load(model)
    taken["load"] = clock() - start

    start = clock()
    constants = Constants(graph)
    claims = collect(graph, list(providers.values()), constants)
    taken["claim"] = clock() - start

    start = clock()
    placement = place(claims, devices, named=(provider_name,))
    taken["place"] = clock() - start

    start = clock()
    given = {name: graph.types[name] for name in graph.inputs}
    plan = partition(whole(graph), placement, providers, constants, given)
    taken["plan"] = clock() - start
    assert plan.steps
    pipeline.close()

    start = clock()
    fresh = Pipeline.open(model, providers=[provider_name])
    fresh.run({"x": np.zeros(4, np.float32)})
    taken["open and first run"] = clock() - start
    fresh.close()
    return taken


def slope(sizes, seconds):
    """Give the exponent p of seconds ~ nodes**p, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="*", type=int, default=SIZES, metavar="NODES")
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, found = machine(), {}
    stages(chain(100))  # what is imported or compiled once is not a stage's
    for size in chosen.nodes:
        found[size] = stages(chain(size))
        print(
            size,
            *(f"{stage} {found[size][stage]:.3f} s" for stage in STAGES),
            flush=True,
        )
    rows = [
        (
            size,
            *(f"{taken[stage] * 1e3:.0f}" for stage in STAGES),
            f"{_each(taken, size):.0f}",
        )
        for size, taken in found.items()
    ]
    if len(found) > 1:
        slopes = [
            slope(list(found), [t[stage] for t in found.values()]) for stage in STAGES
        ]
        rows.append(("slope", *(f"{value:.2f}" for value in slopes), ""))
        print("slope", *(f"{value:.2f}" for value in slopes))
    sections = [
        "Milliseconds for chains of small nodes, each stage once, in one process. *Slope* is "
        "the exponent fitted over all sizes; 1 is linear.",
        table(("nodes", *STAGES, "µs a node, load to plan"), rows),
    ]
    if not chosen.no_record:
        print(
            write_record(
                "planning", "Planning by the size of the graph", sections, facts
            )
        )


def _each(taken, size):
    return sum(taken[stage] for stage in STAGES[:4]) / size * 1e6


if __name__ == "__main__":
    main()
