"""
Runs real models over ``cuda`` and ``cpu``: right, where they are cut, and how long they take.

    python -m tests.bench.bench_cuda_models [--rounds 50] [--no-record] [MODEL ...]

Every model is run captured and one launch at a time, in turns, and its answer held to
onnxruntime's on the host, whose own time stands beside. The encoder also runs as torch modules
made from the same graph's weights, eagerly and as a CUDA graph of torch's own, where torch is
installed. Each takes arrays of the host and gives arrays of the host; *on the device* leaves
the host's own work out: what is recorded, copies at its edges included, is replayed ten times
for one wait.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator

import attrs
import numpy as np
from tests.bench.bench_models import difference
from tests.bench.measuring import Times, alternating, machine, table, write_record
from tests.models.fetched import NotThereError
from tests.models.inputs import BY_NAME

import seamline

#: An encoder, a convolutional model, one with LSTM and If, two of many small operators.
CHOSEN = ("minilm_fp32", "ppocrv6_det", "silero_vad", "magika", "ppocr_cls")
ENCODER = "minilm_fp32"
LONG = (8, 128)  #: sentences and tokens of the encoder's second size
TIMES = 10  #: that the device's own work is repeated for one wait


def opened(path, *, record):
    """Open a model over the device, with the host for what is left."""
    options = seamline.SessionOptions()
    options.record_segments = record
    return seamline.InferenceSession(
        path, options, providers=["cuda", "cpu"], fallback="error"
    )


def onnxruntimes(path, feeds):
    """Give a function that runs the model in onnxruntime on the host."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, feeds)


def programs(program) -> Iterator:
    """Give a program, and those of bodies and rests that ran."""
    yield program
    inner = [one for runners in program.bodies.values() for one in runners.values()]
    for runner in (*inner, *([program.rest] if program.rest else [])):
        if runner.latest() is not None:
            yield from programs(runner.latest())


@attrs.frozen
class Alone:
    """What a session has the device do in a run, without what the host does between."""

    acts: tuple[Callable[[], object], ...]
    wait: Callable[[], object]

    @classmethod
    def of(cls, session):
        """
        Take the recordings of a session that ran, which hold the copies of what is fed.

        Launches that are not recorded cannot be repeated so: what was fed lies where later
        values of the same run lie.
        """
        pipeline, acts = session._pipeline, []
        for program in programs(pipeline.runner.latest()):
            for step in program.plan.segments:
                held = program.captured.get(step.id)
                is_there = held is not None and held.state == "recorded"
                if step.provider == "cuda" and is_there:
                    acts.append(held.recording.replay)
        return cls(tuple(acts), pipeline.providers["cuda"].memory().synchronize)

    def __call__(self):
        for _ in range(TIMES):
            for act in self.acts:
                act()
        self.wait()


def pieces_of(plan, where=""):
    """Give the pieces of a plan and of those inside it, as rows of a table."""
    rows = []
    for segment in plan["segments"]:
        held = (segment["capture"] or {}).get("events", [])
        how = held[-1] if held else segment["not_capturable"] or "not recorded"
        rows.append((where, segment["provider"], len(segment["nodes"]), segment["nodes"][0], how))  # fmt: skip
    rows += [(where, "core", 1, s["node"], "the host decides") for s in plan["host_steps"]]  # fmt: skip
    for name, body in within(plan).items():
        rows += pieces_of(body, name)
    return rows


def within(plan):
    """Give the plans of bodies that ran, and of what waited for a size."""
    rest = plan["rest"]
    return plan["bodies"] | ({"rest": rest} if rest and rest["planned"] else {})


def seams_of(plan):
    """Count the seams of a plan and of those inside it, by what causes them."""
    found = Counter((s["cause"], s["why"]) for s in plan["seams"])
    for body in within(plan).values():
        found += seams_of(body)
    return found


