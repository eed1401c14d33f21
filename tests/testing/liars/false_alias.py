"""Says that its output may lie on its input, and reads the input after it wrote there."""

import numpy as np
from tests.testing.liars.truthful import offer_table

from seamline.kernels import KernelTable

CONTRACT_VERSION = 1
table = KernelTable("false_alias")


@table.kernel("Neg", since=13, dtypes=("float32",), aliases=[(0, 0)])
def negative(call):
    x, y = call.input(0), call.output(0)

    def run():
        y[...] = 0
        np.subtract(y, x, out=y)

    return run


seamline_providers = offer_table(table)
