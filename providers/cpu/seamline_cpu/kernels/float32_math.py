"""
Functions of one float32, written so that LLVM turns a loop of them into vector code.

There is no call and no branch in them: C's ``expf`` and ``erff`` would keep a loop
scalar. Polynomials and rational functions were fitted for this file by iteratively
reweighted least squares over Chebyshev nodes, weighted for relative error. Each
function's text gives the error measured against float64, in units of the last place
(ulp). NaN gives NaN in all of them.
"""

from __future__ import annotations

import numpy as np

from seamline_cpu.kernels.rows import fused

__all__ = ["erf", "exp", "expm1", "log", "log1p_unit", "sigmoid", "tanh"]

_ONE = np.float32(1.0)
_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts: the first has trailing zero bits, so n times it is exact.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440054690583e-4)
# Adding 1.5 * 2**23 leaves the rounded integer in the low bits of a float32.
_ROUNDER = np.float32(12582912.0)
_ROUNDER_BITS = np.int32(0x4B400000)
_BIAS = np.int32(127)
_SHIFT = np.int32(23)
_BIT = np.int32(1)
_EXP_LOW, _EXP_HIGH = np.float32(-104.0), np.float32(89.0)
_E0, _E1, _E2, _E3, _E4 = map(
    np.float32,
    (
        0.5000000095827046,
        0.16666518167106495,
        0.0416662037395951,
        0.008368970137548391,
        0.0013950628762397597,
    ),
)
_ERF_TOP = np.float32(3.92)  # erf is 1 from here on, to float32
_P0, _P1, _P2, _P3, _P4, _P5 = map(
    np.float32,
    (
        1.1283791462077193,
        0.1904048103678082,
        0.052748407455229004,
        0.003765515097396661,
        0.00028487515362397766,
        2.050033102719238e-06,
    ),
)
_Q1, _Q2, _Q3, _Q4, _Q5 = map(
    np.float32,
    (
        0.5020746120993691,
        0.1141083375138454,
        0.01496902288496049,
        0.0011625006182779628,
        3.809075321627115e-05,
    ),
)
_SIGMOID_LOW = np.float32(-87.0)  # 1 + e**-87 is 1
_TANH_TOP = np.float32(9.02)  # tanh is 1 from here on, to float32
_T1, _T2, _T3, _T4 = map(
    np.float32,
    (
        0.1337971938238301,
        0.0034940362178204746,
        2.058350626843127e-05,
        1.3319102155593305e-08,
    ),
)
_U1, _U2, _U3, _U4 = map(
    np.float32,
    (
        0.4671303462437424,
        0.02587107965047808,
        0.0003283095453612122,
        7.762032753930594e-07,
    ),
)
_A0, _A1, _A2, _A3 = map(
    np.float32,
    (0.9999999990599109, 1.0662179609930353, 0.2381572395540149, 0.003417273570517505),
)
_B1, _B2, _B3 = map(
    np.float32, (1.5662178304532535, 0.6879357482264575, 0.07528717464474353)
)

# sqrt(1/2), from which on a mantissa is kept as it is; below it is doubled.
_HALF_ROOT_BITS = np.int32(0x3F3504F3)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = map(
    np.float32,
    (
        0.33333312600324216,
        -0.250000096125345,
        0.20002118877386,
        -0.16667995276972092,
        0.14219548015588834,
        -0.12405596648852416,
        0.11888199400989065,
        -0.1167561914083432,
        0.06746521419172935,
    ),
)


@fused
def _nearest(x: np.float32) -> np.float32:
    """Give the integer nearest to ``x / ln 2``, plus the rounder."""
    return x * _LOG2_E + _ROUNDER


@fused
def _rest(x: np.float32, whole: np.float32) -> np.float32:
    n = whole - _ROUNDER
    return (x - n * _LN2_HIGH) - n * _LN2_LOW


@fused
def _power(n: np.int32) -> np.float32:
    """Give ``2 ** n`` for n from -126 to 127."""
    return np.int32((n + _BIAS) << _SHIFT).view(np.float32)


@fused
def _expm1_rest(r: np.float32) -> np.float32:
    q = (((_E4 * r + _E3) * r + _E2) * r + _E1) * r + _E0
    return r + r * r * q


