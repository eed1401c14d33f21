"""Is right alone: its scratch is one for the whole process."""

import numpy as np
from tests.testing.liars.truthful import NUMBERS, offer_table

from seamline.kernels import KernelTable

CONTRACT_VERSION = 1
SCRATCH = {}
table = KernelTable("two_threads")


@table.kernel("Neg", since=13, dtypes=NUMBERS)
def negative(call):
    x, y = call.input(0), call.output(0)
    shared = SCRATCH.setdefault((x.shape, x.dtype), np.empty_like(x))

    def run():
        np.copyto(shared, x)
        for row in range(len(y)):  # Python may turn to another thread at each row
            np.negative(shared[row], out=y[row])

    return run


seamline_providers = offer_table(table)
