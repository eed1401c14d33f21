"""
Times mixtures of experts and dequantised weights beside onnxruntime's, in turns.

    python -m tests.bench.bench_experts [--no-record]

Both sides run the same model at the same accuracy level and on as many threads, and what they
give is compared; but for MXFP4, of which onnxruntime has no kernel: there it runs int4.
"""

from __future__ import annotations

import argparse
from functools import partial

import ml_dtypes
import numpy as np
import onnx.helper as oh
import onnxruntime as ort
from onnx import TensorProto, numpy_helper
from tests.bench.measuring import alternating, machine, table, write_record

from seamline.pipeline import Pipeline

ROWS = (1, 4, 16, 128)
LEVEL = "session.qdq_matmulnbits_accuracy_level"
R = np.random.default_rng(0)


def model_of(nodes, inputs, output, stored):
    """Make a model of float inputs with rows left open."""
    infos = [
        oh.make_tensor_value_info(n, TensorProto.FLOAT, ["T", k]) for n, k in inputs
    ]
    result = oh.make_tensor_value_info("y", TensorProto.FLOAT, ["T", output])
    given = [numpy_helper.from_array(x, name) for name, x in stored.items()]
    graph = oh.make_graph(nodes, "g", infos, [result], given)
    imports = [oh.make_opsetid("", 23), oh.make_opsetid("com.microsoft", 1)]
    return oh.make_model(graph, opset_imports=imports, ir_version=11)


def experts(level, count=16, hidden=1024, inner=1024, k=4, block=32):
    """Give a QMoE of 4 bits with swiglu."""
    stored = {}
    for name, n, depth in (("w1", 2 * inner, hidden), ("w2", hidden, inner)):
        stored[name] = R.integers(0, 256, (count, n, depth // 2)).astype(np.uint8)
        stored[f"{name}s"] = (R.random((count, n, depth // block)) / 99).astype(
            np.float32
        )
    node = oh.make_node(
        "QMoE", ["x", "r", "w1", "w1s", "", "w2", "w2s"], ["y"], domain="com.microsoft", k=k,
        block_size=block, expert_weight_bits=4, activation_type="swiglu", swiglu_fusion=1,
        normalize_routing_weights=1, accuracy_level=level, weights_prepacked=0,
    )  # fmt: skip
    return model_of([node], [("x", hidden), ("r", count)], hidden, stored)


def dequantised(level, kind="int4", n=4096, k=4096, block=32):
    """Give a product with a DequantizeLinear of K by N codes."""
    codes = R.integers(0, 16, (k, n)).astype(np.uint8).view(getattr(ml_dtypes, kind))
    scales = np.exp2(R.integers(-6, -3, (k // block, n))).astype(np.float32)
    nodes = [
        oh.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=block),
        oh.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return model_of(nodes, [("x", k)], n, {"q": codes, "s": scales})


#: Models by title: ours, and theirs where that is another.
CASES = {
    "QMoE, 4 of 16 experts of 1024x1024, 4 bits": (experts, None),
    "DequantizeLinear of int4 4096x4096, MatMul": (dequantised, None),
    "the same of MXFP4, beside int4": (
        lambda level: dequantised(level, "float4_e2m1fn"), dequantised,
    ),
}  # fmt: skip


def opened(model, other, level, threads):
    """Open both sides; give a function from feeds to results for each."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry(LEVEL, str(level))
    peer = ort.InferenceSession(other.SerializeToString(), options)
    pipeline = Pipeline.open(
        model, providers=[("cpu", {"num_threads": threads})],
        graph_optimization_level="all", accuracy_level=level,
    )  # fmt: skip
    return {
        "onnxruntime": lambda feeds: peer.run(None, feeds)[0],
        "seamline": lambda feeds: pipeline.run(feeds)[0],
    }


def measure(title, level, chosen):
    """Give the rows of the table for a case, printed as they are known."""
    ours, theirs = CASES[title]
    model, rows = ours(level), []
    other = model if theirs is None else theirs(level)
    sides = opened(model, other, level, chosen.threads)
    widths = {
        i.name: i.type.tensor_type.shape.dim[1].dim_value for i in model.graph.input
    }
    for m in chosen.rows:
        feeds = {
            n: R.standard_normal((m, k)).astype(np.float32) for n, k in widths.items()
        }
        given = {who: run(feeds) for who, run in sides.items()}
        want = given["onnxruntime"].astype(float)
        apart = np.sqrt(np.mean((given["seamline"] - want) ** 2) / np.mean(want**2))
        times = alternating(
            {who: partial(run, feeds) for who, run in sides.items()},
            rounds=chosen.rounds, warmups=3, rest=0.01,
        )  # fmt: skip
        one, base = times["seamline"], times["onnxruntime"]
        rows.append(
            (title, level, m, f"{one.median * 1e3:.2f}", f"{base.median * 1e3:.2f}",
             f"{one.median / base.median:.2f}", f"{one.best / base.best:.2f}",
             f"{one.spread:.0%}", f"{apart:.0e}" if other is model else "")
        )  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--levels", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    facts, rows = machine(), []
    for title in CASES:
        for level in chosen.levels:
            rows += measure(title, level, chosen)
    head = ("model", "level", "rows", "seamline ms", "onnxruntime ms", "ratio of medians",
            "ratio of best", "spread", "apart")  # fmt: skip
    text = (
        f"{chosen.threads} threads each, in turns. Ratios are to onnxruntime's time at the "
        "same accuracy level: below 1 means that seamline took less. *Apart* is the "
        "difference of both results, root of the mean square over that of the values."
    )
    if not chosen.no_record:
        sections = [text, table(head, rows)]
        print(
            write_record("experts", "Experts and dequantised weights", sections, facts)
        )


if __name__ == "__main__":
    main()
