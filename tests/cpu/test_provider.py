"""The plugin's spec, the provider's options, and the limit on BLAS threads."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import pytest
import threadpoolctl

import seamline_cpu
from seamline.provider import CONTRACT_VERSION, Provider
from seamline_cpu import plugin
from seamline_cpu.blas_threads import BlasThreads

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
    (option,) = spec.options
    assert (option.name, option.default, option.minimum) == ("num_threads", 0, 0)
    chosen = spec.create({"num_threads": 0})
    assert isinstance(chosen, Provider)
    assert chosen.options["num_threads"] == len(os.sched_getaffinity(0))
    assert spec.create({"num_threads": 3}).options["num_threads"] == 3
    assert spec.create({}).options["num_threads"] >= 1


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


def test_blas_has_the_limit_inside_and_its_own_number_after():
    before = blas()
    with BlasThreads(1) as limit:
        assert blas() == {limit.count} == {1}
        with BlasThreads(2):
            assert blas() == {2}
    assert blas() == before


def test_the_last_thread_to_leave_puts_the_number_back():
    before, inside, leave, seen = blas(), threading.Event(), threading.Event(), []

    def other():
        with BlasThreads(1):
            seen.append(blas())
            inside.set()
            assert leave.wait(10)

    for _ in range(3):
        inside.clear()
        leave.clear()
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
        with BlasThreads(1):
            assert blas() == {1}
        assert blas() == {1}
        leave.set()
        thread.join()
        assert blas() == before
    assert seen == [{1}] * 3


def test_a_limit_below_one_is_an_error():
    with pytest.raises(ValueError, match="at least 1 thread, not 0"):
        BlasThreads(0)
