"""Kernels that are their definition: NumPy's function by the operator's name."""

from __future__ import annotations

import numpy as np

from seamline.kernels import KernelTable

POISON = 0xA5


def _constant_or_zero(value):
    return np.zeros(1, np.float32) if value is None else value


DEFINITIONS = {
    "Abs": np.abs,
    "Add": np.add,
    "Cast": lambda x, *, to: x.astype({1: np.float32, 7: np.int64, 11: np.float64}[to]),
    "Concat": lambda *xs, axis: np.concatenate(xs, axis),
    "ConstantOfShape": lambda s, *, value=None: np.full(
        tuple(s), _constant_or_zero(value)[0]
    ),
    "Greater": np.greater,
    "Identity": np.array,
    "Less": np.less,
    "MatMul": np.matmul,
    "Mul": np.multiply,
    "Neg": np.negative,
    "NonZero": lambda x: np.array(np.nonzero(x), np.int64).reshape(max(x.ndim, 1), -1),
    "ReduceSum": lambda x, axes=None, *, keepdims=1: np.sum(
        x, None if axes is None else tuple(axes), keepdims=bool(keepdims)
    ),
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "Reshape": lambda x, shape, *, allowzero=0: x.reshape(tuple(shape)),
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Split": lambda x, sizes=None, *, axis=0, num_outputs=None: tuple(
        np.split(x, np.cumsum(sizes)[:-1], axis)
        if sizes is not None
        else np.array_split(x, num_outputs, axis)
    ),
    "Sub": np.subtract,
    "Transpose": lambda x, *, perm=None: np.transpose(x, perm),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}
IN_PLACE = ("Abs", "Add", "Mul", "Neg", "Relu", "Sub")
BINARY = ("Add", "Mul", "Sub")


def definitions_table(name, *, in_place=True, views=True, ops=None):
    """Give a table of every definition; some write in place, some are views."""
    table = KernelTable(name)
    for op, function in DEFINITIONS.items():
        if ops is not None and op not in ops:
            continue
        if op == "NonZero":
            table.simple(op, sizes_at_run=True)(function)
        elif op in ("Reshape", "Identity") and views:
            table.kernel(op, views=[(0, 0)], host_inputs=[1] * (op == "Reshape"))(_view)
        elif op in IN_PLACE and in_place:
            pairs = [(0, 0), (0, 1)] if op in BINARY else [(0, 0)]
            table.kernel(op, aliases=pairs)(_in_place(function))
        else:
            hosts = [1] if op in ("Reshape", "Unsqueeze") else ()
            table.simple(op, host_inputs=hosts)(_with_attributes(op, function))
    return table


def _with_attributes(op, function):
    if not isinstance(function, np.ufunc) and op not in ("Abs", "Identity"):
        return function
    return (
        (lambda x, y: function(x, y))
        if op in (*BINARY, "Greater", "Less")
        else (
            (lambda x, y: function(x, y)) if op == "MatMul" else (lambda x: function(x))
        )
    )


def _in_place(function):
    def make(call):
        inputs = [x for x in call.inputs if x is not None]
        out = call.output(0)

        def run():
            result = np.asarray(function(*inputs))
            # A poisoned output shows a kernel, or a plan, that reads what it overwrote.
            if out.size and not any(np.may_share_memory(out, x) for x in inputs):
                out.reshape(-1).view(np.uint8)[...] = POISON
            out[...] = result

        return run

    return make


def _view(call):
    source, out = call.input(0), call.output(0)

    def run():
        if out.size and not np.may_share_memory(source, out):
            out[...] = source.reshape(out.shape)

    return run
