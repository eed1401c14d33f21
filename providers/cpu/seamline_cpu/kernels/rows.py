"""
Compiled kernels over the rows of a float32 matrix, and how rows are shared by threads.

Sums are compiled with ``reassoc`` and ``contract`` alone: they may be added in lanes,
and nothing is assumed about NaN, infinity or the sign of zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numba
import numpy as np

from seamline_cpu.jit import jit
from seamline_cpu.jit_cache import attach
from seamline_cpu.pool import run_shares

__all__ = [
    "SHARED_FROM",
    "exp_row",
    "max_of_row",
    "row_kernel",
    "share_of",
    "sum_of_row",
    "sums",
    "threads_of",
]

F = TypeVar("F", bound=Callable[..., Any])
f4, i4 = np.float32, np.int32

#: Elements from which waking a second thread (tens of microseconds) pays.
SHARED_FROM = 32_768


def sums(function: F) -> F:
    """Compile as :func:`seamline_cpu.jit.jit` does, with sums that may be reordered."""
    flags = {"reassoc", "contract"}
    compiled: Any = numba.njit(nogil=True, error_model="numpy", fastmath=flags)(
        function
    )
    attach(compiled, function)
    return compiled  # type: ignore[no-any-return]


def threads_of(options: Mapping[str, Any]) -> int:
    """Give the number of threads that a provider's options allow; at least one."""
    return max(1, int(options.get("num_threads") or 1))


def share_of(share: int, shares: int, count: int) -> tuple[int, int]:
    """
    Give the first and the end of one share of ``count`` things.

    Examples
    --------
    >>> [share_of(i, 3, 7) for i in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    return count * share // shares, count * (share + 1) // shares


def row_kernel(
    function: Callable[..., None],
    arrays: tuple[Any, ...],
    rows: int,
    work: int,
    threads: int,
) -> Callable[[], object]:
    """
    Bind ``function(*arrays, first, end)`` over all rows, on threads where it pays.

    Parameters
    ----------
    work
        Elements in all rows together.
    """
    if threads <= 1 or rows < threads or work < SHARED_FROM:
        return functools.partial(function, *arrays, 0, rows)

    def one(share: int, shares: int) -> None:
        function(*arrays, *share_of(share, shares, rows))

    return functools.partial(run_shares, one, threads)


@jit
def max_of_row(bits: Any) -> Any:
    """
    Give the greatest float32 of a row given as int32 bits; a positive NaN counts as most.

    Flipping the low bits of negative numbers makes integer order the order of floats,
    and an integer maximum vectorises without a word about NaN. A NaN with its sign set
    counts as least; whatever is made of the row still meets it.
    """
    most = i4(-2147483648)
    for j in range(bits.shape[0]):
        b = bits[j]
        key = i4(b ^ i4(i4(b >> i4(31)) & i4(0x7FFFFFFF)))
        most = key if key > most else most
    return i4(most ^ i4(i4(most >> i4(31)) & i4(0x7FFFFFFF))).view(np.float32)


@jit
def exp_row(x: Any, shift: Any, y: Any) -> None:
    """
    Write ``exp(x - shift)`` for arguments of at most zero; below 2**-126 it is zero.

    Cephes' reduction and minimax polynomial: relative error under 2 ulp of the argument
    as rounded. Adding 1.5 * 2**23 rounds to a whole number, whose low bits then stand
    ready to be shifted into an exponent.
    """
    for j in range(x.shape[0]):
        v = x[j] - shift
        t = v * f4(1.44269504) + f4(12582912.0)
        n = t - f4(12582912.0)
        r = (v - n * f4(0.693359375)) - n * f4(-2.12194440e-4)
        p = f4(1.9875691500e-4)
        p = p * r + f4(1.3981999507e-3)
        p = p * r + f4(8.3334519073e-3)
        p = p * r + f4(4.1665795894e-2)
        p = p * r + f4(1.6666665459e-1)
        p = p * r + f4(5.0000001201e-1)
        p = p * r * r + r + f4(1.0)
        bits = i4(i4(f4(t).view(np.int32) << i4(23)) + i4(0x3F800000))
        y[j] = f4(0.0) if v < f4(-87.33) else p * i4(bits).view(np.float32)


@sums
def sum_of_row(x: Any) -> Any:
    """Give a row's sum, added in lanes."""
    total = f4(0.0)
    for j in range(x.shape[0]):
        total += x[j]
    return total
