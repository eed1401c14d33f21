"""Does one node's work over host arrays, kernel by kernel, as the segment would launch it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
from tests.cuda.emulation import run_kernel
from tests.cuda.plain import nodes_of

from seamline.kernel import Call
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


def worked(text, feeds, opset=23, constants=()):
    """
    Run a model of one node over the emulation; give every output.

    Results start as garbage. The arguments ``constants`` are initializers of the model.
    """
    (node,), _ = nodes_of(text, opset)
    return node_worked(node, feeds)


def node_worked(node, feeds):
    """Run a node that was claimed; give every output by name."""
    kernel = TABLE.find(node)
    memory, inputs = Memory(), []
    for index, name in enumerate(node.node.inputs):
        array = feeds.get(name) if name in feeds else node.constant(index)
        inputs.append(
            array if index in kernel.host_inputs or not name else _view(memory, array)
        )
    outputs, made = [], {}
    for name, kind in zip(node.node.outputs, node.outputs, strict=True):
        if not name:
            outputs.append(None)
            continue
        made[name] = np.full(kind.sizes, 77, numpy_dtype(kind.dtype))
        outputs.append(_view(memory, made[name]))
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
