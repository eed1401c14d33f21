"""What differs between what a provider gave and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline.tensors import dtype_name
from seamline_testing.tolerances import Tolerance, normalised_error, tolerance_for
from seamline_testing.values import false_bytes, few, widened

__all__ = ["difference", "differences"]


def differences(got: Sequence[Any], want: Sequence[Any], kind: str) -> str:
    """
    Say how outputs differ from the right ones, or nothing.

    Parameters
    ----------
    got, want
        Arrays, lists of them (sequences), or None (an empty optional).
    kind
        The tolerance's class; see :mod:`seamline_testing.tolerances`.
    """
    if len(got) != len(want):
        return f"{len(got)} values, want {len(want)}"
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        wrong = difference(ours, theirs, kind)
        if wrong:
            return f"output {index}: {wrong}"
    return ""


def difference(got: Any, want: Any, kind: str) -> str:
    """Say how one value differs, or nothing."""
    if isinstance(want, list) or isinstance(got, list):
        if not isinstance(got, list) or not isinstance(want, list):
            return f"{type(got).__name__}, want {type(want).__name__}"
        return differences(got, want, kind)
    if want is None or got is None:
        return "" if want is got else f"{got!r}, want {want!r}"
    if dtype_name(got.dtype) != dtype_name(want.dtype) or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    if not got.size:
        return ""
    if odd := false_bytes(got):
        return odd
    tolerance = tolerance_for(want.dtype, kind)
    wrong = _wrong(got, want, tolerance)
    return f"{wrong}; {few(got)}, want {few(want)}" if wrong else ""


def _wrong(got: Array, want: Array, tolerance: Tolerance) -> str:
    whole = want.dtype.kind in "biuO"
    off = np.asarray(got != want) if whole else _off(got, want, tolerance)
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        shown = f"{got[at]!s}, want {want[at]!s}"
        return f"{int(off.sum())} of {off.size} elements are off by more than {tolerance.name}, the first at {list(at)}: {shown}"
    if not tolerance.normalised:
        return ""
    finite = np.isfinite(widened(want))
    ours, theirs = widened(got)[finite], widened(want)[finite]
    slack = np.abs(ours - theirs) <= tolerance.absolute
    noise = normalised_error(np.where(slack, theirs, ours), theirs)
    if noise > tolerance.normalised:
        return f"the normalised error is {noise:.1e}, {tolerance.name} allows {tolerance.normalised:.1e}"
    return ""


def _off(got: Array, want: Array, tolerance: Tolerance) -> Array:
    """Mark the elements that are off; NaN for NaN, infinities by sign."""
    ours, theirs = widened(got), widened(want)
    if tolerance.name.endswith("/bits"):
        signs = _signs(got) != _signs(want)
        same = (ours == theirs) & ~signs | np.isnan(ours) & np.isnan(theirs)
        return np.asarray(~same)
    finite = np.isfinite(theirs) & np.isfinite(ours)
    size = np.abs(theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        room = tolerance.absolute + tolerance.relative * size
        if tolerance.of_largest:
            room = room + tolerance.of_largest * size.max(initial=0, where=finite)
        near = np.abs(ours - theirs) <= room
    same = np.where(finite, near, (ours == theirs) | np.isnan(ours) & np.isnan(theirs))
    return np.asarray(~same)


def _signs(array: Array) -> Array:
    """Give the signs of zeros; types that have no -0 give none."""
    if array.dtype.kind == "c":
        return np.zeros(array.shape, bool)
    return np.asarray(np.signbit(widened(array)) & (array == 0))
