"""
How close a product by packed weights has to be, from both sides.

``accuracy_level`` of ``MatMulNBits`` says how coarse the arithmetic may be, from 1 for
float32 to 4 for 8-bit activations, with 0 for whatever the activations' own type is. A
level is a minimum: finer arithmetic is right, so no answer can be too good. Hence a bound on one side
proves little: what keeps level 4 honest would pass 8-bit activations at level 0 as well, if
it were used there. So a limit lies between two arithmetics, both computed here for
the case at hand:

* what the level allows has to pass, with half its error to spare for another order of sums;
* the next coarser one has to fail, or else the case could not tell them apart.

==========  ===========================================  ===============================
level       allowed                                      must fail
==========  ===========================================  ===============================
1           float32 operands and sums                    operands rounded to float16
2           operands rounded to float16                  operands rounded to bfloat16
3           operands rounded to bfloat16                 activations of 8 bits
4           activations of 8 bits, scaled for each       activations of 7 bits
            block of K
==========  ===========================================  ===============================

Results are rounded once to the activations' type in all of them. Errors are taken as a
share of the square root of the sum of squared products, which is the size that a sum of
products of random signs has: so a sum that happens to vanish says as much as any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import ml_dtypes
import numpy as np

from seamline.provider import Array

__all__ = ["ARITHMETICS", "Limit", "Product", "allowed", "answer_of", "limit_of"]

#: From fine to coarse; each must fail where only those before it are allowed.
ARITHMETICS = ("float32", "float16", "bfloat16", "8 bits", "7 bits")
_OF_LEVEL = {1: "float32", 2: "float16", 3: "bfloat16", 4: "8 bits"}
_TO_SPARE = 1.5
_SUMS = 16 * 2.0**-24  #: what another order of float32 sums may add
_LARGEST = 8.0  #: one element's error in limits of the whole: far out for a normal one
_ROUNDED = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@attrs.frozen(eq=False)
class Product:
    """
    One product to be held to its definition.

    Attributes
    ----------
    x
        (M, K) activations, of float32, float16 or bfloat16.
    w
        (K, N) dequantised weights, float64.
    bias
        (N,) float64.
    block
        Values of K with one scale.
    """

    x: Array
    w: Array
    bias: Array
    block: int

    @property
    def wanted(self) -> Array:
        """Give the product by definition, in float64."""
        return np.asarray(self.x.astype(np.float64) @ self.w + self.bias)

    @property
    def size(self) -> Array:
        """Give what errors are shares of, for each element."""
        squares = (self.x.astype(np.float64) ** 2) @ self.w**2 + self.bias**2
        return np.asarray(np.maximum(np.sqrt(squares), np.finfo(np.float32).tiny))

    def errors(self, got: Array) -> Array:
        """Give each element's error, as a share of its size."""
        return np.asarray((got.astype(np.float64) - self.wanted) / self.size)


@attrs.frozen
class Limit:
    """
    What a column of the table allows.

    Attributes
    ----------
    arithmetic, coarser
        What has to pass, and what has to fail.
    whole
        The most that the root of the mean square of errors may be.
    coarse
        What it is in the coarser arithmetic.
    """

    arithmetic: str
    coarser: str
    whole: float
    coarse: float

    @property
    def each(self) -> float:
        """Give the most that one element's error may be."""
        return _LARGEST * self.whole

    @property
    def separates(self) -> bool:
        """Tell whether the coarser arithmetic would have failed."""
        return self.coarse > self.whole

    def __str__(self) -> str:
        return f"{self.arithmetic}: at most {self.whole:.1e}, and {self.coarser} have {self.coarse:.1e}"


def allowed(level: int, dtype: str) -> str:
    """
    Give the coarsest arithmetic that a level allows for activations of a type.

    Examples
    --------
    >>> allowed(0, "bfloat16"), allowed(1, "float32"), allowed(4, "float32")
    ('bfloat16', 'float32', '8 bits')
    """
    named = dtype if level == 0 else _OF_LEVEL[level]
    return max(named, dtype, key=ARITHMETICS.index)


def answer_of(product: Product, arithmetic: str) -> Array:
    """Give the product in some arithmetic, with float64 sums, in the activations' type."""
    x, w = product.x.astype(np.float64), product.w
    if arithmetic in _ROUNDED:
        kind = _ROUNDED[arithmetic]
        x, w = x.astype(kind).astype(np.float64), w.astype(kind).astype(np.float64)
    elif arithmetic != "float32":
        x = _in_bits(x, product.block, int(arithmetic[0]))
    return np.asarray((x @ w + product.bias).astype(product.x.dtype))


def _in_bits(x: Array, block: int, bits: int) -> Array:
    """Quantise each block of a row by its greatest magnitude, both ends used alike."""
    m, k = x.shape
    full = np.zeros((m, -(-k // block) * block))
    full[:, :k] = x
    parts = full.reshape(m, full.shape[1] // block, block)
    step = np.abs(parts).max(2, keepdims=True, initial=0) / (2 ** (bits - 1) - 1)
    codes = np.rint(parts / np.where(step > 0, step, 1))
    return np.asarray((codes * step).reshape(full.shape)[:, :k])


def limit_of(products: Sequence[Product], level: int, dtype: str) -> Limit:
    """Give the limit for several products taken together."""
    named = allowed(level, dtype)
    coarser = ARITHMETICS[ARITHMETICS.index(named) + 1]
    fine, coarse = (
        rooted([one.errors(answer_of(one, name)) for one in products])
        for name in (named, coarser)
    )
    return Limit(named, coarser, _TO_SPARE * fine + _SUMS, coarse)


def rooted(errors: Sequence[Array]) -> float:
    """Give the root of the mean square of all errors; 0 where there are none."""
    every = np.concatenate([e.ravel() for e in errors]) if errors else np.zeros(0)
    return float(np.sqrt(np.mean(every**2))) if every.size else 0.0
