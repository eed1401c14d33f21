"""Finds its outputs' sizes itself, and finds them turned around."""

from tests.testing.liars.truthful import offer_table

from seamline.kernels import KernelTable

CONTRACT_VERSION = 1
table = KernelTable("wrong_shape")


@table.simple("Neg", since=13, dtypes=("float32",), sizes_at_run=True)
def negative(x):
    return -x.T


seamline_providers = offer_table(table)
