"""One segment on a twin, without a session: built, bound, run and recorded by hand."""

from __future__ import annotations

import numpy as np
from tests.core.toys import model
from tests.node_cases import Kept

from seamline.claims import collect
from seamline.constants import Constants
from seamline.graph import load
from seamline.provider import SegmentSpec, view_of
from seamline.tensors import nbytes_of, numpy_dtype
from seamline_testing.twin.provider import Twin


class Rig:
    """
    A segment of all nodes of a model, each value in a buffer of its own.

    Attributes
    ----------
    views
        The value's place on the device, by name.
    host
        Arrays of host inputs, by name.
    """

    def __init__(self, text, *, faults=None, shared=None, places=None, **options):
        self.twin = Twin(options, faults)
        self.memory = self.twin.memory()
        self.machine = self.twin.machine
        self.buffers, self.host = {}, {}
        self.spec, self.types, self.known = read(text, self.twin)
        self.shared, self.views = shared or {}, dict(places or {})
        self.executable = self.twin.build(self.spec, Kept())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.executable.close()
        for buffer in self.buffers.values():
            buffer.close()
        self.twin.close()
        assert self.machine.pages.gauges().owned == 0

    def bind(self):
        """Give every value a place, constants too, and bind the segment to them."""
        for node in self.spec.nodes:
            claim = self.twin.claim(node)
            for index, name in enumerate(node.node.inputs):
                if index in claim.host_inputs:
                    kind = self.types[name]
                    empty = np.zeros(kind.sizes, numpy_dtype(kind.dtype))
                    self.host.setdefault(name, self.known(name))
                    if self.host[name] is None:
                        self.host[name] = empty
                elif name:
                    self._place(name)
            for name in node.node.writes:
                if self.types[name] is not None and self.types[name].is_sized:
                    self._place(name)
        self.executable.bind(self.views, {}, self.host)
        return self

    def _place(self, name):
        if name in self.views:
            return
        if name in self.shared:
            self._place(self.shared[name])
            self.views[name] = self.views[self.shared[name]]
            return
        kind = self.types[name]
        buffer = self.buffers[name] = self.memory.allocate(nbytes_of(kind))
        self.views[name] = self.memory.view(buffer, 0, kind)
        if self.known(name) is not None:
            self.put(name, self.known(name))

    def put(self, name, array):
        kind = self.types[name]
        self.memory.write(self.views[name], np.asarray(array, numpy_dtype(kind.dtype)))

    def get(self, name):
        kind = self.types[name]
        target = np.empty(kind.sizes, numpy_dtype(kind.dtype))
        self.memory.read(self.views[name], target)
        return target


def read(text, twin):
    """Give a model's nodes as a segment, the types of its values, and its constants."""
    graph = load(model(text, more=', "twin" : 1'))
    constants = Constants(graph)
    types, known = dict(collect(graph, [twin], constants).types), constants.get
    nodes = tuple(view_of(node, types, known) for node in graph.nodes)
    spec = SegmentSpec("s0", nodes, graph.inputs, graph.outputs, graph.opsets)
    return spec, types, known
