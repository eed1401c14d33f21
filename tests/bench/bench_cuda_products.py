"""
Measures products and convolutions of the provider ``cuda`` on a real device.

    python -m tests.bench.bench_cuda_products [--no-record]

Each model is one node, recorded, and replayed many times between two waits. One vector times a
matrix is told by the bytes of the matrix a second, beside the library's product of two such
vectors; a product of matrices and a convolution by operations a second. A matrix that the
second-level cache holds is read from there in all replays but the first.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import onnx
from tests.bench.bench_cuda import opened
from tests.bench.measuring import alternating, machine, table, write_record
from tests.core.toys import model

REPLAYS = 50
#: Depth and columns: projections of small and middling language models, and a head.
VECTORS = ((896, 4864), (4096, 4096), (4096, 11008), (5120, 152064))
SQUARES = (512, 2048, 8192)
#: Of ResNet-50 and MobileNet, at 224 by 224: input, weights, attributes.
LAYERS = {
    "the first": ((8, 3, 224, 224), (64, 3, 7, 7), "strides = [2, 2], pads = [3, 3, 3, 3]"),
    "one tap": ((8, 256, 56, 56), (64, 256, 1, 1), "group = 1"),
    "three by three": ((8, 64, 56, 56), (64, 64, 3, 3), "pads = [1, 1, 1, 1]"),
    "three by three, few pixels": ((8, 512, 7, 7), (512, 512, 3, 3), "pads = [1, 1, 1, 1]"),
    "channel by channel": ((8, 144, 56, 56), (144, 1, 3, 3), "group = 144, pads = [1, 1, 1, 1]"),
}  # fmt: skip
WIDTHS = {"float": 4, "float16": 2, "bfloat16": 2}


def product(kind, m, k, n, turned):
    b = f"{n},{k}" if turned else f"{k},{n}"
    return f"g ({kind}[{m},{k}] a, {kind}[{b}] b) => ({kind}[{m},{n}] y) {{ y = Gemm<transB = {turned}>(a, b) }}"


def convolution(kind, x, w, given):
    dims = [",".join(map(str, sizes)) for sizes in (x, w)]
    return f"g ({kind}[{dims[0]}] x, {kind}[{dims[1]}] w) => ({kind}[n,m,h,v] y) {{ y = Conv<{given}>(x, w) }}"


def zeros_of(text):
    """Give inputs of a model; what they hold costs nothing and changes nothing."""
    return {
        value.name: np.zeros(
            [d.dim_value for d in value.type.tensor_type.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in model(text, 23).graph.input
    }


def replayed(texts, *, rounds=15):
    """Give seconds of one replay, the shape of the result and the variant, for each model."""
    sessions = {name: opened(text) for name, text in texts.items()}
    acts, found = {}, {}
    for name, session in sessions.items():
        for _ in range(3):
            (made,) = session.run(zeros_of(texts[name]))
        (segment,) = session.runner.latest().captured.values()
        memory = session.providers["cuda"].memory()

        def act(replay=segment.recording.replay, memory=memory):
            for _ in range(REPLAYS):
                replay()
            memory.synchronize()

        (choice,) = session.runner.latest().plan.choices.values()
        acts[name], found[name] = act, (made.shape, choice.claim.variant)
    times = alternating(acts, rounds=rounds, seconds=10)
    for session in sessions.values():
        session.close()
    return {name: (times[name].median / REPLAYS, *found[name]) for name in texts}


def vectors(sizes=VECTORS):
    rows = []
    for k, n in sizes:
        texts = {
            f"{kind}, {'rows' if turned else 'columns'}, {m} of them": product(
                kind, m, k, n, turned
            )
            for kind in WIDTHS
            for turned in (0, 1)
            for m in (1, 2)
        }
        for name, (seconds, _, variant) in replayed(texts).items():
            rate = k * n * WIDTHS[name.split(",")[0]] / seconds / 1e12
            rows.append(
                (f"{k} x {n}, {name}", variant, f"{seconds * 1e6:.1f}", f"{rate:.2f}")
            )
    return table(
        ("matrix, type, how it is stored, vectors", "variant", "µs", "TB/s"), rows
    )


def squares(sizes=SQUARES):
    rows = []
    for side in sizes:
        texts = {kind: product(kind, side, side, side, 0) for kind in WIDTHS}
        for kind, (seconds, _, variant) in replayed(texts).items():
            rate = 2 * side**3 / seconds / 1e12
            rows.append(
                (f"{side}, {kind}", variant, f"{seconds * 1e6:.1f}", f"{rate:.1f}")
            )
    return table(("side, type", "variant", "µs", "TFLOP/s"), rows)


def convolutions(layers=LAYERS):
    rows = []
    for name, (x, w, given) in layers.items():
        texts = {kind: convolution(kind, x, w, given) for kind in ("float", "float16")}
        for kind, (seconds, shape, variant) in replayed(texts).items():
            rate = 2 * math.prod(shape) * math.prod(w[1:]) / seconds / 1e12
            rows.append(
                (f"{name}, {kind}", variant, f"{seconds * 1e6:.1f}", f"{rate:.1f}")
            )
    return table(("layer, type", "variant", "µs", "TFLOP/s"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-record", action="store_true")
    asked = parser.parse_args()
    facts = machine()
    sections = [
        "## One vector, and two", vectors(), "## Products", squares(),
        "## Convolutions", convolutions(),
    ]  # fmt: skip
    print("\n\n".join(sections))
    if not asked.no_record:
        title = "Products and convolutions of the provider cuda"
        print(write_record("cuda-products", title, sections, facts))


if __name__ == "__main__":
    main()
