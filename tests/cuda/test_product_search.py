"""The quickest of the library's algorithms is taken, once for a process, and nothing is touched."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.test_products import driver, rig  # noqa: F401 - fixtures
from tests.gpu.test_products import Bench, near, numbers

from seamline_cuda import product_search
from seamline_cuda.product_search import quickest
from seamline_cuda.products import Products
from seamline_cuda.works import Matrix, ProductWork

SLOW, QUICK = 4e-3, 0.0


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(product_search, "_known", {})


@pytest.fixture
def bench(rig):  # noqa: F811
    made = Bench(rig)
    made.products = Products(rig.memory, measures=True)
    yield made
    made.close()


def over(bench, rows=4, columns=8, depth=12):
    a, b = numbers(rows, depth), numbers(depth, columns)
    bias = bench.put(numbers(columns) * 0)
    target = bench.put(np.zeros((rows, columns), np.float32))
    work = ProductWork(
        Matrix(bench.put(a), depth), Matrix(bench.put(b), columns), Matrix(target, columns),
        rows, columns, depth, bias=bias,
    )  # fmt: skip
    return work, a.astype(np.float64) @ b


def right(bench, work, want):
    bench.run(work)
    near(bench.got(work.target.address, want.shape, np.float32), want, 3e-6)


@pytest.mark.parametrize(
    ("costs", "which"),
    [
        ((SLOW, QUICK, SLOW), 1),
        ((QUICK, SLOW), 0),
        ((None, SLOW, QUICK), 2),
        ((SLOW, None), 0),
    ],
)
def test_the_quickest_that_the_library_does_not_refuse_is_taken(bench, costs, which):
    blas = bench.rig.driver.blas
    blas.costs = costs
    work, want = over(bench)
    launch = bench.bind(work)
    assert (bench.got(work.target.address, want.shape, np.float32) == 0).all()
    blas.taken.clear()
    with bench.rig.gpu.here():
        launch()
    assert blas.taken == [which]
    near(bench.got(work.target.address, want.shape, np.float32), want, 3e-6)


def test_a_choice_is_made_once_for_sizes_wherever_they_lie(bench):
    blas = bench.rig.driver.blas
    blas.costs = (SLOW, QUICK)
    right(bench, *over(bench))
    blas.taken.clear()
    right(bench, *over(bench))
    assert blas.taken == [1]
    right(bench, *over(bench, rows=5))
    assert len(blas.taken) > 2


def test_nothing_is_measured_where_it_is_not_asked_for_nor_for_large_products(
    bench, monkeypatch
):
    blas = bench.rig.driver.blas
    blas.costs = (SLOW, QUICK)
    bench.products.measures = False
    right(bench, *over(bench))
    assert blas.taken == [0]
    bench.products.measures = True
    monkeypatch.setattr(product_search, "_MOST", 1024)
    right(bench, *over(bench))
    assert blas.taken == [0, 0]


def test_what_others_submit_during_a_search_is_done_and_not_recorded(bench):
    blas = bench.rig.driver.blas
    blas.costs = (SLOW, QUICK)
    work, want = over(bench)
    place = bench.put(np.zeros(4, np.uint8))
    for value in (1, 2):
        blas.between = lambda value=value: bench.rig.filled(place, 4, value)
        if value == 1:
            launch = bench.bind(work)
        else:
            with bench.rig.gpu.here():
                launch()
        assert (bench.got(place, (4,), np.uint8) == value).all()
    near(bench.got(work.target.address, want.shape, np.float32), want, 3e-6)


def test_memory_that_is_not_there_is_not_needed(bench, monkeypatch):
    blas = bench.rig.driver.blas
    blas.costs = (SLOW, QUICK)
    work, want = over(bench)
    right(bench, work, want)
    monkeypatch.setattr(product_search, "_known", {})
    blas.taken.clear()
    monkeypatch.setattr(bench.rig.pages, "limit", bench.rig.memory.gauges().owned)
    monkeypatch.setattr(product_search, "_EVEN", 8 << 20)  # it would need more pages
    right(bench, work, want)
    assert blas.taken == [0]


def test_another_than_the_first_has_to_be_clearly_quicker():
    assert quickest([1.0, 0.97, 0.96]) == 0
    assert quickest([1.0, 0.97, 0.9, 0.8, 0.81]) == 3
    assert quickest([float("inf"), 2.0]) == 1
