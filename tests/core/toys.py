"""
Toy providers for tests of planning and running: two on the host, one on a far device.

The far device's memory is honest: its views are no arrays, the host cannot read them by
accident, its bytes are poisoned when they are allocated and when they are given back, and
every call can be counted or made to fail.
"""

from __future__ import annotations

import numpy as np
from onnx import parser
from tests.core.toy_kernels import POISON, definitions_table

from seamline.hookspecs import hookimpl
from seamline.kernels import KernelProvider, KernelSegment
from seamline.memory import HostMemory
from seamline.pipeline import Pipeline
from seamline.provider import HOST, Device, Gauges, ProviderSpec, Refusal
from seamline.settings import Settings
from seamline.tensors import nbytes_of, numpy_dtype
from seamline.verify import verify

FAR = Device("far")
ALONE = Settings(block=("seamline",))  # whatever is installed beside it


class BrokenError(Exception):
    """What a toy raises when it is told to fail."""


class Calls:
    """Counts calls by name, and fails the n-th of all."""

    def __init__(self, fail_at=None):
        self.names = []
        self.fail_at = fail_at
        self.open = 0

    def note(self, name):
        self.names.append(name)
        if len(self.names) - 1 == self.fail_at:
            raise BrokenError(f"call {self.fail_at}: {name}")


class FarBuffer:
    def __init__(self, memory, nbytes):
        self.memory, self.nbytes, self.device = memory, nbytes, FAR
        self.bytes = np.full(nbytes + 64, POISON, np.uint8)[:nbytes]
        self.address = id(self)

    def close(self):
        if self.bytes is not None:
            self.bytes[...] = POISON
            self.bytes = None
            self.memory.content -= self.nbytes


class FarView:
    """Bytes of the far device; only the device itself may look at them."""

    def __init__(self, buffer, offset, kind):
        self.buffer, self.offset, self.kind = buffer, offset, kind

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("the host read the far device's memory")

    def __getitem__(self, index):
        raise AssertionError("the host read the far device's memory")

    def near(self):
        chunk = self.buffer.bytes[self.offset : self.offset + nbytes_of(self.kind)]
        return chunk.view(numpy_dtype(self.kind.dtype)).reshape(self.kind.sizes)


class FarMemory:
    """A device's memory; implements ``seamline.provider.Memory``."""

    device, virtual = FAR, None

    def __init__(self, calls=None):
        self.calls, self.content = calls or Calls(), 0
        self.written = []

    def allocate(self, nbytes):
        self.calls.note("allocate")
        self.content += nbytes
        return FarBuffer(self, nbytes)

    def view(self, buffer, offset, kind):
        self.calls.note("view")
        return FarView(buffer, offset, kind)

    def write(self, target, source):
        self.calls.note("write")
        assert isinstance(target, FarView)
        assert isinstance(source, np.ndarray)
        target.near()[...] = source

    def read(self, source, target):
        self.calls.note("read")
        assert isinstance(source, FarView)
        target[...] = source.near()

    def synchronize(self):
        self.calls.note("synchronize")

    def gauges(self):
        return Gauges(self.content, self.content, self.content)


class CountedHost(HostMemory):
    """The host's memory with its allocations counted, and made to fail."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def allocate(self, nbytes):
        self.calls.note("allocate")
        return super().allocate(nbytes)


class ToySegment(KernelSegment):
    """A segment that counts, and looks at far views by itself."""

    toy = None
    closed = True

    def bind(self, views, workspaces, host=None):
        self.toy.calls.note("bind")
        if self.toy.device == FAR:
            assert not any(isinstance(v, np.ndarray) for v in views.values())
            views = {name: view.near() for name, view in views.items()}
            workspaces = {name: view.near() for name, view in workspaces.items()}
        super().bind(views, workspaces, host)

    def close(self):
        if not self.closed:
            self.closed = True
            self.toy.calls.open -= 1
        super().close()


class Toy(KernelProvider):
    """
    A provider over a table that declines nodes by name.

    Attributes
    ----------
    declined
        Nodes that it refuses although it has a kernel.
    built
        Nodes that it was asked to build.
    """

    def __init__(self, table, *, device=HOST, declined=(), calls=None):
        super().__init__(table, device=device)
        self.declined, self.built = frozenset(declined), []
        self.calls = calls or Calls()
        self.own = FarMemory(self.calls) if device == FAR else None
        self.is_closed = False

    def claim(self, node):
        if node.name in self.declined:
            return Refusal("the test said so")
        return super().claim(node)

    def memory(self):
        return self.own

    def build(self, segment, context):
        self.calls.note("build")
        for node in segment.nodes:
            assert node.name not in self.declined, f"{self.name} declined {node.name}"
            self.built.append(node.name)
        made = super().build(segment, context)
        mine = ToySegment(
            made.provider, made.spec, made.kernels, made.context, made.options
        )
        mine.toy, mine.closed = self, False
        self.calls.open += 1
        return mine

    def close(self):
        self.is_closed = True


def plugin(*providers):
    """Give a plugin that offers providers, each made beforehand."""

    class Plugin:
        CONTRACT_VERSION = 1

        @hookimpl
        def seamline_providers(self):
            return [
                ProviderSpec(provider.name, lambda _, provider=provider: provider)
                for provider in providers
            ]

    return Plugin()


def open_over(source, *providers, **chosen):
    """Open a pipeline over providers, the most preferred first."""
    chosen.setdefault("providers", [provider.name for provider in providers])
    chosen.setdefault("settings", ALONE)
    return Pipeline.open(source, plugins=[plugin(*providers)], **chosen)


def toys(declined=None, *, in_place=True, views=True, calls=None):
    """Give providers ``a`` and ``b`` of the host and ``far`` of the far device."""
    said = declined or {}
    made = {}
    for name in ("a", "b", "far"):
        table = definitions_table(name, in_place=in_place, views=views)
        made[name] = Toy(
            table,
            device=FAR if name == "far" else HOST,
            declined=said.get(name, ()),
            calls=calls,
        )
    return made


def model(text, opset=18, more=""):
    """Give a model from ONNX's own syntax, without its first lines."""
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}{more}]>\n{text}'
    )


def ran(source, feeds, pins=None, **chosen):
    """Run a model once over all three toys; check its plan, and that all is given back."""
    made = toys(**chosen)
    source = model(source) if isinstance(source, str) else source
    pipeline = open_over(source, made["a"], made["b"], made["far"], pins=pins or {})
    try:
        found = pipeline.run(feeds)
        assert verify(pipeline.runner.latest().plan, pipeline.claims) == ()
    finally:
        pipeline.close()
    assert made["far"].own.content == 0
    assert all(toy.calls.open == 0 and toy.is_closed for toy in made.values())
    return found
