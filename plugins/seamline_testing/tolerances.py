"""
How closely a value is held to its definition: one table, by element type and class.

The class follows from what the operator does with rounding, not from what some provider
happens to reach. ``eps`` below is the distance from 1 to the next number of the type.

==============  =====================================================================
``bits``        Elements are moved. Every bit counts, the sign of zero too; only the
                payload of a NaN is free. Integers, booleans and strings are held to
                this whatever the operator.
``exact``       Elements are chosen or compared (Max, ArgMax, Cast): the value is one of
                few exact ones. Equal; 0 and -0 are the same.
``rounded``     One correctly rounded operation (Add, Div, Sqrt). IEEE 754 allows half a
                unit in the last place; 4 eps leaves room for a type that is computed
                wider and rounded again, and for devices whose division is off by two.
``function``    A library function or a short formula. SVML and CUDA promise 4 units,
                and a formula of a few terms multiplies them: 64 eps relative; 16 eps
                absolute, as a zero crossing has no relative accuracy.
``sum``         Sums of products. Rounding grows with the number and the size of the
                terms and not with the result, so an element alone says little: the
                normalised error (mean square over mean square) is held to (16 eps)²,
                and no element is off by more than 64 eps of the largest.
``composed``    Many operations in a row (attention, recurrence, a whole model), where
                the order is free: ten times the room of ``sum``.
==============  =====================================================================

Types of 16 bits and fewer are computed in float32 by whoever can, so that the last
rounding dominates: their factors are 1 (rounded), 4 (function) and 8 (sum) eps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from seamline.provider import Array
from seamline.tensors import dtype_name

_finfo: Any = ml_dtypes.finfo  # it carries no types

__all__ = [
    "CLASSES",
    "OPERATORS",
    "PURE_MOVES",
    "Tolerance",
    "class_of",
    "tolerance_for",
]

CLASSES = (
    "bits",
    "exact",
    "rounded",
    "function",
    "sum",
    "composed",
)  #: strictest first


@attrs.frozen
class Tolerance:
    """
    What one element type is allowed in one class.

    Attributes
    ----------
    relative, absolute
        Of one element: ``|got - want| <= absolute + relative * |want|``.
    normalised, of_largest
        Of the whole array, instead of ``relative``: mean square of the error over mean
        square of the value, and the largest error over the largest value.
    """

    name: str
    relative: float = 0.0
    absolute: float = 0.0
    normalised: float = 0.0
    of_largest: float = 0.0


PURE_MOVES = frozenset(
    {
        "BatchToSpace", "BitCast", "Compress", "Concat", "ConcatFromSequence", "Constant",
        "ConstantOfShape", "DepthToSpace", "Expand", "Flatten", "Gather",
        "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "ReverseSequence",
        "Slice", "SpaceToDepth", "Split", "SplitToSequence", "Squeeze", "Tile",
        "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
_EXACT = (
    "ArgMax ArgMin Cast CastLike Ceil Clip EyeLike Floor Max MaxPool MaxRoiPool MaxUnpool "
    "Min Neg Abs OneHot ReduceMax ReduceMin Relu Round Scatter ScatterElements ScatterND "
    "Sign TensorScatter TopK Trilu Unique Hardmax GlobalMaxPool NonMaxSuppression Shrink "
    "ThresholdedRelu"
)
_ROUNDED = "Add Sub Mul Div Sqrt Reciprocal Mod DequantizeLinear LeakyRelu PRelu"
_FUNCTION = (
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid "
    "HardSwish Log Mish Pow Selu Sigmoid Sin Sinh Softplus Softsign Swish Tan Tanh "
    "BlackmanWindow HammingWindow HannWindow Range RotaryEmbedding"
)
_SUM = (
    "AveragePool BatchNormalization Conv ConvInteger ConvTranspose CumProd CumSum Det "
    "Einsum Gemm GlobalAveragePool GlobalLpPool GroupNormalization InstanceNormalization "
    "LRN LayerNormalization LogSoftmax LpNormalization LpPool MatMul MatMulInteger Mean "
    "MeanVarianceNormalization NegativeLogLikelihoodLoss RMSNormalization ReduceL1 ReduceL2 "
    "ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare "
    "Softmax Sum SoftmaxCrossEntropyLoss"
)
#: Operator -> class; an operator that is not here is ``composed``.
OPERATORS: dict[str, str] = {
    **dict.fromkeys(PURE_MOVES, "bits"),
    **dict.fromkeys(_EXACT.split(), "exact"),
    **dict.fromkeys(_ROUNDED.split(), "rounded"),
    **dict.fromkeys(_FUNCTION.split(), "function"),
    **dict.fromkeys(_SUM.split(), "sum"),
}


def class_of(operators: Iterable[str]) -> str:
    """
    Give the class of a model by its operators: the loosest, or ``composed`` for several.

    Examples
    --------
    >>> class_of(["Transpose", "MatMul"]), class_of(["Exp", "Add"])
    ('sum', 'composed')
    """
    found = [OPERATORS.get(name, "composed") for name in operators]
    rounding = [name for name in found if CLASSES.index(name) >= 2]
    if len(rounding) > 1:
        return "composed"
    return rounding[0] if rounding else max(found, key=CLASSES.index, default="bits")


def tolerance_for(dtype: np.dtype[np.generic], kind: str) -> Tolerance:
    """
    Give what a type is allowed in a class.

    Examples
    --------
    >>> tolerance_for(np.dtype("float32"), "rounded").relative == 4 * 2.0**-23
    True
    >>> tolerance_for(np.dtype("int64"), "sum").name
    'int64/bits'
    """
    name = dtype_name(dtype)
    eps = _eps(name)
    if kind == "bits" or dtype.kind in "biuO":
        return Tolerance(f"{name}/bits")
    if kind == "exact" or not eps:
        return Tolerance(f"{name}/exact")
    narrow = eps > 1e-5
    if kind == "rounded":
        units = 1 if narrow else 4
        return Tolerance(f"{name}/{kind}", relative=units * eps, absolute=_tiny(name))
    if kind == "function":
        return Tolerance(
            f"{name}/{kind}", (4 if narrow else 64) * eps, (4 if narrow else 16) * eps
        )
    room = 1 if kind == "sum" else 10
    factor = (8 if narrow else 64) * room * eps
    noise = ((2 if narrow else 16) * room * eps) ** 2
    floor = (4 if narrow else 16) * eps
    return Tolerance(f"{name}/{kind}", 0.0, floor, noise, factor)


def _eps(name: str) -> float:
    """Give the type's eps; 0 where values are held exactly (integers, float8, text)."""
    if name in ("complex64", "complex128"):
        return float(np.finfo(name).eps)
    if name in ("float64", "float32", "float16"):
        return float(np.finfo(name).eps)
    return float(_finfo(name).eps) if name == "bfloat16" else 0.0


def _tiny(name: str) -> float:
    """Give the smallest normal number: below it a device may flush to zero."""
    if name == "bfloat16":
        return float(_finfo(name).tiny)
    return float(np.finfo(name).tiny)


def normalised_error(got: Array, want: Array) -> float:
    """Give mean square of the error over mean square of the value; 0 for nothing."""
    power = float(np.mean(np.abs(want) ** 2)) if want.size else 0.0
    noise = float(np.mean(np.abs(got - want) ** 2)) if want.size else 0.0
    return noise / power if power else noise
