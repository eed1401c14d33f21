"""The surface: what ``import seamline`` offers, and what it costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import seamline

# A name that is missing here was added without a decision; one that is gone was taken
# from somebody.
PUBLIC = {
    "ExecutionMode", "ExecutionOrder", "FeedError", "Graph", "GraphOptimizationLevel",
    "IOBinding", "InferenceSession", "KernelProvider", "KernelTable", "LoadLimits",
    "ModelError", "ModelMetadata", "NodeArg", "OrtValue", "PlanError", "ProviderError",
    "RunError", "RunOptions", "SeamlineError", "SessionOptions", "UnsupportedError",
    "State", "StateError", "UnusedOptionWarning", "errors", "get_all_providers", "get_available_providers",
    "get_device", "get_version_string", "hookimpl", "load", "provider_spec",
}  # fmt: skip

# ONNX Runtime 1.32's methods and properties that a program may call.
SESSION = {
    "create_ortvalue_from_shape_and_type", "disable_fallback", "enable_fallback",
    "end_profiling", "get_inputs", "get_modelmeta", "get_outputs",
    "get_overridable_initializers", "get_profiling_start_time_ns",
    "get_provider_graph_assignment_info", "get_provider_options", "get_providers",
    "get_session_options", "io_binding", "release_captured_graph", "run", "run_async",
    "run_with_iobinding", "run_with_ort_values", "set_ep_dynamic_options", "set_providers",
}  # fmt: skip


def test_the_public_names_are_these():
    assert set(seamline.__all__) == PUBLIC
    assert seamline.__all__ == sorted(seamline.__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there(name):
    assert getattr(seamline, name) is not None
    assert name in dir(seamline)


def test_type_checkers_are_told_the_same_names_from_the_same_modules():
    tree = ast.parse(Path(seamline.__file__).read_text(encoding="utf-8"))
    told = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                for alias in line.names:
                    assert alias.asname == alias.name, (
                        "only that form is exported again"
                    )
                    told[alias.name] = line.module
    assert set(told) == PUBLIC
    for name, module in told.items():
        if name != "errors":
            assert getattr(importlib.import_module(module), name) is getattr(
                seamline, name
            )


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match="module 'seamline' has no attribute 'nothing'"
    ):
        _ = seamline.nothing


def test_importing_it_imports_nothing_heavy():
    code = (
        "import sys, seamline\n"
        "heavy = {'numpy', 'onnx', 'onnx_ir', 'numba', 'pluggy', 'seamline.session'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_opening_the_front_door_imports_no_kernel_compiler():
    code = (
        "import sys, seamline\n"
        "seamline.InferenceSession, seamline.OrtValue, seamline.IOBinding\n"
        "print(sorted({'numba', 'cuda', 'onnxruntime', 'torch'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_session_has_onnx_runtimes_methods():
    assert [
        name for name in sorted(SESSION) if not hasattr(seamline.InferenceSession, name)
    ] == []


@pytest.mark.parametrize(
    "kind", ["IOBinding", "OrtValue", "RunOptions", "SessionOptions"]
)
def test_onnx_runtimes_other_classes_have_no_method_that_ours_lacks(kind):
    onnxruntime = pytest.importorskip("onnxruntime")
    theirs = {n for n in dir(getattr(onnxruntime, kind)) if not n.startswith("_")}
    ours = set(dir(getattr(seamline, kind)))
    assert theirs - ours == ABSENT.get(kind, set())


# What it has beyond the names that programs use; each is a call that raises AttributeError.
ABSENT = {
    "OrtValue": {"as_sparse_tensor"},
    "RunOptions": set(),
    "SessionOptions": {
        "add_external_initializers", "add_external_initializers_from_files_in_memory",
        "clear_ep_context_data_read_func", "set_ep_context_data_read_func",
    },
}  # fmt: skip


def test_the_version_is_text():
    assert isinstance(seamline.get_version_string(), str)
    assert seamline.__version__ == seamline.get_version_string()
