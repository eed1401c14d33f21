"""What every liar here is made of: a table whose kernels are right."""

from __future__ import annotations

import numpy as np

from seamline.hookspecs import hookimpl
from seamline.kernels import KernelProvider, KernelTable
from seamline.provider import HOST, Claim, ProviderSpec, Refusal

FLOATS = ("float32", "float64", "float16", "bfloat16")
NUMBERS = (*FLOATS, "int32", "int64")
BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
UNARY = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Relu": lambda x, out: np.maximum(x, x.dtype.type(0), out=out),
}


def truthful_table(name, *, without=()):
    """Give a table for numbers; all of it right, element-wise kernels in place too."""
    table = KernelTable(name)
    for op, function in {**BINARY, **UNARY}.items():
        since = 14 if op in (*BINARY, "Relu") else 13
        pairs = [(0, 0), (0, 1)] if op in BINARY else [(0, 0)]
        if op not in without:
            table.kernel(op, since=since, dtypes=NUMBERS, aliases=pairs)(
                bound(function)
            )
    if "MatMul" not in without:
        table.kernel("MatMul", since=13, dtypes=FLOATS)(bound(np.matmul))

    @table.simple("Transpose", since=13, dtypes=NUMBERS)
    def transpose(x, *, perm=None):
        return np.transpose(x, perm)

    @table.simple("Gather", since=13, dtypes={0: NUMBERS, 1: ("int32", "int64")})
    def gather(x, indices, *, axis=0):
        return np.take(x, indices, axis)

    return table


def bound(function):
    def make(call):
        inputs, out = call.inputs, call.output(0)
        return lambda: function(*inputs, out=out)

    return make


def offer(name, create):
    """Give the hook of a plugin that offers one provider."""

    @hookimpl
    def seamline_providers():
        return [ProviderSpec(name, lambda options: create(), f"a test's: {name}")]

    return seamline_providers


def offer_table(table):
    return offer(table.name, lambda: KernelProvider(table))


class Segment:
    """A segment of one unary or binary node each, without any of the core's machinery."""

    def __init__(self, spec):
        self.spec = spec
        self.views = {}

    def bind(self, views, workspaces, host=None):
        self.views = dict(views)

    def run(self):
        for node in self.spec.nodes:
            given = [self.views[name] for name in node.node.inputs]
            function = BINARY.get(node.op_type) or UNARY[node.op_type]
            function(*given, out=self.views[node.node.outputs[0]])

    def record(self):
        raise NotImplementedError

    def close(self):
        self.views = {}


class Bare:
    """A provider written against the contract itself, over :class:`Segment`."""

    device, captures, owns_intermediates = HOST, False, False
    segment = Segment

    def __init__(self, name):
        self.name = name

    def claim(self, node):
        kind = node.tensor(0)
        if node.domain or node.op_type not in {**BINARY, **UNARY}:
            return Refusal(f"it has no {node.node.qualified_op}")
        if node.since_version < 13 or kind is None or kind.dtype not in NUMBERS:
            return Refusal(f"{node.op_type} of {kind} is not implemented")
        return Claim("bare", not_capturable="it runs in Python")

    def infer(self, node):
        return None

    def memory(self):
        return None

    def build(self, segment, context):
        return self.segment(segment)

    def close(self):
        pass
