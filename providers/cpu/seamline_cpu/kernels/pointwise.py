"""
How elementwise work is laid out: shares for threads, blocks for the cache.

A NumPy call makes one pass over memory, so a formula of several calls goes over an array
in blocks that stay in the second-level cache. Large arrays are cut into shares, one a
thread. All of it is decided when a node is bound; a small array ends as a single NumPy
call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.activation_commands import bind_loop
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.pool import run_shares

__all__ = [
    "ARITHMETIC_FROM",
    "BLOCK",
    "COMPILED_FROM",
    "MOVING_FROM",
    "Formula",
    "bind_ufunc",
    "cuts",
    "in_parallel",
    "in_sequence",
    "share_count",
    "shared_out",
]

BLOCK = 16384  #: elements: 64 KiB of float32, with its scratch well inside 1 MiB
COMPILED_FROM = (
    65536  #: elements from which half precision goes through a compiled loop
)
# Waking a worker costs 10 to 50 microseconds; a share must take longer than that.
ARITHMETIC_FROM = 131072  #: elements, for some nanoseconds each
MOVING_FROM = 524288  #: elements, where memory sets the pace
_LINE = 16  # elements of float32 in a cache line, which two threads must not share

#: ``step(x, out, spare, a, b)``: write a formula of x; ``out`` may be ``x`` itself.
Step: TypeAlias = Callable[[Array, Array, Array, float, float], object]


def share_count(call: Call, size: int, least: int) -> int:
    """Give the number of shares for ``size`` elements: 1 below ``least``."""
    return threads_of(call.options) if size >= least else 1


def cuts(size: int, count: int) -> list[slice]:
    """Cut ``size`` elements into at most ``count`` slices of whole cache lines."""
    step = -(-size // count)
    step = max(-(-step // _LINE) * _LINE, 1)
    return [slice(at, min(at + step, size)) for at in range(0, max(size, 1), step)]


def in_parallel(parts: Sequence[Run]) -> Run:
    """Give one function that runs the parts, each on its own thread."""
    if len(parts) == 1:
        return parts[0]

    def share(index: int, _: int) -> None:
        # NumPy's error state belongs to a thread; the caller's does not reach here.
        with np.errstate(all="ignore"):
            parts[index]()

    return functools.partial(run_shares, share, len(parts))


def in_sequence(parts: Sequence[Run]) -> Run:
    """Give one function that runs the parts in turn."""
    return in_order(parts)


def shared_out(
    out: Array, operands: Sequence[Array], count: int
) -> list[tuple[Array, ...]]:
    """
    Cut operands that broadcast to ``out``, and ``out``, into at most ``count`` shares.

    Returns
    -------
    list
        Views ``(*operands, out)`` for each share.
    """
    if all(x.shape == out.shape or x.size == 1 for x in operands):
        flat = [x.reshape(-1 if x.shape == out.shape else ()) for x in (*operands, out)]
        pieces = cuts(out.size, count)
        return [tuple([x[s] if x.ndim else x for x in flat]) for s in pieces]
    if count == 1:
        return [(*operands, out)]
    axis = next((i for i, n in enumerate(out.shape) if n >= 4 * count), -1)
    axis = axis if axis >= 0 else int(np.argmax(out.shape))
    wide = [np.broadcast_to(x, out.shape) for x in operands]
    step = -(-out.shape[axis] // count)
    before = (slice(None),) * axis
    return [
        tuple([x[(*before, slice(at, at + step))] for x in (*wide, out)])
        for at in range(0, out.shape[axis], step)
    ]


def bind_ufunc(
    call: Call,
    ufunc: Callable[..., object],
    *operands: Array,
    out: Array | None = None,
    least: int = MOVING_FROM,
) -> Run:
    """
    Bind a ufunc over operands that broadcast to an output, the first one by default.

    Parameters
    ----------
    least
        Elements from which the work is shared among threads.
    """
    target = call.outputs[0] if out is None else out
    count = share_count(call, target.size, least)
    if count == 1:
        return functools.partial(ufunc, *operands, out=target)
    shares = shared_out(target, operands, count)
    return in_parallel([functools.partial(ufunc, *x[:-1], out=x[-1]) for x in shares])


def _is_plain(x: Array, out: Array) -> bool:
    """Tell whether flat arrays are float32 in place, and apart or one and the same."""
    if not (x.dtype == out.dtype == np.float32 and x.flags.carray and out.flags.carray):
        return False
    return x.ctypes.data == out.ctypes.data or not np.may_share_memory(x, out)


@attrs.frozen(eq=False)
class Formula:
    """
    A function of one element with up to two parameters, in NumPy and perhaps compiled.

    Attributes
    ----------
    step
        The formula as NumPy calls, for float32 and float64 (integers where allowed).
    loop
        ``loop(x, out, a, b)`` over flat float32 arrays, apart or one and the same; or None.
    compiled_from
        Elements from which ``loop`` is used for other types; float32 takes it always.
    spares
        Scratch arrays that ``step`` needs.
    """

    step: Step
    loop: Any = None
    compiled_from: int = COMPILED_FROM
    spares: int = 1

    def bind(
        self, call: Call, a: float = 0.0, b: float = 0.0, x: Array | None = None
    ) -> Run:
        """Bind it from input 0, or from ``x``, to output 0."""
        source: Array = call.inputs[0] if x is None else x
        out: Array = call.outputs[0]
        flat_x, flat_out = source.reshape(-1), out.reshape(-1)
        count = share_count(call, flat_x.size, ARITHMETIC_FROM)
        loop = self.loop
        large = loop is not None and flat_x.size >= self.compiled_from
        if loop is not None and flat_x.size and _is_plain(flat_x, flat_out):
            return bind_loop(loop, flat_x, flat_out, a, b, count)
        pieces = cuts(flat_x.size, count)
        return in_parallel(
            [self._part(flat_x[s], flat_out[s], a, b, large) for s in pieces]
        )

    def _part(self, x: Array, out: Array, a: float, b: float, large: bool) -> Run:
        # ``x`` is wider than ``out`` where a bias was added to halves in float32.
        half = out.dtype.name in ("float16", "bfloat16")
        compiled = large and (half or x.dtype == np.float32)
        if compiled:
            # Another type of the same arguments would be compiled once more.
            single = np.zeros(0, np.float32)
            self.loop(single, single, np.float32(a), np.float32(b))
        same = x.ctypes.data == out.ctypes.data
        apart = same or not np.may_share_memory(x, out)
        if compiled and not half and x.flags.behaved and apart:
            return functools.partial(self.loop, x, out, np.float32(a), np.float32(b))
        if not half and not compiled:
            return self._plain(x, out, a, b)
        return self._through(x, out, a, b, compiled)

    def _plain(self, x: Array, out: Array, a: float, b: float) -> Run:
        """Run the NumPy calls block by block."""
        spare = np.empty((self.spares, min(x.size, BLOCK)), x.dtype)
        if x.size <= BLOCK:
            return functools.partial(self.step, x, out, spare, a, b)
        pieces = [slice(at, min(at + BLOCK, x.size)) for at in range(0, x.size, BLOCK)]
        blocks = [(x[s], out[s], spare[:, : s.stop - s.start], a, b) for s in pieces]
        step = self.step

        def run() -> None:
            for block in blocks:
                step(*block)

        return run

    def _through(self, x: Array, out: Array, a: float, b: float, compiled: bool) -> Run:
        """Copy each block to float32 scratch, compute there, and write it to ``out``."""
        width = min(x.size, BLOCK)
        scratch = np.empty((2, width), np.float32)
        spare = np.empty((self.spares, width), np.float32)
        pieces = [slice(at, min(at + BLOCK, x.size)) for at in range(0, x.size, BLOCK)]
        direct = out.dtype == np.float32
        step, loop = self.step, self.loop
        first, second = np.float32(a), np.float32(b)

        def run() -> None:
            for s in pieces:
                n = s.stop - s.start
                wide = scratch[0, :n]
                wide[:] = x[s]
                result = out[s] if direct else scratch[1, :n]
                if compiled:
                    loop(wide, result, first, second)
                else:
                    step(wide, result, spare[:, :n], a, b)
                if not direct:
                    out[s] = result

        return run
