"""What hides keys in attention that is written out: numbers added, and scores replaced."""

from __future__ import annotations

import attrs
import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import Rewriting
from seamline.tensors import Dim, TensorType

__all__ = ["Mask"]

_SWALLOWS = -1e30  # a float32 of this size keeps nothing of a score below 1e22
_Shape = tuple[Dim, ...]


@attrs.frozen(eq=False)
class Mask:
    """
    What is done to scores.

    Attributes
    ----------
    added
        A value that is added, after any replacement.
    chosen
        A condition, the number that replaces a score, and whether it does where the condition
        is false.
    """

    added: ir.Value | None = None
    chosen: tuple[ir.Value, float, bool] | None = None

    @property
    def is_there(self) -> bool:
        """Tell whether anything is done."""
        return self.added is not None or self.chosen is not None

    def shape(self, work: Rewriting) -> _Shape | None:
        """Give the sizes of all of it together, or None where they are not known."""
        given = [self.added, None if self.chosen is None else self.chosen[0]]
        found: _Shape = ()
        for value in given:
            if value is None:
                continue
            its = work.shape(value)
            if its is None or None in its:
                return None
            found = _together(found, its)
        return found

    def misfit(self, work: Rewriting, kind: TensorType) -> str | None:
        """Say why it cannot be the operator's, or None; ``kind`` is of the scores."""
        if not self.is_there:
            return None
        if self.chosen is not None and self.chosen[1] > _SWALLOWS:
            return f"masked scores become {self.chosen[1]}, which is not minus infinity"
        its, whole = self.shape(work), tuple(kind.shape or ())
        if its is None or not 0 < len(its) <= len(whole):
            return "the sizes of its mask are not known"
        added = work.kind(self.added) if self.added is not None else None
        if added is not None and added.dtype != kind.dtype:
            return f"its mask is {added.dtype}"
        pairs = zip(its, whole[len(whole) - len(its) :], strict=True)
        if its[-1] != whole[-1] or any(n not in (1, m) for n, m in pairs):
            return f"its mask is {list(its)}, and the scores are {kind}"
        return None

    def drafted(self, draft: Draft, kind: TensorType) -> ir.Value | None:
        """Give it as one value that is added, by new nodes where that is not one yet."""
        if self.chosen is None:
            return self.added
        cond, filler, keeps = self.chosen
        dtype, its = np.dtype(kind.dtype), draft.work.shape(cond)
        zero = draft.constant(np.array(0, dtype), "seen")
        other = draft.constant(np.array(filler, dtype), "hidden")
        pair = [zero, other] if keeps else [other, zero]
        made = draft.node(
            "Where", [cond, *pair], TensorType(kind.dtype, its), hint="mask"
        )
        if self.added is None:
            return made
        both = TensorType(kind.dtype, self.shape(draft.work))
        return draft.node("Add", [self.added, made], both, hint="masks")


def _together(one: _Shape, other: _Shape) -> _Shape:
    """Give the sizes of two shapes broadcast together; what disagrees stays the second's."""
    rank = max(len(one), len(other))
    pairs = zip(
        (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True
    )
    return tuple([a if b == 1 else b for a, b in pairs])
