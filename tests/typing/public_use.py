"""
Public use, read by type checkers alone: ``mypy tests/typing`` must accept every line.

Where a line must be refused, an ignore with its code stands there; the checker warns of
an ignore that is not needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import onnx

import seamline
from seamline import (
    FeedError,
    GraphOptimizationLevel,
    InferenceSession,
    IOBinding,
    NodeArg,
    OrtValue,
    RunOptions,
    SessionOptions,
)
from seamline.backend import Backend, BackendRep


def open_in_every_form(model: onnx.ModelProto) -> InferenceSession:
    """Open a model."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    InferenceSession("model.onnx")
    InferenceSession(Path("model.onnx"), options, ["cpu"])
    InferenceSession(b"bytes", providers=[("cuda", {"device_id": 0}), "cpu"])
    InferenceSession(model, None, ("cpu",), [{"num_threads": 4}])
    InferenceSession(model, fallback="sometimes")  # type: ignore[arg-type]
    InferenceSession(model, seams="never")  # type: ignore[arg-type]
    InferenceSession(3)  # type: ignore[arg-type]
    return InferenceSession(model, pins={"Conv": "cpu"}, fallback="warn", max_seams=3)


def run_in_every_form(session: InferenceSession, x: np.ndarray[Any, Any]) -> None:
    """Run a model."""
    assert_type(session.run(None, {"x": x}), list[Any])
    session.run(["y"], {"x": [1, 2]}, RunOptions())
    value = OrtValue.ortvalue_from_numpy(x)
    assert_type(session.run_with_ort_values(["y"], {"x": value}), list[OrtValue])
    session.run_with_ort_values(["y"], {"x": x})  # type: ignore[dict-item]
    session.run_async(None, {"x": x}, lambda outputs, data, error: None, "tag")
    binding = session.io_binding()
    assert_type(binding, IOBinding)
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert_type(binding.get_outputs(), list[OrtValue])
    assert_type(session.get_inputs(), list[NodeArg])
    assert_type(session.get_providers(), list[str])
    assert_type(session.end_profiling(), str)
    session.get_input_memory_infos()  # type: ignore[attr-defined]


def share_memory(value: OrtValue) -> np.ndarray[Any, Any]:
    """Pass a value to NumPy and back."""
    OrtValue.from_dlpack(value)
    assert_type(value.shape(), list[int])
    assert_type(value.__dlpack_device__(), tuple[int, int])
    return np.asarray(value)


def catch_errors(session: InferenceSession) -> str:
    """Catch what is raised."""
    try:
        session.run(None, {})
    except FeedError as error:
        assert_type(error, FeedError)
        return str(error)
    except seamline.errors.KernelError as error:
        return error.node
    return ""


def use_the_backend(model: onnx.ModelProto) -> None:
    """Run through ONNX's interface."""
    assert_type(Backend.prepare(model, "CPU"), BackendRep)
    assert_type(Backend.run_model(model, [np.zeros(2)]), tuple[Any, ...])
    assert_type(seamline.get_available_providers(), list[str])


def use_a_session_as_a_context() -> None:
    """Close a session at the end of a block."""
    with InferenceSession("model.onnx") as opened:
        assert_type(opened, InferenceSession)
