"""Does one node's work over host arrays, kernel by kernel, as the segment would launch it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import onnx
from tests.cuda.emulation import run_kernel
from tests.cuda.plain import nodes_of
from tests.node_cases import as_array, view_of_node

from seamline.kernel import Call
from seamline.provider import Refusal
from seamline.tensors import numpy_dtype, type_of_array
from seamline_cuda.table import TABLE
from seamline_cuda.works import Complaint, CopyWork


class Memory:
    """Arrays by their addresses, far enough apart that an offset names one of them."""

    def __init__(self):
        self.arrays = {}
        self._next = itertools.count(1)

    def placed(self, array):
        address = next(self._next) << 32
        self.arrays[address] = np.ascontiguousarray(array).reshape(-1)
        return address

    def at(self, address, kind):
        start = address >> 32 << 32
        found = self.arrays[start].view(np.uint8)[address - start :]
        size = np.dtype(kind).itemsize
        return found[: len(found) // size * size].view(kind)


def worked(text, feeds, opset=23):
    """Run a model of one node over the emulation; give every output by name."""
    (node,), _ = nodes_of(text, opset)
    return _run(
        node, [feeds.get(n, node.constant(i)) for i, n in enumerate(node.node.inputs)]
    )


def node_worked(node, inputs, like, *, opset=None, constant=()):
    """
    Run a node as ONNX has it; give its outputs in order, or a Refusal.

    Parameters
    ----------
    inputs
        Arrays, None where one is left out.
    like
        Arrays of the outputs' types.
    constant
        Inputs that are known before the run.
    """
    opset = opset or onnx.defs.onnx_opset_version()
    inputs = [None if x is None else as_array(x) for x in inputs]
    like = [None if x is None else as_array(x) for x in like]
    view = view_of_node(node, inputs, like, opset, constant)
    if isinstance(found := TABLE.find(view), Refusal):
        return found
    made = _run(view, inputs)
    return [made[name] if name else None for name in view.node.outputs]


def _run(node, given):
    kernel = TABLE.find(node)
    memory, inputs = Memory(), []
    for index, array in enumerate(given):
        on_host = index in kernel.host_inputs or array is None
        inputs.append(array if on_host else _view(memory, array))
    outputs, made = [], {}
    for name, kind in zip(node.node.outputs, node.outputs, strict=True):
        outputs.append(_view(memory, np.full(kind.sizes, 77, numpy_dtype(kind.dtype))) if name else None)  # fmt: skip
        if name:
            made[name] = outputs[-1].address, kind
    nbytes = kernel.workspace(node) if kernel.workspace else 0
    space = _view(memory, np.full(nbytes, 0xCC, np.uint8)) if nbytes else None
    call = Call(node, tuple(inputs), tuple(outputs), None, {}, space)
    wrong = np.zeros(1, np.uint32)
    for work in kernel.function(call):
        _done(work, memory, wrong)
    assert not wrong[0]
    return {
        name: memory.at(address, numpy_dtype(kind.dtype)).reshape(kind.sizes)
        for name, (address, kind) in made.items()
    }


def _done(work, memory, wrong):
    if isinstance(work, CopyWork):
        memory.at(work.target, "u1")[: work.nbytes] = memory.at(work.source, "u1")[
            : work.nbytes
        ]
        return
    given = [_given(kind, value, memory, wrong) for kind, value in zip(work.kernel.signature, work.arguments, strict=True)]  # fmt: skip
    blocks = work.blocks or max(-(-work.count // work.threads), 1)
    run_kernel(work.kernel, *given, blocks=blocks, threads=work.threads)


def _given(kind, value, memory, wrong):
    if isinstance(value, Complaint):
        return wrong
    if not kind.endswith("*"):
        return value
    return memory.at(value, kind[:-1]) if value else None


def _view(memory, array):
    array = np.asarray(array)
    return SimpleNamespace(
        address=memory.placed(array),
        shape=array.shape,
        kind=type_of_array(array),
        nbytes=array.nbytes,
    )
