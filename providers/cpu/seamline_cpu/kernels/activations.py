"""Activations: Relu and its kin, the sigmoids, Gelu and its kin, Clip."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline.tensors import FLOATS, NUMBERS, SIGNED
from seamline_cpu.kernels import formulas
from seamline_cpu.kernels.activation_commands import FORMULAS
from seamline_cpu.kernels.broadcast_commands import UNARY, bind_unary
from seamline_cpu.kernels.elementwise import COMPILED
from seamline_cpu.kernels.pointwise import (
    COMPILED_FROM,
    Formula,
    bind_ufunc,
    in_sequence,
)
from seamline_cpu.kernels.recorded import OF_FLOAT32, known
from seamline_cpu.table import IN_PYTHON, TABLE

__all__: list[str] = []

#: Formula, and its two parameters: a number, or an attribute and its default.
_SPECS: dict[str, tuple[Formula, tuple[Any, ...]]] = {
    "Sigmoid": (formulas.SIGMOID, ()),
    "HardSigmoid": (formulas.HARD_SIGMOID, (("alpha", 0.2), ("beta", 0.5))),
    "HardSwish": (formulas.HARD_SWISH, (1 / 6, 0.5)),
    "LeakyRelu": (formulas.LEAKY_RELU, (("alpha", 0.01),)),
    "Elu": (formulas.ELU, (("alpha", 1.0),)),
    "Selu": (
        formulas.SELU,
        (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    ),
    "Celu": (formulas.CELU, (("alpha", 1.0),)),
    "Softplus": (formulas.SOFTPLUS, ()),
    "Softsign": (formulas.SOFTSIGN, ()),
    "ThresholdedRelu": (formulas.THRESHOLDED_RELU, (("alpha", 1.0),)),
    "Mish": (formulas.MISH, ()),
    "Swish": (formulas.SWISH, (("alpha", 1.0),)),
}


def _of_formula(formula: Formula, parameters: tuple[Any, ...], call: Call) -> Run:
    given = [call.attr(*p) if isinstance(p, tuple) else p for p in parameters]
    return formula.bind(call, *given)


for _op, (_formula, _parameters) in _SPECS.items():
    _compiled = _formula.loop is not None
    TABLE.kernel(
        _op,
        dtypes=FLOATS,
        aliases=((0, 0),),
        variant="numba" if _compiled else "",
        because=COMPILED if _compiled else "",
        not_capturable=OF_FLOAT32 if _op in FORMULAS or _op in UNARY else IN_PYTHON,
    )(functools.partial(_of_formula, _formula, _parameters))


@TABLE.kernel("Shrink", dtypes=NUMBERS, aliases=((0, 0),))
def shrink(call: Call) -> Run:
    """Bind Shrink: toward 0 by ``bias`` outside of ``lambd``, 0 within."""
    return formulas.SHRINK.bind(call, call.attr("bias", 0.0), call.attr("lambd", 0.5))


@functools.cache
def _zeros(dtype: Any) -> Array:
    return np.zeros(COMPILED_FROM, dtype)


@TABLE.kernel(
    "Relu",
    dtypes=FLOATS + SIGNED,
    aliases=((0, 0),),
    variant="numba",
    because=COMPILED,
    not_capturable=OF_FLOAT32,
)
def relu(call: Call) -> Run:
    """Bind Relu: max(x, 0), NaN kept."""
    x = call.inputs[0]
    native = bind_unary("Relu", call, x, call.outputs[0])
    if native is not None:
        return native
    if not 64 < x.size <= COMPILED_FROM:
        return bind_ufunc(call, np.maximum, x, np.zeros((), x.dtype))
    # NumPy's maximum of an array and a scalar is not vectorised; of two arrays it is.
    zeros = _zeros(x.dtype)[: x.size].reshape(x.shape)
    return bind_ufunc(call, np.maximum, x, zeros)


@TABLE.kernel(
    "Clip",
    since=(6, 10),
    dtypes=FLOATS,
    aliases=((0, 0),),
    variant="numba",
    because=COMPILED,
    not_capturable=all_of(OF_FLOAT32, known(1, 2)),
)
def clip_by_attributes(call: Call) -> Run:
    """Bind Clip with its bounds as attributes."""
    low, high = call.attr("min", -np.inf), call.attr("max", np.inf)
    return formulas.CLIP.bind(call, low, high)


def _fixed_bounds(call: Call) -> tuple[float, float] | None:
    """Give the bounds if both are known before any run, and neither is NaN."""
    found = []
    for index, missing in ((1, -np.inf), (2, np.inf)):
        known = call.constant(index)
        if call.input(index) is not None and known is None:
            return None
        found.append(missing if known is None else float(known.reshape(())))
    # A NaN for a bound makes all NaN, which only the ufuncs do.
    return None if np.isnan(found).any() else (found[0], found[1])


@TABLE.kernel(
    "Clip",
    since=11,
    dtypes=NUMBERS,
    aliases=((0, 0),),
    variant="numba",
    because=COMPILED,
    not_capturable=all_of(OF_FLOAT32, known(1, 2)),
)
def clip(call: Call) -> Run:
    """Bind Clip: min(max, max(input, min)), so a min above max gives max everywhere."""
    x, out = call.inputs[0], call.outputs[0]
    fixed = _fixed_bounds(call) if x.dtype == np.float32 else None
    if fixed is not None:
        return formulas.CLIP.bind(call, *fixed)
    runs = []
    source: Array = x
    for ufunc, bound in ((np.maximum, call.input(1)), (np.minimum, call.input(2))):
        if bound is not None:
            runs.append(bind_ufunc(call, ufunc, source, bound.reshape(())))
            source = out
    return in_sequence(runs or [functools.partial(np.copyto, out, x)])


@TABLE.kernel(
    "Gelu",
    since=20,
    dtypes=FLOATS,
    aliases=((0, 0),),
    variant="numba",
    because=COMPILED,
    not_capturable=OF_FLOAT32,
)
def gelu(call: Call) -> Run:
    """Bind Gelu, exact or by tanh."""
    exact = call.attr("approximate", "none") == "none"
    return (formulas.GELU if exact else formulas.GELU_TANH).bind(call)


_microsoft = functools.partial(
    TABLE.kernel,
    domain="com.microsoft",
    dtypes=FLOATS,
    variant="numba",
    because=COMPILED,
)


@_microsoft("Gelu", aliases=((0, 0),), not_capturable=OF_FLOAT32)
def gelu_of_microsoft(call: Call) -> Run:
    """Bind the contributed Gelu, which is exact."""
    return formulas.GELU.bind(call)


@_microsoft("QuickGelu", aliases=((0, 0),), not_capturable=OF_FLOAT32)
def quick_gelu(call: Call) -> Run:
    """Bind QuickGelu: x times the sigmoid of alpha x."""
    return formulas.SWISH.bind(call, call.attr("alpha", 1.702))


@_microsoft("FastGelu", aliases=((0, 0),))
def fast_gelu(call: Call) -> Run:
    """Bind FastGelu: Gelu by tanh, of the input plus a bias if there is one."""
    return _after_bias(formulas.GELU_TANH, call)


@_microsoft("BiasGelu", aliases=((0, 0),))
def bias_gelu(call: Call) -> Run:
    """Bind BiasGelu: exact Gelu of the input plus a bias along the last axis."""
    return _after_bias(formulas.GELU, call)


def _after_bias(formula: Formula, call: Call) -> Run:
    x, bias, out = call.inputs[0], call.input(1), call.outputs[0]
    if bias is None:
        return formula.bind(call)
    if x.dtype.itemsize == 2:
        # The sum stays in float32, for a half would be rounded twice.
        total = np.empty(x.shape, np.float32)
        add: Run = functools.partial(np.add, x, bias, out=total, dtype=np.float32)
        return in_sequence([add, formula.bind(call, x=total)])
    add = bind_ufunc(call, np.add, x, bias)
    return in_sequence([add, formula.bind(call, x=out)])
