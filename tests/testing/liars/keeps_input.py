"""Takes its new output when it is bound anew, and reads the old input."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Stale(Segment):
    def bind(self, views, workspaces, host=None):
        self.views = {**views, **{n: self.views.get(n, views[n]) for n in ("x",)}}


class Keeping(Bare):
    segment = Stale


seamline_providers = offer("keeps_input", lambda: Keeping("keeps_input"))
