"""
One node's works done once over arrays, without a session: claims, then kernels' own text.

Results and workspace begin as NaN (all bits set), so that what is not written shows.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
from tests.core.toys import model
from tests.cuda.emulation.launching import launched
from tests.cuda.emulation.pointers import Arrays

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernel import Call
from seamline.kernels import KernelProvider
from seamline.provider import view_of
from seamline.tensors import numpy_dtype
from seamline_cuda.table import TABLE
from seamline_cuda.works import Complaint, CopyWork, ProductWork

NAMES = {
    "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16",
    "int32": "int32", "int64": "int64", "bool": "bool", "uint8": "uint8", "int8": "int8",
}  # fmt: skip


def node_of(op, inputs, outputs, opset=24, **attributes):
    """Give a model of one node over typed inputs (None is left out), and its view."""
    given = [f"{NAMES[x.dtype.name]}{list(x.shape)} x{i}".replace(" [", "[") for i, x in enumerate(inputs) if x is not None]  # fmt: skip
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" if kind else "" for i, kind in enumerate(outputs)]
    kinds = [f"{NAMES[kind]} y{i}" for i, kind in enumerate(outputs) if kind]
    told = ", ".join(
        f"{k} = {_told(v)}" for k, v in attributes.items() if k != "domain"
    )
    domain = attributes.get("domain", "")
    name = f"{domain}.{op}" if domain else op
    text = (
        f"g ({', '.join(given)}) => ({', '.join(kinds)}) "
        f"{{ {', '.join(made)} = {name}{f'<{told}>' if told else ''}({', '.join(names)}) }}"
    )
    return model(text, opset, f', "{domain}" : 1' if domain else "")


def _told(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


def claim_of(source, constants=None):
    """Give the node as the provider sees it, and the provider's answer."""
    provider = KernelProvider(TABLE, device=Device("cuda"))
    graph = load(source)
    known = Constants(graph)

    def value(name):
        return (constants or {}).get(name, known.get(name))

    types = dict(collect(graph, [provider], known).types)
    node = view_of(graph.nodes[0], types, value)
    kinds = provider.infer(node)
    if kinds is not None:
        types |= dict(zip(node.node.outputs, kinds, strict=False))
        node = view_of(graph.nodes[0], types, value)
    return node, provider.claim(node)


def done(op, inputs, outputs, *, together=(), opset=24, constants=(), **attributes):
    """
    Do a node's works.

    Parameters
    ----------
    outputs
        Element types, None for one that is not asked for.
    together
        (output, input) pairs that share memory.
    constants
        Indices of inputs whose values are known when the node is planned.

    Returns
    -------
    list of arrays, list of str
        Outputs, and the complaints that kernels made.
    """
    source = node_of(op, inputs, outputs, opset, **attributes)
    node, claim = claim_of(source, {f"x{i}": inputs[i] for i in constants})
    assert hasattr(claim, "variant"), claim
    kernel = TABLE.find(node)
    memory, kept = Arrays(), []
    given = [None if x is None else np.ascontiguousarray(x).copy() for x in inputs]
    results = []
    for index, kind in enumerate(node.outputs):
        shared = [i for o, i in together if o == index]
        if shared:
            results.append(given[shared[0]])
        elif index < len(outputs) and outputs[index]:
            results.append(_poison(kind.sizes, numpy_dtype(kind.dtype)))
        else:
            results.append(None)
    room = _poison((claim.workspace_nbytes,), np.dtype(np.uint8))
    call = Call(
        node,
        tuple(_view(x, kind, memory) for x, kind in zip(given, node.inputs, strict=True)),
        tuple(_view(x, kind, memory) for x, kind in zip(results, node.outputs, strict=True)),
        None, {}, _view(room, None, memory) if room.size else None,
    )  # fmt: skip
    complaints = []
    for work in kernel.function(call):
        if isinstance(work, CopyWork):
            ctypes.memmove(work.target, work.source, work.nbytes)
            continue
        if isinstance(work, ProductWork):
            _multiplied(work)
            continue
        arguments = []
        for value in work.arguments:
            if isinstance(value, Complaint):
                word = np.zeros(1, np.uint32)
                kept.append((word, value.why))
                arguments.append(memory.add(word))
            else:
                arguments.append(value)
        blocks = work.blocks or -(-work.count // work.threads)
        launched(work.kernel, arguments, memory, (blocks, 1, 1), (work.threads, 1, 1))
    complaints = [why for word, why in kept if word[0]]
    return results, complaints


def _multiplied(work):
    """Do one product, of matrices that are not swapped, in float64."""
    dtype = numpy_dtype(work.dtype)

    def at(matrix, rows, columns):
        nbytes = (matrix.leading * (rows - 1) + columns) * dtype.itemsize
        raw = (ctypes.c_byte * nbytes).from_address(matrix.address)
        flat = np.frombuffer(raw, dtype)
        steps = (matrix.leading * dtype.itemsize, dtype.itemsize)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), steps)

    assert work.batch == 1
    a, b = at(work.a, work.rows, work.depth), at(work.b, work.depth, work.columns)
    y = at(work.target, work.rows, work.columns)
    found = work.alpha * a.astype(np.float64) @ b.astype(np.float64)
    if work.beta:
        found += work.beta * y.astype(np.float64)
    if work.bias:
        raw = (ctypes.c_byte * (work.columns * dtype.itemsize)).from_address(work.bias)
        found += np.frombuffer(raw, dtype).astype(np.float64)
    y[...] = found


def _view(array, kind, memory):
    if array is None:
        return None
    at = memory.add(array) if array.size else 0
    return SimpleNamespace(
        address=at, shape=array.shape, kind=kind, nbytes=array.nbytes
    )


def _poison(shape, dtype):
    count = int(np.prod(shape)) * dtype.itemsize
    return np.full(count, 0xFF, np.uint8).view(dtype).reshape(shape)
