"""Functions that kernels' texts may call and that take more than an expression, in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

__all__ = ["FUNCTIONS", "whole_power"]


@cuda.jit(device=True, inline="always")  # type: ignore[untyped-decorator]
def whole_power(base: Any, exponent: Any) -> Any:
    """
    Give base ** exponent of 64-bit integers, wrapping as their products do.

    A negative exponent gives the fraction cut towards 0: 1 or -1 of those bases, else 0; of
    base 0 as well, where there is no value.
    """
    result = np.int64(1)
    if exponent < 0:
        if base == -1:
            return np.int64(1) - np.int64(2) * (exponent & np.int64(1))
        return np.int64(1) if base == 1 else np.int64(0)
    while exponent > 0:
        if exponent & np.int64(1):
            result = result * base
        base = base * base
        exponent = exponent >> np.int64(1)
    return result


FUNCTIONS: dict[str, Any] = {"whole_power": whole_power}  #: by the name in texts
