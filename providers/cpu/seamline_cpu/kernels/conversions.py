"""
How elements of one type become elements of another, as ONNX's Cast tells it.

The standard leaves two things open, which are the same here on every processor. A float
beyond the range of an integer of 32 or 64 bits becomes the nearest end of the range, and
NaN becomes 0; for a narrower integer it becomes an int32 in that way, whose low bits are
kept, as from integer to integer. A negative number becomes the float8_e8m0 of its
magnitude.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline.tensors import numpy_dtype

__all__ = ["converter", "is_direct", "to_e8m0", "to_float8", "to_integer"]

_FLOATS_8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_SMALL_FLOATS = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
_LONG = ("int32", "int64", "uint32", "uint64")
_E8M0 = "float8_e8m0fnu"
_E8M0_BIAS = 127
_LARGEST = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float4_e2m1fn": 6.0,
    "float6_e2m3fn": 7.5,
    "float6_e3m2fn": 28.0,
}

Convert = Callable[[Array, Array], object]


def _copy(x: Array, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


def _widen(x: Array) -> Array:
    """Give small types in one that NumPy converts from: int8 or float32."""
    name = x.dtype.name
    if name in _SMALL_INTEGERS or name == "bool":
        return x.astype(np.int8)
    if name in _FLOATS_8 or name in _SMALL_FLOATS or name == _E8M0:
        return x.astype(np.float32)
    return x


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f" or str(x.dtype) == "bfloat16"


def _as_float(x: Array) -> Array:
    """Give float32, or float64 where that is what comes."""
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)


def to_integer(x: Array, out: Array) -> None:
    """
    Write floats as integers: cut toward 0, kept within the range, NaN as 0.

    Parameters
    ----------
    x
        Any float type.
    out
        Any integer type, of the same shape. One narrower than 32 bits gets the low bits
        of the int32.
    """
    if out.dtype.itemsize < 4:
        whole = np.empty(x.shape, np.int32)
        to_integer(x, whole)
        _copy(whole, out)
        return
    info = np.iinfo(out.dtype)
    _cut(int(info.min), int(info.max), _as_float(x), out)


def _cut(low: int, high: int, x: Array, out: Array) -> None:
    """Write float32 or float64 as integers of 32 or 64 bits that end at low and high."""
    if not x.size:
        return
    # Python compares a float with an integer exactly; NaN fails both.
    if float(x.min()) > low - 1 and float(x.max()) < high + 1:
        _copy(x, out)
        return
    under, over = x <= float(low - 1), x >= float(high + 1)
    inside = np.logical_not(under | over | np.isnan(x))
    _copy(np.where(inside, x, x.dtype.type(0)), out)
    np.copyto(out, low, where=under)
    np.copyto(out, high, where=over)


def to_float8(x: Array, out: Array, saturate: bool) -> None:
    """
    Write floats as one of the four float8 types, to the nearest, ties to even.

    Parameters
    ----------
    saturate
        Beyond the largest gives the largest, infinity too; else infinity where the type
        has one and NaN where not. NaN stays NaN.
    """
    wide = _as_float(x)
    if saturate:
        most = _LARGEST[out.dtype.name]
        wide = np.minimum(np.maximum(wide, -most), most)
    _copy(wide, out)


def to_e8m0(x: Array, out: Array, saturate: bool, round_mode: str) -> None:
    """
    Write floats as powers of two.

    Parameters
    ----------
    saturate
        Beyond the ends, 0 and infinity give the ends; else NaN.
    round_mode
        ``up`` (away from 0), ``down`` (toward 0) or ``nearest`` (ties up).
    """
    fraction, power = np.frexp(np.absolute(_as_float(x)))
    above = {"up": fraction > 0.5, "nearest": fraction >= 0.75}.get(round_mode)
    power = power - 1 if above is None else power - 1 + above
    power = np.where(fraction == 0, -_E8M0_BIAS - 1, power)
    power = np.where(np.isinf(fraction), _E8M0_BIAS + 1, power)
    wrong = np.isnan(fraction)
    if not saturate:
        wrong = wrong | (np.absolute(power) > _E8M0_BIAS)
    code = np.clip(power, -_E8M0_BIAS, _E8M0_BIAS) + _E8M0_BIAS
    out.view(np.uint8)[...] = np.where(wrong, 255, code)


def _to_bool(x: Array, out: Array) -> None:
    np.not_equal(_widen(x), 0, out=out)


def _to_any_integer(x: Array, out: Array) -> None:
    wide = _widen(x)
    (to_integer if _is_float(wide) else _copy)(wide, out)


def _to_small_float(x: Array, out: Array) -> None:
    _copy(_as_float(_widen(x)), out)


def _text_of(value: Any) -> str:
    if isinstance(value, float):
        value = np.float64(value)
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return np.format_float_positional(value, unique=True, trim="-")


def _to_text(x: Array, out: Array) -> None:
    if x.dtype == np.bool_:
        x = x.astype(np.int8)
    wide = _widen(x)
    if wide.dtype.name == "bfloat16":
        wide = wide.astype(np.float32)
    say = _text_of if wide.dtype.kind == "f" else str
    out.reshape(-1)[:] = [say(value) for value in wide.reshape(-1)]


def _number(text: str, index: int, whole: bool) -> int | float:
    try:
        if whole:
            try:
                return int(text)
            except ValueError:
                return int(float(text))
        return float(text)
    except (ValueError, OverflowError):
        raise ValueError(f"element {index} is {text!r}, which is no number") from None


def _from_text(target: str, finish: Convert) -> Convert:
    whole = _is_integer(target)
    info = np.iinfo(np.uint64 if target == "uint64" else np.int64)
    low, high = int(info.min), int(info.max)

    def convert(x: Array, out: Array) -> None:
        values = [_number(text, i, whole) for i, text in enumerate(x.reshape(-1))]
        if whole and values and not low <= min(values) <= max(values) <= high:
            worst = next(v for v in values if not low <= v <= high)
            raise ValueError(f"{worst} does not fit {target}")
        parsed: Any = np.float64
        if whole:
            parsed = np.uint64 if target == "uint64" else np.int64
        finish(np.array(values, parsed).reshape(x.shape), out)

    return convert


def _is_integer(name: str) -> bool:
    return numpy_dtype(name).kind in "iu" or name in _SMALL_INTEGERS


def is_direct(source: str, target: str) -> bool:
    """Tell whether one pass of NumPy's own converts: no scratch, no checks."""
    floats = ("float32", "float64", "float16", "bfloat16")
    if source in floats:
        return target in floats
    wide = numpy_dtype(source).kind in "iub"
    return wide and (target in floats or numpy_dtype(target).kind in "iu")


def converter(source: str, target: str, saturate: bool, round_mode: str) -> Convert:
    """
    Give ``convert(x, out)`` from one element type to another.

    Raises
    ------
    ValueError
        ``round_mode`` is none that the standard has.
    """
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(
            f"round_mode is {round_mode!r}; it must be up, down or nearest"
        )
    if source == target or is_direct(source, target):
        return _copy
    if source == "string":
        wide = "int64" if _is_integer(target) else "float64"
        return _from_text(target, converter(wide, target, saturate, round_mode))
    if source in ("float32", "float64") and target in _LONG:
        info = np.iinfo(target)
        return functools.partial(_cut, int(info.min), int(info.max))
    return _to_other(target, saturate, round_mode)


def _to_other(target: str, saturate: bool, round_mode: str) -> Convert:
    if target == "string":
        return _to_text
    if target == "bool":
        return _to_bool
    if target in _FLOATS_8:
        return lambda x, out: to_float8(_widen(x), out, saturate)
    if target == _E8M0:
        return lambda x, out: to_e8m0(_widen(x), out, saturate, round_mode)
    if target in _SMALL_FLOATS:
        return _to_small_float
    if _is_integer(target):
        return _to_any_integer
    return lambda x, out: _copy(_widen(x), out)
