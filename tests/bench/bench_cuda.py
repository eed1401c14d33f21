"""
Measures the device layer of the provider ``cuda`` on a real device.

    python -m tests.bench.bench_cuda [--no-record]

Launches one by one against a recorded graph of them; pages given and taken; copies of
pinned slots against the driver's own of pageable memory; one elementwise kernel against the
bytes that it moves; the first run of a new process with and without the kernel cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from tests.bench.measuring import alternating, machine, table, write_record
from tests.core.toys import model
from tests.cuda.plain import groups_of
from tests.gpu.rig import APPEND, FILL, Rig

import seamline_cuda.plugin
from seamline.pipeline import Pipeline
from seamline.settings import Settings
from seamline_cuda.driver import call
from seamline_cuda.elementwise import generated
from seamline_cuda.growing import GrowingRange

KERNELS = 200
CHAIN = """g (float[32,128] x, float[128] b) => (float[32,128] y)
    { t = Add(x, b)  u = Relu(t)  v = Mul(u, x)  y = Tanh(v) }"""
LARGE = 1 << 26
SIDE = 1 << 13
STREAMED = {
    "Add": (
        f"g (float[{LARGE}] x, float[{LARGE}] z) => (float[{LARGE}] y) {{ y = Add(x, z) }}",
        3,
    ),
    "Add of a row, Relu, Mul": (
        f"""g (float[{SIDE},{SIDE}] x, float[{SIDE}] b) => (float[{SIDE},{SIDE}] y)
        {{ t = Add(x, b)  u = Relu(t)  y = Mul(u, x) }}""",
        2,
    ),
}  #: model, and arrays of that size that it moves
#: Opens a session and runs it once; the time it took is what it prints.
START = """
import time
begin = time.perf_counter()
import numpy as np
from tests.bench.bench_cuda import CHAIN, opened
session = opened(CHAIN)
session.run({"x": np.ones((32, 128), np.float32), "b": np.ones(128, np.float32)})
print(time.perf_counter() - begin)
session.close()
"""


def opened(text):
    """Open a model over the device alone."""
    return Pipeline.open(
        model(text, 23),
        providers=["cuda"],
        plugins=[seamline_cuda.plugin],
        settings=Settings(block=("seamline",)),
    )


def microseconds(times):
    return f"{times.median * 1e6:.1f}", f"{times.best * 1e6:.1f}"


def launches(rig):
    """Time launches one by one and as one graph, issue and end."""
    buffer = rig.memory.allocate(4096)
    launch, stream = rig.launch(FILL, buffer.address, 1024, 1), rig.gpu.compute
    with rig.memory.gate.capture("bench"), rig.gpu.here():
        with stream.captured() as made:
            for _ in range(KERNELS):
                launch()
        graph = made[0]
        graph.upload(stream)

    def eager():
        for _ in range(KERNELS):
            launch()

    def ended(act):
        def timed():
            act()
            stream.synchronize()

        return timed

    def issued():
        start = time.perf_counter()
        eager()
        spent = time.perf_counter() - start
        stream.synchronize()
        return spent

    with rig.gpu.here():
        found = alternating(
            {
                "eager": ended(eager),
                "captured": ended(lambda: graph.launch(stream)),
            },
            rounds=50,
        )
        issue = statistics.median(issued() for _ in range(30)) / KERNELS
        graph.close()
    buffer.close()
    rows = [(f"{KERNELS} kernels, {n}", *microseconds(t)) for n, t in found.items()]
    rows.append(("issue of one launch", f"{issue * 1e6:.2f}", ""))
    gain = found["eager"].median / found["captured"].median
    return table(("µs", "median", "best"), rows), f"Captured they take 1/{gain:.1f}."


def commits(rig):
    """Time pages given and taken, from the driver and from the pool."""
    count, rows = 64, []
    cache = GrowingRange(rig.arena, count * rig.granule)
    for name, limit in (("driver", 0), ("pool", 1 << 30)):
        rig.arena.pool.limit = limit
        cache.grow(count * rig.granule)
        cache.shrink(0)
        start = time.perf_counter()
        cache.grow(count * rig.granule)
        half = time.perf_counter()
        cache.shrink(0)
        end = time.perf_counter()
        rows.append((f"from the {name}", f"{(half - start) / count * 1e6:.1f}", f"{(end - half) / count * 1e6:.1f}"))  # fmt: skip
    cache.close()
    return table(("µs a granule", "commit", "decommit"), rows)


def copies(rig):
    """Time transfers against the driver's own copies of pageable and of pinned memory."""
    rows, sizes = [], (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 26, 1 << 29)
    with rig.gpu.here():
        pinned = int(call("cuMemHostAlloc", sizes[-1], 0))
    for nbytes in sizes:
        buffer = rig.memory.allocate(nbytes)
        host, address = np.ones(nbytes, np.uint8), buffer.address
        place, transfers = host.ctypes.data, rig.memory.transfers

        def write(transfers=transfers, address=address, host=host):
            transfers.write(address, host)
            rig.memory.synchronize()

        with rig.gpu.here():
            found = alternating(
                {
                    "write": write,
                    "pageable write": lambda a=address, p=place, n=nbytes: call("cuMemcpyHtoD", a, p, n),
                    "pinned write": lambda a=address, n=nbytes: call("cuMemcpyHtoD", a, pinned, n),
                    "read": lambda t=transfers, a=address, h=host: t.read(a, h),
                    "pageable read": lambda a=address, p=place, n=nbytes: call("cuMemcpyDtoH", p, a, n),
                    "pinned read": lambda a=address, n=nbytes: call("cuMemcpyDtoH", pinned, a, n),
                },
                rounds=15, seconds=8,
            )  # fmt: skip
        rows.append((nbytes, *(f"{t.median * 1e6:.0f} µs, {nbytes / t.median / 1e9:.1f} GB/s" for t in found.values())))  # fmt: skip
        buffer.close()
    with rig.gpu.here():
        call("cuMemFreeHost", pinned)
    return table(("bytes", *found), rows)


