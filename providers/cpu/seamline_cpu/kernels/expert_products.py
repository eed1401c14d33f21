"""Products with many experts' weights, bound over rows in expert order."""

from __future__ import annotations

import attrs
import numpy as np

from seamline.kernels import Run
from seamline.provider import Array
from seamline_cpu.commands import bind
from seamline_cpu.huge_pages import huge
from seamline_cpu.kernels.expert_commands import (
    WIDE,
    few_products,
    quantised,
    widened,
)
from seamline_cpu.kernels.expert_pieces import (
    FROM_ROWS,
    in_pieces,
    unpacked_products,
)
from seamline_cpu.kernels.expert_routing import PRODUCTS, Routes
from seamline_cpu.kernels.expert_turns import SLOTS
from seamline_cpu.kernels.expert_weights import Experts
from seamline_cpu.kernels.nbits_codebooks import factor_of
from seamline_cpu.kernels.nbits_layout import (
    GROUP,
    Packed,
)
from seamline_cpu.kernels.nbits_many import fill, room, weights_of
from seamline_cpu.kernels.nbits_plans import piece_of, pieces_of
from seamline_cpu.row_tiles import APART, HEIGHTS
from seamline_cpu.vectors import REGISTER

__all__ = ["Layer", "Rows"]

f4 = np.float32
_TURNS = 8  # turns of each thread at the weights
_SHARED_FROM = 1 << 17  # multiply-adds from which more threads pay


@attrs.frozen(eq=False)
class Rows:
    """
    Rows of activations in expert order, made ready once for all products that read them.

    Attributes
    ----------
    values
        Arguments of products that say where rows are.
    pieces
        Those of products by unpacked weights, where an expert may have rows enough.
    runs
        What makes them ready.
    """

    values: dict[str, int]
    pieces: dict[str, int]
    runs: list[Run]
    keep: object


