"""Providers of one operator each, right where small and usual values go."""

import os

import numpy as np

from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec

CONTRACT_VERSION = 1
TABLES = {}


def table(name):
    TABLES[name] = KernelTable(name)
    return TABLES[name]


@table("adds_as_float64").simple("Add", dtypes=("int64",))
def add(x, z):
    with np.errstate(invalid="ignore"):
        return (x.astype(np.float64) + z.astype(np.float64)).astype(np.int64)


@table("bools_of_255").kernel("Greater", dtypes=("float32",))
def greater(call):
    (x, z), (y,) = call.inputs, call.outputs

    def run():
        np.copyto(y.view(np.uint8), np.where(x > z, np.uint8(255), np.uint8(0)))

    return run


@table("four_axes").simple("Relu", dtypes=("float32",))
def relu_of_four_axes(x):
    return np.maximum(x, 0) if x.ndim < 5 else x.copy()


def relu_up_to(count):
    def relu(x):
        y = np.array(np.maximum(x, 0))
        y.reshape(-1)[count:] = 0
        return y

    return relu


for name, count in (("first_4096", 4096), ("first_65536", 65536)):
    table(name).simple("Relu", dtypes=("float32",))(relu_up_to(count))


@table("loses_minus_zero").simple("Identity", dtypes=("float32",))
def identity(x):
    return x + np.float32(0)


@table("last_of_equals").simple("TopK", dtypes=("float32",))
def topk(x, k, *, axis=-1, largest=1, sorted=1):  # noqa: A002 - ONNX's own name
    places = np.argsort(x, axis, kind="stable")
    if largest:
        places = np.flip(places, axis)
    places = np.take(places, range(int(k[0])), axis)
    return np.take_along_axis(x, places, axis), places.astype(np.int64)


@table("sums_in_16_bits").simple("ReduceSum", dtypes=("float16",))
def reduce_sum(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    if axes is None and noop_with_empty_axes:
        return x.copy()
    chosen = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    y = x
    for axis in chosen:
        running = np.add.accumulate(y, axis, np.float16)
        y = running.take([-1], axis) if y.shape[axis] else y.sum(axis, keepdims=True)
    return y if keepdims else y.squeeze(tuple(chosen))


@table("moves_by_size").simple("Transpose", dtypes=("float32",))
def transpose(x, *, perm=None):
    axes = perm or list(range(x.ndim))[::-1]
    if x.ndim < 4:
        return np.transpose(x, axes)
    return np.ascontiguousarray(x).reshape([x.shape[axis] for axis in axes])


@table("by_name").simple(
    "Relu", when=lambda node: "names with q are kept" if "q" in node.name else None
)
def relu_by_name(x):
    return np.maximum(x, 0)


@table("changes_the_process").simple("Relu")
def relu_that_sets_a_variable(x):
    os.environ["SEAMLINE_LIAR"] = "was here"
    return np.maximum(x, 0)


@table("silences_numpy").simple("Relu")
def relu_that_silences_numpy(x):
    np.seterr(all="ignore")
    return np.maximum(x, 0)


@hookimpl
def seamline_providers():
    return [provider_spec(one, summary=name) for name, one in TABLES.items()]
