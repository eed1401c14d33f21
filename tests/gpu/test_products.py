"""Products by cuBLASLt over addresses: against NumPy in float64, eager and recorded."""

from __future__ import annotations

import math
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

from seamline_cuda.products import Products
from seamline_cuda.works import Matrix, ProductWork

KINDS = {
    "float32": (np.float32, 3e-6),
    "float16": (np.float16, 2e-3),
    "bfloat16": (ml_dtypes.bfloat16, 2e-2),
    "float64": (np.float64, 1e-14),
}
spread = np.random.default_rng(5)


@pytest.fixture
def bench(rig):
    made = Bench(rig)
    yield made
    made.close()


class Bench:
    """Arrays on the device, and products over them."""

    def __init__(self, rig):
        self.rig, self.products = rig, Products(rig.memory)
        self.buffers, self.bound = [], []

    def put(self, array, offset=0):
        """Give the address of an array's copy, so many bytes from an even one."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer = self.rig.memory.allocate(raw.nbytes + offset + 16)
        self.buffers.append(buffer)
        self.rig.memory.transfers.write(buffer.address + offset, raw)
        return buffer.address + offset

    def got(self, address, shape, kind):
        raw = np.empty(math.prod(shape) * np.dtype(kind).itemsize, np.uint8)
        self.rig.memory.transfers.read(address, raw)
        return raw.view(kind).reshape(shape)

    def bind(self, work):
        self.bound.append(self.products.bind(work))
        return self.bound[-1]

    def run(self, work):
        launch = self.bind(work)
        with self.rig.gpu.here():
            launch()

    def close(self):
        self.rig.gpu.drain()
        for product in self.bound:
            product.close()
        self.products.close()
        for buffer in self.buffers:
            buffer.close()


def numbers(*shape, kind=np.float32):
    return spread.standard_normal(shape).astype(kind)


def near(got, want, bound):
    scale = np.abs(want).max()
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=bound * scale)


@pytest.mark.parametrize("swapped", ["", "a", "b", "ab"])
@pytest.mark.parametrize("dtype", KINDS)
def test_a_product_of_each_type_with_each_operand_stored_either_way(
    bench, dtype, swapped
):
    kind, bound = KINDS[dtype]
    m, n, k = 5, 7, 9
    a, b = numbers(m, k, kind=kind), numbers(k, n, kind=kind)
    first = Matrix(bench.put(a.T if "a" in swapped else a), m if "a" in swapped else k, "a" in swapped)  # fmt: skip
    second = Matrix(bench.put(b.T if "b" in swapped else b), k if "b" in swapped else n, "b" in swapped)  # fmt: skip
    out = bench.put(np.zeros((m, n), kind))
    bench.run(ProductWork(first, second, Matrix(out, n), m, n, k, dtype))
    near(bench.got(out, (m, n), kind), a.astype(float) @ b.astype(float), bound)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 300, 17), (130, 1, 4)])
def test_sizes_of_one(bench, m, n, k):
    a, b = numbers(m, k), numbers(k, n)
    out = bench.put(np.zeros((m, n), np.float32))
    bench.run(
        ProductWork(
            Matrix(bench.put(a), k), Matrix(bench.put(b), n), Matrix(out, n), m, n, k
        )
    )
    near(bench.got(out, (m, n), np.float32), a.astype(float) @ b.astype(float), 3e-6)


def test_a_batch_may_repeat_one_matrix_and_rows_may_be_apart(bench):
    a, b = numbers(3, 4, 10), numbers(6, 8)
    out = bench.put(np.full((3, 4, 12), 7, np.float32))
    work = ProductWork(
        Matrix(bench.put(a), 10, stride=40), Matrix(bench.put(b), 8),
        Matrix(out, 12, stride=48), 4, 8, 6, batch=3,
    )  # fmt: skip
    bench.run(work)
    got = bench.got(out, (3, 4, 12), np.float32)
    near(got[..., :8], a[..., :6].astype(float) @ b.astype(float), 3e-6)
    np.testing.assert_array_equal(got[..., 8:], 7)


@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_bias_is_added_to_every_row_before_the_activation(bench, dtype, activation):
    kind, bound = KINDS[dtype]
    a, b, bias = (
        numbers(8, 16, kind=kind),
        numbers(16, 24, kind=kind),
        numbers(24, kind=kind),
    )
    out = bench.put(np.zeros((8, 24), kind))
    bench.run(
        ProductWork(
            Matrix(bench.put(a), 16), Matrix(bench.put(b), 24), Matrix(out, 24), 8, 24, 16,
            dtype, bias=bench.put(bias), activation=activation,
        )
    )  # fmt: skip
    want = a.astype(float) @ b.astype(float) + bias.astype(float)
    if activation == "relu":
        want = np.maximum(want, 0)
    if activation == "gelu":
        want = 0.5 * want * (1 + np.tanh(math.sqrt(2 / math.pi) * (want + 0.044715 * want**3)))  # fmt: skip
    near(bench.got(out, (8, 24), kind), want, max(bound, 1e-3 * bool(activation)))


def test_alpha_and_beta_scale_the_product_and_what_is_added(bench):
    a, b, c = numbers(4, 5), numbers(5, 6), numbers(4, 6)
    out, more = bench.put(np.zeros((4, 6), np.float32)), bench.put(c)
    first, second = Matrix(bench.put(a), 5), Matrix(bench.put(b), 6)
    bench.run(
        ProductWork(
            first, second, Matrix(out, 6), 4, 6, 5, alpha=2, beta=-0.5, addend=Matrix(more, 6)
        )
    )  # fmt: skip
    want = 2 * (a.astype(float) @ b.astype(float)) - 0.5 * c
    near(bench.got(out, (4, 6), np.float32), want, 3e-6)
    # Without an addend of its own the result's old content is added.
    bench.run(ProductWork(first, second, Matrix(out, 6), 4, 6, 5, beta=1))
    want = want + a.astype(float) @ b.astype(float)
    near(bench.got(out, (4, 6), np.float32), want, 3e-6)


def test_halves_may_be_summed_up_into_float32(bench):
    a, b = numbers(3, 64, kind=np.float16), numbers(64, 5, kind=np.float16)
    out = bench.put(np.zeros((3, 5), np.float32))
    work = ProductWork(
        Matrix(bench.put(a), 64), Matrix(bench.put(b), 5), Matrix(out, 5), 3, 5, 64,
        "float16", "float32",
    )  # fmt: skip
    bench.run(work)
    near(bench.got(out, (3, 5), np.float32), a.astype(float) @ b.astype(float), 3e-6)


@pytest.mark.parametrize("offset", [2, 4, 8])
def test_operands_at_odd_addresses(bench, offset):
    a, b = numbers(8, 9, kind=np.float16), numbers(9, 11, kind=np.float16)
    out = bench.put(np.zeros((8, 11), np.float16), offset)
    bench.run(
        ProductWork(
            Matrix(bench.put(a, offset), 9), Matrix(bench.put(b, offset), 11), Matrix(out, 11),
            8, 11, 9, "float16",
        )
    )  # fmt: skip
    near(bench.got(out, (8, 11), np.float16), a.astype(float) @ b.astype(float), 2e-3)


def test_float32_is_whole_and_tf32_is_asked_for(bench):
    a, b = numbers(64, 256), numbers(256, 64)
    want = a.astype(float) @ b.astype(float)
    apart = []
    for tf32 in (False, True):
        out = bench.put(np.zeros((64, 64), np.float32))
        first, second = Matrix(bench.put(a), 256), Matrix(bench.put(b), 64)
        bench.run(ProductWork(first, second, Matrix(out, 64), 64, 64, 256, tf32=tf32))
        apart.append(np.abs(bench.got(out, (64, 64), np.float32) - want).max())
    assert apart[0] < 2e-4  # of sums of 256 terms, of which tf32 loses 13 bits each
    assert apart[1] > 10 * apart[0]


def test_a_recorded_product_reads_what_lies_there_at_each_replay(bench):
    gpu = bench.rig.gpu
    a, b = numbers(4, 8), numbers(8, 4)
    first, out = bench.put(a), bench.put(np.zeros((4, 4), np.float32))
    launch = bench.bind(
        ProductWork(Matrix(first, 8), Matrix(bench.put(b), 4), Matrix(out, 4), 4, 4, 8)
    )
    with gpu.here(), gpu.compute.captured() as made:
        launch()
    (graph,) = made
    for _ in range(3):
        a = numbers(4, 8)
        bench.rig.memory.transfers.write(first, a.reshape(-1))
        with gpu.here():
            graph.launch(gpu.compute)
        near(bench.got(out, (4, 4), np.float32), a.astype(float) @ b.astype(float), 3e-6)  # fmt: skip
    with gpu.here():
        graph.close()


def test_the_workspace_is_taken_at_the_first_product_and_counted(bench):
    before = bench.rig.memory.gauges().content
    assert bench.products.workspace_nbytes == 0
    place = bench.put(np.ones((4, 4), np.float32))
    work = ProductWork(Matrix(place, 4), Matrix(place, 4), Matrix(place + 64, 4), 1, 1, 4)  # fmt: skip
    for _ in range(2):
        launch = bench.bind(work)
    held = bench.products.workspace_nbytes
    assert held in (4 << 20, 32 << 20)
    assert bench.rig.memory.gauges().content >= before + held
    assert launch.workspace_nbytes <= held
    assert launch.kernel == "product of 1x1x4 in float32"


def test_threads_that_share_a_workspace_submit_whole_products_in_turn(bench):
    """Deep and narrow ones are summed in parts, which lie in the workspace."""
    wrong, counts, meet = [], [], threading.Barrier(2, timeout=20)

    def work(seed):
        a, b = (np.full(shape, seed + 1, np.float32) for shape in ((9, 4096), (4096, 17)))  # fmt: skip
        out = bench.put(np.zeros((9, 17), np.float32))
        launch = bench.bind(
            ProductWork(
                Matrix(bench.put(a), 4096), Matrix(bench.put(b), 17), Matrix(out, 17),
                9, 17, 4096,
            )
        )  # fmt: skip
        for step in range(400 if bench.rig.is_real else 4):
            meet.wait()
            with bench.rig.gpu.here():
                launch()
            got = bench.got(out, (9, 17), np.float32)
            if (got != 4096 * (seed + 1) ** 2).any():
                wrong.append((seed, step, got[0, 0]))
        counts.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(usual)
    assert sorted(counts) == [0, 1]
    assert not wrong
