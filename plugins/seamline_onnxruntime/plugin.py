"""What seamline finds when it looks for plugins; imports nothing heavy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from seamline.hookspecs import hookimpl
from seamline.provider import Availability, Option, Provider, ProviderSpec

__all__ = ["CONTRACT_VERSION", "seamline_providers"]

CONTRACT_VERSION = 1

OPTIONS = (
    Option(
        "num_threads",
        int,
        0,
        "threads of each segment; 0 leaves it to onnxruntime",
        minimum=0,
    ),
    Option(
        "graph_optimization_level",
        str,
        "all",
        "how much onnxruntime rewrites a segment",
        choices=("disabled", "basic", "extended", "all"),
    ),
    Option(
        "allow_spinning",
        bool,
        False,
        "let idle threads spin between runs; quicker alone, and slower for every other "
        "provider, since each segment has its own threads",
    ),
)


def _probe() -> Availability:
    if importlib.util.find_spec("onnxruntime") is None:
        return Availability(
            False, "the package onnxruntime is not installed", "pip install onnxruntime"
        )
    return Availability(True)


def _create(options: Mapping[str, Any]) -> Provider:
    from seamline_onnxruntime.provider import OnnxRuntimeProvider

    return OnnxRuntimeProvider(options)


def _peer(model: str, threads: int) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Open a whole model on onnxruntime's own session, for ``seamline bench --peer``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: list(session.run(None, dict(feeds)))


@hookimpl
def seamline_providers() -> tuple[ProviderSpec, ...]:
    """Offer ``onnxruntime``; ONNX Runtime's own name for its CPU stays with ``cpu``."""
    return (
        ProviderSpec(
            "onnxruntime",
            _create,
            "whole segments compiled by ONNX Runtime for the CPU",
            contract_version=CONTRACT_VERSION,
            probe=_probe,
            options=OPTIONS,
            peer=_peer,
        ),
    )
