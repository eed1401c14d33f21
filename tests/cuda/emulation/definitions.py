"""
What a kernel's text may call, by definition: intrinsics, and NVIDIA's math library.

The intrinsics of :mod:`seamline_cuda.intrinsics` are single instructions; here is what each
of them computes, in NumPy's scalars. An intrinsic that reads memory is handed a
:class:`~tests.cuda.emulation.pointers.Pointer`; one that other lanes take part in belongs
into :data:`~tests.cuda.emulation.names.COLLECTIVE` as well.
"""

from __future__ import annotations

import math
import time

import ml_dtypes
import numpy as np

f32, f64 = np.float32, np.float64

#: Every 16-bit pattern's value, since a look is quicker than a conversion.
_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(f32)
_BFLOATS = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(f32)

_ERF = np.frompyfunc(math.erf, 1, 1)
_ERFC = np.frompyfunc(math.erfc, 1, 1)
_OTHER_NAMES = {
    "fabs": np.abs, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
    "pow": np.power, "fmax": np.fmax, "fmin": np.fmin, "sqrt_rn": np.sqrt,
    "fsqrt_rn": np.sqrt, "dsqrt_rn": np.sqrt, "erf": _ERF, "erfc": _ERFC,
    "rsqrt": lambda x: 1 / np.sqrt(x), "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "fma": lambda a, b, c: f64(a) * f64(b) + f64(c),
    "fma_rn": lambda a, b, c: f64(a) * f64(b) + f64(c),
    "exp10": lambda x: np.power(f64(10), x), "max": max, "min": min,
    "fast_exp": np.exp, "fast_log": np.log, "fdiv_rn": np.divide, "frcp_rn": np.reciprocal,
}  # fmt: skip


class Libdevice:
    """NVIDIA's functions by NumPy's of the same meaning; a name ending in f is float32's."""

    def __getattr__(self, name):
        kind, plain = f64, name
        if name.endswith("f") and name != "erf":
            kind, plain = f32, name[:-1]
        elif name.startswith(("fsqrt", "fma_", "fdiv", "frcp")):
            kind = f32
        function = _OTHER_NAMES.get(plain) or getattr(np, plain, None)
        if function is None:
            raise AttributeError(f"no definition of libdevice.{name} yet: add it")

        def call(*given):
            return kind(function(*map(kind, given)))

        setattr(self, name, call)
        return call


def _towards_zero(a, b):
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _bits(kind):
    return lambda x: kind(x).view(np.uint16)


def _load_system(words, index):
    time.sleep(0)  # the host is another thread, which is to come to its answer
    return words[index]


def _store_system(words, index, value):
    words[index] = value


def _four_at(pointer, index):
    address = pointer.address + 4 * int(index)
    assert address % 16 == 0, "a load of 16 bytes from an odd address"
    return tuple(pointer[index + n] for n in range(4))


def _move_one(target, source, index):
    target[index] = source[index]


def _move_four(target, source, index):
    for pointer in (target, source):
        assert pointer.address % 16 == 0, "an access of 16 bytes at an odd address"
    words = (target.viewed(np.uint32), source.viewed(np.uint32))
    for place in range(4 * int(index), 4 * int(index) + 4):
        words[0][place] = words[1][place]


def _whole_power(base, exponent):
    if exponent < 0:
        found = {1: 1, -1: (-1) ** (int(exponent) % 2)}.get(int(base), 0)
    else:
        found = pow(int(base), int(exponent), 1 << 64)
    return np.uint64(found % (1 << 64)).astype(np.int64)


PLAIN = {
    "np": np,
    "whole_power": _whole_power,
    "libdevice": Libdevice(),
    "half_to_float": lambda bits: _HALVES[bits],
    "float_to_half": _bits(np.float16),
    "double_to_half": _bits(np.float16),
    "bfloat_to_float": lambda bits: _BFLOATS[bits],
    "float_to_bfloat": lambda x: np.asarray(x, f32).astype(ml_dtypes.bfloat16).view(np.uint16)[()],
    "product": lambda a, b: f32(a) * f32(b),
    "product64": lambda a, b: f64(a) * f64(b),
    "quotient32": lambda a, b: np.uint32(int(a) // int(b)),
    "truncated32": lambda a, b: np.int32(_towards_zero(a, b)),
    "truncated64": lambda a, b: np.int64(_towards_zero(a, b)),
    "least": lambda a, b: a if (a < b or a != a) else b,
    "greatest": lambda a, b: a if (a > b or a != a) else b,
    "load_system": _load_system,
    "store_system": _store_system,
    "nanoseconds": lambda: np.int64(time.perf_counter_ns()),
    "four_at": _four_at,
    "move_four": _move_four,
    "move_one": _move_one,
}  # fmt: skip