def lasting(rig):
    """Count what 10,000 replays leave, while their cache grows and gets other pages."""
    width, rows, cycles = rig.granule // 16, 64, 160
    cache = GrowingRange(rig.arena, 16 * rig.granule)
    row, length = rig.memory.allocate(4 * width), rig.memory.allocate(8)
    transfers, stream = rig.memory.transfers, rig.gpu.compute
    append = rig.launch(
        APPEND, cache.address, row.address, length.address, width, blocks=1
    )
    cache.grow(rig.granule)
    with rig.memory.gate.capture("bench"), rig.gpu.here(), stream.captured() as made:
        append()
    graph, got, before, wrong, held = made[0], np.empty((rows, width), np.float32), 0, 0, None  # fmt: skip
    start = time.perf_counter()
    for cycle in range(1, cycles + 1):
        transfers.write(row.address, np.full(width, cycle, np.float32))
        transfers.write(length.address, np.zeros(1, np.int64))
        for step in range(rows):
            cache.grow((step + 1) * width * 4)
            with rig.gpu.here():
                graph.launch(stream)
        transfers.read(cache.address, got)
        wrong += int(np.count_nonzero(got != cycle))
        cache.shrink(0)
        if held is None:
            held, before = rig.memory.gauges(), rig.gpu.free_bytes()
    spent = time.perf_counter() - start
    after = rig.gpu.free_bytes()
    counted = [
        ("replays", cycles * rows),
        ("granules mapped and unmapped", cycles * 16),
        ("values that differ from an append's one by one", wrong),
        ("bytes of content, mapped, owned: after the first cycle", f"{held.content}, {held.mapped}, {held.owned}"),
        ("the same after the last", "{0.content}, {0.mapped}, {0.owned}".format(rig.memory.gauges())),
        ("bytes that the driver has less at the end", before - after),
        ("seconds", f"{spent:.1f}"),
    ]  # fmt: skip
    with rig.gpu.here():
        graph.close()
    for resource in (row, length, cache):
        resource.close()
    return table(("what", ""), counted)


def sessions():
    """Time a session's run and its parts."""
    session = opened(CHAIN)
    feeds = {"x": np.ones((32, 128), np.float32), "b": np.ones(128, np.float32)}
    for _ in range(3):
        session.run(feeds)
    (segment,) = session.runner.latest().captured.values()
    memory = session.providers["cuda"].memory()
    found = alternating(
        {
            "session.run": lambda: session.run(feeds),
            "segment run": segment.executable.run,
            "replay": segment.recording.replay,
            "nothing, and a wait": memory.synchronize,
        },
        rounds=200,
    )
    session.close()
    rows = [(name, *microseconds(times)) for name, times in found.items()]
    return table(("µs", "median", "best"), rows)


def elements(rig):
    """Time kernels that take one element at a time, and several, by the bytes they move."""
    rows = []
    for name, (text, arrays) in STREAMED.items():
        (group,) = groups_of(text)
        buffers = [rig.memory.allocate(4 * LARGE) for _ in range(len(group.loads) + 1)]
        places = [buffer.address for buffer in buffers]
        launches = {}
        for at_once in (1, 2, 4, 8):
            made = generated(group, at_once)
            launches[at_once] = rig.launch(
                made.kernel, *places, *made.numbers, blocks=16 * rig.gpu.multiprocessors
            )

        def ended(launch):
            def timed():
                launch()
                rig.gpu.compute.synchronize()

            return timed

        with rig.gpu.here():
            found = alternating(
                {f"{n} at once": ended(launch) for n, launch in launches.items()},
                rounds=20, seconds=5,
            )  # fmt: skip
        for how, times in found.items():
            rate = 4 * LARGE * arrays / times.best / 1e12
            rows.append((f"{name}, {how}", f"{times.best * 1e6:.0f}", f"{rate:.2f}"))
        for buffer in buffers:
            buffer.close()
    return table((f"{LARGE} floats", "best, µs", "TB/s"), rows)


def starts():
    """Time the first run of new processes, without and with kernels in the cache."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("nothing in the cache", "kernels in the cache", "the same again"):
            done = subprocess.run(
                [sys.executable, "-c", START], capture_output=True, text=True, check=True,
                env={**os.environ, "SEAMLINE_CACHE_DIR": folder},
            )  # fmt: skip
            rows.append((name, f"{float(done.stdout):.2f}"))
    return table(("first run of a process", "s"), rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-record", action="store_true")
    asked = parser.parse_args()
    facts = machine()
    rig = Rig()
    facts["device"] = f"{rig.gpu.name}, granule {rig.granule}"
    made, gain = launches(rig)
    sections = ["## Launches", made, gain, "## Pages", commits(rig), "## Copies", copies(rig)]  # fmt: skip
    sections += ["## Elementwise kernels", elements(rig)]
    sections += ["## Replays while a cache grows", lasting(rig)]
    rig.close()
    sections += ["## Sessions", sessions(), "## Starts", starts()]
    print("\n\n".join(sections))
    if not asked.no_record:
        title = "The device layer of the provider cuda"
        print(write_record("cuda", title, sections, facts))


if __name__ == "__main__":
    main()
