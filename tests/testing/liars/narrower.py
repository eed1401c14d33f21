"""Providers of MatMulNBits of 4 bits whose arithmetic is the same at every level."""

import numpy as np

from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec
from seamline_testing.int4_limits import ARITHMETICS, Product, answer_of

CONTRACT_VERSION = 1
TABLES = {}
FLOATS = ("float32", "float16", "bfloat16")


def dequantised(call):
    """Give (K, N) weights of 4 bits, with packed zero points or none."""
    k, n, block = (call.attr(name) for name in ("K", "N", "block_size"))
    scales = call.input(2).astype(float)
    blocks = scales.shape[1]
    codes = np.stack([call.input(1) & 15, call.input(1) >> 4], -1).reshape(n, -1)[:, :k]
    zeros = np.full((n, blocks), 8)
    if (given := call.input(3)) is not None:
        zeros = np.stack([given & 15, given >> 4], -1).reshape(n, -1)[:, :blocks]
    owners = np.arange(k) // block
    return ((codes - zeros[:, owners].astype(float)) * scales[:, owners]).T


def kernel_of(arithmetic, spoil):
    def make(call):
        x, y, w = call.input(0), call.output(0), dequantised(call)
        bias = np.zeros(w.shape[1])

        def run():
            product = Product(x, w, bias, call.attr("block_size"))
            np.copyto(y, answer_of(product, arithmetic))
            spoil(y)

        return run

    return make


def last_column(y):
    y[:, y.shape[1] // 16 * 16 :] = 0


def offer(name, arithmetic, spoil=lambda y: None):
    TABLES[name] = KernelTable(name)
    TABLES[name].kernel(
        "MatMulNBits", domain="com.microsoft",
        dtypes={0: FLOATS, 1: ("uint8",), 2: FLOATS},
    )(kernel_of(arithmetic, spoil))  # fmt: skip


for arithmetic in ARITHMETICS:
    offer(arithmetic.replace(" ", "_"), arithmetic)
offer("no_remainder", "float32", last_column)


@hookimpl
def seamline_providers():
    return [provider_spec(one, summary=name) for name, one in TABLES.items()]
