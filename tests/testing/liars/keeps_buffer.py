"""Stays with the buffers that it was bound to first."""

from tests.testing.liars.truthful import Bare, Segment, offer

CONTRACT_VERSION = 1


class Stuck(Segment):
    def bind(self, views, workspaces, host=None):
        if not self.views:
            super().bind(views, workspaces, host)


class Sticking(Bare):
    segment = Stuck


seamline_providers = offer("keeps_buffer", lambda: Sticking("keeps_buffer"))
