"""Packs weights once for each name of a constant, whichever model the name is of."""

import numpy as np
from tests.testing.liars.truthful import FLOATS, offer, truthful_table

from seamline.kernels import KernelProvider

CONTRACT_VERSION = 1
table = truthful_table("call_order", without=["MatMul"])


class Packing(KernelProvider):
    def __init__(self):
        super().__init__(table, {"packed": {}})


@table.kernel("MatMul", since=13, dtypes=FLOATS)
def matmul(call):
    x, y = call.input(0), call.output(0)
    name = call.view.node.inputs[1]
    packed = call.options["packed"].setdefault(name, np.array(call.input(1)))
    return lambda: np.copyto(y, np.matmul(x, packed))


seamline_providers = offer("call_order", Packing)
