"""Does what it says."""

from tests.testing.liars.truthful import offer_table, truthful_table

CONTRACT_VERSION = 1
seamline_providers = offer_table(truthful_table("honest"))
