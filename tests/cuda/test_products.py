"""The tests of products on a GPU, over the emulated library; and its refusals."""

from __future__ import annotations

import threading

import attrs
import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.emulation import drawn, emulated, opened
from tests.gpu.rig import Rig
from tests.gpu.test_products import *  # noqa: F403 - its tests and fixtures
from tests.gpu.test_products import Bench

from seamline.claims import collect
from seamline.constants import Constants
from seamline.graph import load
from seamline.provider import VirtualMemoryError, view_of
from seamline_cuda import blaslt, plugin
from seamline_cuda.blaslt import BlasError
from seamline_cuda.provider import CudaProvider
from seamline_cuda.works import Matrix, ProductWork


@pytest.fixture
def driver():
    with emulated() as made:
        yield made


@pytest.fixture
def rig(driver):
    made = Rig()
    made.driver = driver
    yield made
    made.close()


def work_over(bench):
    place = bench.put(np.ones(64, np.float32))
    return ProductWork(
        Matrix(place, 4), Matrix(place, 4), Matrix(place + 64, 4), 4, 4, 4,
        bias=place + 128,
    )  # fmt: skip


STEPS = (
    "create", "matmul_desc_create", "matmul_desc_set_attribute", "matrix_layout_create",
    "matmul_preference_create", "matmul_preference_set_attribute",
    "matmul_algo_get_heuristic",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_refused_leaves_nothing_open_and_the_next_try_works(rig, step):
    bench, blas = Bench(rig), rig.driver.blas
    work = work_over(bench)
    blas.fail_at = (step, 15)
    with pytest.raises(BlasError, match=f"cublasLt {step}: CUBLAS_STATUS_NOT_SUPPORTED") as caught:  # fmt: skip
        bench.bind(work)
    assert (caught.value.code, caught.value.number) == ("CUBLAS_STATUS_NOT_SUPPORTED", 15)  # fmt: skip
    assert set(blas.open.values()) <= {"handle"}
    bench.run(work)
    bench.close()
    assert not blas.open


def test_a_product_that_is_refused_when_it_is_submitted_says_so(rig):
    bench = Bench(rig)
    launch = bench.bind(work_over(bench))
    rig.driver.blas.fail_at = ("matmul", 14)
    with rig.gpu.here(), pytest.raises(BlasError, match="INTERNAL_ERROR"):
        launch()
    bench.close()


def test_two_threads_products_do_not_meet_in_the_workspace(rig):
    bench, is_between = Bench(rig), threading.Event()
    works = [work_over(bench), work_over(bench)]
    other = bench.put(np.full(16, 3, np.float32))
    works[1] = attrs.evolve(works[1], a=Matrix(other, 4))
    launches = [bench.bind(work) for work in works]

    def wait():
        is_between.set()
        threading.Event().wait(0.05)  # time enough for the other thread's whole product

    def submit(launch):
        with rig.gpu.here():
            launch()

    rig.driver.blas.between = wait
    threads = [threading.Thread(target=submit, args=(each,)) for each in launches]
    threads[0].start()
    is_between.wait(5)
    threads[1].start()
    for thread in threads:
        thread.join(5)
    for work, want in zip(works, (4 + 1, 12 + 1), strict=True):
        got = np.zeros((4, 4), np.float32)
        rig.memory.transfers.read(work.target.address, got)
        np.testing.assert_array_equal(got, want)
    bench.close()


def test_no_room_for_the_workspace_leaves_no_handle(rig):
    bench = Bench(rig)
    work = work_over(bench)
    rig.driver.fail("cuMemCreate")
    with pytest.raises(VirtualMemoryError, match="33554432"):
        bench.bind(work)
    assert not rig.driver.blas.open
    bench.close()


TEXT = "g (float[4,8] a, float[8,5] b) => (float[4,5] y) { y = MatMul(a, b) }"


def test_without_the_library_products_are_refused_and_nothing_else(driver):
    def unloaded():
        raise RuntimeError("libcublasLt.so was not found")

    driver.blas.get_version = unloaded
    provider = CudaProvider({"device_id": 0})
    try:
        graph = load(model(TEXT, 23))
        types = dict(collect(graph, [provider], Constants(graph)).types)
        answer = provider.claim(view_of(graph.nodes[0], types, lambda _: None))
        assert str(answer) == (
            "cuBLASLt cannot be loaded (libcublasLt.so was not found; "
            "to fix: pip install 'seamline[cuda]')"
        )
        row = load(model(TEXT.replace("4,", "1,"), 23))
        types = dict(collect(row, [provider], Constants(row)).types)
        assert (
            provider.claim(view_of(row.nodes[0], types, lambda _: None)).variant
            == "vector"
        )
        assert "cuBLASLt cannot be loaded" in provider.facts()["products"]
    finally:
        provider.close()


def test_facts_say_what_products_hold_and_the_list_of_providers_that_they_can_be_made():
    with opened(TEXT) as pipeline:
        assert pipeline.providers["cuda"].facts()["products_workspace"] == 0
        pipeline.run(drawn(TEXT))
        facts = pipeline.providers["cuda"].facts()
        assert (facts["products"], facts["products_workspace"]) == (
            "by cuBLASLt",
            32 << 20,
        )
        assert plugin._here() == {"products": "by cuBLASLt"}


def test_without_the_bindings_the_reason_says_what_to_install(monkeypatch):
    def absent():
        raise ImportError("No module named 'nvmath'")

    monkeypatch.setattr(blaslt, "_library", absent)
    assert blaslt.missing() == (
        "the bindings of cuBLASLt cannot be imported (No module named 'nvmath'); "
        "to fix: pip install 'seamline[cuda]'"
    )