@attrs.frozen(eq=False)
class Layer:
    """
    How the products of a node are made.

    Attributes
    ----------
    vectors
        Variant of vector code.
    int8
        Activations are quantised to 8 bits.
    """

    routes: Routes
    vectors: str
    int8: bool
    threads: int

    @property
    def unpacks(self) -> bool:
        """Tell whether an expert may have rows enough to unpack its weights for."""
        return not self.int8 and len(self.routes.places) >= self._from_rows

    def ready(self, a: Array, order: Array, like: Experts) -> Rows:
        """
        Bind what quantises or widens rows.

        Parameters
        ----------
        a
            Rows whose elements lie together: float32, float16 or bfloat16.
        order
            int64, which row of ``a`` stands at each place.
        like
            Weights that the rows are for, or ones of the same depth and form.
        """
        packed, m = like.packed, len(order)
        form, kind = packed.form, str(a.dtype)
        where = {
            "order": order.ctypes.data, "rows": m, "k": a.shape[1], "a": a.ctypes.data,
            "a_pitch": a.strides[0],
        }  # fmt: skip
        shares = self.threads if a.shape[1] * m >= _SHARED_FROM // 8 else 1
        if self.int8:
            values, keep = _quantised_room(m, packed)
            what = quantised(self.vectors, kind, form.step, form.planes)
        else:
            wide = room(m, packed.depth)
            values, keep = {"x": wide.ctypes.data, "x_pitch": wide.strides[0]}, wide
            what = widened(self.vectors, kind)
        keep = (a, order, keep)
        arguments = _arguments(like, **where, **values)
        runs: list[Run] = [bind(what, arguments, shares, keep=keep)]
        if not self.unpacks:
            return Rows(values, {}, runs, keep)
        piece, rows = piece_of(self.vectors, packed.block), m + self._tallest
        # Rows past the last are read by its tile, and never written: zeros, as memory is new.
        held = huge(-(-packed.depth // piece) * rows * (piece + APART) * 4)
        pieces = {"x": held.ctypes.data, "x_rows": rows, "depth": packed.depth}
        arguments = _arguments(like, **where, **pieces)
        what, keep = in_pieces(self.vectors, kind, piece), (keep, held)
        runs.append(bind(what, arguments, shares, keep=keep))
        return Rows(values, pieces, runs, keep)

    @property
    def _from_rows(self) -> int:
        return FROM_ROWS[REGISTER[self.vectors]]

    @property
    def _tallest(self) -> int:
        return max(HEIGHTS[REGISTER[self.vectors]])

    def product(
        self, number: int, rows: Rows, weights: Experts, bias: Array, y: Array
    ) -> list[Run]:
        """
        Bind the product of rows, each with its expert's weights.

        Parameters
        ----------
        number
            Of the product in its layer: each has counters.
        bias
            float32, (experts, rows kept for each).
        y
            float32, a row for each place.
        """
        packed, routes, m = weights.packed, self.routes, len(y)
        shares = self.threads if y.size * packed.depth >= _SHARED_FROM else 1
        panels = weights.rows // GROUP * min(weights.experts, m) // (_TURNS * shares)
        where = {
            "starts": routes.starts.ctypes.data, "active": routes.active.ctypes.data,
            "bias": bias.ctypes.data, "b_pitch": bias.strides[0], "y": y.ctypes.data,
        }  # fmt: skip
        arguments = _arguments(
            weights, next_at=routes.counters[number].ctypes.data,
            y_pitch=y.strides[0], per=max(1, panels // WIDE),
            most=self._from_rows - 1 if self.unpacks else m, **where, **rows.values,
        )  # fmt: skip
        what = few_products(self.vectors, packed.form, self.int8)
        keep = (rows.keep, weights, bias, y, routes)
        few = bind(what, arguments, shares, keep=keep)
        if not self.unpacks:
            return [few]
        at = routes.counters[PRODUCTS + number].ctypes.data
        where |= {"next_at": at, "least": self._from_rows, "most": m, **rows.pieces}
        return [few, self._unpacked(weights, panels, shares, where, keep)]

    def _unpacked(
        self,
        weights: Experts,
        panels: int,
        shares: int,
        where: dict[str, int],
        keep: object,
    ) -> Run:
        """Bind the product of experts that have some rows; ``panels`` are groups a turn."""
        packed = weights.packed
        fits, piece = pieces_of(self.vectors), piece_of(self.vectors, packed.block)
        columns = fits.wide * REGISTER[self.vectors]
        stride = 4 * piece * columns + 64  # a cache line apart
        scratch = huge(shares * stride)
        arguments = _arguments(
            weights, scratch=scratch.ctypes.data, stride=stride,
            per=max(1, min(fits.most, panels * GROUP // columns)), block=packed.block, **where,
        )  # fmt: skip
        what = unpacked_products(self.vectors, packed.form, piece, fits.wide)
        return bind(what, arguments, shares, keep=(keep, scratch))


def _quantised_room(m: int, packed: Packed) -> tuple[dict[str, int], object]:
    """Make room for quantised rows, each off the others' cache sets."""
    form = packed.form
    pitch, count = packed.depth + 64, packed.depth // form.step
    codes = np.zeros((m, pitch), np.int8)
    scales, totals = np.zeros((m, count), f4), np.zeros((m, count), np.int32)
    values = {
        "x": codes.ctypes.data, "x_pitch": pitch, "scale": scales.ctypes.data,
        "total": totals.ctypes.data, "s_pitch": 4 * count,
        "factor": factor_of(form),
    }  # fmt: skip
    return values, (codes, scales, totals)


def _arguments(weights: Experts, **values: int) -> Array:
    """Give a command's arguments, those among them that say where weights are."""
    a = np.zeros(len(SLOTS), np.int64)
    where = weights_of(weights.packed)
    groups = weights.rows // GROUP
    where |= {"n": weights.n, "groups": groups, "expert": groups * where["across"]}
    fill(a, SLOTS, **where, **values)
    return a
