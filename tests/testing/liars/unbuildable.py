"""Claims what its build refuses."""

from tests.testing.liars.truthful import Bare, offer

from seamline.errors import BuildError

CONTRACT_VERSION = 1


class Unable(Bare):
    def build(self, segment, context):
        raise BuildError("its compiler has no such kernel", node=segment.nodes[0].name)


seamline_providers = offer("unbuildable", lambda: Unable("unbuildable"))
