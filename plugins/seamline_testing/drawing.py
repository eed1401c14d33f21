"""
Inputs drawn for one operator: shapes, values and attributes that its definition covers.

A *draw* takes a Hypothesis ``draw`` function and an element type and gives inputs and
attributes. Sizes go down to zero and ranks down to scalars; what may broadcast does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from seamline.provider import Array
from seamline.tensors import numpy_dtype

__all__ = ["Draw", "Drawer", "Drawn", "Inputs"]

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
# Operators that give an exact value for the lowest and highest integers.
_WHOLE = (
    "And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Clip Concat Equal Expand Flatten Gather "
    "GatherElements Greater GreaterOrEqual Identity Less LessOrEqual Max Min Not Or Pad "
    "ReduceMax ReduceMin Reshape Slice Split Squeeze Tile TopK Transpose Trilu Unsqueeze "
    "Where Xor ArgMax ArgMin DepthToSpace SpaceToDepth"
)
EXTREME = frozenset(_EXTREME.split())  #: may meet NaN, infinities and -0
WHOLE = frozenset(_WHOLE.split())  #: may meet the lowest and highest integers
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0)
#: Where a function is real and well conditioned; elsewhere ``(-3, 4)``.
_RANGES: Mapping[str, tuple[float, float]] = {
    "Acosh": (1.1, 4), "Atanh": (-0.9, 0.9), "Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9),
    "Log": (0.1, 4), "Sqrt": (0, 4), "Tan": (-1, 1), "ReduceLogSum": (0.1, 4),
    "Reciprocal": (0.5, 4), "Pow": (0.5, 2), "Mod": (1, 9), "Div": (1, 9),
}  # fmt: skip


@attrs.define(eq=False)
class Drawer:
    """One example's draws, for one operator and element type."""

    draw: Draw
    operator: str
    dtype: np.dtype[Any]
    version: int
    rng: np.random.Generator
    extreme: bool

    @classmethod
    def of(cls, draw: Draw, operator: str, dtype: str, version: int) -> Drawer:
        """Begin an example."""
        seed = draw(st.integers(0, 2**32 - 1))
        extreme = draw(st.booleans())
        rng = np.random.default_rng(seed)
        return cls(draw, operator, numpy_dtype(dtype), version, rng, extreme)

    def shape(
        self, least: int = 0, most: int = 4, smallest: int = 0
    ) -> tuple[int, ...]:
        """Draw a shape: its rank from least to most, its sizes from smallest to 5."""
        sizes = st.lists(st.integers(smallest, 5), min_size=least, max_size=most)
        return tuple(self.draw(sizes))

    def broadcasting(self, count: int) -> list[tuple[int, ...]]:
        """Draw shapes that broadcast together."""
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
        if self.extreme and self.operator in EXTREME:
            at = self.rng.random(shape) < 0.3
            plain = np.where(at, self.rng.choice(_SPECIAL, shape), plain)
        return np.asarray(plain).astype(kind)

    def _integers(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        limits = np.iinfo(kind)
        low = 1 if self.operator in ("Div", "Mod") else max(-5, limits.min)
        plain = self.rng.integers(low, 5, shape, endpoint=True)
        found = np.asarray(plain).astype(kind)
        if self.extreme and self.operator in WHOLE:
            ends = np.array([limits.min, limits.max], kind)
            at = self.rng.random(shape) < 0.3
            found = np.where(at, ends[self.rng.integers(0, 2, shape)], found)
        return np.asarray(found)

    def indices(self, shape: tuple[int, ...], size: int) -> Array:
        """Draw indices into a dimension, from either end."""
        return np.asarray(self.rng.integers(-size, size, shape)).astype(np.int64)


def _boxed(text: str) -> Array:
    held = np.empty((), object)
    held[()] = text
    return held
