"""The plugin's spec, the provider's options, and the limit on BLAS threads."""

from __future__ import annotations

import gc
import os
import pathlib
import subprocess
import sys
import threading
import timeit

import numpy as np
import pytest
import threadpoolctl
from onnx import helper

import seamline_cpu
from seamline.pipeline import Pipeline
from seamline.provider import CONTRACT_VERSION, Provider
from seamline_cpu import blas_threads, plugin
from seamline_cpu.blas_threads import BlasThreads
from seamline_cpu.instruction_sets import INT8
from seamline_cpu.kernels.nbits_choice import VARIANTS

ROOT = pathlib.Path(seamline_cpu.__file__).parent.parent
CORE = ROOT.parent.parent / "core"


def blas():
    return {
        i["num_threads"]
        for i in threadpoolctl.threadpool_info()
        if i["user_api"] == "blas"
    }


def test_the_plugin_offers_cpu_under_onnxruntimes_name_too():
    (spec,) = plugin.seamline_providers()
    assert (spec.name, spec.aliases) == ("cpu", ("CPUExecutionProvider",))
    assert plugin.CONTRACT_VERSION == spec.contract_version == CONTRACT_VERSION
    assert spec.probe().usable


def test_zero_threads_means_the_cores_that_the_process_may_use():
    (spec,) = plugin.seamline_providers()
    (option,) = (option for option in spec.options if option.name == "num_threads")
    assert (option.default, option.minimum) == (0, 0)
    chosen = spec.create({"num_threads": 0})
    assert isinstance(chosen, Provider)
    assert chosen.options["num_threads"] == len(os.sched_getaffinity(0))
    assert spec.create({"num_threads": 3}).options["num_threads"] == 3
    assert spec.create({}).options["num_threads"] >= 1


@pytest.mark.parametrize(
    ("name", "variants"), [("int4_variant", VARIANTS), ("int8_variant", INT8)]
)
def test_the_options_of_packed_products_know_every_variant(name, variants):
    (spec,) = plugin.seamline_providers()
    option = next(o for o in spec.options if o.name == name)
    assert option.choices == ("", *variants)
    assert option.default == ""


def test_loading_the_plugin_imports_no_compiler():
    code = (
        "import sys; from seamline_cpu import plugin; plugin.seamline_providers();"
        "assert not {'numba', 'seamline_cpu.kernels'} & set(sys.modules)"
    )
    path = os.pathsep.join([str(ROOT), str(CORE)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def limits(monkeypatch):
    """Make limits on BLAS that are closed in the end; those of sessions that are open do not count."""
    monkeypatch.setattr(blas_threads, "_libraries", blas_threads._Libraries())
    made = []

    def make(count):
        made.append(BlasThreads(count))
        return made[-1]

    yield make
    for limit in made:
        limit.close()


def test_the_limit_applied_last_holds_and_the_last_to_close_restores(limits):
    before = blas()
    one, three = limits(1), limits(3)
    assert blas() == before
    one.apply()
    assert blas() == {one.count} == {1}
    three.apply()
    assert blas() == {3}
    one.apply()
    assert blas() == {1}
    three.close()
    three.close()
    assert blas() == {1}
    one.close()
    assert blas() == before


def test_a_limit_that_was_dropped_does_not_hold_any_more(monkeypatch):
    monkeypatch.setattr(blas_threads, "_libraries", blas_threads._Libraries())
    before, limit = blas(), BlasThreads(1)
    limit.apply()
    assert blas() == {1}
    del limit
    gc.collect()
    assert blas() == before


def test_a_limit_that_others_changed_is_put_back(limits):
    one = limits(1)
    one.apply()
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        one.apply()
        assert blas() == {1}


def test_any_thread_may_apply_a_limit(limits):
    before, one, three = blas(), limits(1), limits(3)
    three.apply()
    thread = threading.Thread(target=one.apply)
    thread.start()
    thread.join()
    assert blas() == {1}
    one.close()
    three.close()
    assert blas() == before


def test_a_limit_in_place_costs_less_than_a_microsecond(limits):
    one = limits(1)
    one.apply()
    took = min(timeit.repeat(one.apply, number=100, repeat=100)) / 100
    assert took < 1e-6


def test_sessions_in_one_process_run_with_their_own_numbers():
    before = blas()
    nodes = [helper.make_node("MatMul", ["a", "a"], ["y"])]
    # float64, which BLAS multiplies; float32 is multiplied by commands.
    info = [helper.make_tensor_value_info(n, 11, [4, 4]) for n in "ay"]
    graph = helper.make_graph(nodes, "product", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    feeds = {"a": np.eye(4)}
    pipelines = [
        Pipeline.open(model, providers=[("cpu", {"num_threads": n})]) for n in (1, 3)
    ]
    for _ in range(2):
        for pipeline, number in zip(pipelines, (1, 3), strict=True):
            pipeline.run(feeds)
            assert blas() == {number}
    pipelines[0].measure(feeds, runs=1)
    assert blas() == {1}
    for pipeline in pipelines:
        pipeline.close()
    assert blas() == before


def test_a_limit_below_one_is_an_error():
    with pytest.raises(ValueError, match="at least 1 thread, not 0"):
        BlasThreads(0)
