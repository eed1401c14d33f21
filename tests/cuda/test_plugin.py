"""What is known without a device: the spec, the probe, and that nothing is touched."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.core.toys import model

import seamline_cuda.plugin
from seamline.errors import RunError, UnavailableProviderError
from seamline.pipeline import Pipeline
from seamline_cuda import probe as probing
from seamline_cuda.errors import CudaError

TEXT = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


def spec():
    (found,) = seamline_cuda.plugin.seamline_providers()
    return found


def test_importing_the_plugin_imports_no_cuda_and_no_compiler():
    code = (
        "import sys, seamline_cuda.plugin\n"
        "seamline_cuda.plugin.seamline_providers()\n"
        "print(sorted({'cuda', 'numba', 'numba_cuda', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_claims_and_kernels_are_made_without_the_driver():
    code = (
        "import sys, seamline_cuda.table, seamline_cuda.elementwise, seamline_cuda.fusion\n"
        "print(sorted({'cuda', 'numba', 'numba_cuda'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_the_spec_has_options_with_defaults_and_onnx_runtimes_name():
    found = spec()
    assert found.aliases == ("CUDAExecutionProvider",)
    assert {o.name: o.default for o in found.options} == {
        "device_id": 0,
        "gpu_mem_limit": 0,
        "deadline": 0.0,
        "pool_bytes": 256 << 20,
        "answer_deadline": 10.0,
        "edge_limit": 128 << 10,
        "tf32": False,
        "measure_products": True,
    }


def test_the_probe_names_what_is_missing_and_how_to_fix_it(monkeypatch):
    monkeypatch.setattr(probing, "_is_there", lambda module: module != "numba_cuda")
    found = probing.probe()
    assert (found.usable, found.fix) == (False, "pip install 'seamline[cuda]'")
    assert "numba_cuda" in found.why


def test_a_machine_without_a_driver_is_told_so_and_a_session_says_it_too():
    found = spec().probe()
    if found.usable:
        pytest.skip("this machine has a driver")
    assert found.why
    assert found.fix
    with pytest.raises(UnavailableProviderError, match="provider 'cuda': unavailable"):
        Pipeline.open(model(TEXT), providers=["cuda"])


def test_an_error_of_the_driver_has_its_facts_and_what_to_do():
    error = CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", 2, "out of memory")
    assert isinstance(error, RunError)
    assert error.provider == "cuda"
    assert str(error) == (
        "provider 'cuda': cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory. To fix: "
        "the device is full; close other sessions or processes on it"
    )
    assert not error.is_lost
    assert CudaError("x", "CUDA_ERROR_LAUNCH_FAILED", 719, "bad").is_lost
