"""Gives float64 where float32 was asked for."""

from tests.testing.liars.truthful import offer_table

from seamline.kernels import KernelTable

CONTRACT_VERSION = 1
table = KernelTable("wrong_dtype")


@table.simple("Neg", since=13, dtypes=("float32",))
def negative(x):
    return -x.astype("float64")


seamline_providers = offer_table(table)
