"""
Transfers: what is written to a device comes back bit by bit, and nothing else changes.

A provider that uses the host's memory copies nothing, and is not tried.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from seamline.provider import HOST, Array, Memory, Provider
from seamline.tensors import ANY, TensorType, numpy_dtype
from seamline_testing.guarded import POISONS, Guarded, same_bits
from seamline_testing.results import Check
from seamline_testing.subject import Subject
from seamline_testing.verdicts import mismatch, not_run, opened, question, violation

__all__ = ["checks"]

_SHAPES = ((), (1,), (0,), (3, 0, 2), (7,), (17, 3), (1, 257), (64,), (5, 1, 33))
_LONG = (1_000_003,)  #: odd, and past any staging buffer that fits a page or two
_TYPES = tuple(name for name in ANY if name != "string")


def checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give the questions; a ``quick`` run leaves out the long copies."""
    shapes = _SHAPES if quick else (*_SHAPES, _LONG)
    types = tuple(
        question(f"transfers/{dtype}", partial(_returned, dtype, shapes), dtype)
        for dtype in _TYPES
    )
    return (
        *types,
        question("transfers/gauges", _gauges),
        question("transfers/source-free", _source_free),
        question("transfers/neighbours", _neighbours),
        question("transfers/synchronize", _synchronized),
        question("transfers/places", _places),
        question("transfers/virtual", _virtual),
    )


def _own(provider: Provider) -> Memory:
    memory = provider.memory()
    if memory is None:
        not_run("its values live in the host's memory, so nothing is transferred")
    return memory


def _drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Give every bit pattern that a type has: NaNs with payloads, denormals, -0."""
    spread = np.random.default_rng([len(dtype), seed, *shape])
    kind, count = numpy_dtype(dtype), math.prod(shape)
    if kind.kind == "b" or dtype in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        # One element in a byte, of which not all patterns are values.
        high = 2 if kind.kind == "b" or dtype.endswith("int2") else 7
        return spread.integers(0, high, shape).astype(kind)
    return np.frombuffer(spread.bytes(count * kind.itemsize), kind).reshape(shape)


def _returned(
    dtype: str, shapes: tuple[tuple[int, ...], ...], subject: Subject
) -> None:
    with opened(subject) as provider:
        memory = _own(provider)
        for seed, shape in enumerate(shapes):
            held = Guarded.open(memory, TensorType(dtype, shape))
            try:
                _there_and_back(held, _drawn(dtype, shape, seed))
            finally:
                held.close()


def _there_and_back(held: Guarded, value: Array) -> None:
    held.fill(POISONS[0])
    held.write(value)
    got = held.read()
    if not same_bits(got, value):
        flat, want = got.reshape(-1).view(np.uint8), value.reshape(-1).view(np.uint8)
        wrong = np.flatnonzero(flat != want)
        mismatch(
            f"{held.kind} came back with {wrong.size} of {want.size} bytes changed, the "
            f"first at {int(wrong[0])}",
            judge="what was written",
        )
    if trampled := held.trampled():
        violation(f"a write of {held.kind} also changed {trampled}")


def _gauges(subject: Subject) -> None:
    with opened(subject) as provider:
        memory = _own(provider)
        before = memory.gauges()
        sizes = (1, 4096, 1_000_003)
        buffers = [memory.allocate(nbytes) for nbytes in sizes]
        held = memory.gauges()
        for buffer in buffers:
            buffer.close()
            buffer.close()  # a second call does nothing, to the gauges either
        after = memory.gauges()
    for what in ("content", "owned"):
        grown = getattr(held, what) - getattr(before, what)
        if grown < sum(sizes):
            violation(f"{sum(sizes)} bytes are open, and {what} grew by {grown}")
    if after.content != before.content:
        violation(
            f"all buffers are closed, and content is {after.content}, "
            f"before them {before.content}"
        )


def _source_free(subject: Subject) -> None:
    """``write`` returns when its source may be changed, ``read`` when all is there."""
    with opened(subject) as provider:
        memory = _own(provider)
        held = Guarded.open(memory, TensorType("float32", (512, 513)))
        try:
            for seed in range(4):
                value = _drawn("float32", (512, 513), seed).copy()
                kept = value.copy()
                held.write(value)
                value[...] = 0
                got = held.read()
                if not same_bits(got, kept):
                    violation("write() returned while it still read its source")
        finally:
            held.close()


def _synchronized(subject: Subject) -> None:
    """Wait, with nothing to wait for too: it ends, and nothing has changed."""
    with opened(subject) as provider:
        memory = _own(provider)
        memory.synchronize()
        held = Guarded.open(memory, TensorType("float32", (512, 513)))
        try:
            value = _drawn("float32", (512, 513), 0)
            held.write(value)
            for _ in range(2):
                memory.synchronize()
            if not same_bits(held.read(), value):
                violation("synchronize() changed what had been written")
        finally:
            held.close()


def _neighbours(subject: Subject) -> None:
    """Two values of one buffer: writing one leaves the other."""
    kind, shape = TensorType("uint8", (100,)), (100,)
    with opened(subject) as provider:
        memory = _own(provider)
        buffer = memory.allocate(256)
        try:
            one, other = memory.view(buffer, 0, kind), memory.view(buffer, 128, kind)
            first, second = (_drawn("uint8", shape, seed) for seed in range(2))
            memory.write(one, first)
            memory.write(other, second)
            for view, value in ((one, first), (other, second)):
                got = np.empty(shape, np.uint8)
                memory.read(view, got)
                if not same_bits(got, value):
                    violation("a write to one view changed another view's bytes")
        finally:
            buffer.close()


def _places(subject: Subject) -> None:
    with opened(subject) as provider:
        memory = _own(provider)
        buffers = [memory.allocate(1000) for _ in range(3)]
        try:
            starts = [buffer.address for buffer in buffers]
            for buffer in buffers:
                if buffer.device != provider.device:
                    violation(f"a buffer of {provider.device} says {buffer.device}")
                if buffer.nbytes < 1000:
                    violation(f"a buffer of 1000 bytes has {buffer.nbytes}")
            if len(set(starts)) != len(starts):
                violation(f"three open buffers start at {starts}")
            view = memory.view(buffers[0], 0, TensorType("float32", (10,)))
            if provider.device == HOST and not isinstance(view, np.ndarray):
                violation("its values live on the host, and its views are no arrays")
            if starts != [buffer.address for buffer in buffers]:
                violation("the address of an open buffer moves")
        finally:
            for buffer in buffers:
                buffer.close()


def _virtual(subject: Subject) -> None:
    """Address space and pages apart: reserve, map, unmap, and give both back."""
    with opened(subject) as provider:
        pages = _own(provider).virtual
        if pages is None:
            not_run("it has no virtual memory")
        granule = pages.granularity
        if granule <= 0 or granule & (granule - 1):
            violation(f"its granularity is {granule}, which is no power of two")
        before = pages.gauges()
        address = pages.reserve(4 * granule)
        if pages.gauges().owned != before.owned:
            violation("reserving addresses took pages")
        handle = pages.create(granule)
        pages.map(address, handle)
        held = pages.gauges()
        if (held.owned - before.owned, held.mapped - before.mapped) != (granule,) * 2:
            violation(f"one granule of {granule} is mapped, and the gauges say {held}")
        pages.unmap(address, granule)
        pages.release(handle)
        pages.free(address, 4 * granule)
        if pages.gauges() != before:
            violation(f"all was given back, and the gauges say {pages.gauges()}")
