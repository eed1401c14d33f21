"""
Kernels that are functions of arrays: bound to a call, and held to what the plan says.

Such a kernel gives new arrays. Where their sizes were planned they are compared and
copied to where they belong; where not, they are handed on under their names.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seamline.errors import ContractError, KernelError
from seamline.kernel_table import Call, Kernel, Run
from seamline.provider import Array, NodeView, View
from seamline.tensors import TensorType, numpy_dtype

__all__ = ["bind_simple", "finds_sizes", "named_results"]


def finds_sizes(kernel: Kernel, call: Call) -> bool:
    """
    Tell whether a kernel allocates its outputs, since nobody knew their sizes.

    Raises
    ------
    ValueError
        It must and cannot.
    """
    names = call.view.node.outputs
    missing = [n for n, a in zip(names, call.outputs, strict=True) if n and a is None]
    if missing and not kernel.simple:
        given = ", ".join(str(kind) if kind else "-" for kind in call.view.inputs)
        raise ValueError(
            f"inputs of {given} give no size for output {missing[0]!r}, and its kernel "
            "does not find sizes itself"
        )
    return kernel.sizes_at_run or bool(missing)


def bind_simple(kernel: Kernel, call: Call, provider: str, *, finds: bool) -> Run:
    """Bind a kernel of arrays: call it, and copy what it gives to where it belongs."""
    chosen = dict(call.view.attributes)
    if kernel.parameters and "since_version" in kernel.parameters:
        chosen["since_version"] = call.view.since_version
    function, inputs = kernel.function, tuple(map(_read_only, call.inputs))
    if finds:
        return lambda: function(*inputs, **chosen)

    outputs = call.outputs

    def run() -> None:
        given = function(*inputs, **chosen)
        results = given if isinstance(given, tuple) else (given,)
        for index, target in enumerate(outputs):
            if target is None:
                continue
            result = np.asarray(results[index])
            if result.shape != target.shape or result.dtype != target.dtype:
                raise ContractError(
                    provider,
                    f"its kernel's output {index} is {result.dtype}{list(result.shape)}, "
                    f"the plan says {target.dtype}{list(target.shape)}",
                )
            target[...] = result

    return run


def _read_only(view: View) -> View:
    """Give an input that its kernel cannot write by mistake: others may read it after."""
    if isinstance(view, np.ndarray) and view.flags.writeable:
        view = view.view()
        view.flags.writeable = False
    return view


def named_results(node: NodeView, result: object) -> Mapping[str, Array]:
    """Give what a kernel found by output name, as arrays of the declared type."""
    results = result if isinstance(result, tuple) else (result,)
    named = {}
    for name, kind, value in zip(
        node.node.outputs, node.outputs, results, strict=False
    ):
        if not name:
            continue
        dtype = numpy_dtype(kind.dtype) if isinstance(kind, TensorType) else None
        array = np.asarray(value)
        if dtype is not None and array.dtype != dtype:
            raise KernelError(
                f"output {name!r} is {array.dtype}, its type says {dtype}",
                node=node.name,
            )
        named[name] = array
    return named
