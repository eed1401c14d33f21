"""The provider ``softly``: Softmax and Sigmoid for float32, in NumPy."""

import numpy as np

from seamline import KernelTable, hookimpl, provider_spec

CONTRACT_VERSION = 1
TABLE = KernelTable("softly")


@TABLE.simple("Softmax", since=13, dtypes=("float32",))
def softmax(x, *, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@TABLE.simple("Sigmoid", since=6, dtypes=("float32",))
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@hookimpl
def seamline_providers():
    return [provider_spec(TABLE, summary="Softmax and Sigmoid in NumPy")]
