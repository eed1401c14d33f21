"""Runs one node through the CPU table, with its memory in the test's hands, or onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort
from onnx import numpy_helper
from tests.node_cases import Kept, as_array, view_of_node

from seamline.kernels import KernelProvider
from seamline.provider import Refusal, SegmentSpec
from seamline_cpu.kernels import TABLE


def node_of(op, inputs, outputs=1, domain="", **attributes):
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    wanted = range(outputs) if isinstance(outputs, int) else outputs
    given = [f"y{i}" if i in wanted else "" for i in range(max(wanted) + 1)]
    return oh.make_node(op, names, given, name="it", domain=domain, **attributes)


def poisoned(like):
    """Give an array of the same type that holds nothing right."""
    if like.dtype == object:
        return np.full(like.shape, "poison", object)
    return np.frombuffer(bytearray(b"\xa5" * like.nbytes), like.dtype).reshape(
        like.shape
    )


class Bound:
    """A node bound to arrays: ``views`` may be written between runs."""

    def __init__(self, node, inputs, like, opset, constant=(), share=(), threads=2):
        inputs = [None if x is None else as_array(x) for x in inputs]
        like = [None if x is None else as_array(x) for x in like]
        self.node, self.inputs = node, inputs
        view = view_of_node(node, inputs, like, opset, constant)
        provider = KernelProvider(TABLE, {"num_threads": threads})
        self.claim = provider.claim(view)
        if isinstance(self.claim, Refusal):
            raise NotImplementedError(str(self.claim))
        spec = SegmentSpec(
            "s", (view,), tuple(filter(None, node.input)), tuple(node.output)
        )
        self.executable = provider.build(spec, Kept())
        self.views = {}
        for i, (name, x) in enumerate(zip(node.input, inputs, strict=False)):
            if name:
                # What is not constant is not there yet when a kernel is bound.
                self.views[name] = x.copy() if i in constant else poisoned(x)
        for i, (name, x) in enumerate(zip(node.output, like, strict=False)):
            if name:
                sources = [
                    self.views[node.input[s]] for output, s in share if output == i
                ]
                place = sources[0].reshape(x.shape) if sources else poisoned(x)
                self.views[name] = place
        self.executable.bind(self.views, {})
        for name, x in zip(node.input, inputs, strict=False):
            if name:
                np.copyto(self.views[name], x)

    def run(self):
        with np.errstate(all="ignore"):
            produced = self.executable.run()
        self.views.update(produced or {})
        return [self.views[name] if name else None for name in self.node.output]


def give(
    op, inputs, like, *, opset=23, constant=(), outputs=None, domain="", **attributes
):
    """Run twice; the inputs must stay as they are, and both runs must agree."""
    like = like if isinstance(like, list) else [like]
    given = outputs or [i for i, x in enumerate(like) if x is not None]
    node = node_of(op, inputs, given, domain, **attributes)
    bound = Bound(node, inputs, like, opset, constant)
    first = [None if x is None else x.copy() for x in bound.run()]
    second = bound.run()
    for name, x in zip(node.input, bound.inputs, strict=True):
        if name:
            assert holds(bound.views[name], x), f"{name} was written"
    for a, b in zip(first, second, strict=True):
        if a is not None:
            assert holds(a, b), "a second run differs"
    return second


def holds(a, b):
    """Compare bytes: NaN is itself."""
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def same(got, want, rtol=0.0, atol=0.0):
    want = want if isinstance(want, list) else [want]
    assert len(got) == max(i for i, w in enumerate(want) if w is not None) + 1
    for g, w in zip(got, want, strict=False):
        if w is None:
            continue
        w = as_array(w)
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        if w.dtype.kind == "V":  # NumPy knows no NaN among ml_dtypes's types
            g, w = g.astype(np.float64), w.astype(np.float64)
        if w.dtype == object or not (rtol or atol):
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(
                g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol
            )


def gives(op, inputs, want, *, fixed=(), rtol=0.0, atol=0.0, **keywords):
    """Check a node's outputs, with the inputs at ``fixed`` fed and then constant."""
    same(give(op, inputs, want, **keywords), want, rtol, atol)
    if fixed:
        same(give(op, inputs, want, constant=fixed, **keywords), want, rtol, atol)


def peer(op, inputs, *, opset, outputs=1, domain="", **attributes):
    """Run the node in onnxruntime."""
    node = node_of(op, inputs, outputs, domain, **attributes)
    infos, feeds = [], {}
    for name, x in zip(node.input, inputs, strict=True):
        if not name:
            continue
        x = as_array(x)
        kind = (
            onnx.TensorProto.STRING
            if x.dtype == object
            else numpy_helper.from_array(x).data_type
        )
        infos.append(oh.make_tensor_value_info(name, kind, x.shape))
        feeds[name] = x
    results = [oh.make_empty_tensor_value_info(n) for n in node.output if n]
    imports = [oh.make_opsetid("", opset)] + (
        [oh.make_opsetid(domain, 1)] if domain else []
    )
    graph = oh.make_graph([node], "g", infos, results)
    model = oh.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = iter(session.run(None, feeds))
    return [as_array(next(found)) if n else None for n in node.output]


def agrees(
    op, inputs, *, opset=23, fixed=(), rtol=0.0, atol=0.0, outputs=1, **attributes
):
    """Check that the kernel gives what onnxruntime gives."""
    want = peer(op, inputs, opset=opset, outputs=outputs, **attributes)
    gives(
        op, inputs, want, fixed=fixed, rtol=rtol, atol=atol, opset=opset, **attributes
    )
