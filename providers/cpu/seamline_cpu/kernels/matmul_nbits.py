"""
com.microsoft MatMulNBits: float rows times weights of 2, 4 or 8 bits in blocks.

Row ``n`` of the weights is ``ceil(K / block)`` blocks, each of ``block * bits / 8`` bytes
with the low bits first; its zero points are packed alike and padded to a whole byte for
each row. What lies past K in the last block is never multiplied by anything but zero.

``accuracy_level`` is the least accuracy that will do: at 4 activations may be of 8 bits, and
they are; at 0 to 3 everything is float32. Constant weights are packed once for the session
(:mod:`.nbits_layout`), and the node is then made of compiled commands alone.
"""

from __future__ import annotations

import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.kernels.nbits_choice import choice, forced_by, is_exact, is_int8
from seamline_cpu.kernels.nbits_layout import (
    Packed,
    Source,
    pack,
    packed_nbytes,
    sorted_by_block,
)
from seamline_cpu.kernels.nbits_product import Product, padded_bias
from seamline_cpu.kernels.quantized_fitting import unfit_blocks
from seamline_cpu.kernels.recorded import OF_FLOATS, constant, converted
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["bind_packed", "zero_points"]

f4 = np.float32
_DTYPES = ("float32", "float16", "bfloat16")
_WEIGHTS = (1, 2, 3, 4)  # inputs that packed weights are made from


def zero_points(given: Array | None, bits: int, n: int, blocks: int) -> Array | None:
    """
    Give (N, blocks) zero points: floats as they are, packed ones as uint8.

    A packed row is a whole number of bytes; bits past the last block are ignored.
    """
    if given is None or given.dtype != np.uint8:
        return None if given is None else given.reshape(n, blocks)
    rows: Array = given.reshape(n, -1)
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes = (rows[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(codes.reshape(n, -1)[:, :blocks])


def _packed(call: Call) -> Packed:
    k, n = int(call.attr("K")), int(call.attr("N"))
    bits, block = int(call.attr("bits", 4)), int(call.attr("block_size"))
    blocks, groups, order = -(-k // block), call.input(4), None
    if groups is not None:
        groups = groups.reshape(-1)[:k]
        if groups.size and not 0 <= int(groups.min()) <= int(groups.max()) < blocks:
            raise IndexError(
                f"g_idx holds {groups.min()} to {groups.max()}, and there are {blocks} "
                "blocks"
            )
        order = sorted_by_block(groups, block)
    return pack(
        Source(
            call.input(1).reshape(n, blocks, -1), call.input(2).reshape(n, blocks),
            zero_points(call.input(3), bits, n, blocks), k, bits, order,
        )
    )  # fmt: skip


def _refused(view: NodeView) -> str | None:
    bits = view.attributes.get("bits", 4)
    if bits not in (2, 4, 8):
        return f"weights of {bits} bits are not implemented, only 2, 4 and 8"
    if view.attributes.get("weight_prepacked", 0):
        return "weights packed for another device cannot be read"
    kind = view.tensor(3)
    if kind is not None and kind.dtype not in (*_DTYPES, "uint8"):
        return f"zero points are {kind.dtype}, not uint8 or a float"
    block = view.attributes.get("block_size", 0)
    if block % 16:
        return f"blocks of {block} are not implemented, only multiples of 16"
    kind = view.tensor(4)
    if kind is not None and kind.dtype != "int32":
        return f"g_idx is {kind.dtype}, not int32"
    return None


def _resident(view: NodeView) -> int:
    """Give the bytes of packed weights; none are kept of weights that are fed."""
    given = view.attributes
    known = [view.constant(i) for i in range(5)]
    codes, scales = known[1:3]
    if any(view.has_input(i) and known[i] is None for i in _WEIGHTS):
        return 0
    if codes is None or scales is None or not codes.size:
        return 0
    k, n, block, bits = (
        given.get(name, 4) for name in ("K", "N", "block_size", "bits")
    )
    blocks = -(-k // block)
    zeros = zero_points(known[3], bits, n, blocks)
    if (groups := known[4]) is not None:
        blocks = len(sorted_by_block(groups.reshape(-1)[:k], block)[1])
    return packed_nbytes(n, blocks, block, bits, scales, zeros)


_PACKED = {1: "weight", 2: "scale", 3: "zero point", 4: "g_idx", 5: "bias"}


@TABLE.kernel(
    "MatMulNBits", domain="com.microsoft", dtypes={0: _DTYPES, 1: ("uint8",), 2: _DTYPES},
    when=all_of(_refused, unfit_blocks), resident=_resident,
    not_capturable=all_of(OF_FLOATS, constant(_PACKED), converted()),
)  # fmt: skip
def matmul_nbits(call: Call) -> Run:
    """Bind MatMulNBits: packed once where the weights are constant, else at every run."""
    y, bias = call.output(0), call.input(5)
    if y.size == 0:
        return nothing
    if call.input(1).size == 0:  # an omitted projection
        return lambda: y.fill(0) if bias is None else np.copyto(y, bias)
    given = [i for i in _WEIGHTS if call.view.has_input(i)]
    form = f"nbits {[call.attr(name) for name in ('K', 'N', 'bits', 'block_size')]}"
    if all(call.constant(i) is not None for i in given):
        return _bound(call, call.resident(form, given, lambda: _packed(call)))
    return lambda: _bound(call, _packed(call))()


def _bound(call: Call, packed: Packed) -> Run:
    level = int(call.attr("accuracy_level", 0))
    variant = choice(level, forced_by(call.options)).variant
    threads, exact = threads_of(call.options), is_exact(level)
    product = Product(packed, variant, is_int8(level), threads, exact)
    return bind_packed(call, product, 5)


def bind_packed(call: Call, product: Product, bias_index: int) -> Run:
    """
    Bind a node's product of input 0 by packed weights.

    Parameters
    ----------
    bias_index
        Which input is the bias; copied at each run where it is not constant.
    """
    x, y, bias = call.input(0), call.output(0), call.input(bias_index)
    packed, known = product.packed, call.constant(bias_index)
    runs: list[Run] = []
    if not x.flags.c_contiguous:
        x, strided = np.empty(x.shape, x.dtype), x
        runs.append(lambda: np.copyto(x, strided))
    added = padded_bias(known, len(packed.data))
    if bias is not None and known is None:
        head = added[: bias.size]
        runs.append(lambda: np.copyto(head, bias.reshape(-1), casting="unsafe"))
    rows, out = x.reshape(-1, packed.k), y.reshape(-1, packed.n)
    return in_order([*runs, product.bound(rows, added, out)])
