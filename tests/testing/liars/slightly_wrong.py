"""Is right, but for float16, where its sums are a thousandth too large."""

import numpy as np
from tests.testing.liars.truthful import NUMBERS, offer_table, truthful_table

CONTRACT_VERSION = 1
table = truthful_table("slightly_wrong", without=["Add"])


@table.kernel("Add", since=14, dtypes=NUMBERS, aliases=[(0, 0), (0, 1)])
def add(call):
    (x, z), y = call.inputs, call.output(0)
    if y.dtype == np.float16:
        return lambda: np.copyto(y, (x + z) * np.float16(1.001))
    return lambda: np.add(x, z, out=y)


seamline_providers = offer_table(table)
