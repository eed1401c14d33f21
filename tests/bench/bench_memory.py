"""
What a model of packed weights keeps in memory, beside the bytes that its claims declare.

    python -m tests.bench.bench_memory [--megabytes 256] [--no-record]

Each row is a process of its own. It runs a small model of the same form first, so that code
is compiled and libraries are in; then it notes its resident bytes, opens the large model,
runs it, and looks again: pages that hold data of its own, pages of files, and the most that
there were at once. The weights lie beside the model, or inside of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper
from tests.bench.measuring import machine, table, write_record

ROOT = Path(__file__).resolve().parents[2]
K, N, BLOCK = 4096, 16384, 32
KINDS = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
CHILD = """
import json, sys
import ml_dtypes, numpy as np
from seamline.pipeline import Pipeline

def resident():
    lines = [line.split() for line in open("/proc/self/status")]
    found = {words[0][:-1]: words[1] for words in lines if len(words) == 3}
    names = {"own": "RssAnon", "file": "RssFile", "peak": "VmHWM", "all": "VmRSS"}
    return {short: int(found[name]) * 1024 for short, name in names.items()}

small, large, dtype = sys.argv[1:4]
def run(path):
    pipeline = Pipeline.open(path, providers=[("cpu", {"num_threads": 2})])
    (name,) = pipeline.graph.inputs
    k = pipeline.graph.types[name].shape[1]
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    x = np.ones((1, k), kind)
    for _ in range(3):
        y = pipeline.run({name: x})[0]
    return pipeline, y

run(small)[0].close()
before = resident()
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
pipeline, y = run(large)
after = resident()
nodes = pipeline.explain().data["plan"]["nodes"].values()
declared = sum(node["resident_nbytes"] for node in nodes)
print(json.dumps({
    "declared": declared, "sum": float(y.astype(float).sum()),
    **{name: after[name] - before[name] for name in ("own", "file", "all")},
    "peak": after["peak"] - before["all"],
}))
"""


def weights_model(k, n, count, dtype, odd=False):
    """
    Give a model of ``count`` products of one input, whose sum is the output.

    ``odd`` scales are of a kind that float16 does not have.
    """
    random, kind = np.random.default_rng(0), KINDS[dtype]
    element = helper.np_dtype_to_tensor_dtype(kind)
    nodes, constants = [], []
    for i in range(count):
        codes = random.integers(0, 256, (n, k // BLOCK, BLOCK // 2), np.uint8)
        scales = (random.integers(1, 9, (n, k // BLOCK)) / 512).astype(kind)
        if odd:
            scales[0, 0] = 1e-9
        constants += [
            numpy_helper.from_array(codes, f"b{i}"),
            numpy_helper.from_array(scales, f"s{i}"),
        ]
        nodes.append(helper.make_node(
            "MatMulNBits", ["x", f"b{i}", f"s{i}"], [f"y{i}"], name=f"product{i}",
            domain="com.microsoft", K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=4,
        ))  # fmt: skip
    outputs = [helper.make_tensor_value_info("y0", element, [1, n])]
    outputs += [
        helper.make_tensor_value_info(f"y{i}", element, [1, n]) for i in range(1, count)
    ]
    graph = helper.make_graph(
        nodes, "weights", [helper.make_tensor_value_info("x", element, [1, k])], outputs,
        constants,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def written(model, path, *, beside):
    """Write a model, with its weights in a file beside it or inside."""
    if beside:
        external_data_helper.convert_model_to_external_data(
            model, location=f"{path.stem}.bin", size_threshold=0
        )
    onnx.save(model, path)
    return path


def measured(folder, megabytes, dtype="float32", *, beside=True, odd=False):
    """Give what a new process says of a model of so many megabytes of codes."""
    count = max(1, round(megabytes * 2**20 / (K * N // 2)))
    n = N if megabytes * 2**20 >= K * N // 2 else int(megabytes * 2**21 // K)
    folder = Path(folder)
    small = written(
        weights_model(64, 64, count, dtype, odd), folder / "small.onnx", beside=beside
    )
    large = written(
        weights_model(K, n, count, dtype, odd), folder / "large.onnx", beside=beside
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, small, large, dtype],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows = machine(), []
    for what, dtype, beside, odd in (
        ("weights beside the model", "float32", True, False),
        ("weights in the model's file", "float32", False, False),
        ("bfloat16, beside", "bfloat16", True, False),
        ("bfloat16 with a scale of 1e-9, beside", "bfloat16", True, True),
    ):
        with tempfile.TemporaryDirectory() as folder:
            said = measured(folder, chosen.megabytes, dtype, beside=beside, odd=odd)
        declared = said["declared"]
        rows.append((
            what, f"{declared / 2**20:.0f}",
            *(f"{said[name] / declared:.2f}" for name in ("own", "file", "all", "peak")),
        ))  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    head = ("model", "declared, MiB", "own pages", "pages of files", "both", "at most")
    sections = [
        "Resident bytes after the model was opened and run three times, less those before, as "
        "shares of the bytes of packed weights that the claims declare; and the most that "
        "there were meanwhile.",
        table(head, rows),
    ]
    if not chosen.no_record:
        print(
            write_record(
                "memory", "Memory of models of packed weights", sections, facts
            )
        )


if __name__ == "__main__":
    main()
