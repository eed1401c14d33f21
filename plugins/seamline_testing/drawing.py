"""
Inputs drawn for one operator: shapes, values and attributes that its definition covers.

A *draw* takes a Hypothesis ``draw`` function and an element type and gives inputs and
attributes. Sizes go down to zero and ranks down to scalars; what may broadcast does.

Small shapes reach neither the second block of a kernel nor its odd end, and chance alone
reaches neither many axes nor the ends of a type. So a few examples have a :class:`Form`
of their own, and extreme values for certain.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from seamline.provider import Array
from seamline.tensors import numpy_dtype

__all__ = ["Draw", "Drawer", "Drawn", "Form", "Inputs"]

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
Inputs: TypeAlias = tuple["list[Array | None]", dict[str, Any]]
Drawn: TypeAlias = Callable[["Drawer"], Inputs]

# Operators whose value at NaN, infinities and -0 follows from IEEE 754 alone.
_EXTREME = (
    "Abs Add Cos Div Equal Exp Floor Ceil Greater GreaterOrEqual Identity IsInf IsNaN Less "
    "LessOrEqual Log Max Min Mul Neg Reciprocal Round Sin Sqrt Sub Tanh Where Transpose "
    "Reshape Concat Split Slice Gather GatherElements Expand Tile Flatten Squeeze "
    "Unsqueeze Trilu Pad Atan Sigmoid Sum DepthToSpace SpaceToDepth"
)
# Operators of integers that are exact, or wrap as two's complement does. Not Gemm, whose
# alpha and beta are floats, nor Pow, which the standard lets anyone compute as a float.
_WHOLE = (
    "Abs Add And ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Clip Concat CumSum "
    "DepthToSpace Div Equal Expand Flatten Gather GatherElements Greater "
    "GreaterOrEqual Identity Less LessOrEqual MatMul Max Min Mod Mul Neg NonZero Not Or "
    "PRelu Pad ReduceL1 ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu "
    "Reshape Sign Slice SpaceToDepth Split Squeeze Sub Tile TopK Transpose Trilu Unsqueeze "
    "Where Xor"
)
# Operators that decide something where floats are equal, or lie between two integers.
_STEPPED = (
    "ArgMax ArgMin Ceil Equal Floor Greater GreaterOrEqual Hardmax Less LessOrEqual Round "
    "TopK"
)
EXTREME = frozenset(_EXTREME.split())  #: may meet NaN, infinities and -0
WHOLE = frozenset(_WHOLE.split())  #: may meet the lowest and highest integers
STEPPED = frozenset(_STEPPED.split())  #: meet equal floats and halves
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0)
#: Where a function is real and well conditioned; elsewhere ``(-3, 4)``.
_RANGES: Mapping[str, tuple[float, float]] = {
    "Acosh": (1.1, 4), "Atanh": (-0.9, 0.9), "Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9),
    "Log": (0.1, 4), "Sqrt": (0, 4), "Tan": (-1, 1), "ReduceLogSum": (0.1, 4),
    "Reciprocal": (0.5, 4), "Pow": (0.5, 2), "Mod": (1, 9), "Div": (1, 9),
}  # fmt: skip
# Factors of a long product, with shares: exact and in the range of every type.
_FACTORS = ((1.0, -1.0, 2.0, 0.5), (0.4998, 0.4998, 0.0002, 0.0002))


_USUAL = 4  # axes, at most


class Form(enum.Enum):
    """
    What is special about an example's shapes: sizes, of which as many axes as may be.

    Odd sizes throughout, so that no block and no vector comes out even.
    """

    DRAWN = ()
    DEEP = (2, 3, 1, 3, 2, 3)  #: more axes than any kernel has loops written out for
    LONG = (3, 3, 5, 11, 11)  #: past 4,096 elements, in many axes
    LARGE = (
        5,
        13,
        1097,
    )  #: past 65,536 elements, with an axis that is long to sum over


@attrs.define(eq=False)
class Drawer:
    """One example's draws, for one operator and element type."""

    draw: Draw
    operator: str
    dtype: np.dtype[Any]
    version: int
    rng: np.random.Generator
    extreme: bool
    form: Form = Form.DRAWN

    @classmethod
    def of(
        cls,
        draw: Draw,
        operator: str,
        dtype: str,
        version: int,
        form: Form = Form.DRAWN,
    ) -> Drawer:
        """Begin an example."""
        seed = draw(st.integers(0, 2**32 - 1))
        extreme = draw(st.booleans()) or form is not Form.DRAWN
        rng = np.random.default_rng(seed)
        return cls(draw, operator, numpy_dtype(dtype), version, rng, extreme, form)

    def _formed(self, rank: int) -> tuple[int, ...]:
        sizes: tuple[int, ...] = self.form.value
        if rank >= len(sizes):
            return sizes
        return (
            math.prod(sizes[: len(sizes) - rank + 1]),
            *sizes[len(sizes) - rank + 1 :],
        )

    def formed(self, strategy: st.SearchStrategy[Any], formed: Any) -> Any:
        """Draw something; a form of its own has ``formed``."""
        return self.draw(strategy) if self.form is Form.DRAWN else formed

    def shape(
        self, least: int = 0, most: int = _USUAL, smallest: int = 0
    ) -> tuple[int, ...]:
        """
        Draw a shape: its rank from least to most, its sizes from smallest to 5.

        A form's own shape has the form's elements in as many axes as ``most`` allows, at
        the usual most as many as the form has.
        """
        if self.form is not Form.DRAWN:
            return self._formed(len(self.form.value) if most >= _USUAL else most)
        sizes = st.lists(st.integers(smallest, 5), min_size=least, max_size=most)
        return tuple(self.draw(sizes))

    def broadcasting(self, count: int) -> list[tuple[int, ...]]:
        """Draw shapes that broadcast together; in a form of its own one is whole."""
        if self.form is not Form.DRAWN:
            whole = self.form.value
            row, column = (1, *whole[1:-1], whole[-1]), (*whole[:-1], 1)
            others = [whole, whole[-1:], column, row, ()]
            return [whole, *(self.pick(*others) for _ in range(count - 1))]
        found = self.draw(
            mutually_broadcastable_shapes(
                num_shapes=count, min_dims=0, max_dims=4, min_side=0, max_side=5
            )
        )
        return [tuple(shape) for shape in found.input_shapes]

    def axis(self, rank: int) -> int:
        """Draw an axis, counted from either end; old versions know no negative ones."""
        return int(self.draw(st.integers(-rank, rank - 1)))

    def pick(self, *choices: Any) -> Any:
        """Draw one of several."""
        return self.draw(st.sampled_from(choices))

    def values(self, shape: tuple[int, ...], dtype: Any = None) -> Array:
        """Draw values; a few extreme ones among them where the operator allows."""
        kind = np.dtype(dtype or self.dtype)
        if kind.hasobject:
            words = np.array(["", "a", "\u00e9", "a\0b", "longer"], object)
            return (
                words[self.rng.integers(0, len(words), shape)]
                if shape
                else _boxed("\u00e9")
            )
        if kind == np.bool_:
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind.kind in "iu":
            return self._integers(shape, kind)
        low, high = _RANGES.get(self.operator, (-3, 4))
        plain = self.rng.uniform(low, high, shape)
        if self.operator == "ReduceProd" and self.form is not Form.DRAWN:
            plain = self.rng.choice(_FACTORS[0], shape, p=_FACTORS[1])
        if self.operator in STEPPED:
            at = self.rng.random(shape) < 0.5
            plain = np.where(at, np.rint(2 * plain) / 2, plain)
        if self.extreme and self.operator in EXTREME:
            at = self.rng.random(shape) < 0.3
            plain = np.where(at, self.rng.choice(_SPECIAL, shape), plain)
        return np.asarray(plain).astype(kind)

    def _integers(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        limits = np.iinfo(kind)
        plain = self.rng.integers(max(-5, limits.min), 5, shape, endpoint=True)
        found = np.asarray(plain).astype(kind)
        if self.extreme and self.operator in WHOLE:
            at = self.rng.random(shape) < 0.3
            found = np.where(at, self.rng.choice(_ends(kind), shape), found)
        if self.operator == "ReduceProd" and self.form is not Form.DRAWN:
            found = found | kind.type(
                1
            )  # of many factors a few even ones leave nothing
        return np.asarray(found)

    def divisors(self, shape: tuple[int, ...]) -> Array:
        """
        Draw integers that every dividend may be divided by.

        Neither 0 nor -1: the lowest integer over -1 is no number of its type.
        """
        found = self.values(shape)
        if self.dtype.kind not in "iu":
            return found
        bad = found == 0
        if self.dtype.kind == "i":
            bad |= found == -1
        return np.asarray(np.where(bad, self.dtype.type(3), found))

    def indices(self, shape: tuple[int, ...], size: int) -> Array:
        """Draw indices into a dimension, from either end."""
        return np.asarray(self.rng.integers(-size, size, shape)).astype(np.int64)


def _ends(kind: np.dtype[Any]) -> Array:
    """Give the ends of a type, and the first integers that float32 and float64 lack."""
    limits = np.iinfo(kind)
    odd = [sign * (2**bits + 1) for bits in (24, 53) for sign in (1, -1)]
    inside = [one for one in odd if limits.min <= one <= limits.max]
    return np.array([limits.min, limits.max, *inside], kind)


def _boxed(text: str) -> Array:
    held = np.empty((), object)
    held[()] = text
    return held
