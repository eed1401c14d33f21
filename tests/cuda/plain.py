"""Runs a generated kernel's text as plain Python, with intrinsics by their definitions."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
from tests.core.toys import model
from tests.cuda.emulation.definitions import PLAIN as DEFINED

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernels import KernelProvider
from seamline.provider import view_of
from seamline.tensors import numpy_dtype
from seamline_cuda.elementwise import generated
from seamline_cuda.fusion import grouped
from seamline_cuda.table import TABLE, is_elementwise

#: For a kernel that is run by one thread over everything.
PLAIN = {**DEFINED, "cuda": SimpleNamespace(grid=lambda _: 0, gridsize=lambda _: 1)}


def nodes_of(text, opset=23):
    """Give a model's nodes as a provider sees them, claimed, and its graph."""
    provider = KernelProvider(TABLE, device=Device("cuda"))
    more = ', "com.microsoft": 1' if "com.microsoft" in text else ""
    graph = load(model(text, opset, more))
    constants = Constants(graph)
    claims = collect(graph, [provider], constants)
    nodes = [view_of(n, dict(claims.types), constants.get) for n in graph.nodes]
    for node in nodes:
        answer = provider.claim(node)
        assert hasattr(answer, "variant"), f"{node.op_type}: {answer}"
    return nodes, graph


def groups_of(text, opset=23):
    """Give what a model's nodes are joined to."""
    nodes, graph = nodes_of(text, opset)
    return grouped(nodes, graph.outputs, is_elementwise)


def run(text, feeds, at_once=None, opset=23, *, by_words=False):
    """
    Run a model of elementwise nodes, group by group; give every value stored.

    ``by_words``: its places are such that four elements may go at once.
    """
    values = dict(feeds)
    for group in groups_of(text, opset):
        places = [0] * len((*group.loads, *group.stores)) if by_words else ()
        made = generated(group, at_once, places)
        arrays = []
        for name in group.loads:
            arrays.append(_stored(np.ascontiguousarray(values[name])))
        for name in group.stores:
            kind = next(k for n in group.nodes for o, k in zip(n.node.outputs, n.outputs, strict=True) if o == name)  # fmt: skip
            values[name] = np.zeros(kind.sizes, numpy_dtype(kind.dtype))
            arrays.append(_stored(values[name]))
        arrays = [
            array.view(np.uint64)
            if kind == "uint64*" and array.itemsize == 2
            else array
            for kind, array in zip(made.kernel.signature, arrays, strict=False)
        ]
        scope = dict(PLAIN)
        exec(made.kernel.text, scope)
        with np.errstate(all="ignore"):
            count, *rest = made.numbers
            scope[made.kernel.name](*arrays, count, *map(np.uint32, rest))
    return values


def _stored(array):
    flat = array.reshape(-1)
    if array.dtype in (np.float16, ml_dtypes.bfloat16):
        return flat.view(np.uint16)
    return flat.view(np.uint8) if array.dtype == bool else flat
