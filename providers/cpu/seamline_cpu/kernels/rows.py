"""
Compiled float32 row functions, and how commands over rows are bound.

Sums may be added in lanes (``reassoc``) and products fused into them (``contract``);
nothing is assumed about NaN, infinity or the sign of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numba.core.compiler import Compiler
from numba.np.numpy_support import carray

from seamline.provider import Array
from seamline_cpu.commands import Command, bind
from seamline_cpu.jit import compiled, fused, jit

__all__ = [
    "bind_rows",
    "elementwise",
    "exp_in_place",
    "exp_of_row",
    "fused",
    "matrix",
    "max_of_row",
    "sum_of_row",
    "sums",
    "threads_of",
]

F = TypeVar("F", bound=Callable[..., Any])
f4, i4 = np.float32, np.int32

#: Work, in elements read once, from which more threads pay: about 5 us.
_SHARED_FROM = 16_384


def sums(function: F) -> F:
    """Compile as :func:`fused` does, with sums that may be reordered."""
    return compiled(function, fastmath=("reassoc", "contract"))


def threads_of(options: Mapping[str, Any]) -> int:
    """Give the number of threads that a provider's options allow; at least one."""
    return max(1, int(options.get("num_threads") or 1))


def bind_rows(
    what: Command, rows: int, n: int, arrays: Sequence[Array], work: int, threads: int
) -> Callable[[], None]:
    """
    Bind a command over rows: its arguments are ``rows``, ``n``, and arrays' addresses.

    Parameters
    ----------
    arrays
        C-contiguous; kept as long as the function.
    work
        Elements in all rows, weighed by what is done with them.
    """
    addresses = [array.ctypes.data for array in arrays]
    shares = min(threads, rows) if work >= _SHARED_FROM else 1
    return bind(what, [rows, n, *addresses], shares, keep=tuple(arrays))


class _Apart(Compiler):  # type: ignore[misc]  # Numba has no types
    """Numba's compiler, told that arrays do not overlap; no decorator's option says so."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


def elementwise(function: F) -> F:
    """
    Compile as :func:`fused` does, for a loop over arrays of one length.

    Its arrays are promised not to overlap, or else LLVM would check, and leave the vector
    loop where an array is replaced in place. That is allowed all the same: a loop that
    reads index i before it writes it, and touches nothing else, cannot tell.
    """
    return compiled(function, fastmath=("contract",), pipeline=_Apart)


@jit
def matrix(pointer: Any, rows: int, n: int) -> Any:
    """See an address as a C-contiguous matrix."""
    return carray(pointer, (rows, n))


@jit
def max_of_row(x: Any) -> Any:
    """
    Give the greatest of a float32 row; a positive NaN counts as most.

    Flipping the low bits of negative numbers makes integer order the order of floats,
    and an integer maximum vectorises without a word about NaN. A NaN with its sign set
    counts as least; whatever is made of the row still meets it.
    """
    most = i4(-2147483648)
    for j in range(x.shape[0]):
        b = f4(x[j]).view(np.int32)
        key = i4(b ^ i4(i4(b >> i4(31)) & i4(0x7FFFFFFF)))
        most = key if key > most else most
    return i4(most ^ i4(i4(most >> i4(31)) & i4(0x7FFFFFFF))).view(np.float32)


@fused
def _exp_to_one(v: Any) -> Any:
    """
    Give the exponential of a number that is at most zero; below 2**-126 zero.

    Cephes' reduction and minimax polynomial: relative error under 2 ulp of the argument
    as rounded. Adding 1.5 * 2**23 rounds to a whole number, whose low bits then stand
    ready to be shifted into an exponent.
    """
    t = v * f4(1.44269504) + f4(12582912.0)
    n = t - f4(12582912.0)
    r = (v - n * f4(0.693359375)) - n * f4(-2.12194440e-4)
    p = f4(1.9875691500e-4)
    p = p * r + f4(1.3981999507e-3)
    p = p * r + f4(8.3334519073e-3)
    p = p * r + f4(4.1665795894e-2)
    p = p * r + f4(1.6666665459e-1)
    p = p * r + f4(5.0000001201e-1)
    p = p * (r * r) + (r + f4(1.0))
    bits = i4(i4(f4(t).view(np.int32) << i4(23)) + i4(0x3F800000))
    return f4(0.0) if v < f4(-87.33) else p * i4(bits).view(np.float32)


@fused
def exp_in_place(y: Any) -> None:
    """Replace a row by its exponentials; for at most zero only, below 2**-126 zero."""
    for j in range(y.shape[0]):
        y[j] = _exp_to_one(y[j])


@sums
def exp_of_row(x: Any, most: Any, out: Any) -> Any:
    """Write ``exp(x - most)``, where ``most`` is the greatest, and give their sum."""
    total = f4(0.0)
    for j in range(x.shape[0]):
        e = _exp_to_one(x[j] - most)
        out[j] = e
        total += e
    return total


@sums
def sum_of_row(x: Any) -> Any:
    """Give a row's sum, added in lanes."""
    total = f4(0.0)
    for j in range(x.shape[0]):
        total += x[j]
    return total
