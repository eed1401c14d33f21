"""Refuses without a reason."""

from tests.testing.liars.truthful import Bare, offer

from seamline.provider import Claim, Refusal

CONTRACT_VERSION = 1


class Silent(Bare):
    def claim(self, node):
        said = super().claim(node)
        return said if isinstance(said, Claim) else Refusal("")


seamline_providers = offer("no_reason", lambda: Silent("no_reason"))
