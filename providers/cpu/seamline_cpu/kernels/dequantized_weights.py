"""
The operands of a DequantizeLinear as the weights that packed products are made from.

DequantizeLinear has codes in an array of their own type, signed or not, as K by N or N by K;
a scale for all, for each of N, or for each block of K. Packed weights want N rows of unsigned
codes in blocks, low bits first. Signed codes get the middle code added, and so do their
zero points. Rows are turned and packed as they are asked for, some at a time.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.fitting import dims, unlike
from seamline.provider import Array, NodeView
from seamline_cpu.kernels.nbits_layout import Source

__all__ = ["BITS", "SCALES", "TABLES", "Form", "form_of", "source_of", "unfit_weights"]

#: Bits of a code, by element type.
BITS = {
    "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8, "float4_e2m1fn": 4,
}  # fmt: skip
TABLES = {"float4_e2m1fn": "e2m1"}  #: whose codes stand for a table's values
SCALES = ("float32", "float16", "bfloat16", "float8_e8m0fnu")
_SIGNED = ("int2", "int4", "int8")
_STEP = 32  # codes that one block is filled up to a multiple of


@attrs.frozen
class Form:
    """
    How codes lie.

    Attributes
    ----------
    turned
        N by K, else K by N.
    blocks
        Of K, each with a scale of its own.
    block
        Codes of K in a block; of a single block, K filled up.
    """

    dtype: str
    n: int
    k: int
    turned: bool
    blocks: int
    block: int

    @property
    def bits(self) -> int:
        """Give the bits of a code."""
        return BITS[self.dtype]


def form_of(view: NodeView) -> Form | None:
    """
    Give the form of inputs 1 to 3 (codes, scale, zero point), or None where sizes are open.

    Attributes: ``axis`` and ``block_size`` as DequantizeLinear's, ``transB`` 1 for N by K.
    """
    kind = view.tensor(1)
    if kind is None or not kind.is_sized or kind.shape is None or len(kind.shape) != 2:
        return None
    turned = bool(view.attributes.get("transB", 0))
    k, n = (int(size) for size in (kind.shape[::-1] if turned else kind.shape))  # type: ignore[arg-type]
    size = int(view.attributes.get("block_size", 0))
    if size and size < k:
        return Form(kind.dtype, n, k, turned, -(-k // size), size)
    return Form(kind.dtype, n, k, turned, 1, -(-k // _STEP) * _STEP)


def unfit_weights(view: NodeView) -> str | None:
    """Refuse codes, scales and zero points that no packed product is made from."""
    kind, form, zero = view.tensor(1), form_of(view), view.tensor(3)
    if kind is None or form is None:
        return f"its codes are {kind}, not a matrix of known sizes"
    if not form.n or not form.k:
        return f"its codes are {kind}: none to pack"
    if view.has_input(3) and kind.dtype in TABLES:
        return f"codes of {kind.dtype} have no zero point"
    if zero is not None and zero.dtype != kind.dtype:
        return f"its codes are {kind.dtype}, and its zero point {zero.dtype}"
    return _unfit_scale(view, form)


def _unfit_scale(view: NodeView, form: Form) -> str | None:
    axis, given = view.attributes.get("axis", 1), view.attributes.get("block_size", 0)
    along_k = axis % 2 == (1 if form.turned else 0)
    if not -2 <= axis <= 1:
        return f"axis {axis} is outside of a matrix"
    single = dims(view, 2) in ((), (1,)) and not given
    if not single and along_k != bool(given):
        return "scales go along the columns of the product, or in blocks along K"
    if form.blocks > 1 and form.block % 16:
        return f"blocks of {form.block} are not implemented, only multiples of 16"
    sizes = (form.n, form.blocks) if form.turned else (form.blocks, form.n)
    shapes = [sizes] if given else [(form.n,)] if not single else [(), (1,)]
    return unlike(view, 2, "scale", *shapes) or unlike(view, 3, "zero point", *shapes)


@attrs.frozen(eq=False)
class _Rows:
    """Rows of packed codes out of a matrix of codes."""

    codes: Array  # bytes, one for each code
    form: Form
    signed: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        form = self.form
        return form.n, form.blocks, form.block * form.bits // 8

    def __getitem__(self, rows: slice, /) -> Array:
        form, bits = self.form, self.form.bits
        some = self.codes[rows] if form.turned else self.codes[:, rows].T
        wide = np.zeros((len(some), form.blocks * form.block), np.uint8)
        np.copyto(wide[:, : form.k], some)
        if self.signed:
            wide[:, : form.k] += np.uint8(1 << (bits - 1))
        wide &= np.uint8((1 << bits) - 1)
        each = 8 // bits
        apart = wide.reshape(len(some), form.blocks, -1, each)
        shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
        packed = np.bitwise_or.reduce(apart << shifts, axis=3)
        return np.asarray(packed, np.uint8)


def source_of(form: Form, codes: Array, scale: Array, zero: Array | None) -> Source:
    """
    Give the weights that :func:`~seamline_cpu.kernels.nbits_layout.pack` packs.

    Parameters
    ----------
    codes
        A matrix of one of the types of :data:`BITS`, one element a byte.
    scale, zero
        One, one for each of N, or one for each block and each of N, laid as ``codes``.
    """
    scales = _by_rows(scale.astype(np.float32, copy=False), form)
    signed, table = form.dtype in _SIGNED, TABLES.get(form.dtype, "")
    zeros = None
    if not table and not (signed and zero is None):
        points = np.zeros(1, np.int16) if zero is None else zero.astype(np.int16)
        points += (1 << (form.bits - 1)) if signed else 0
        zeros = _by_rows(points.astype(np.uint8), form)
    # A signed code's low bits are those of its two's complement.
    rows = _Rows(codes.view(np.uint8), form, signed)
    return Source(rows, scales, zeros, form.k, form.bits, table=table)


def _by_rows(x: Array, form: Form) -> Array:
    """Give what goes with scales as (N, blocks)."""
    if x.size == 1:
        return np.broadcast_to(x.reshape(1, 1), (form.n, form.blocks))
    if x.ndim == 1:
        return np.broadcast_to(x[:, None], (form.n, form.blocks))
    return x if form.turned else x.T