@fused
def exp(x: np.float32) -> np.float32:
    """Give e**x, within 1.1 ulp; 0 and inf beyond the range, subnormals within it."""
    x = _EXP_LOW if x < _EXP_LOW else x
    x = _EXP_HIGH if x > _EXP_HIGH else x
    whole = _nearest(x)
    n = np.int32(np.float32(whole).view(np.int32) - _ROUNDER_BITS)
    # In two steps, for 2**n alone is no float32 at both ends of the range.
    half = np.int32(n >> _BIT)
    grown = (_expm1_rest(_rest(x, whole)) + _ONE) * _power(half)
    return grown * _power(np.int32(n - half))


@fused
def expm1(x: np.float32) -> np.float32:
    """Give e**x - 1 for x up to 88, within 1.6 ulp; -1 far below 0."""
    x = _EXP_LOW if x < _EXP_LOW else x
    x = np.float32(88.0) if x > np.float32(88.0) else x
    whole = _nearest(x)
    n = np.int32(np.float32(whole).view(np.int32) - _ROUNDER_BITS)
    n = np.int32(-126) if n < np.int32(-126) else n
    scale = _power(n)
    return scale * _expm1_rest(_rest(x, whole)) + (scale - _ONE)


@fused
def sigmoid(x: np.float32) -> np.float32:
    """Give 1 / (1 + e**-x), within 2.4 ulp; 0 where it would be subnormal."""
    y = -x
    y = _SIGMOID_LOW if y < _SIGMOID_LOW else y
    y = _EXP_HIGH if y > _EXP_HIGH else y
    whole = _nearest(y)
    n = np.int32(np.float32(whole).view(np.int32) - _ROUNDER_BITS)
    # n is 128 at the top, whose bits are infinity's, and the result 0.
    grown = (_expm1_rest(_rest(y, whole)) + _ONE) * _power(n)
    return _ONE / (_ONE + grown)


@fused
def tanh(x: np.float32) -> np.float32:
    """Give the hyperbolic tangent, within 5 ulp: x times a rational function of x**2."""
    x = -_TANH_TOP if x < -_TANH_TOP else x
    x = _TANH_TOP if x > _TANH_TOP else x
    u = x * x
    top = (((_T4 * u + _T3) * u + _T2) * u + _T1) * u + _ONE
    low = (((_U4 * u + _U3) * u + _U2) * u + _U1) * u + _ONE
    y = x * top / low
    y = -_ONE if y < -_ONE else y
    return _ONE if y > _ONE else y


@fused
def erf(x: np.float32) -> np.float32:
    """Give the error function, within 5 ulp: x times a rational function of x**2."""
    x = -_ERF_TOP if x < -_ERF_TOP else x
    x = _ERF_TOP if x > _ERF_TOP else x
    u = x * x
    top = ((((_P5 * u + _P4) * u + _P3) * u + _P2) * u + _P1) * u + _P0
    low = ((((_Q5 * u + _Q4) * u + _Q3) * u + _Q2) * u + _Q1) * u + _ONE
    y = x * top / low
    y = -_ONE if y < -_ONE else y
    return _ONE if y > _ONE else y


@fused
def log1p_unit(z: np.float32) -> np.float32:
    """Give ln(1 + z) for z from 0 to 1, within 4 ulp."""
    top = ((_A3 * z + _A2) * z + _A1) * z + _A0
    low = ((_B3 * z + _B2) * z + _B1) * z + _ONE
    return z * top / low


@fused
def log(x: np.float32) -> np.float32:
    """Give ln(x), within 2 ulp; -inf of 0, NaN below 0, and subnormals as they are."""
    small = x < np.float32(1.1754944e-38)
    y = x * np.float32(8388608.0) if small else x
    bits = np.float32(y).view(np.int32)
    n = np.int32(np.int32(bits - _HALF_ROOT_BITS) >> _SHIFT)
    f = np.int32(bits - np.int32(n << _SHIFT)).view(np.float32) - _ONE
    e = np.float32(n) - (np.float32(23.0) if small else np.float32(0.0))
    p = (((_L8 * f + _L7) * f + _L6) * f + _L5) * f + _L4
    p = (((p * f + _L3) * f + _L2) * f + _L1) * f + _L0
    u = f * f
    value = (f + (u * f * p + e * _LN2_LOW - np.float32(0.5) * u)) + e * _LN2_HIGH
    value = np.float32(-np.inf) if x == np.float32(0.0) else value
    value = np.float32(np.nan) if x < np.float32(0.0) else value
    # Infinity and NaN are their own logarithm.
    return value if x < np.float32(np.inf) else x
