"""Claims nothing, and cannot be wrong."""

from tests.testing.liars.truthful import offer_table

from seamline.kernels import KernelTable

CONTRACT_VERSION = 1
seamline_providers = offer_table(KernelTable("claims_nothing"))
