"""
Times MatMulNBits beside onnxruntime: every variant that is here, in turns, with equal threads.

    python -m tests.bench.bench_int4 [--threads 2] [--rounds 9] [--shapes 4096x4096 ...]
        [--rows 1 16 ...] [--levels 4 0] [--variants avx2 ...] [--largest 1e11] [--no-record]

Ours is the list of commands that a recorded segment replays, over fixed memory; theirs is a
session's run over bound memory. A turn rests, so that the other's workers have gone to
sleep (onnxruntime's spin for more than 10 ms after a run: whoever came next had a core and a
half), runs unmeasured until its own are awake, and then a few times.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx.helper as oh
import onnxruntime as ort
from onnx import TensorProto, numpy_helper
from tests.bench.measuring import Times, machine, table, write_record

from seamline_cpu.atomics import longs
from seamline_cpu.commands import bind, command
from seamline_cpu.instruction_sets import lacking
from seamline_cpu.ir import types
from seamline_cpu.jit import native
from seamline_cpu.kernels.nbits_choice import VARIANTS, choice, is_exact, is_int8
from seamline_cpu.kernels.nbits_layout import Source, pack
from seamline_cpu.kernels.nbits_product import Product, padded_bias
from seamline_cpu.vectors import I32, I64, Vectors, vector

#: (N, K): a small model's, its widest, two of 7 billion weights, and a head of 32 billion's.
SHAPES = [(576, 1536), (4864, 896), (4096, 4096), (11008, 4096), (152064, 5120)]
ROWS = [1, 2, 5, 16, 128, 512]
BLOCK, REST, AWAKE, BURST, LARGE = 32, 0.06, 0.0005, 5, 10**9
_VECTOR = "avx2" if lacking("avx2") is None else "portable"


@native
def read_all(context, start, count):
    """Give the sum of words from an address on, ``count`` times 1 KiB, four streams of it."""

    def generate(context, builder, signature, args):
        v = Vectors(builder, _VECTOR)
        start, count = args
        kind, streams = vector(I32, 8), 4
        each = v.times(count, 256)
        starts = v.every(start, each, streams)

        def line(i, sums):
            made = []
            for stream, total in zip(starts, sums, strict=True):
                place = v.add(stream, v.times(i, 64))
                v.prefetch(v.add(place, 1280))
                for half in (0, 32):
                    total = builder.add(total, v.load(kind, v.add(place, half)))
                made.append(total)
            return made

        totals = v.loop(v.times(count, 4), [v.constant(kind, 0)] * streams, line)
        total = totals[0]
        for more in totals[1:]:
            total = builder.add(total, more)
        # Something must come of it, or LLVM reads nothing.
        return builder.zext(builder.extract_element(total, v.constant(I32, 0)), I64)

    return types.int64(types.int64, types.int64), generate


@command
def reading(a, share, shares):
    """Read ``a[1]`` KiB at ``a[0]``."""
    low, high = a[1] * share // shares, a[1] * (share + 1) // shares
    longs(a[2])[share] = read_all(a[0] + low * 1024, high - low)


def reader(data, threads):
    sums = np.zeros(threads, np.int64)
    arguments = [data.ctypes.data, data.nbytes // 1024, sums.ctypes.data]
    return bind(reading, arguments, threads, keep=(data, sums))


def random_weights(n, k):
    r = np.random.default_rng(n)
    blocks = -(-k // BLOCK)
    codes = r.integers(0, 256, (n, blocks, BLOCK // 2), np.uint8)
    # Scales that float16 does not hold, as those of float32 models.
    return codes, r.random((n, blocks), np.float32) * 0.01 + np.float32(0.005)


def theirs(codes, scales, k, level, threads):
    """Open a session; give a function from an input to a function that runs it."""
    n = len(codes)
    constants = [
        numpy_helper.from_array(codes, "B"),
        numpy_helper.from_array(scales, "s"),
    ]
    node = oh.make_node(
        "MatMulNBits", ["A", "B", "s"], ["Y"], domain="com.microsoft", K=k, N=n, bits=4,
        block_size=BLOCK, accuracy_level=level,
    )  # fmt: skip
    sized = [
        oh.make_tensor_value_info(name, TensorProto.FLOAT, ["M", size])
        for name, size in (("A", k), ("Y", n))
    ]
    graph = oh.make_graph([node], "g", sized[:1], sized[1:], constants)
    imports = [oh.make_opsetid("", 21), oh.make_opsetid("com.microsoft", 1)]
    model = oh.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def over(x, y):
        bound = session.io_binding()
        bound.bind_cpu_input("A", x)
        bound.bind_output("Y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        return lambda: session.run_with_iobinding(bound)

    return over


def in_bursts(contestants, rounds, burst):
    """
    Time functions in turns: rest, then ``burst`` times.

    Bursts of more than one begin with runs that are not measured, for ``AWAKE`` seconds: a
    worker takes longer to wake than the smallest products do.
    """
    samples = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, function in contestants.items():
            time.sleep(REST)
            end = time.perf_counter() + AWAKE
            while burst > 1 or not turn:
                function()
                if time.perf_counter() > end:
                    break
            for _ in range(burst if turn else 0):  # the first turn warms up
                start = time.perf_counter()
                function()
                samples[name].append(time.perf_counter() - start)
    return {name: Times(tuple(taken)) for name, taken in samples.items()}


def error(got, x, packed_source, k):
    """Give the error of some columns against float64, as a share of their size."""
    codes, scales = packed_source
    some = slice(0, min(len(codes), 256))
    q = np.stack([codes[some] & 15, codes[some] >> 4], -1).reshape(
        len(codes[some]), -1, BLOCK
    )
    w = ((q.astype(float) - 8) * scales[some, :, None]).reshape(len(q), -1)[:, :k]
    want = x.astype(float) @ w.T
    return float(np.sqrt(np.mean((got[:, some] - want) ** 2) / np.mean(want**2)))


def measure(shape, chosen):
    """Give the rows of the table for a shape, printed as they are known."""
    n, k = shape
    codes, scales = random_weights(n, k)
    packed = pack(Source(codes, scales, None, k, 4))
    bias, rows = padded_bias(None, len(packed.data)), []
    for level in chosen.levels:
        over = theirs(codes, scales, k, level, chosen.threads)
        for m in chosen.rows:
            if m * n * k > chosen.largest:
                continue
            rows += cell(packed, bias, (codes, scales), over, level, m, chosen)
    return rows


def cell(packed, bias, source, over, level, m, chosen):
    x = np.random.default_rng(m).standard_normal((m, packed.k)).astype(np.float32)
    outs = {"onnxruntime": np.zeros((m, packed.n), np.float32)}
    runs = {"onnxruntime": over(x, outs["onnxruntime"])}
    for variant in chosen.variants:
        exact, threads = is_exact(level), chosen.threads
        product = Product(packed, variant, is_int8(level), threads, exact)
        if variant == "amx" and product.way(m) not in ("split", "tiles"):
            continue  # it would run what avx512vnni does
        outs[variant] = np.zeros((m, packed.n), np.float32)
        runs[variant] = product.bound(x, bias, outs[variant])
    if m == 1:
        runs["a read of the same bytes"] = reader(packed.data, chosen.threads)
    work = m * packed.n * packed.k
    large = work > LARGE
    rounds = max(3, chosen.rounds // 3) if large else chosen.rounds
    times = in_bursts(runs, rounds, 1 if work > 10 * LARGE else 3 if large else BURST)
    base, rows = times["onnxruntime"], []
    for name, taken in times.items():
        wrong = f"{error(outs[name], x, source, packed.k):.1e}" if name in outs else ""
        rows.append(
            (
                f"{packed.n}x{packed.k}", level, m, name,
                f"{taken.median * 1e6:.0f}", f"{taken.median / base.median:.2f}",
                f"{taken.best / base.best:.2f}", f"{taken.spread:.0%}",
                f"{2 * work / taken.median / 1e9:.0f}" if name in outs else "",
                f"{packed.data.nbytes / taken.median / 1e9:.1f}", wrong,
            )
        )  # fmt: skip
        print(*rows[-1], sep="  ", flush=True)
    return rows


def shape_of(text):
    n, k = text.split("x")
    return int(n), int(k)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--shapes", type=shape_of, nargs="+", default=SHAPES)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--levels", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS)
    parser.add_argument("--largest", type=float, default=1e12, help="multiply-adds")
    parser.add_argument("--no-record", action="store_true")
    chosen = parser.parse_args()
    named = chosen.variants or [v for v in VARIANTS if v != "portable"]
    absent = {v: lacking(v) for v in named}
    chosen.variants = [v for v in named if absent[v] is None]
    facts, rows = machine(), []
    for shape in chosen.shapes:
        rows += measure(shape, chosen)
    head = (
        "N x K", "level", "rows", "who", "median us", "ratio of medians", "ratio of best",
        "spread", "GFLOP/s", "GB/s of weights", "error",
    )  # fmt: skip
    skipped = [f"- {v}: {why}" for v, why in absent.items() if why]
    sections = [
        f"Weights of 4 bits in blocks of {BLOCK}, float32 scales, {chosen.threads} threads "
        "each, in turns. Ratios are to onnxruntime's time at the same accuracy level: below "
        "1 means that seamline took less. *Error* is that of some columns against float64, "
        "root of the mean square over that of the values. *Spread* is the middle half's "
        "width over the median; above 20 % a row says little. Bytes of weights include "
        f"scales. The choice by itself here: {choice(4, None).variant}, since "
        f"{choice(4, None).because}.",
        table(head, rows),
    ]
    if skipped:
        sections.append("Variants that are not here:\n\n" + "\n".join(skipped))
    if not chosen.no_record:
        title = "MatMulNBits of 4 bits beside onnxruntime"
        print(write_record("int4", title, sections, facts))


if __name__ == "__main__":
    main()
