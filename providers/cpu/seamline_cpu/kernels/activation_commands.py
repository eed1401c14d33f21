"""
The loops of :mod:`.activation_loops` as commands, each compiled when it is first bound.

Written out one by one: a function made by another cannot be kept in Numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.provider import Array
from seamline_cpu.atomics import floats
from seamline_cpu.chains import Flat
from seamline_cpu.commands import Command, Native, bind, command
from seamline_cpu.jit import jit
from seamline_cpu.kernels import activation_loops as loops
from seamline_cpu.kernels.rows import matrix

__all__ = ["FORMULAS", "address_of", "bind_loop"]

#: ONNX's operators that are one of the loops, whatever their attributes.
FORMULAS = (
    "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Log", "Mish", "Selu", "Sigmoid", "Softplus", "Swish", "Tanh",
)  # fmt: skip

_loop_celu = loops.celu
_loop_clip = loops.clip
_loop_elu = loops.elu
_loop_erf = loops.erf
_loop_exp = loops.exp
_loop_gelu = loops.gelu
_loop_gelu_tanh = loops.gelu_tanh
_loop_hard_sigmoid = loops.hard_sigmoid
_loop_hard_swish = loops.hard_swish
_loop_leaky_relu = loops.leaky_relu
_loop_log = loops.log
_loop_mish = loops.mish
_loop_selu = loops.selu
_loop_sigmoid = loops.sigmoid
_loop_softplus = loops.softplus
_loop_swish = loops.swish
_loop_tanh = loops.tanh


@jit
def _piece(a: Any, share: int, shares: int) -> Any:
    """Give a share of x and of the output, in whole cache lines, and both parameters."""
    n = a[0]
    step = ((n + shares - 1) // shares + 15) // 16 * 16
    low, high = min(n, share * step), min(n, (share + 1) * step)
    x = matrix(floats(a[1] + 4 * low), 1, high - low)[0]
    out = matrix(floats(a[2] + 4 * low), 1, high - low)[0]
    return x, out, floats(a[3])[0], floats(a[3])[1]


@command
def _celu(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_celu(x, out, p, q)


@command
def _clip(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_clip(x, out, p, q)


@command
def _elu(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_elu(x, out, p, q)


@command
def _erf(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_erf(x, out, p, q)


@command
def _exp(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_exp(x, out, p, q)


@command
def _gelu(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_gelu(x, out, p, q)


@command
def _gelu_tanh(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_gelu_tanh(x, out, p, q)


@command
def _hard_sigmoid(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_hard_sigmoid(x, out, p, q)


@command
def _hard_swish(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_hard_swish(x, out, p, q)


@command
def _leaky_relu(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_leaky_relu(x, out, p, q)


@command
def _log(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_log(x, out, p, q)


@command
def _mish(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_mish(x, out, p, q)


@command
def _selu(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_selu(x, out, p, q)


@command
def _sigmoid(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_sigmoid(x, out, p, q)


@command
def _softplus(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_softplus(x, out, p, q)


@command
def _swish(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_swish(x, out, p, q)


@command
def _tanh(a: Any, share: int, shares: int) -> None:
    x, out, p, q = _piece(a, share, shares)
    _loop_tanh(x, out, p, q)


_COMMANDS: dict[Callable[..., None], Command] = {
    loops.celu: _celu,
    loops.clip: _clip,
    loops.elu: _elu,
    loops.erf: _erf,
    loops.exp: _exp,
    loops.gelu: _gelu,
    loops.gelu_tanh: _gelu_tanh,
    loops.hard_sigmoid: _hard_sigmoid,
    loops.hard_swish: _hard_swish,
    loops.leaky_relu: _leaky_relu,
    loops.log: _log,
    loops.mish: _mish,
    loops.selu: _selu,
    loops.sigmoid: _sigmoid,
    loops.softplus: _softplus,
    loops.swish: _swish,
    loops.tanh: _tanh,
}


def address_of(loop: Callable[..., None]) -> int:
    """
    Give the C function of a loop's command, compiled or from the cache.

    Its arguments: a count, the addresses of x, of the output and of two float32.
    """
    return _COMMANDS[loop].address


def bind_loop(
    loop: Callable[..., None], x: Array, out: Array, a: float, b: float, shares: int
) -> Native:
    """Bind a loop over flat float32 arrays, apart or one and the same."""
    numbers = np.array([a, b], np.float32)
    arguments = [x.size, x.ctypes.data, out.ctypes.data, numbers.ctypes.data]
    made = bind(_COMMANDS[loop], arguments, shares, keep=(x, out, numbers))
    return made.stepping(Flat(x.size, 0, ((1, 4),), ((2, 4),)))