def measured(name, feeds, path, rounds):
    """Give a model's row and sections of its own."""
    captured, eager = opened(path, record=True), opened(path, record=False)
    theirs = onnxruntimes(path, feeds)
    runs = {
        "captured": lambda: captured.run(None, feeds),
        "eager": lambda: eager.run(None, feeds),
    }
    apart = max(difference(run, theirs) for run in runs.values())
    for _ in range(3):
        apart = max(apart, difference(runs["captured"], theirs))
    alone = {"captured, on the device": Alone.of(captured)}
    others, deviation = {}, float("nan")
    if name == ENCODER:
        others, lone, deviation = torchs(feeds, theirs)
        alone |= lone
    times = alternating({**runs, **others}, rounds=rounds)
    # Apart, as its threads go on spinning after a run.
    times |= alternating({"onnxruntime on the host": theirs}, rounds=rounds)
    for who, t in alternating(alone, rounds=rounds).items():
        times[who] = Times(tuple(one / TIMES for one in t.samples))
    plan = captured.explain().data["plan"]
    captured.close()
    eager.close()
    rows = [
        (who, f"{t.median * 1e6:.0f}", f"{t.best * 1e6:.0f}", f"{t.spread:.0%}")
        for who, t in times.items()
    ]
    said = f"Largest difference to onnxruntime {apart:.1e} of the largest value"
    if others:
        said += f"; torch's is {deviation:.1e}"
    shapes = ", ".join(f"{k} {list(v.shape)}" for k, v in feeds.items())
    seams = [(cause, why, n) for (cause, why), n in seams_of(plan).items()]
    return [
        f"## {name}, {shapes}",
        said + ".",
        table(("µs a run", "median", "best", "spread"), rows),
        table(("in", "piece", "nodes", "first", "recorded"), pieces_of(plan)),
        table(("seam", "why", "times"), seams) if seams else "No seam.",
    ]


def torchs(feeds, theirs):
    """Give the encoder's runs in torch, the device's alone, and how far they are off."""
    try:
        import torch
    except ModuleNotFoundError:
        return {}, {}, float("nan")
    from tests.bench.torch_encoder import encoder, folder

    torch.backends.cuda.matmul.allow_tf32 = False
    module = encoder(folder()).cuda().eval()
    given = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in feeds.items()}
    device = {k: v.cuda() for k, v in given.items()}
    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(**device)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = module(**device)

    def eager():
        with torch.inference_mode():
            return [module(**{k: v.cuda() for k, v in given.items()}).cpu().numpy()]

    def replayed():
        for name, value in given.items():
            device[name].copy_(value)
        graph.replay()
        return [held.cpu().numpy()]

    runs = {"torch": eager, "torch, CUDA graph": replayed}
    wait = torch.cuda.synchronize
    alone = {"torch, CUDA graph, on the device": Alone((graph.replay,), wait)}
    return runs, alone, max(difference(run, theirs) for run in runs.values())


def longer(feeds):
    """Give the encoder's feeds again, as many as LONG says."""
    rows, width = LONG
    ids = np.resize(feeds["input_ids"][feeds["input_ids"] > 0], (rows, width))
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(BY_NAME))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, sections = machine(), []
    for name in chosen.models or CHOSEN:
        try:
            model = BY_NAME[name]
            path = model.path()
            feeds = model.feeds(path)
            sections += measured(name, feeds, path, chosen.rounds)
            if name == ENCODER:
                sections += measured(name, longer(feeds), path, chosen.rounds)
        except (NotThereError, seamline.SeamlineError) as error:
            # A model that does not run is a result, and belongs in the record.
            sections.append(f"## {name}\n\n{type(error).__name__}: {error}")
        print("\n\n".join(sections[-5:]), flush=True)
    if not chosen.no_record:
        title = "Real models over cuda and cpu"
        print(write_record("cuda-models", title, sections, facts))


if __name__ == "__main__":
    main()
