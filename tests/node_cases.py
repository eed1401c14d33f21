"""
Runs one node straight through a kernel table, and ONNX's node cases with it.

    python tests/node_cases.py [OP ...]

prints, for each of ONNX's node cases of those operators (all without arguments), whether
the CPU table's kernel passes, refuses or fails. The tests import ``run_node``.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir

from seamline.graph import Node, read_only
from seamline.kernels import KernelProvider
from seamline.provider import NodeView, Refusal, SegmentSpec
from seamline.tensors import type_of_array
from seamline_testing.guarded import same_bits

logging.getLogger("onnx_ir").setLevel(logging.ERROR)


class Kept:
    """A build context that keeps things for one node."""

    def __init__(self):
        self.kept = {}

    def resident(self, key, make):
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def attributes_of(source: ir.Node):
    given = {}
    for name, attr in source.attributes.items():
        if attr.type == ir.AttributeType.TENSOR:
            given[name] = read_only(attr.value)
        elif isinstance(attr.value, (list, tuple)):
            given[name] = tuple(attr.value)
        else:
            given[name] = attr.value
    return given


def as_array(value):
    """Hold strings as objects, everything else as it is; always C-contiguous."""
    if isinstance(value, onnx.TensorProto):  # types that NumPy has not, such as float8
        value = onnx.numpy_helper.to_array(value)
    array = np.asarray(value)
    if array.dtype.kind in "USO":
        flat = [x.decode() if isinstance(x, bytes) else str(x) for x in array.ravel()]
        out = np.empty(array.shape, object)
        out.ravel()[:] = flat if out.ndim else flat[0]
        if out.ndim:
            out = np.array([*flat, None], dtype=object)[:-1].reshape(array.shape)
        return out
    return np.ascontiguousarray(array).reshape(array.shape)


def view_of_node(node: onnx.NodeProto, inputs, outputs, opset: int, constant=()):
    """Make the view that a kernel sees; ``constant``: input indices known before the run."""
    source = ir.from_proto(node)
    try:
        since = onnx.defs.get_schema(node.op_type, opset, node.domain).since_version
    except onnx.defs.SchemaError:
        since = 1
    made = Node(
        node.name or "node", node.op_type, node.domain, since, tuple(node.input),
        tuple(node.output), attributes_of(source), source,
    )  # fmt: skip
    known = {
        node.input[i]: inputs[i]
        for i in constant
        if i < len(inputs) and inputs[i] is not None
    }
    return NodeView(
        made,
        tuple(None if x is None else type_of_array(x) for x in inputs),
        tuple(None if x is None else type_of_array(x) for x in outputs),
        known.get,
    )


def run_node(
    table, node, inputs, like, *, opset=None, constant=(), options=None, runs=2
):
    """
    Run a node through its kernel ``runs`` times; ``like`` gives the outputs' types.

    Returns the outputs, or a Refusal. Fails if a kernel writes to an input.
    """
    opset = opset or onnx.defs.onnx_opset_version()
    inputs = [None if x is None else as_array(x) for x in inputs]
    like = [None if x is None else as_array(x) for x in like]
    view = view_of_node(node, inputs, like, opset, constant)
    provider = KernelProvider(table, options or {"num_threads": 2})
    answer = provider.claim(view)
    if isinstance(answer, Refusal):
        return answer
    executable = provider.build(
        SegmentSpec("s", (view,), tuple(filter(None, node.input)), tuple(node.output)),
        Kept(),
    )
    views = {}
    for name, x in zip(node.input, inputs, strict=False):
        if name:
            views[name] = x.copy()
    for name, x in zip(node.output, like, strict=False):
        if name:
            poison = np.empty(x.shape, x.dtype)
            if x.dtype != object:
                poison.reshape(-1).view(np.uint8)[...] = 0xA5
            views[name] = poison
    scratch = np.empty(answer.workspace_nbytes, np.uint8)
    executable.bind(views, {view.name: scratch})
    with np.errstate(all="ignore"):
        for _ in range(runs):
            produced = executable.run()
    for name, x in zip(node.input, inputs, strict=False):
        if name and not same_bits(views[name], x):
            raise AssertionError(f"input {name} was written")
    views.update(produced or {})
    return [views[name] if name else None for name in node.output]


def check(got, want, rtol=1e-4, atol=1e-5):
    """Say how two lists of arrays differ, or give None."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if w is None or g is None:
            continue
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {i}: {g.dtype}{g.shape}, want {w.dtype}{w.shape}"
        if w.dtype.kind in "OUS" or w.dtype.kind in "iub":
            if not np.array_equal(g, w):
                return f"output {i} differs: {g.ravel()[:8]} want {w.ravel()[:8]}"
            continue
        kind = np.complex128 if w.dtype.kind == "c" else np.float64
        coarse = w.dtype.itemsize <= 2
        a, b = g.astype(kind), w.astype(kind)
        if not np.allclose(
            a,
            b,
            rtol=1e-2 if coarse else rtol,
            atol=1e-2 if coarse else atol,
            equal_nan=True,
        ):
            return f"output {i} differs: {a.ravel()[:6]} want {b.ravel()[:6]}"
    return None


def node_cases(*ops):
    """Give ONNX's node cases that are one node: (name, node, opset, inputs, outputs)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        graph = case.model.graph
        if len(graph.node) != 1 or (ops and graph.node[0].op_type not in ops):
            continue
        opset = {o.domain: o.version for o in case.model.opset_import}
        node = graph.node[0]
        if any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            continue
        for inputs, outputs in case.data_sets:
            if any(isinstance(x, (list, type(None))) for x in (*inputs, *outputs)):
                continue
            names = [i.name for i in graph.input]
            by_name = dict(zip(names, inputs, strict=False))
            yield (
                case.name, node, opset.get(node.domain, 1),
                [by_name.get(n) if n else None for n in node.input],
                [dict(zip([o.name for o in graph.output], outputs, strict=False)).get(n) for n in node.output],
            )  # fmt: skip


def main(ops):
    from seamline_cpu.kernels import TABLE

    counts, refused = Counter(), Counter()
    for name, node, opset, inputs, outputs in node_cases(*ops):
        try:
            got = run_node(TABLE, node, inputs, outputs, opset=opset)
            if isinstance(got, Refusal):
                counts["refused"] += 1
                refused[node.op_type] += 1
                if ops:
                    print("REFUSED", name, got)
                continue
            why = check(got, [None if x is None else as_array(x) for x in outputs])
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        counts["failed" if why else "passed"] += 1
        if why:
            print("FAILED", name, why[:300])
    print(dict(counts))
    if not ops:
        print("refused:", dict(refused.most_common()))


if __name__ == "__main__":
    main(sys.argv[1:])
